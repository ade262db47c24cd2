"""Where the API server is looked for, and in which order (contract 8.1)."""

from __future__ import annotations

import base64
import sys
from pathlib import Path

import pytest
import yaml

from cocoon_operator.clients.kubernetes.connection import (
    Connection,
    ConnectionSetupError,
    TlsFiles,
    TokenFile,
    find_connection,
    in_cluster,
)


def write_kubeconfig(file: Path, server: str, **cluster: object) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
    }
    file.write_text(yaml.safe_dump(content))
    return file


@pytest.fixture
def account(tmp_path: Path) -> Path:
    folder = tmp_path / "account"
    folder.mkdir()
    (folder / "token").write_text("t")
    (folder / "namespace").write_text("cocoon-system\n")
    return folder


@pytest.mark.asyncio
async def test_flag_then_variable_then_cluster_then_home(tmp_path: Path, account: Path) -> None:
    flag = str(write_kubeconfig(tmp_path / "flag", "http://flag"))
    variable = str(write_kubeconfig(tmp_path / "variable", "http://variable"))
    write_kubeconfig(tmp_path / ".kube" / "config", "http://home")
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}

    async def found(kubeconfig: str, env: dict[str, str]) -> str:
        connection = await find_connection(kubeconfig, env=env, home=tmp_path, service_account=account)
        return connection.server

    assert await found(flag, {**pod, "KUBECONFIG": variable}) == "http://flag"
    assert await found("", {**pod, "KUBECONFIG": variable}) == "http://variable"
    assert await found("", pod) == "https://10.0.0.1:6443"
    assert await found("", {}) == "http://home"


@pytest.mark.asyncio
async def test_nothing_found_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConnectionSetupError, match="set KUBECONFIG or --kubeconfig"):
        await find_connection(env={}, home=tmp_path, service_account=tmp_path)


def test_a_pods_service_account(account: Path) -> None:
    connection = in_cluster({"KUBERNETES_SERVICE_HOST": "fd00::1"}, account)
    assert connection.server == "https://[fd00::1]:443"
    assert connection.namespace == "cocoon-system"
    assert connection.tls.ca == str(account / "ca.crt")
    with pytest.raises(ConnectionSetupError, match="TLS files of the pod's service account"):
        connection.ssl_context()


@pytest.mark.asyncio
async def test_a_token_that_cannot_be_read_is_told_at_first_and_kept_later(tmp_path: Path) -> None:
    now = [0.0]
    token = TokenFile(tmp_path / "token", clock=lambda: now[0])
    with pytest.raises(ConnectionSetupError, match="cannot be read"):
        await token.header()
    (tmp_path / "token").write_text("one")
    assert await token.header() == "Bearer one"
    (tmp_path / "token").unlink()
    now[0] = 61
    assert await token.header() == "Bearer one"


@pytest.mark.asyncio
async def test_a_kubeconfig_gives_server_token_and_tls(tmp_path: Path) -> None:
    authority = base64.b64encode(b"not a certificate").decode()
    file = write_kubeconfig(tmp_path / "k", "https://127.0.0.1:6443/", **{"certificate-authority-data": authority})
    connection = await find_connection(str(file), env={})
    assert connection.server == "https://127.0.0.1:6443"
    assert await connection.credentials.header() == "Bearer secret"
    assert connection.source == f"the kubeconfig {file}"
    assert connection.tls.ca
    with pytest.raises(ConnectionSetupError):
        connection.ssl_context()


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("content", "advice"),
    [("", "cannot be used"), ("[]", "cannot be used"), ("current-context: x", "cannot be used")],
)
async def test_a_broken_kubeconfig_is_named(tmp_path: Path, content: str, advice: str) -> None:
    file = tmp_path / "broken"
    file.write_text(content)
    with pytest.raises(ConnectionSetupError, match=f"{file} {advice}"):
        await find_connection(str(file), env={})
    with pytest.raises(ConnectionSetupError, match="missing cannot be used"):
        await find_connection(str(tmp_path / "missing"), env={})


@pytest.mark.asyncio
async def test_a_setting_that_would_be_ignored_is_refused(tmp_path: Path) -> None:
    file = write_kubeconfig(tmp_path / "k", "https://127.0.0.1:6443", **{"tls-server-name": "other"})
    with pytest.raises(ConnectionSetupError, match="tls-server-name, which is not supported"):
        await find_connection(str(file), env={})


@pytest.mark.asyncio
async def test_without_kubernetes_asyncio_the_advice_is_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_kubeconfig(tmp_path / "k", "http://x")
    monkeypatch.setitem(sys.modules, "kubernetes_asyncio.config", None)
    with pytest.raises(ConnectionSetupError, match=r"pip install 'cocoon-operator\[dev\]'"):
        await find_connection(str(file), env={})


def test_an_insecure_connection_checks_nothing() -> None:
    context = Connection("https://x", "a test", tls=TlsFiles(insecure=True)).ssl_context()
    assert not isinstance(context, bool)
    assert not context.check_hostname
    assert Connection("http://x", "a test").ssl_context() is True
