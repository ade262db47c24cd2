"""Secrets are in no log line, no answer, no error and no representation; a log line is one line whoever wrote its content."""

from __future__ import annotations

import base64
import io
import json
import logging
import re
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import structlog

from cocoon_operator import logs
from cocoon_operator.api.answers import Unknown
from cocoon_operator.clients.kubernetes.connection import Connection, TokenFile
from cocoon_operator.clients.registry import RegistryClient
from cocoon_operator.clients.registry.auth import Grant
from cocoon_operator.clients.registry.credentials import Credential, DockerKeychain
from cocoon_operator.clients.registry.google import AccessToken
from cocoon_operator.clients.registry.tokens import authorization
from cocoon_operator.clients.registry.transport import Reply
from tests.unit.registry.fake_registry import PASSWORD, USER, FakeRegistry, answer, break_off, manifest

Connect = Callable[..., RegistryClient]
VM = "vk-ns-demo-0"
REGISTRY_TOKEN = "registry-token-4711"
IDENTITY_TOKEN = PASSWORD  # what the double takes for a refresh token
PROXY_PASSWORD = "proxy-pass-0815"
BASIC = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
SECRETS = (PASSWORD, BASIC, REGISTRY_TOKEN, PROXY_PASSWORD, "issued-token")
ENTRIES: dict[str, dict[str, str]] = {
    "password": {"username": USER, "password": PASSWORD},
    "password for a token": {"auth": BASIC},
    "identity token": {"identitytoken": IDENTITY_TOKEN},
    "registry token": {"registrytoken": REGISTRY_TOKEN},
}


def assert_untold(text: str) -> None:
    assert [secret for secret in SECRETS if secret in text] == []


@pytest.fixture
def everything_logged(caplog: pytest.LogCaptureFixture) -> Callable[[], str]:
    """Every record of every library at its lowest level, with its traceback."""
    caplog.set_level(logging.NOTSET)
    for name in ("aiohttp", "asyncio", "cocoon_operator"):
        caplog.set_level(logging.DEBUG, logger=name)
    formatter = logging.Formatter()
    return lambda: "\n".join(formatter.format(record) + repr(vars(record)) for record in caplog.records)


@pytest.mark.asyncio
@pytest.mark.parametrize("entry", ENTRIES)
async def test_no_failure_tells_a_secret(
    registry: FakeRegistry, connect: Connect, tmp_path: Path, everything_logged: Callable[[], str], entry: str
) -> None:
    registry.auth = "bearer" if "token" in entry else "basic"
    registry.put(VM, "hibernate", manifest())
    (tmp_path / "config.json").write_text(json.dumps({"auths": {registry.address.host: ENTRIES[entry]}}))
    faults = [answer(401), answer(403), answer(500, {"Retry-After": "99"}), answer(200), break_off]
    for kind in ("ping", "token", "HEAD", "GET", "PUT", "DELETE"):
        for fault in faults:
            registry.always = {kind: fault}
            client = connect(keychain=DockerKeychain({"DOCKER_CONFIG": str(tmp_path)}))
            told: list[Any] = [
                await client.probe(VM, "hibernate"),
                await client.inspect(VM, "hibernate"),
                await client.copy(VM, "hibernate", "orphan-0"),
                await client.drop(VM, "hibernate"),
            ]
            assert_untold(repr(told))
            registry.put(VM, "hibernate", manifest())
    assert_untold(everything_logged())


@pytest.mark.asyncio
@pytest.mark.parametrize("proxy", ["http://me:{}@127.0.0.1:1", "http://me:{}@[bad", "socks5://me:{}@127.0.0.1:1"])
async def test_a_proxys_password_is_not_told(
    registry: FakeRegistry, connect: Connect, tmp_path: Path, everything_logged: Callable[[], str], proxy: str
) -> None:
    del registry
    env = {"HOME": str(tmp_path), "HTTPS_PROXY": proxy.format(PROXY_PASSWORD)}
    address = FakeRegistry().address
    elsewhere = type(address)("registry.invalid", "base")
    found = await connect(address=elsewhere, env=env).probe(VM, "hibernate")
    assert isinstance(found, Unknown)
    assert_untold(repr(found))
    assert_untold(everything_logged())


