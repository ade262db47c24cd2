"""What the CRD refuses of a CocoonSet, each rule with an object that keeps it and one that breaks it."""

from __future__ import annotations

from typing import Any

import pytest
from asking import Asking, create
from candidates import Obj, cocoon_set

Specs = tuple[Obj, ...]

DIGEST = "team/base@sha256:" + "a" * 64
FIRECRACKER = {"backend": "firecracker", "mode": "run"}
NO_WINDOWS = "must not be windows: backend firecracker has no windows guests"
NO_URL = "must not be a URL: backend firecracker takes images from a registry only"
NO_CLONE = "must be run: backend firecracker cannot clone"
REPOSITORY = "must be repository[:tag], lower case and without a registry's port or a digest, since mode is clone"
SAME_BACKEND = "every toolbox that is not static must have the backend of the agent"


def agent(**fields: Any) -> Obj:
    return {"agent": {"image": "team/base:1", **fields}}


def box(**fields: Any) -> Obj:
    return {**agent(), "toolboxes": [{"name": "db", "image": "team/db:1", **fields}]}


def boxes(*names: str) -> Obj:
    return {**agent(), "toolboxes": [{"name": name, "image": "team/db:1"} for name in names]}


def static(**fields: Any) -> Obj:
    complete = {"name": "rack", "mode": "static", "staticIP": "10.0.0.9", "staticVMID": "rack-1"}
    fields = {**complete, **fields}
    return {**agent(), "toolboxes": [{key: value for key, value in fields.items() if value is not None}]}


def fire(**fields: Any) -> Obj:
    """A set whose agent runs on firecracker, with a toolbox of these fields."""
    return {**box(**fields), **agent(**FIRECRACKER)}


def rule(*ids: pytest.MarkDecorator, keeps: Specs, breaks: Specs, field: str, words: str = "") -> Any:
    return pytest.param(keeps, breaks, field, words, marks=ids, id=f"{ids[0].args[0]}-{field}")


