"""Lets DuckDB compute what would not pay, so that tests of a few rows see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.spark import native_part_facts

if TYPE_CHECKING:
    import pytest


def small_tables_too(patch: pytest.MonkeyPatch) -> None:
    """Let DuckDB read small tables."""
    patch.setattr(native_part_facts, "LEAST_VALUES", 0)
    patch.setattr(native_part_facts, "LEAST_ROWS", 0)
    patch.setattr(native_part_facts, "LEAST_OF_INPUTS", 0)
    patch.setattr(native_part_facts, "MOST_JOINED", float("inf"))


def all_that_can_be(patch: pytest.MonkeyPatch) -> None:
    """Let DuckDB compute all that it can, and rows leave as columns wherever they can."""
    small_tables_too(patch)
    patch.setattr(native_part_facts, "LEAST_OF_A_BATCH", 0)
    patch.setattr(native_part_facts, "MOST_LEFT", float("inf"))
