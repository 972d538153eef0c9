"""Sources that Spark cuts by itself: rows in memory, ranges, cached data, and relations nobody else knows."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from penstock.connectors.scan import Scan
from penstock.spark.logical_plan import LARGE

if TYPE_CHECKING:
    from penstock.spark.handles import Session
    from penstock.spark.logical_plan import LogicalPlan


class PlainScan(Scan):
    """A leaf that is read as it is, with its tasks merged if there are too many.

    Parameters
    ----------
    leaf
        The leaf.
    reason
        Why its tasks have to stay Spark's; empty if they may be merged.
    """

    def __init__(self, leaf: LogicalPlan, reason: str = "") -> None:
        self._leaf = leaf
        self._reason = reason
        self._at_most: int | None = None

    @property
    def reason(self) -> str:
        """Why its tasks have to stay Spark's, empty if they may be merged."""
        return self._reason

    @property
    def is_cut_by_spark(self) -> bool:
        """Whether its tasks stay those that Spark makes."""
        return bool(self._reason)

    @cached_property
    def size_in_bytes(self) -> int | None:
        """What it holds, by Spark's statistics; None if they do not tell, as of an RDD."""
        size = self._leaf.size_in_bytes
        return size if size < LARGE else None

    def asked(self, given: object | None) -> object | None:
        """Return what the user has given: Spark does not tell before it plans."""
        return given

    def cut(self, parallelism: int) -> int:
        """Merge tasks to at most so many; return that number."""
        self._at_most = parallelism
        return parallelism

    def leaf(self, session: Session | None = None) -> LogicalPlan:
        """Return the leaf, its tasks merged if a number was given."""
        del session
        return self._leaf if self._at_most is None else self._leaf.coalesced(self._at_most)

    def with_filters(self, plan: LogicalPlan) -> PlainScan:
        """Return itself: filters change nothing about how Spark cuts it."""
        del plan
        return self
