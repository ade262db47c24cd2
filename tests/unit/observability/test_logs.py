"""What a log line looks like, to people and to machines, and what is never in one."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).with_name("loglines.py")


@functools.cache
def run(form: str, level: str = "info") -> tuple[str, str]:
    """What the script prints: standard output and standard error."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), form, level], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout, done.stderr


def told(level: str = "info") -> list[dict[str, Any]]:
    return [json.loads(line) for line in run("json", level)[0].splitlines()]


def line(message: str) -> dict[str, Any]:
    (found,) = [each for each in told() if each["message"] == message]
    return found


def text_of(message: str) -> str:
    """A line of text after its time and level."""
    (found,) = [each for each in run("text")[0].splitlines() if f"] {message} [" in each]
    return found.partition("] ")[2]


@pytest.mark.scenario("S328")
def test_a_line_is_a_message_and_pairs_in_the_order_in_which_they_were_bound() -> None:
    logger = "[cocoon_operator.sample]"
    assert text_of("pod created") == (
        f"pod created {logger} cocoonset=ns/demo generation=3 pod=demo-0 zone=b also='two words'"
    )
    assert list(line("pod created")) == [
        *("timestamp", "level", "logger", "message"),
        *("cocoonset", "generation", "pod", "zone", "also"),
    ]


@pytest.mark.scenario("S328")
def test_a_child_has_its_parents_pairs_and_does_not_change_it() -> None:
    assert text_of("child").endswith(" cocoonset=ns/demo generation=3 first=1 second=2 third=3")
    assert text_of("parent").endswith(" cocoonset=ns/demo generation=3")


@pytest.mark.scenario("S328")
def test_a_librarys_logger_is_named_after_its_parents() -> None:
    assert line("told %s, not %d")["logger"] == "kopf.activities"


@pytest.mark.scenario("S328")
def test_what_does_not_fit_a_librarys_message_is_dropped_and_the_message_is_not() -> None:
    assert text_of("told %s, not %d") == "told %s, not %d [kopf.activities]"
    assert run("text")[1] == ""


@pytest.mark.scenario("S328")
@pytest.mark.parametrize("level", ["info", "debug"])
def test_of_libraries_only_what_is_for_people_passes_whatever_our_level(level: str) -> None:
    messages = {each["message"] for each in told(level)}
    assert "aiohttp tells all" in messages
    assert messages.isdisjoint({"hunter2, for experts", "Handler succeeded", "kopf greets"})
    assert ("ours, for experts" in messages) == (level == "debug")


@pytest.mark.scenario("S328")
@pytest.mark.parametrize("message", ["no error", "none given", "none raised", "none there"])
def test_an_error_line_without_an_error_is_a_line(message: str) -> None:
    found = line(message)
    assert found["level"] == "error"
    assert "exception" not in found
    assert text_of(message)


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_secret_is_in_any_line(form: str) -> None:
    output = "".join(run(form, "debug"))
    assert output.count("[redacted]") >= 11
    assert "hunter2" not in output
    assert "aHVudGVyMg" not in output


def test_what_is_not_secret_stays() -> None:
    assert line("texts")["url"] == "https://[redacted]@example.com/v2/"
    assert line("bodies")["answer"] == '{"access_token":"[redacted]","expires_in":60}'
    assert line("bodies")["sent"] == ["identitytoken=[redacted]&x=1"]
    assert "ValueError: https://[redacted]@example.com refused" in line("with locals")["exception"]


def test_a_text_of_others_cannot_forge_a_line() -> None:
    assert not [each for each in run("text")[0].splitlines() if each.startswith("2026-01-01T00:00:00Z")]


def test_a_level_leaves_out_what_is_below_it() -> None:
    assert {each["level"] for each in told("error")} == {"error"}
    assert {each["level"] for each in told("warn")} == {"warning", "error"}


def test_beside_kopf_a_line_has_its_pairs_and_no_second_time_or_level() -> None:
    lines = run("kopf")[0].splitlines()
    assert "INFO event='pod created' cocoonset='ns/demo' generation=3 pod='demo-0' zone='b' also='two words'" in lines
    assert "INFO event='parent' cocoonset='ns/demo' generation=3" in lines
    ours = [line for line in lines if line.partition(" ")[2].startswith("event=")]
    assert len(ours) > 5
    assert not [line for line in ours if "hunter2" in line]
