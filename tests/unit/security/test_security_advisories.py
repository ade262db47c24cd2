"""Known vulnerabilities fail a check; a database that cannot be asked does not, is told, and costs no time."""

from __future__ import annotations

import http.server
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from cocoon_devkit import advisories

PINNED = f"""
aiohttp==3.14.5 --hash=sha256:{"a" * 64}
kopf==1.45.2 --hash=sha256:{"b" * 64}
"""
FLAW = {
    "id": "PYSEC-2030-1",
    "affected": [
        {
            "package": {"ecosystem": "PyPI", "name": "aiohttp"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "3.14.6"}]}],
        }
    ],
}


@contextmanager
def database(answers: dict[str, Any], status: int = 200) -> Iterator[str]:
    """A database on this machine that knows vulnerabilities by the package's name."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = json.dumps(answers.get(asked["package"]["name"], {})).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        @override
        def log_message(self, format: str, *args: object) -> None:
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/query"
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()


@pytest.fixture
def requirements(tmp_path: Path) -> Path:
    file = tmp_path / "requirements.txt"
    file.write_text(PINNED)
    return file


def test_a_known_vulnerability_fails_the_check(requirements: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with database({"aiohttp": {"vulns": [FLAW]}}) as service:
        assert advisories.main([str(requirements), "--service", service]) == 1
    printed = capsys.readouterr().out
    assert "aiohttp 3.14.5: PYSEC-2030-1, fixed in 3.14.6" in printed
    assert "2 packages, 1 known vulnerabilities" in printed


def test_without_one_it_says_what_it_asked(requirements: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with database({}) as service:
        assert advisories.main([str(requirements), "--service", service]) == 0
    assert capsys.readouterr().out == "audit: 2 packages, 0 known vulnerabilities\n"


def test_a_database_that_nobody_answers_for_is_told_and_no_failure(
    requirements: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with database({}, status=503) as broken:
        assert advisories.main([str(requirements), "--service", broken]) == 0
    assert advisories.main([str(requirements), "--service", "http://127.0.0.1:1/v1/query"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 2
    assert all(line.startswith("audit: NOT CHECKED for known vulnerabilities: ") for line in printed)


def test_a_database_that_hangs_is_given_up(requirements: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        service = f"http://127.0.0.1:{silent.getsockname()[1]}/v1/query"
        outcome = advisories.audit(requirements, service, seconds=2)
    assert (outcome.packages, outcome.findings) == (0, ())
    assert "needs longer than 2 s" in outcome.unchecked