RULES = [
    rule(
        pytest.mark.scenario("CS-2", "V30"),
        keeps=(agent(),),
        breaks=({"agent": "team/base:1"}, {"agent": ["team/base:1"]}),
        field="spec.agent",
        words="must be of type object",
    ),
    rule(
        pytest.mark.scenario("CS-10", "V31"),
        keeps=(agent(image="x"),),
        breaks=(agent(image=""), {"agent": {}}),
        field="spec.agent.image",
    ),
    rule(
        pytest.mark.scenario("CS-11", "V32"),
        keeps=(agent(replicas=0), agent(replicas=3)),
        breaks=(agent(replicas=-1),),
        field="spec.agent.replicas",
    ),
    rule(
        pytest.mark.scenario("CS-12", "V33"),
        keeps=(agent(mode="clone"), agent(mode="run")),
        breaks=(agent(mode="static"), agent(mode="Run")),
        field="spec.agent.mode",
        words='supported values: "clone", "run"',
    ),
    rule(
        pytest.mark.scenario("CS-13", "V62"),
        keeps=tuple(agent(os=name) for name in ("linux", "windows", "android", "macos")),
        breaks=(agent(os="freebsd"),),
        field="spec.agent.os",
        words='"macos"',
    ),
    rule(
        pytest.mark.scenario("CS-14", "V54"),
        keeps=tuple(agent(connType=name) for name in ("ssh", "rdp", "vnc", "adb")),
        breaks=(agent(connType="telnet"),),
        field="spec.agent.connType",
    ),
    rule(
        pytest.mark.scenario("CS-15", "V53"),
        keeps=(agent(backend="cloud-hypervisor"), agent(**FIRECRACKER)),
        breaks=(agent(backend="qemu"),),
        field="spec.agent.backend",
    ),
    rule(
        pytest.mark.scenario("CS-16", "V51"),
        keeps=(agent(os="windows"), agent(**FIRECRACKER, os="android")),
        breaks=(agent(**FIRECRACKER, os="windows"),),
        field="spec.agent.os",
        words=NO_WINDOWS,
    ),
    rule(
        pytest.mark.scenario("CS-17", "V47", "V52"),
        keeps=(agent(**FIRECRACKER, image="ghcr.io/x/y:1"), agent(mode="run", image="https://example.com/disk.img")),
        breaks=tuple(agent(**FIRECRACKER, image=f"{kind}://example.com/disk.img") for kind in ("http", "https")),
        field="spec.agent.image",
        words=NO_URL,
    ),
    rule(
        pytest.mark.scenario("CS-18", "V48", "V49"),
        keeps=(agent(**FIRECRACKER), agent(mode="clone")),
        breaks=(agent(backend="firecracker", mode="clone"), agent(backend="firecracker")),
        field="spec.agent.mode",
        words=NO_CLONE,
    ),
    rule(
        pytest.mark.scenario("CS-19", "V34", "V35", "V36"),
        keeps=(
            *(agent(image=image) for image in ("a", "ghcr.io/x/y:24.04", "a_b/c__d/e---f.g:_T.-x", "a:" + "t" * 128)),
            *(agent(mode="run", image=image) for image in (DIGEST, "registry:5000/x:1", "Any Thing")),
        ),
        breaks=tuple(
            agent(image=image)
            for image in (
                *(DIGEST, "registry:5000/x", "registry:5000/x:1", "https://example.com/x", "Team/base", "team/base:"),
                *("/team", "team/", "a//b", "a..b", "a___b", "-a", "a:" + "t" * 129, "a:-t", "a b", "a\n"),
            )
        ),
        field="spec.agent.image",
        words=REPOSITORY,
    ),
    rule(
        pytest.mark.scenario("CS-30"),
        keeps=(boxes("a"),),
        breaks=(boxes(""), {**agent(), "toolboxes": [{"image": "x"}]}),
        field="spec.toolboxes[0].name",
    ),
    rule(
        pytest.mark.scenario("CS-31", "V39"),
        keeps=(boxes("a-1"), boxes("a" * 63)),
        breaks=(boxes("A"), boxes("a_b"), boxes("-a"), boxes("a-"), boxes("a.b"), boxes("a" * 64)),
        field="spec.toolboxes[0].name",
    ),
    rule(
        pytest.mark.scenario("CS-32", "V40"),
        keeps=(boxes("0a"), boxes("1-1")),
        breaks=(boxes("0"), boxes("007"), boxes("9" * 40), static(name="1")),
        field="spec.toolboxes[0].name",
        words="must not be a number: numbers are the agents' slots",
    ),
    rule(
        pytest.mark.scenario("CS-33", "V38"),
        keeps=(boxes("a", "b", "ab"),),
        breaks=(boxes("a", "b", "a"), boxes("a", "a")),
        field="spec.toolboxes",
        words="every name must be given only once",
    ),
    rule(
        pytest.mark.scenario("CS-34"),
        keeps=(box(mode="run"), box(mode="clone"), static()),
        breaks=(box(mode="fork"),),
        field="spec.toolboxes[0].mode",
        words='"static"',
    ),
    rule(
        pytest.mark.scenario("CS-35", "V41", "V42"),
        keeps=(static(), box()),
        breaks=(static(staticIP=None), static(staticIP="")),
        field="spec.toolboxes[0].staticIP",
        words="is required in mode static",
    ),
    rule(
        pytest.mark.scenario("CS-36", "V41", "V42"),
        keeps=(static(), box()),
        breaks=(static(staticVMID=None), static(staticVMID="")),
        field="spec.toolboxes[0].staticVMID",
        words="is required in mode static",
    ),
    rule(
        pytest.mark.scenario("CS-37", "V56", "V57"),
        keeps=(
            static(connType="rdp"),
            static(backend="firecracker", os="windows", image="https://example.com/x"),
            static(backend="firecracker", image=DIGEST),
        ),
        breaks=(static(connType="telnet"), box(connType="telnet")),
        field="spec.toolboxes[0].connType",
    ),
    rule(
        pytest.mark.scenario("CS-38", "V43"),
        keeps=(static(image=None), static(image=""), box(mode="clone")),
        breaks=(box(image=""), box(image="", mode="clone"), {**agent(), "toolboxes": [{"name": "db"}]}),
        field="spec.toolboxes[0].image",
        words="is required in the modes run and clone",
    ),
    rule(
        pytest.mark.scenario("CS-39"),
        keeps=(box(os="macos"),),
        breaks=(box(os="freebsd"),),
        field="spec.toolboxes[0].os",
    ),
    rule(
        pytest.mark.scenario("CS-39"),
        keeps=(box(backend="cloud-hypervisor"),),
        breaks=(box(backend="qemu"),),
        field="spec.toolboxes[0].backend",
    ),
    rule(
        pytest.mark.scenario("CS-40", "V51"),
        keeps=(fire(backend="firecracker"),),
        breaks=(fire(backend="firecracker", os="windows"),),
        field="spec.toolboxes[0].os",
        words=NO_WINDOWS,
    ),
    rule(
        pytest.mark.scenario("CS-40", "V52"),
        keeps=(box(image="https://example.com/x"),),
        breaks=(fire(backend="firecracker", image="https://example.com/x"),),
        field="spec.toolboxes[0].image",
        words=NO_URL,
    ),
    rule(
        pytest.mark.scenario("CS-41", "V55", "V56"),
        keeps=(
            box(),
            fire(backend="firecracker"),
            {**static(backend="firecracker")},
            {**static(), **agent(**FIRECRACKER)},
        ),
        breaks=(fire(), box(backend="firecracker")),
        field="spec.toolboxes",
        words=SAME_BACKEND,
    ),
    rule(
        pytest.mark.scenario("CS-42", "V50"),
        keeps=(fire(backend="firecracker"), fire(backend="firecracker", mode="run")),
        breaks=(fire(backend="firecracker", mode="clone"),),
        field="spec.toolboxes[0].mode",
        words=NO_CLONE,
    ),
    rule(
        pytest.mark.scenario("CS-43", "V37"),
        keeps=(box(mode="clone", image="ghcr.io/x/y:1"), box(image="registry:5000/x"), box(image=DIGEST)),
        breaks=(box(mode="clone", image="registry:5000/x"), box(mode="clone", image=DIGEST)),
        field="spec.toolboxes[0].image",
        words=REPOSITORY,
    ),
    rule(
        pytest.mark.scenario("CS-50", "V44"),
        keeps=tuple({**agent(), "snapshotPolicy": policy} for policy in ("always", "main-only", "never")),
        breaks=({**agent(), "snapshotPolicy": "sometimes"},),
        field="spec.snapshotPolicy",
    ),
    rule(
        pytest.mark.scenario("CS-51", "V45"),
        keeps=tuple({**agent(), "hibernatePolicy": policy} for policy in ("retain", "release")),
        breaks=({**agent(), "hibernatePolicy": "relase"},),
        field="spec.hibernatePolicy",
    ),
    rule(
        pytest.mark.scenario("CS-52", "V63"),
        keeps=({**agent(replicas=0), "hibernatePolicy": "release", "toolboxes": []}, agent(replicas=1)),
        breaks=({**agent(replicas=1), "hibernatePolicy": "release"}, {**box(), "hibernatePolicy": "release"}),
        field="spec",
        words="hibernatePolicy=release requires agent.replicas=0 and no toolboxes",
    ),
    rule(
        pytest.mark.scenario("CS-54"),
        keeps=(agent(probePort=0), agent(probePort=65535)),
        breaks=(agent(probePort=-1), agent(probePort=65536)),
        field="spec.agent.probePort",
    ),
    rule(
        pytest.mark.scenario("CS-54"),
        keeps=(static(vncPort=5901), box(probePort=1)),
        breaks=(static(vncPort=65536),),
        field="spec.toolboxes[0].vncPort",
    ),
    rule(
        pytest.mark.scenario("CS-55", "V46"),
        keeps=(agent(storage="100Gi"), agent(storage=1), agent(storage="1.5Gi")),
        breaks=(agent(storage="100GB"), agent(storage="much")),
        field="spec.agent.storage",
    ),
]


