"""The registry's double and clients of it, as the registry client's own tests have them."""

from tests.unit.registry.conftest import connect, registry

__all__ = ["connect", "registry"]
