"""Scans whose partitions Spark chooses: in-memory rows, ranges, cached data, and relations of unknown types."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from penstock.connectors.scan import Scan
from penstock.spark.logical_plan import LARGE

if TYPE_CHECKING:
    from penstock.spark.handles import Session
    from penstock.spark.logical_plan import LogicalPlan


class PlainScan(Scan):
    """The scan of an unchanged leaf, coalesced if it has too many partitions.

    Parameters
    ----------
    leaf
        The leaf.
    reason
        Why Spark's partitions must not be coalesced; empty if they may be.
    """

    def __init__(self, leaf: LogicalPlan, reason: str = "") -> None:
        self._leaf = leaf
        self._reason = reason
        self._parallelism: int | None = None

    @property
    def reason(self) -> str:
        """Why Spark's partitions must not be coalesced; empty if they may be."""
        return self._reason

    @property
    def is_cut_by_spark(self) -> bool:
        """Whether Spark's partitions must not be coalesced."""
        return bool(self._reason)

    @cached_property
    def size_in_bytes(self) -> int | None:
        """The size by Spark's statistics; None if they have no estimate, as for an RDD."""
        size = self._leaf.size_in_bytes
        return size if size < LARGE else None

    def parallelism_source(self, user_source: object | None) -> object | None:
        """Return the user's source: the number of Spark's partitions is unknown before planning."""
        return user_source

    def divide(self, parallelism: int) -> int:
        """Coalesce to at most `parallelism` partitions; return `parallelism`."""
        self._parallelism = parallelism
        return parallelism

    def leaf(self, session: Session | None = None) -> LogicalPlan:
        """Return the leaf, coalesced if `divide` was called."""
        del session
        return self._leaf if self._parallelism is None else self._leaf.coalesced(self._parallelism)

    def with_filters(self, plan: LogicalPlan) -> PlainScan:
        """Return the scan itself: filters do not change Spark's partitions."""
        del plan
        return self
