"""Fixtures of the tests of admission: a user's view of the API server."""

from __future__ import annotations

import pytest
from asking import Asking

from cocoon_devkit.rawapi import Api


@pytest.fixture(scope="session")
def ask(api: Api) -> Asking:
    """The API server as the administrator."""
    return Asking(api)
