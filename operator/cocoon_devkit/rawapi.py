"""Plain requests to the API server through ``kubectl proxy``: tests and demo poll, and must not spawn for it."""

from __future__ import annotations

import contextlib
import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from cocoon_devkit.cluster import Cluster
from cocoon_devkit.process import Command, ManagedProcess
from cocoon_devkit.scratch import RECORDS, Scratch

_PROXY: Final = re.compile(r"Starting to serve on (127\.0\.0\.1:\d+)")

Obj = dict[str, Any]


class Api:
    """The API server as the administrator. Raises ``urllib.error.HTTPError`` for every refusal.

    ``headers`` go with every request, such as ``Impersonate-User``.
    """

    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        self._url = url
        self._headers = dict(headers or {})

    def as_user(self, name: str, group: str) -> Api:
        """The same API server as another user, who is in one group."""
        return Api(self._url, {"Impersonate-User": name, "Impersonate-Group": group})

    def call(self, method: str, path: str, body: Obj | None = None, content_type: str = "application/json") -> Obj:
        """Send a request; returns what the API server answers."""
        data = json.dumps(body).encode() if body is not None else None
        headers = {**self._headers, "Content-Type": content_type}
        request = urllib.request.Request(self._url + path, data, headers, method=method)  # noqa: S310 (the URL is ours)
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
            return dict(json.load(answer))

    def find(self, path: str) -> Obj | None:
        """The object, None when there is none."""
        try:
            return self.call("GET", path)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise

    def stream(self, path: str) -> Iterator[Obj]:
        """The events of a watch until its end."""
        lines = urllib.request.urlopen(self._url + path, timeout=60)  # noqa: S310
        with contextlib.suppress(OSError, ValueError), lines:
            for line in lines:
                yield json.loads(line)


@contextlib.contextmanager
def proxied_api(cluster: Cluster) -> Iterator[Api]:
    """The API server of a cluster through a proxy of its own, for the length of a ``with`` block."""
    with Scratch("proxy") as scratch:
        log = scratch.path / "proxy.log"
        argv = (str(cluster.tools / "kubectl"), "--kubeconfig", str(cluster.kubeconfig), "proxy", "--port=0")
        process = ManagedProcess(Command(name="proxy", argv=argv, log=log), scratch.path / RECORDS)
        process.wait_ready(lambda: _address(log) != "", 15)
        yield Api(f"http://{_address(log)}")
        process.stop()


def _address(log: Path) -> str:
    found = _PROXY.search(log.read_text())
    return found[1] if found else ""