@pytest.mark.parametrize(
    "content",
    [
        f'{{"auths": {{"r": {{"password": "{PASSWORD}"',
        json.dumps({"auths": {"r": {"auth": base64.b64encode(PASSWORD.encode()).decode() + "!"}}}),
        json.dumps({"auths": {"r": {"password": [PASSWORD]}}}),
        json.dumps({"auths": [PASSWORD]}),
        json.dumps({"credHelpers": {"r": f"{PASSWORD}/x"}}),
        json.dumps({"credsStore": f"x {PASSWORD}"}),
    ],
)
@pytest.mark.asyncio
async def test_a_broken_docker_config_is_not_repeated(connect: Connect, tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    found = await connect(keychain=DockerKeychain({"DOCKER_CONFIG": str(tmp_path)})).probe(VM, "hibernate")
    assert isinstance(found, Unknown)
    assert "config.json" in found.reason
    assert_untold(found.reason)


@pytest.mark.parametrize("code", [0, 1])
@pytest.mark.asyncio
async def test_what_a_credential_helper_prints_is_not_repeated(connect: Connect, tmp_path: Path, code: int) -> None:
    helper = tmp_path / "docker-credential-leaky"
    helper.write_text(f"#!/bin/sh\necho '{PASSWORD}'\necho '{PASSWORD}' >&2\nexit {code}\n")
    helper.chmod(helper.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "config.json").write_text(json.dumps({"credsStore": "leaky"}))
    env = {"DOCKER_CONFIG": str(tmp_path), "PATH": f"{tmp_path}:/usr/bin:/bin"}
    found = await connect(keychain=DockerKeychain(env)).probe(VM, "hibernate")
    assert isinstance(found, Unknown)
    assert "docker-credential-leaky" in found.reason
    assert_untold(found.reason)


def test_nothing_that_holds_a_secret_shows_it(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(REGISTRY_TOKEN)
    credential = Credential(USER, PASSWORD, PASSWORD, REGISTRY_TOKEN)
    holders = [
        credential,
        Grant("https://registry.example.com", authorization(credential.basic)),
        AccessToken(REGISTRY_TOKEN, 0.0),
        Connection("https://api", "a test", credentials=TokenFile(tmp_path / "token")),
        Reply(200, None, b'{"token": "issued-token-1"}'),  # type: ignore[arg-type]
    ]
    assert_untold(repr(holders))


def test_refused_settings_are_named_and_the_environment_is_not_repeated(tmp_path: Path) -> None:
    """The process as it starts: one sentence, whatever else the environment holds."""
    env = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "PYTHONPATH": ":".join(path for path in sys.path if path),
        "OCI_REGISTRY": f"https://{USER}:{PASSWORD}@registry.example.com",
        "HTTPS_PROXY": f"http://me:{PROXY_PASSWORD}@proxy:1",
    }
    argv = [sys.executable, "-m", "cocoon_operator", "run"]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "OCI_REGISTRY" in done.stderr
    assert_untold(done.stdout + done.stderr)


# -- one line is one line ----------------------------------------------------------------------------------------------


@pytest.fixture
def own_logging() -> Iterator[None]:
    """Put the logging of this process back afterwards."""
    root = logging.getLogger()
    before, level, settings = root.handlers[:], root.level, structlog.get_config()
    yield
    root.handlers[:] = before
    root.setLevel(level)
    structlog.configure(**settings)


@pytest.mark.usefixtures("own_logging")
@pytest.mark.parametrize("form", ["text", "json"])
def test_no_content_begins_a_line_of_its_own(form: str) -> None:
    hostile = "a\n2030-01-01T00:00:00Z [info] forged\x1b[2J\r\u2028"
    printed = io.StringIO()
    with redirect_stdout(printed):
        logs.configure("debug", form)
        structlog.get_logger("ours").warning("refused", message=hostile, vm=hostile)
        logging.getLogger("theirs").warning("said %s", hostile)
    lines = printed.getvalue().splitlines()
    assert len(lines) == 2
    assert all(re.search(r"[\x00-\x09\x0b-\x1f\x7f]", line) is None for line in lines)
