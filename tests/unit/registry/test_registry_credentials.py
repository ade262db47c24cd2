"""Docker config files and credential helpers: which file, which entry, and what is an error."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import pytest

from cocoon_operator.clients.registry.credentials import ANONYMOUS, Credential, DockerKeychain, config_path
from cocoon_operator.clients.registry.failures import CredentialsError

HOST, REPOSITORY = "registry.test:5000", "cocoon/vk-ns-demo-0"
SECRET = "s3cret"


def write(path: Path, document: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def auth(user: str, password: str = SECRET) -> dict[str, str]:
    return {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}


def keychain(tmp_path: Path, document: object) -> DockerKeychain:
    write(tmp_path / ".docker" / "config.json", document)
    return DockerKeychain({"HOME": str(tmp_path)})


def helper(folder: Path, name: str, script: str) -> str:
    """Write an executable ``docker-credential-<name>`` and return the PATH that finds it."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / f"docker-credential-{name}"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


@pytest.mark.parametrize(
    ("present", "named", "chosen"),
    [
        ("home", "", "home"),
        ("home docker", "docker", "docker"),
        ("docker xdg", "docker", "docker"),
        ("home xdg", "docker", None),  # a docker config exists, so the named folder is the place, and it has none
        ("home auth xdg", "auth xdg", "home"),
        ("auth xdg", "auth xdg", "auth"),
        ("xdg", "auth xdg", "xdg"),
        ("xdg", "docker auth xdg", "xdg"),
        ("auth", "", None),
        ("", "docker auth xdg", None),
    ],
)
def test_which_file(tmp_path: Path, present: str, named: str, chosen: str | None) -> None:
    files = {
        "home": tmp_path / "home" / ".docker" / "config.json",
        "docker": tmp_path / "docker" / "config.json",
        "auth": tmp_path / "auth.json",
        "xdg": tmp_path / "run" / "containers" / "auth.json",
    }
    variables = {
        "docker": ("DOCKER_CONFIG", str(tmp_path / "docker")),
        "auth": ("REGISTRY_AUTH_FILE", str(files["auth"])),
        "xdg": ("XDG_RUNTIME_DIR", str(tmp_path / "run")),
    }
    for name in present.split():
        write(files[name], {})
    env = {"HOME": str(tmp_path / "home"), **dict(variables[name] for name in named.split())}
    assert config_path(env) == (files[chosen] if chosen else None)


def test_no_home_no_file() -> None:
    assert config_path({}) is None


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("entry", "credential"),
    [
        (auth("me", "a:b:c"), Credential("me", "a:b:c")),
        (auth("me", "padded\0\0"), Credential("me", "padded")),
        ({"username": "me", "password": SECRET}, Credential("me", SECRET)),
        ({"identitytoken": SECRET}, Credential(identity_token=SECRET)),
        ({**auth("me", ""), "identitytoken": SECRET}, Credential("me", identity_token=SECRET)),
        ({"registrytoken": SECRET}, Credential(registry_token=SECRET)),
        ({}, ANONYMOUS),
        ({"auth": "", "email": "me@example.com"}, ANONYMOUS),
    ],
)
async def test_forms_of_an_entry(tmp_path: Path, entry: dict[str, str], credential: Credential) -> None:
    assert await keychain(tmp_path, {"auths": {HOST: entry}}).resolve(HOST, REPOSITORY) == credential


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("host", "keys", "chosen"),
    [
        (HOST, [HOST, f"{HOST}/cocoon", f"{HOST}/{REPOSITORY}"], f"{HOST}/{REPOSITORY}"),
        (HOST, [HOST, f"{HOST}/cocoon"], f"{HOST}/cocoon"),
        (HOST, [HOST, f"{HOST}/other"], HOST),
        (HOST, [f"https://{HOST}"], f"https://{HOST}"),
        (HOST, [f"https://{HOST}/v2/"], f"https://{HOST}/v2/"),
        (HOST, ["registry.test"], None),
        (HOST, ["https://index.docker.io/v1/"], None),
        ("index.docker.io", ["https://index.docker.io/v1/", "index.docker.io"], "https://index.docker.io/v1/"),
        ("index.docker.io", ["index.docker.io"], "index.docker.io"),
    ],
)
async def test_the_closest_key_wins(tmp_path: Path, host: str, keys: list[str], chosen: str | None) -> None:
    entries = {key: auth(f"user-{number}") for number, key in enumerate(keys)}
    found = await keychain(tmp_path, {"auths": entries}).resolve(host, REPOSITORY)
    assert found.username == ("" if chosen is None else f"user-{keys.index(chosen)}")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "document",
    [
        "not json",
        "[]",
        '"text"',
        {"auths": []},
        {"auths": {HOST: "text"}},
        {"auths": {HOST: {"auth": "no base64!"}}},
        {"auths": {HOST: {"auth": base64.b64encode(b"no colon").decode()}}},
        {"auths": {HOST: {"auth": base64.b64encode(b"\xff:\xff").decode()}}},
        {"auths": {HOST: {"password": 7}}},
        {"credHelpers": {HOST: "../evil"}},
        {"credHelpers": {HOST: 7}},
        {"credsStore": ["x"]},
    ],
)
async def test_a_broken_file_is_an_error_and_not_anonymous(tmp_path: Path, document: object) -> None:
    chain = keychain(tmp_path, document)
    for _ in range(2):
        with pytest.raises(CredentialsError, match=r"config\.json"):
            await chain.resolve(HOST, REPOSITORY)


