"""Which marks are found without running a test."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from cocoon_devkit.markers import Proofs, read_proofs


def read(folder: Path, source: str, name: str = "test_it.py") -> Proofs:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(dedent(source), "utf-8")
    return read_proofs(folder)


def ids(folder: Path, source: str) -> dict[str, list[str]]:
    """Return the ids by test, in the shortest form."""
    found = read(folder, source)
    assert found.problems == ()
    return {proof.place.partition("::")[2]: sorted(proof.scenarios) for proof in found.proofs}


def test_a_function_carries_one_id_or_several(tmp_path: Path) -> None:
    source = """
        @pytest.mark.scenario("S001")
        def test_one(): ...

        @pytest.mark.scenario("S002", "N003")
        @pytest.mark.scenario("S004")
        @pytest.mark.asyncio
        async def test_several(): ...

        def test_none(): ...
    """
    assert ids(tmp_path, source) == {"test_one": ["S001"], "test_several": ["N003", "S002", "S004"], "test_none": []}


@pytest.mark.parametrize(
    "statement",
    [
        'pytestmark = pytest.mark.scenario("S001")',
        'pytestmark = [pytest.mark.asyncio, pytest.mark.scenario("S001")]',
        'pytestmark: list[object] = [pytest.mark.scenario("S001")]',
    ],
)
def test_a_mark_of_the_module_hangs_on_every_test(tmp_path: Path, statement: str) -> None:
    source = f"""
        {statement}

        @pytest.mark.scenario("S002")
        def test_a(): ...

        class TestB:
            def test_b(self): ...
    """
    assert ids(tmp_path, source) == {"test_a": ["S001", "S002"], "TestB::test_b": ["S001"]}


def test_a_mark_of_a_class_hangs_on_its_tests_alone(tmp_path: Path) -> None:
    source = """
        @pytest.mark.scenario("S001")
        class TestOuter:
            pytestmark = [pytest.mark.scenario("S002")]

            def test_a(self): ...

            class TestInner:
                @pytest.mark.scenario("S003")
                def test_b(self): ...

        def test_c(): ...
    """
    assert ids(tmp_path, source) == {
        "TestOuter::test_a": ["S001", "S002"],
        "TestOuter::TestInner::test_b": ["S001", "S002", "S003"],
        "test_c": [],
    }


def test_a_mark_of_a_parameter_counts_for_its_test(tmp_path: Path) -> None:
    source = """
        @pytest.mark.parametrize("x", [
            pytest.param(1, marks=pytest.mark.scenario("S001")),
            pytest.param(2, marks=[pytest.mark.scenario("S002")]),
        ])
        def test_a(x): ...
    """
    assert ids(tmp_path, source) == {"test_a": ["S001", "S002"]}


def test_marks_behind_a_name_count_where_the_name_is_used(tmp_path: Path) -> None:
    source = """
        CASES = [pytest.param(1, marks=pytest.mark.scenario("S001"))]
        both = pytest.mark.scenario("S002", "S003")

        @pytest.mark.parametrize("x", CASES)
        def test_a(x): ...

        @both
        def test_b(): ...

        def test_c(): ...
    """
    assert ids(tmp_path, source) == {"test_a": ["S001"], "test_b": ["S002", "S003"], "test_c": []}


def test_a_test_class_can_be_made_by_an_assignment(tmp_path: Path) -> None:
    source = """
        class Machine: ...

        TestMachine = pytest.mark.scenario("S001")(Machine.TestCase)
    """
    assert ids(tmp_path, source) == {"TestMachine": ["S001"]}


def test_a_test_that_does_not_run_proves_nothing(tmp_path: Path) -> None:
    source = """
        @pytest.mark.scenario("S001")
        @pytest.mark.skip(reason="later")
        def test_a(): ...

        @pytest.mark.xfail
        @pytest.mark.scenario("S002")
        def test_b(): ...

        @pytest.mark.skip
        class TestC:
            @pytest.mark.scenario("S003")
            def test_c(self): ...
    """
    assert ids(tmp_path, source) == {}


def test_what_pytest_does_not_collect_proves_nothing(tmp_path: Path) -> None:
    marked = '@pytest.mark.scenario("S001")\ndef {name}(): ...\n'
    assert ids(tmp_path, marked.format(name="helper")) == {}
    (tmp_path / "test_it.py").unlink()
    assert read(tmp_path, marked.format(name="test_a"), "support.py").proofs == ()


def test_a_mark_of_another_name_is_no_scenario(tmp_path: Path) -> None:
    source = """
        @pytest.mark.usefixtures("S001")
        @given(scenario("S002"))
        def test_a(): ...
    """
    assert ids(tmp_path, source) == {"test_a": []}


@pytest.mark.parametrize("argument", ["*IDS", "ID", 'f"S{1:03}"', "7"])
def test_an_id_that_is_not_written_out_is_wrong(tmp_path: Path, argument: str) -> None:
    found = read(tmp_path, f"@pytest.mark.scenario({argument})\ndef test_a(): ...\n")
    assert found.problems == ("test_it.py:1: ids have to be written out",)


def test_weaknesses_are_in_the_name(tmp_path: Path) -> None:
    source = """
        def test_w08_a_failure_is_forgotten(): ...
        async def test_w08_w39_both_at_once(): ...
        def test_w8_too_short(): ...
        def test_the_w08_is_not_in_front(): ...

        class TestW09:
            def test_w10_in_a_class(self): ...
    """
    found = read(tmp_path, source).proofs
    assert [sorted(proof.weaknesses) for proof in found] == [["W-08"], ["W-08", "W-39"], [], [], ["W-10"]]


def test_places_are_told_as_pytest_tells_them(tmp_path: Path) -> None:
    found = read(tmp_path, "class TestB:\n    def test_a(self): ...\n", "unit/deep/test_x.py")
    assert [proof.place for proof in found.proofs] == ["unit/deep/test_x.py::TestB::test_a"]
