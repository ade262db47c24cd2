"""A kubeconfig, read by kubernetes-asyncio: exec plugins, OIDC and the merging of files are its job.

The in-cluster image does without that package (it costs 50 MiB and a second), so it is imported only when it is needed.
"""

from __future__ import annotations

import importlib
from typing import Any

from cocoon_operator.clients.kubernetes.connection import Connection, ConnectionSetupError, TlsFiles


class KubeconfigCredentials:
    """The token of a kubeconfig user; an exec plugin runs again when its token has expired."""

    def __init__(self, configuration: Any) -> None:
        self._configuration = configuration

    async def header(self, *, renew: bool = False) -> str | None:  # noqa: ARG002 - the package asks again by itself
        try:
            value: str | None = await self._configuration.get_api_key_with_prefix("BearerToken")
        except Exception as error:
            raise ConnectionSetupError(f"the kubeconfig gave no token: {error}") from error
        return value


async def load_kubeconfig(path: str) -> Connection:
    """Load the current context of a kubeconfig (``:`` joins several). Raises :class:`ConnectionSetupError`."""
    try:
        config = importlib.import_module("kubernetes_asyncio.config")
        client = importlib.import_module("kubernetes_asyncio.client")
    except ImportError as error:
        raise ConnectionSetupError(
            f"reading the kubeconfig {path} needs kubernetes-asyncio: pip install 'cocoon-operator[dev]'"
        ) from error
    configuration = client.Configuration()
    try:
        await config.load_kube_config(config_file=path, client_configuration=configuration)
    except Exception as error:
        raise ConnectionSetupError(f"the kubeconfig {path} cannot be used: {error}") from error
    return _connection(path, configuration)


def _connection(path: str, configuration: Any) -> Connection:
    if configuration.tls_server_name:
        raise ConnectionSetupError(f"the kubeconfig {path} sets tls-server-name, which is not supported")
    return Connection(
        server=str(configuration.host).rstrip("/"),
        source=f"the kubeconfig {path}",
        tls=TlsFiles(
            ca=configuration.ssl_ca_cert or "",
            certificate=configuration.cert_file or "",
            key=configuration.key_file or "",
            insecure=not configuration.verify_ssl,
        ),
        credentials=KubeconfigCredentials(configuration),
        proxy=configuration.proxy or "",
    )
