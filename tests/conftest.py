"""Fixtures of every suite."""

from __future__ import annotations

import pytest

from tests.model.world import World


@pytest.fixture
def world() -> World:
    """A fresh model world with a running operator."""
    return World()
