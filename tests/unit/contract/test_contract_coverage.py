"""The table of ``make contract``, and what the checkout itself has to keep."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cocoon_devkit.contract import Coverage, main, record, survey
from cocoon_devkit.scenarios import IDS, Contract


def coverage(
    *,
    scenarios: dict[str, bool] | None = None,
    proofs: dict[str, list[str]] | None = None,
    fixes: dict[str, list[str]] | None = None,
    closed: tuple[str, ...] = (),
) -> Coverage:
    listed = scenarios if scenarios is not None else {"N001": False, "N019": True, "S001": False, "S002": False}
    return Coverage(Contract(listed, ("W-01", "W-02"), ()), proofs or {}, fixes or {}, closed, ())


def test_the_closing_line_counts_without_background() -> None:
    found = coverage(proofs={"S002": ["a::test"], "N019": ["a::test"]})
    assert found.summary() == "S: 1/2 tested, N: 0/1 tested, V: 0/0 tested, rules: 0/0 tested"


def test_a_row_says_id_state_and_tests() -> None:
    found = coverage(
        proofs={"S001": ["a::test_1", "b::test_2"], "N019": ["a::test_1"]}, fixes={"W-02": ["a::test_w02_x"]}
    )
    assert list(found.scenario_rows()) == [
        ("N001", "open", ()),
        ("N019", "background", ["a::test_1"]),
        ("S001", "tested", ["a::test_1", "b::test_2"]),
        ("S002", "open", ()),
    ]
    assert list(found.weakness_rows()) == [("W-01", "open", ()), ("W-02", "tested", ["a::test_w02_x"])]


def test_an_id_that_the_contract_does_not_list_is_wrong() -> None:
    found = coverage(proofs={"S999": ["a::test"]}, fixes={"W-99": ["b::test_w99_x"]})
    assert list(found.problems()) == [
        "a::test: docs/contract does not list S999",
        "b::test_w99_x: docs/contract does not list W-99",
    ]


def test_a_closed_scenario_that_lost_its_test_is_wrong() -> None:
    found = coverage(proofs={"S001": ["a::test"]}, closed=("N001", "S001"))
    assert list(found.problems()) == ["N001 is closed, but no test carries its id any more"]


def test_a_tested_scenario_that_is_not_recorded_is_wrong_until_it_is(tmp_path: Path) -> None:
    found = coverage(proofs={"S002": ["a::test"], "S001": ["a::test"]}, closed=("S002",))
    assert [problem.partition(";")[0] for problem in found.problems()] == ["tested, but not in closed.txt: S001"]
    record(found, tmp_path)
    assert (tmp_path / "closed.txt").read_text("utf-8") == "S001\nS002\n"


def test_a_record_out_of_order_is_wrong() -> None:
    found = coverage(proofs={"S001": ["a::test"], "S002": ["a::test"]}, closed=("S002", "S001"))
    assert [problem.partition(":")[0] for problem in found.problems()] == ["closed.txt is not sorted"]


def test_both_sides_are_read_from_their_folders(tmp_path: Path) -> None:
    docs, tests = tmp_path / "docs", tmp_path / "tests"
    docs.mkdir()
    tests.mkdir()
    (docs / "a.md").write_text("* **S001** Then.\n| W-01 | it drops |\n", "utf-8")
    (docs / "closed.txt").write_text("S001\n", "utf-8")
    (tests / "test_a.py").write_text('@pytest.mark.scenario("S001")\ndef test_w01_a(): ...\n', "utf-8")
    found = survey(docs, tests)
    assert (found.tested, found.closed) == (("S001",), ("S001",))
    assert found.fixes == {"W-01": ["test_a.py::test_w01_a"]}


# -- the checkout ------------------------------------------------------------------------------------------------------


def test_the_contract_is_whole_and_every_id_in_a_test_is_in_it() -> None:
    """Also: no scenario that had a test has lost it, and none that has one is unrecorded."""
    assert list(survey().problems()) == []


def test_what_is_background_and_that_all_others_count() -> None:
    contract = survey().contract
    background = [name for name, is_background in contract.scenarios.items() if is_background]
    of_a_webhook = ["G-3", "G-4", "G-5", "PO-2", "WL-7"]
    of_older_agents = ["N019", "N028", "N052", "N089", "N116", "N166", "N196"]
    assert background == sorted([*of_a_webhook, *of_older_agents])
    counted = {name for kind in IDS for name in contract.counted(kind)}
    assert counted == {name for names in IDS.values() for name in names} - set(background)


def test_every_rule_and_scenario_of_admission_has_a_test() -> None:
    found = survey()
    counted = {*found.contract.counted("rules"), *found.contract.counted("V")}
    assert counted - set(found.tested) == set()


def test_the_weaknesses_are_all_listed() -> None:
    contract = survey().contract
    assert contract.weaknesses == tuple(f"W-{number:02}" for number in range(1, 64))


def test_the_command_prints_both_tables_and_closes_with_the_counts(capsys: pytest.CaptureFixture[str]) -> None:
    code = main([])
    lines = capsys.readouterr().out.splitlines()
    rows = {line.split()[0]: line.split()[1] for line in lines if re.match(r"(?:[A-Z]{1,2}-|[SNV])[0-9]+ ", line)}
    found = survey()
    assert rows.keys() == {*found.contract.scenarios, *found.contract.weaknesses}
    assert {name for name, state in rows.items() if state == "tested" and name[0] == "S"} <= set(found.tested)
    assert lines[-1] == found.summary()
    assert code == (1 if list(found.problems()) else 0)
