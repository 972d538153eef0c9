"""Patches of cost limits, so that DuckDB computes small tables in tests; without `penstock.duckdb`, they do nothing."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from pyspark.sql.types import DateType, TimestampNTZType, TimestampType

if TYPE_CHECKING:
    import pytest


def include_small_tables(patch: pytest.MonkeyPatch) -> None:
    """Let DuckDB read small tables and small exchanges."""
    _set(patch, MIN_VALUES=0, MIN_SCATTERED_ROWS=0, MIN_INPUT_ROWS=0, MAX_JOINED_RATIO=float("inf"))


def compute_all_natively(patch: pytest.MonkeyPatch) -> None:
    """Let DuckDB compute everything that it can, and exchange columns where possible."""
    include_small_tables(patch)
    _set(patch, MIN_BATCH_ROWS=0, MAX_OUTPUT_RATIO=float("inf"))


def without_python_types(patch: pytest.MonkeyPatch) -> None:
    """Let rows have Spark's internal numbers for dates and timestamps, as Python's types lack some of Spark's years."""
    for kind in (DateType, TimestampType, TimestampNTZType):
        patch.setattr(kind, "fromInternal", lambda _, number: number)


def _set(patch: pytest.MonkeyPatch, **limits: float) -> None:
    if find_spec("penstock.duckdb") is not None:
        for name, limit in limits.items():
            patch.setattr(f"penstock.duckdb.part_facts.{name}", limit)