@pytest.mark.asyncio
async def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / ".docker" / "config.json").mkdir(parents=True)
    with pytest.raises(CredentialsError, match="cannot read"):
        await DockerKeychain({"HOME": str(tmp_path)}).resolve(HOST, REPOSITORY)


@pytest.mark.asyncio
async def test_a_changed_file_is_read_again_and_a_repaired_one_counts(tmp_path: Path) -> None:
    chain = keychain(tmp_path, {"auths": {HOST: auth("first")}})
    file = tmp_path / ".docker" / "config.json"
    assert (await chain.resolve(HOST, REPOSITORY)).username == "first"
    write(file, "{")
    with pytest.raises(CredentialsError):
        await chain.resolve(HOST, REPOSITORY)
    swapped = write(tmp_path / "new.json", {"auths": {HOST: auth("secnd")}})
    swapped.replace(file)
    assert (await chain.resolve(HOST, REPOSITORY)).username == "secnd"
    file.unlink()
    assert await chain.resolve(HOST, REPOSITORY) == ANONYMOUS


@pytest.mark.asyncio
async def test_an_unchanged_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chain = keychain(tmp_path, {"auths": {HOST: auth("me")}})
    await chain.resolve(HOST, REPOSITORY)
    monkeypatch.setattr(Path, "read_bytes", lambda _: pytest.fail("read again"))
    assert (await chain.resolve(HOST, REPOSITORY)).username == "me"


def helped(tmp_path: Path, script: str, document: object, **settings: float) -> DockerKeychain:
    write(tmp_path / ".docker" / "config.json", document)
    env = {"HOME": str(tmp_path), "PATH": helper(tmp_path / "bin", "test", script), "CALLS": str(tmp_path / "calls")}
    return DockerKeychain(env, **settings)  # type: ignore[arg-type]


def calls(tmp_path: Path) -> list[str]:
    file = tmp_path / "calls"
    return file.read_text().splitlines() if file.exists() else []


ANSWERING = """read server || true; echo "$1 $server" >> "$CALLS"
printf '{"ServerURL":"%s","Username":"me","Secret":"s3cret"}' "$server" """


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("document", "server"),
    [
        ({"credHelpers": {HOST: "test"}}, HOST),
        ({"credHelpers": {f"{HOST}/cocoon": "test"}}, f"{HOST}/cocoon"),
        ({"credsStore": "test"}, HOST),
        ({"credsStore": "test", "auths": {HOST: {}}}, HOST),
        ({"credsStore": "test", "auths": {HOST: auth("stale")}}, HOST),
        ({"credsStore": "other", "credHelpers": {HOST: "test"}}, HOST),
    ],
)
async def test_a_helper_is_asked_for_its_key_and_a_store_for_the_host(
    tmp_path: Path, document: object, server: str
) -> None:
    chain = helped(tmp_path, ANSWERING, document)
    assert await chain.resolve(HOST, REPOSITORY) == Credential("me", SECRET)
    assert await chain.resolve(HOST, "cocoon/vk-ns-other-0") == Credential("me", SECRET)
    assert calls(tmp_path) == [f"get {server}"]


