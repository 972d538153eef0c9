"""Patches of the cost bounds, so that DuckDB computes small tables in tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.spark import native_part_facts

if TYPE_CHECKING:
    import pytest


def include_small_tables(patch: pytest.MonkeyPatch) -> None:
    """Let DuckDB read small tables."""
    patch.setattr(native_part_facts, "MIN_VALUES", 0)
    patch.setattr(native_part_facts, "MIN_ROWS", 0)
    patch.setattr(native_part_facts, "MIN_INPUT_ROWS", 0)
    patch.setattr(native_part_facts, "MAX_JOINED_RATIO", float("inf"))


def compute_all_natively(patch: pytest.MonkeyPatch) -> None:
    """Let DuckDB compute everything that it can, and exchange columns wherever possible."""
    include_small_tables(patch)
    patch.setattr(native_part_facts, "MIN_BATCH_ROWS", 0)
    patch.setattr(native_part_facts, "MAX_OUTPUT_RATIO", float("inf"))