@pytest.mark.parametrize(("keeps", "breaks", "field", "words"), RULES)
def test_a_rule_lets_through_and_refuses_with_the_field(
    ask: Asking, keeps: Specs, breaks: Specs, field: str, words: str
) -> None:
    for spec in keeps:
        ask.allows(create({**cocoon_set("default"), "spec": spec}))
    for spec in breaks:
        refusal = ask.refuses(create({**cocoon_set("default"), "spec": spec}))
        assert (refusal.code, refusal.reason) == (422, "Invalid")
        assert field in refusal.fields
        assert words in refusal.message


@pytest.mark.scenario("CS-10", "V61")
def test_w61_a_set_without_a_spec_is_refused(ask: Asking) -> None:
    without = cocoon_set("default")
    del without["spec"]
    assert ask.refuses(create(without)).message.endswith(" is invalid: spec: Required value: must be given")


@pytest.mark.scenario("CS-37", "V57")
def test_an_unknown_connection_is_told_once(ask: Asking) -> None:
    refusal = ask.refuses(create({**cocoon_set("default"), "spec": static(connType="telnet", staticIP="")}))
    assert refusal.fields.count("spec.toolboxes[0].connType") == 1


@pytest.mark.scenario("CS-4", "V60")
def test_what_is_wrong_is_told_in_one_answer(ask: Asking) -> None:
    """All of what rules say; of what types say, too, but then the rules are not asked."""
    spec = {
        **agent(backend="firecracker", os="windows", image="https://example.com/x"),
        "toolboxes": [{"name": "a", "backend": "firecracker"}, {"name": "1", "mode": "static"}],
    }
    message = ask.refuses(create({**cocoon_set("default"), "spec": spec})).message
    for words in (
        f"spec.agent.os: Forbidden: {NO_WINDOWS}",
        f"spec.agent.image: Forbidden: {NO_URL}",
        f"spec.agent.mode: Forbidden: {NO_CLONE}",
        f"spec.agent.image: Invalid value: {REPOSITORY}",
        "spec.toolboxes[0].image: Required value: is required in the modes run and clone",
        "spec.toolboxes[1].name: Invalid value: must not be a number",
        "spec.toolboxes[1].staticIP: Required value: is required in mode static",
        "spec.toolboxes[1].staticVMID: Required value: is required in mode static",
    ):
        assert message.count(words) == 1
    of_types = ask.refuses(create({**cocoon_set("default"), "spec": agent(os="freebsd", mode="fork")}))
    assert {"spec.agent.os", "spec.agent.mode"} <= set(of_types.fields)


def test_the_largest_set_that_the_bounds_allow_can_be_judged(ask: Asking) -> None:
    """The API server gives up on rules that cost too much; these do not, whatever their input."""
    widest = {"mode": "clone", "image": "x/" * 2047 + "x"}
    names = [f"{index:03}-".ljust(63, "x") for index in range(128)]
    spec = {**agent(image=widest["image"]), "toolboxes": [{"name": name, **widest} for name in names]}
    ask.allows(create({**cocoon_set("default"), "spec": spec}))
    longer = agent(image="x" * 4097)
    assert "spec.agent.image: Too long" in ask.refuses(create({**cocoon_set("default"), "spec": longer})).message
    more = {**agent(), "toolboxes": [{"name": f"t{index}", "image": "x"} for index in range(129)]}
    assert "spec.toolboxes: Too many" in ask.refuses(create({**cocoon_set("default"), "spec": more})).message
