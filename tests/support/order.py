"""The order of tests that affect the tests after them in the same process."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def rank(item: pytest.Item) -> int:
    """Return 0 for tests that fork, 2 for tests that leave hanging threads, and 1 for others."""
    if item.get_closest_marker("forks") is not None:
        return 0
    return 2 if item.get_closest_marker("hangs") is not None else 1
