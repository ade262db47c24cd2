"""Fixtures of the swap tests: the same as of the tests with several operators."""

from __future__ import annotations

from tests.e2e.ha.conftest import new_home, surroundings

__all__ = ["new_home", "surroundings"]
