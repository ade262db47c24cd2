"""Docker's credential helpers: ``docker-credential-<name> get``, server on standard input, JSON on standard output."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Mapping
from typing import Final

from cocoon_operator.clients.registry.failures import CredentialsError

HELPER_TIMEOUT: Final = 5.0
_REAP_TIMEOUT: Final = 2.0
_NOT_FOUND: Final = "credentials not found in native keychain"


async def ask_helper(name: str, server: str, env: Mapping[str, str], timeout: float) -> tuple[str, str]:  # noqa: ASYNC109
    """Return username and secret, both "" when the helper has none for this server.

    It is ended, with what it started, after ``timeout`` seconds. Raises :class:`CredentialsError`, which never repeats the
    helper's output: that may hold the secret.
    """
    program = f"docker-credential-{name}"
    output, code = await _run(program, server, env, timeout)
    if code != 0:
        if output.strip() == _NOT_FOUND:
            return "", ""
        raise CredentialsError(f"{program} failed with exit code {code} for {server}")
    try:
        answer = json.loads(output)
        username, secret = answer["Username"], answer["Secret"]
    except (ValueError, KeyError, TypeError):
        raise CredentialsError(f"{program} did not answer with Username and Secret for {server}") from None
    if not isinstance(username, str) or not isinstance(secret, str):
        raise CredentialsError(f"{program} did not answer with Username and Secret for {server}")
    return username, secret


async def _run(program: str, server: str, env: Mapping[str, str], timeout: float) -> tuple[str, int]:  # noqa: ASYNC109
    try:
        process = await asyncio.create_subprocess_exec(
            program,
            "get",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=dict(env),
            start_new_session=True,
        )
    except OSError as error:
        raise CredentialsError(f"cannot start {program}: {error.strerror}") from None
    try:
        async with asyncio.timeout(timeout):
            output, _ = await process.communicate(server.encode())
    except TimeoutError:
        raise CredentialsError(f"{program} did not answer within {timeout:g} s", transient=True) from None
    finally:
        if process.returncode is None:
            await _end(process)
    return output.decode(errors="replace"), process.returncode if process.returncode is not None else -1


async def _end(process: asyncio.subprocess.Process) -> None:
    # A helper is often a script: what it waits for would outlive it and hold the pipes open.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_REAP_TIMEOUT):
            await process.wait()
