"""A real OCI registry (distribution) on 127.0.0.1, with deletes on and its data in a folder.

The operator's safety rests on what a registry really answers: 404 for an existing manifest that the client's ``Accept``
does not name, 405 where deletes are off, 401 before a login. So tests run against this one, not an imitation.
"""

from __future__ import annotations

import base64
import re
import secrets
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any

import bcrypt
import yaml

from cocoon_devkit.httpprobe import answers
from cocoon_devkit.pki import issue_server_identity
from cocoon_devkit.ports import LOOPBACK, free_ports
from cocoon_devkit.process import Command, Lifetime, ManagedProcess, clean_environment
from cocoon_devkit.scratch import RECORDS

READY_SECONDS = 30.0
STOP_SECONDS = 5.0
_PROBE_AGENT = "cocoon-devkit-probe"
_ACCESS = re.compile(r'"(?P<method>[A-Z]+) (?P<path>\S+) HTTP/[\d.]+" (?P<status>\d{3}) \S+ "[^"]*" "(?P<agent>[^"]*)"')


@dataclass(frozen=True)
class Login:
    """A user of the registry; without one it serves everybody."""

    username: str
    password: str

    @property
    def header(self) -> str:
        """The value of an ``Authorization`` header."""
        return "Basic " + base64.b64encode(f"{self.username}:{self.password}".encode()).decode()


@dataclass(frozen=True)
class RegistryOptions:
    """``deletes`` off makes it answer 405 to a DELETE, as many registries do out of the box."""

    login: Login | None = None
    tls: bool = False
    deletes: bool = True
    port: int | None = None


@dataclass(frozen=True)
class RegistryRequest:
    """A line of the access log; ``path`` begins with ``/v2/`` and includes the query."""

    method: str
    path: str
    status: int
    user_agent: str


class Registry:
    """``start()`` and ``stop()`` as often as needed: port and data stay. Files lie in ``folder``, the caller removes it."""

    def __init__(
        self,
        tools: Path,
        folder: Path,
        options: RegistryOptions | None = None,
        *,
        name: str = "registry",
        lifetime: Lifetime = Lifetime.BOUND,
    ) -> None:
        self.folder = folder
        self.name = name
        self._binary = tools / "registry"
        self._options = options or RegistryOptions()
        self._lifetime = lifetime
        self._port = self._options.port or free_ports(1)[0]
        self._process: ManagedProcess | None = None
        self.authority: Path | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self._config = self._write_config()

    @property
    def address(self) -> str:
        """``127.0.0.1:5000``, as it stands in an image reference."""
        return f"{LOOPBACK}:{self._port}"

    @property
    def url(self) -> str:
        return f"{'https' if self._options.tls else 'http'}://{self.address}"

    @property
    def login(self) -> Login | None:
        return self._options.login

    @property
    def process(self) -> ManagedProcess:
        """The running process, to be paused or killed; an error when it is stopped."""
        if self._process is None:
            raise RuntimeError(f"{self.name} does not run")
        return self._process

    @property
    def running(self) -> bool:
        return self._process is not None

    def start(self) -> None:
        """Start it on its port with its data. Raises ProcessFailedError when it does not get ready."""
        command = Command(
            name=self.name,
            argv=(str(self._binary), "serve", str(self._config)),
            log=self._log,
            env=clean_environment(self.folder, OTEL_TRACES_EXPORTER="none"),
            cwd=self.folder,
        )
        self._process = ManagedProcess(command, self.folder / RECORDS, self._lifetime)
        try:
            self._process.wait_ready(self._is_ready, READY_SECONDS)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop it, so that connections are refused; nothing happens when it does not run."""
        if self._process is not None:
            self._process.stop(STOP_SECONDS)
            self._process = None

    def mark(self) -> int:
        """A place in the access log, for ``requests(since=...)``."""
        return self._log.stat().st_size if self._log.exists() else 0

    def requests(self, since: int = 0) -> list[RegistryRequest]:
        """Every request answered after the mark, in the order of the answers; the devkit's own checks are left out."""
        with self._log.open("rb") as log:
            log.seek(since)
            lines = log.read().decode(errors="replace").splitlines()
        found = [match for match in map(_ACCESS.search, lines) if match]
        requests = [RegistryRequest(m["method"], m["path"], int(m["status"]), m["agent"]) for m in found]
        return [request for request in requests if request.user_agent != _PROBE_AGENT]

    def docker_config(self) -> dict[str, Any]:
        """The ``config.json`` with which a client logs in here."""
        if self._options.login is None:
            return {"auths": {}}
        credentials = self._options.login.header.removeprefix("Basic ")
        return {"auths": {self.address: {"auth": credentials}}}

    def __enter__(self) -> Registry:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def _log(self) -> Path:
        return self.folder / "logs" / f"{self.name}.log"

    def _is_ready(self) -> bool:
        wanted = HTTPStatus.UNAUTHORIZED if self._options.login else HTTPStatus.OK
        return answers(f"{self.url}/v2/", ca=self.authority, headers={"User-Agent": _PROBE_AGENT}) == wanted

    def _write_config(self) -> Path:
        config: dict[str, Any] = {
            "version": "0.1",
            "log": {"level": "warn", "accesslog": {"disabled": False}},
            "storage": {
                "filesystem": {"rootdirectory": str(self.folder / "data")},
                "delete": {"enabled": self._options.deletes},
                "maintenance": {"uploadpurging": {"enabled": False}},
            },
            # A secret that outlives a restart, so that an upload does too.
            "http": {"addr": self.address, "secret": secrets.token_hex(16)},
        }
        if self._options.tls:
            identity = issue_server_identity(self.folder / "tls")
            self.authority = identity.authority
            config["http"]["tls"] = {"certificate": str(identity.certificate), "key": str(identity.key)}
        if self._options.login is not None:
            passwords = _write_passwords(self.folder / "htpasswd", self._options.login)
            config["auth"] = {"htpasswd": {"realm": self.name, "path": str(passwords)}}
        file = self.folder / "config.yaml"
        file.write_text(yaml.safe_dump(config, sort_keys=False))
        return file


def _write_passwords(file: Path, login: Login) -> Path:
    # The lowest cost that bcrypt has: these passwords are printed in test sources.
    hashed = bcrypt.hashpw(login.password.encode(), bcrypt.gensalt(rounds=4)).decode()
    file.touch(mode=0o600)
    file.write_text(f"{login.username}:{hashed}\n")
    return file
