"""What the contract's text lists, as ``make contract`` reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cocoon_devkit.scenarios import IDS, Contract, read_contract


def write(folder: Path, name: str, *lines: str) -> None:
    (folder / name).write_text("\n".join(lines) + "\n", "utf-8")


def whole(folder: Path) -> None:
    """Write down every id there is."""
    for kind, names in IDS.items():
        form = "| {} | it holds |" if kind == "rules" else "* **{}** Then it holds."
        write(folder, f"{kind}.md", *(form.format(name) for name in names))


def problems_of(folder: Path) -> tuple[str, ...]:
    return read_contract(folder).problems


def test_every_id_of_a_whole_contract_is_found(tmp_path: Path) -> None:
    whole(tmp_path)
    contract = read_contract(tmp_path)
    assert contract.problems == ()
    counts = {kind: len(contract.counted(kind)) for kind in IDS}
    assert counts == {"S": 330, "N": 204, "V": 67, "rules": 68}
    assert {name: contract.counted(name) for name in IDS} == IDS


@pytest.mark.parametrize(
    "line",
    ["* **S001** Given a set.", "- **S001 A title.** Given a set.", "* **S001** Given *emphasis* and **bold**."],
)
def test_an_id_is_listed_at_the_start_of_an_item(tmp_path: Path, line: str) -> None:
    write(tmp_path, "a.md", line)
    assert list(read_contract(tmp_path).scenarios) == ["S001"]


@pytest.mark.parametrize(
    "line",
    [
        "* see **S001**",
        "S001 is explained elsewhere",
        "| S001 | in a table |",
        "* **PO-1** in a list",
        "| PO-1 to PO-8 | several in a row |",
        "| of PO-1 | later in a row |",
        "  * **S001** deeper in a list",
        "**S001**",
    ],
)
def test_an_id_that_is_only_spoken_of_is_not_listed(tmp_path: Path, line: str) -> None:
    write(tmp_path, "a.md", line)
    assert read_contract(tmp_path).scenarios == {}


def test_background_is_listed_and_does_not_count(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "- **N019 Old agents.** *(background)* Given one.", "- **N020 New agents.** Given one.")
    contract = read_contract(tmp_path)
    assert contract.scenarios == {"N019": True, "N020": False}
    assert contract.counted("N") == ("N020",)


def test_a_rule_of_admission_is_the_row_of_a_table(tmp_path: Path) -> None:
    write(
        tmp_path,
        "a.md",
        "| CS-10 | `spec.agent.image` | non-empty |",
        "| G-4 | a body *(background)* |",
        "* **V01** A pod.",
    )
    contract = read_contract(tmp_path)
    assert contract.scenarios == {"CS-10": False, "G-4": True, "V01": False}
    assert (contract.counted("rules"), contract.counted("V")) == (("CS-10",), ("V01",))


def test_an_id_that_is_listed_twice_is_wrong_in_one_file_and_in_two(tmp_path: Path) -> None:
    whole(tmp_path)
    write(tmp_path, "again.md", "* **S005** Then it holds.", "* **N007** Then it holds.", "* **N007** Then it holds.")
    assert problems_of(tmp_path) == (
        "again.md:1: S005 is listed twice",
        "again.md:2: N007 is listed twice",
        "again.md:3: N007 is listed twice",
    )


def test_an_id_that_is_missing_and_one_too_many_are_wrong(tmp_path: Path) -> None:
    whole(tmp_path)
    text = (tmp_path / "S.md").read_text("utf-8")
    write(tmp_path, "S.md", text.replace("**S042**", "**S331**"))
    assert problems_of(tmp_path) == ("S042 is not listed", "S331 is listed, but there is no such number")


def test_weaknesses_are_the_rows_of_a_table(tmp_path: Path) -> None:
    write(tmp_path, "w.md", "| W-02 | it forgets |", "| W-01 | it drops |", "W-03 is spoken of", "| # | W-04 |")
    assert read_contract(tmp_path).weaknesses == ("W-01", "W-02")


def test_a_weakness_that_is_listed_twice_is_wrong(tmp_path: Path) -> None:
    whole(tmp_path)
    write(tmp_path, "w.md", "| W-01 | it drops |", "| W-01 | it drops again |")
    assert problems_of(tmp_path) == ("w.md:2: W-01 is listed twice, at first in w.md:1",)


def test_a_folder_without_text_lists_nothing_and_says_so(tmp_path: Path) -> None:
    contract = read_contract(tmp_path)
    assert contract == Contract({}, (), contract.problems)
    assert len(contract.problems) == sum(map(len, IDS.values()))
