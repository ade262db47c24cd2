"""The OCI registry client: three answers, never two (docs/design/registry-client.md)."""

from cocoon_operator.clients.registry.client import RegistryClient
from cocoon_operator.clients.registry.patience import Patience
from cocoon_operator.clients.registry.reference import InvalidRegistryError, RegistryAddress, parse_registry

__all__ = ["InvalidRegistryError", "Patience", "RegistryAddress", "RegistryClient", "parse_registry"]
