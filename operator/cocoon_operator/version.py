"""Which version this is."""

from __future__ import annotations

import importlib.metadata


def version() -> str:
    """Return the version of the installed package."""
    try:
        return importlib.metadata.version("cocoon-operator")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
