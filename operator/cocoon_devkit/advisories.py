"""Known vulnerabilities of the pinned packages, asked of the OSV database by pip-audit: ``make audit``.

The database is a service on the internet. Where it cannot be reached nothing was checked: that is said, and is no failure.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from cocoon_devkit import checkout

SERVICE: Final = "https://api.osv.dev/v1/query"
ACCEPTED: Final[dict[str, str]] = {}
"""Ids of advisories that do not concern us, each with the reason."""

_SECONDS: Final = 120.0
_SECONDS_PER_ANSWER: Final = 5


class _Vulnerability(msgspec.Struct):
    id: str
    fix_versions: list[str] = []


class _Dependency(msgspec.Struct):
    name: str
    version: str = ""
    vulns: list[_Vulnerability] = []
    skip_reason: str = ""


class _Answer(msgspec.Struct):
    dependencies: list[_Dependency]


@dataclass(frozen=True)
class Outcome:
    """``findings`` are lines for people. ``unchecked`` says why nothing, or not everything, could be asked; "" if all was."""

    packages: int = 0
    findings: tuple[str, ...] = ()
    unchecked: str = ""


def audit(requirements: Path, service: str = SERVICE, *, seconds: float = _SECONDS) -> Outcome:
    """Ask about every package that a file pins, for ``seconds`` at most. Never raises for what the service does."""
    command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--require-hashes", "-r", str(requirements)]
    command += ["--vulnerability-service", "osv", "--osv-url", service, "--timeout", str(_SECONDS_PER_ANSWER)]
    command += ["--format", "json", "--desc", "off", "--progress-spinner", "off"]
    command += [word for advisory in ACCEPTED for word in ("--ignore-vuln", advisory)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds)
    except subprocess.TimeoutExpired:
        return Outcome(unchecked=f"{service} needs longer than {seconds:.0f} s")
    try:
        answer = msgspec.json.decode(done.stdout, type=_Answer)
    except msgspec.MsgspecError:
        *_, last = done.stderr.strip().splitlines() or [f"pip-audit ended with code {done.returncode}"]
        return Outcome(unchecked=last)
    skipped = [each for each in answer.dependencies if each.skip_reason]
    return Outcome(
        packages=len(answer.dependencies) - len(skipped),
        findings=tuple(_line(each, found) for each in answer.dependencies for found in each.vulns),
        unchecked=f"{len(skipped)} packages: {skipped[0].skip_reason}" if skipped else "",
    )


def _line(dependency: _Dependency, found: _Vulnerability) -> str:
    fixed = f"fixed in {', '.join(found.fix_versions)}" if found.fix_versions else "not fixed yet"
    return f"{dependency.name} {dependency.version}: {found.id}, {fixed}"


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 1 for a known vulnerability, 0 without one and where nobody could be asked."""
    parser = argparse.ArgumentParser(prog="advisories", description="Ask for known vulnerabilities of pinned packages.")
    parser.add_argument("requirements", nargs="?", type=Path, default=checkout.REQUIREMENTS / "dev.txt")
    parser.add_argument("--service", default=SERVICE)
    parser.add_argument("--seconds", type=float, default=_SECONDS)
    arguments = parser.parse_args(argv)
    outcome = audit(arguments.requirements, arguments.service, seconds=arguments.seconds)
    for finding in outcome.findings:
        print(finding)
    if outcome.unchecked:
        print(f"audit: NOT CHECKED for known vulnerabilities: {outcome.unchecked}")
    if outcome.packages:
        print(f"audit: {outcome.packages} packages, {len(outcome.findings)} known vulnerabilities")
    return 1 if outcome.findings else 0


if __name__ == "__main__":
    sys.exit(main())
