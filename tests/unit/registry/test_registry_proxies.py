"""Which requests go through a proxy."""

from __future__ import annotations

import pytest
from yarl import URL

from cocoon_operator.clients.registry.proxies import proxy_for

PROXY = {"HTTPS_PROXY": "http://proxy.test:3128", "http_proxy": "plain.test:3128"}


@pytest.mark.parametrize(
    ("url", "no_proxy", "proxy"),
    [
        ("https://registry.example.com/v2/", "", "http://proxy.test:3128"),
        ("http://10.1.2.3:5000/v2/", "", "http://plain.test:3128"),
        ("https://127.0.0.1:5000/v2/", "", None),
        ("https://[::1]:5000/v2/", "", None),
        ("https://localhost:5000/v2/", "", None),
        ("https://registry.example.com/", "*", None),
        ("https://registry.example.com/", "other.test, example.com", None),
        ("https://registry.example.com/", ".example.com", None),
        ("https://registry.example.com/", "*.example.com", None),
        ("https://registry.example.com/", "Registry.Example.com:443", None),
        ("https://registry.example.com/", "registry.example.com:8443", "http://proxy.test:3128"),
        ("https://registry.example.com/", "ample.com,", "http://proxy.test:3128"),
        ("http://10.1.2.3:5000/", "10.0.0.0/8", None),
        ("http://10.1.2.3:5000/", "10.1.2.3", None),
        ("http://10.1.2.3:5000/", "10.2.0.0/16", "http://plain.test:3128"),
        ("https://registry.example.com/", "10.0.0.0/8", "http://proxy.test:3128"),
    ],
)
def test_no_proxy(url: str, no_proxy: str, proxy: str | None) -> None:
    found = proxy_for(URL(url), {**PROXY, "NO_PROXY": no_proxy})
    assert found == (None if proxy is None else URL(proxy))


def test_no_setting_no_proxy() -> None:
    assert proxy_for(URL("https://registry.example.com/"), {}) is None
