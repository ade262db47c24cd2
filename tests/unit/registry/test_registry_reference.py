"""What OCI_REGISTRY may be, and what the operator says when it is something else."""

from __future__ import annotations

import pytest

from cocoon_operator.clients.registry.failures import RegistryError
from cocoon_operator.clients.registry.reference import InvalidRegistryError, RegistryAddress, parse_registry


@pytest.mark.scenario("S317")
@pytest.mark.parametrize(
    ("text", "host", "path"),
    [
        ("registry.example.com", "registry.example.com", ""),
        ("registry.example.com/cocoon", "registry.example.com", "cocoon"),
        ("registry.example.com:5000/a/b-c/d_e.f", "registry.example.com:5000", "a/b-c/d_e.f"),
        ("europe-docker.pkg.dev/project/snapshots", "europe-docker.pkg.dev", "project/snapshots"),
        ("localhost", "localhost", ""),
        ("localhost:5000/x", "localhost:5000", "x"),
        ("127.0.0.1:5000", "127.0.0.1:5000", ""),
        ("[::1]:5000/x", "[::1]:5000", "x"),
        ("registry:5000", "registry:5000", ""),
        ("cocoon", "index.docker.io", "cocoon"),
        ("cocoon/snapshots", "index.docker.io", "cocoon/snapshots"),
        ("docker.io/cocoon", "index.docker.io", "cocoon"),
    ],
)
def test_host_and_path(text: str, host: str, path: str) -> None:
    assert parse_registry(text) == RegistryAddress(host, path)


@pytest.mark.scenario("S317")
@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("", "OCI_REGISTRY must be set"),
        ("https://registry.example.com/cocoon", "must not have a scheme"),
        ("http://localhost:5000", "must not have a scheme"),
        ("registry.example.com/", "slash"),
        ("/cocoon", "slash"),
        (" registry.example.com", "white space"),
        ("registry.example.com/a b", "white space"),
        ("user:secret@registry.example.com", "docker config"),
        ("registry.example.com/cocoon@sha256:00", "digest"),
        ("registry.example.com/Cocoon", "lower-case"),
        ("registry.example.com/cocoon:latest", "no tag"),
        ("registry.example.com//cocoon", "path"),
        ("registry.example.com/..", "path"),
        ("registry.example.com:0/x", "1 to 65535"),
        ("registry.example.com:70000/x", "1 to 65535"),
        ("registry.example.com:port/x", "host"),
        ("registry..example.com", "host"),
        ("-registry.example.com", "host"),
        ("[::zz]:5000", "host"),
        ("[1.2.3.4]:5000", "IPv6"),
        ("docker.io", "namespace"),
    ],
)
def test_malformed_is_one_sentence_that_says_what_to_do(text: str, advice: str) -> None:
    with pytest.raises(InvalidRegistryError) as caught:
        parse_registry(text)
    message = str(caught.value)
    assert message.startswith("OCI_REGISTRY")
    assert advice in message
    assert "\n" not in message
    assert "secret" not in message


@pytest.mark.parametrize(
    ("text", "schemes"),
    [
        ("localhost:5000", ("https", "http")),
        ("cache.localhost/x", ("https", "http")),
        ("cache.localhost:5000/x", ("https", "http")),
        ("127.0.0.1", ("https", "http")),
        ("127.0.0.1:5000", ("https", "http")),
        ("[::1]:5000", ("https", "http")),
        ("10.1.2.3:5000", ("https", "http")),
        ("172.16.0.1", ("https", "http")),
        ("172.31.255.255", ("https", "http")),
        ("192.168.1.1:80", ("https", "http")),
        ("localhost", ("https", "http")),
        ("172.32.0.1", ("https",)),
        ("11.0.0.1:5000", ("https",)),
        ("[fd00::1]:5000", ("https",)),
        ("registry.example.com:5000", ("https",)),
        ("registry.cocoon-system.svc:5000", ("https",)),
        ("10.1.2.3.example.com", ("https",)),
        ("notlocalhost:5000", ("https",)),
    ],
)
def test_plain_http_only_for_local_and_private_addresses(text: str, schemes: tuple[str, ...]) -> None:
    assert parse_registry(text).schemes == schemes


def test_repository_is_path_and_vm_name() -> None:
    assert parse_registry("r.example.com/cocoon").repository("vk-ns-demo-0") == "cocoon/vk-ns-demo-0"
    assert parse_registry("r.example.com").repository("vk-my.ns-demo-0") == "vk-my.ns-demo-0"


@pytest.mark.parametrize(
    "vm_name", ["", "..", "../other", "a/b", "vk-NS-0", "vk-ns-0?x", "vk ns", "-vk", "vk-", "v" * 300]
)
def test_a_name_that_leaves_its_place_is_no_repository(vm_name: str) -> None:
    with pytest.raises(RegistryError, match="cannot be the name of a repository"):
        parse_registry("r.example.com/cocoon").repository(vm_name)
