"""Proxies from the environment, by the rules that other clients of the cluster follow.

aiohttp's own ``trust_env`` is not used: it also reads ``~/.netrc``, which would put credentials into requests that nobody
configured for this registry, and knows no networks in ``NO_PROXY`` (``10.0.0.0/8``), which clusters do use.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from yarl import URL

from cocoon_operator.clients.registry.reference import is_loopback


def proxy_for(url: URL, env: Mapping[str, str]) -> URL | None:
    """Return the proxy for a request: ``HTTP(S)_PROXY`` unless ``NO_PROXY`` or a loopback address forbids it.

    Lower-case names count too, and first. A proxy without a scheme is an http one.
    """
    host = url.raw_host or ""
    proxy = _setting(env, f"{url.scheme}_proxy")
    if not proxy or is_loopback(host) or _is_excluded(host, url.port, _setting(env, "no_proxy")):
        return None
    return URL(proxy if "://" in proxy else f"http://{proxy}")


def _setting(env: Mapping[str, str], name: str) -> str:
    return (env.get(name) or env.get(name.upper()) or "").strip()


def _is_excluded(host: str, port: int | None, no_proxy: str) -> bool:
    return any(_matches(entry.strip().lower(), host.lower(), port) for entry in no_proxy.split(",") if entry.strip())


def _matches(entry: str, host: str, port: int | None) -> bool:
    if entry == "*":
        return True
    network = _network(entry)
    if network is not None:
        return _is_inside(host, network)
    name, _, only_port = entry.partition(":")
    if only_port and only_port != str(port):
        return False
    name = name.removeprefix("*")
    return host == name or host.endswith(name if name.startswith(".") else f".{name}")


def _network(entry: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return None


def _is_inside(host: str, network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> bool:
    try:
        return ipaddress.ip_address(host) in network
    except ValueError:
        return False