@pytest.mark.asyncio
async def test_a_helpers_answer_is_asked_for_again_when_old_refused_or_the_file_changed(tmp_path: Path) -> None:
    now = 0.0
    chain = helped(tmp_path, ANSWERING, {"credsStore": "test"}, clock=lambda: now)  # type: ignore[arg-type]
    await chain.resolve(HOST, REPOSITORY)
    now = 299.0
    await chain.resolve(HOST, REPOSITORY)
    assert len(calls(tmp_path)) == 1
    now = 301.0
    await chain.resolve(HOST, REPOSITORY)
    assert len(calls(tmp_path)) == 2
    chain.forget()
    await chain.resolve(HOST, REPOSITORY)
    assert len(calls(tmp_path)) == 3
    write(tmp_path / ".docker" / "config.json", {"credsStore": "test", "auths": {}})
    await chain.resolve(HOST, REPOSITORY)
    assert len(calls(tmp_path)) == 4


@pytest.mark.asyncio
async def test_a_helper_may_hold_an_identity_token(tmp_path: Path) -> None:
    script = """printf '{"Username":"<token>","Secret":"s3cret"}'"""
    found = await helped(tmp_path, script, {"credsStore": "test"}).resolve(HOST, REPOSITORY)
    assert found == Credential(identity_token=SECRET)


@pytest.mark.asyncio
async def test_a_helper_that_has_none_leaves_it_to_the_file(tmp_path: Path) -> None:
    script = "echo 'credentials not found in native keychain'; exit 1"
    document = {"credsStore": "test", "auths": {HOST: auth("inline")}}
    assert (await helped(tmp_path, script, document).resolve(HOST, REPOSITORY)).username == "inline"
    assert await helped(tmp_path, script, {"credsStore": "test"}).resolve(HOST, REPOSITORY) == ANONYMOUS


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo s3cret; echo s3cret >&2; exit 3", "failed with exit code 3"),
        ("echo s3cret", "did not answer with Username and Secret"),
        ("""echo '{"Username":"s3cret"}'""", "did not answer with Username and Secret"),
        ("""echo '{"Username":"me","Secret":["s3cret"]}'""", "did not answer with Username and Secret"),
        ("echo '[]'", "did not answer with Username and Secret"),
        ("kill -9 $$", "failed with exit code -9"),
    ],
)
async def test_a_failing_helper_is_an_error_that_tells_no_secret(tmp_path: Path, script: str, reason: str) -> None:
    with pytest.raises(CredentialsError, match=reason) as caught:
        await helped(tmp_path, script, {"credsStore": "test"}).resolve(HOST, REPOSITORY)
    assert SECRET not in str(caught.value)


@pytest.mark.asyncio
async def test_a_helper_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match="cannot start docker-credential-missing: No such file or directory"):
        await helped(tmp_path, "", {"credsStore": "missing"}).resolve(HOST, REPOSITORY)


@pytest.mark.asyncio
async def test_a_helper_that_hangs_is_ended_with_what_it_started(tmp_path: Path) -> None:
    script = 'sleep 60 & echo $! > "$CALLS"; wait'
    chain = helped(tmp_path, script, {"credsStore": "test"}, helper_timeout=1.0)
    with pytest.raises(CredentialsError, match="did not answer within 1 s"):
        await chain.resolve(HOST, REPOSITORY)
    assert not is_running(int(calls(tmp_path)[0]))


def is_running(process: int) -> bool:
    state = Path(f"/proc/{process}/stat")
    return state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z"


def test_secrets_are_not_in_a_representation() -> None:
    shown = repr(Credential("me", SECRET, SECRET, SECRET))
    assert "me" in shown
    assert SECRET not in shown
