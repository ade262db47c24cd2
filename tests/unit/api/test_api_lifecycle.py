"""What the node agent says, read and written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cocoon_operator.api import keys
from cocoon_operator.api.lifecycle import Lifecycle, RuntimeInfo, is_terminal
from cocoon_operator.api.marks import apply
from cocoon_operator.api.pod import ContainerStatus, Metadata, Pod, PodCondition, PodStatus

_GARBAGE = st.dictionaries(
    st.sampled_from(
        [
            keys.LIFECYCLE_STATE,
            keys.LIFECYCLE_GENERATION,
            keys.LIFECYCLE_MESSAGE,
            keys.VM_ID,
            keys.VM_IP,
            keys.VNC_PORT,
            "x",
        ]
    ),
    st.text(),
)


@pytest.mark.scenario("S025")
def test_the_triple_is_read() -> None:
    assert Lifecycle.read({}) == Lifecycle("", 0, "")
    annotations = {
        "vm.cocoonstack.io/lifecycle-state": "ready",
        "vm.cocoonstack.io/lifecycle-observed-generation": "11",
        "vm.cocoonstack.io/lifecycle-state-message": "ok",
    }
    assert Lifecycle.read(annotations) == Lifecycle("ready", 11, "ok")
    assert Lifecycle.read({**annotations, keys.LIFECYCLE_GENERATION: "eleven"}).observed_generation == 0


@pytest.mark.scenario("S026")
def test_the_writer_puts_state_and_generation_together_and_removes_an_empty_message() -> None:
    assert Lifecycle("failed", 3, "no disk").to_patch() == {
        keys.LIFECYCLE_STATE: "failed",
        keys.LIFECYCLE_GENERATION: "3",
        keys.LIFECYCLE_MESSAGE: "no disk",
    }
    assert Lifecycle("ready", 3).to_patch()[keys.LIFECYCLE_MESSAGE] is None


@given(
    _GARBAGE,
    st.builds(Lifecycle, st.text(min_size=1), st.integers(-(2**63), 2**63 - 1), st.text()),
)
def test_what_was_written_over_anything_is_read_back(before: dict[str, str], triple: Lifecycle) -> None:
    assert Lifecycle.read(apply(before, triple.to_patch())) == triple


@pytest.mark.scenario("S027")
@pytest.mark.parametrize(
    ("state", "waitable"),
    [
        ("ready", True),
        ("hibernated", True),
        ("failed", True),
        ("creating", False),
        ("hibernating", False),
        ("", False),
        ("Ready", False),
        ("unheard-of", False),
    ],
)
def test_the_states_that_one_waits_for(state: str, waitable: bool) -> None:
    assert Lifecycle(state).waitable is waitable


_TRIPLES = st.builds(Lifecycle, st.text(max_size=4), st.integers(0, 3), st.text(max_size=4))


@pytest.mark.scenario("S027")
@given(_TRIPLES, _TRIPLES)
def test_the_comparison_key_is_equal_for_equal_triples_only(left: Lifecycle, right: Lifecycle) -> None:
    assert (left.key == right.key) is (left == right)


@pytest.mark.scenario("S027")
def test_the_comparison_key_does_not_collide_at_separators() -> None:
    triples = [Lifecycle("a", 1, "b"), Lifecycle('a",1,"b', 1, ""), Lifecycle("a/1", 1, "b"), Lifecycle("a", 1, "/b")]
    assert len({triple.key for triple in triples}) == len(triples)


@pytest.mark.scenario("S029")
def test_the_runtime_triple_round_trips() -> None:
    info = RuntimeInfo("vm-1", "10.0.0.9", 5901)
    assert info.to_annotations() == {
        "vm.cocoonstack.io/id": "vm-1",
        "vm.cocoonstack.io/ip": "10.0.0.9",
        "vm.cocoonstack.io/vnc-port": "5901",
    }
    assert RuntimeInfo.read(info.to_annotations()) == info
    assert keys.VNC_PORT not in RuntimeInfo("vm-1", "10.0.0.9", 0).to_annotations()


@pytest.mark.scenario("S029")
@pytest.mark.parametrize("port", ["", "x", "-1", "0", "1.5", "5_901", "99999999999"])
def test_a_malformed_vnc_port_reads_as_0(port: str) -> None:
    assert RuntimeInfo.read({keys.VNC_PORT: port}).vnc_port == 0


@given(_GARBAGE, st.builds(RuntimeInfo, st.text(), st.text(), st.integers(0, 2**31 - 1)))
def test_the_runtime_triple_written_over_anything_is_read_back(before: dict[str, str], info: RuntimeInfo) -> None:
    assert RuntimeInfo.read(apply(before, info.to_patch())) == info


@given(_GARBAGE)
def test_garbage_never_raises(annotations: dict[str, str]) -> None:
    assert Lifecycle.read(annotations).state == annotations.get(keys.LIFECYCLE_STATE, "")
    assert 0 <= RuntimeInfo.read(annotations).vnc_port < 2**31


def _pod(phase: str = "", *, conditions: tuple[tuple[str, str], ...] = (), lifecycle: str = "") -> Pod:
    return Pod(
        metadata=Metadata(annotations={keys.LIFECYCLE_STATE: lifecycle} if lifecycle else {}),
        status=PodStatus(
            phase=phase, conditions=[PodCondition(type=kind, status=status) for kind, status in conditions]
        ),
    )


@pytest.mark.scenario("S037")
@pytest.mark.parametrize(
    ("conditions", "ready"),
    [((), False), ((("Ready", "True"),), True), ((("Ready", "False"),), False), ((("Initialized", "True"),), False)],
)
def test_a_pod_is_ready_by_its_condition_only(conditions: tuple[tuple[str, str], ...], ready: bool) -> None:
    assert _pod("Running", conditions=conditions).ready is ready


@pytest.mark.scenario("S037")
@pytest.mark.parametrize(
    ("phase", "lifecycle", "terminal"),
    [
        ("Failed", "", True),
        ("Succeeded", "", False),
        ("Running", "", False),
        ("", "", False),
        ("Running", "failed", True),
        ("Running", "Failed", False),
        ("Running", "hibernated", False),
    ],
)
def test_only_failed_is_terminal(phase: str, lifecycle: str, terminal: bool) -> None:
    assert is_terminal(_pod(phase, lifecycle=lifecycle)) is terminal


@pytest.mark.scenario("S038")
@pytest.mark.parametrize(
    ("states", "running"),
    [
        ([], False),
        ([{"waiting": {}}], False),
        ([{"terminated": {}}], False),
        ([{"waiting": {}}, {"running": {}}], True),
    ],
)
def test_a_running_container_counts_and_a_waiting_one_does_not(states: list[dict[str, object]], running: bool) -> None:
    statuses = [ContainerStatus(name=str(index), state=state) for index, state in enumerate(states)]
    assert Pod(status=PodStatus(container_statuses=statuses)).running is running
