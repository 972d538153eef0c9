"""Sources that Spark cuts by itself: rows in memory, ranges, cached data, and relations nobody else knows."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from penstock.connectors.scan import Scan
from penstock.spark import catalyst, fragment

if TYPE_CHECKING:
    from penstock.spark.jvm import Bridge
    from penstock.spark.plans import LogicalNode


class PlainScan(Scan):
    """A leaf that is read as it is, with its tasks merged if there are too many.

    Parameters
    ----------
    bridge
        The session.
    leaf
        The leaf.
    """

    def __init__(self, bridge: Bridge, leaf: LogicalNode) -> None:
        self._bridge = bridge
        self._leaf = leaf
        self._at_most: int | None = None

    @cached_property
    def size_in_bytes(self) -> int:
        """What it holds, by Spark's statistics."""
        size = catalyst.size_in_bytes(self._leaf.handle)
        return size if size < catalyst.LARGE else 0

    def asked(self, given: object | None) -> object | None:
        """Return what the user has given: Spark does not tell before it plans."""
        return given

    def cut(self, parallelism: int) -> int:
        """Merge tasks to at most so many; return that number."""
        self._at_most = parallelism
        return parallelism

    def leaf(self, session: Any | None = None) -> Any:
        """Return the leaf, its tasks merged if a number was given."""
        del session
        if self._at_most is None:
            return self._leaf.handle
        return fragment.coalesced(self._bridge, self._leaf.handle, self._at_most)

    def with_filters(self, plan: Any) -> PlainScan:
        """Return itself: filters change nothing about how Spark cuts it."""
        del plan
        return self
