"""Wrappers of JVM objects for the other packages: each with its session, and opaque except for its own methods."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.spark.jvm import Bridge


@dataclass(frozen=True, eq=False)
class JvmObject:
    """An object of the JVM, opaque outside of this package; compared by identity.

    It can be passed to a call into the JVM directly.
    """

    _bridge: Bridge = field(repr=False)
    _handle: Any = field(repr=False)

    def _get_object_id(self) -> str:
        return str(self._handle._get_object_id())


class Session(JvmObject):
    """A session: the user's, or a clone of it with different settings."""

    def clone(self) -> Session:
        """Return a session with the same settings, catalog, temporary views, cached data and artifacts."""
        return Session(self._bridge, self._bridge.helper("Artifacts").cloneOf(self._handle))


class LocalProperties(JvmObject):
    """Local properties of a thread's Spark jobs (``java.util.Properties``)."""


class Statistics(JvmObject):
    """Statistics that Spark has measured (``Statistics``)."""


class SortOrder(JvmObject):
    """The order of rows within a partition (``Seq[SortOrder]``)."""


class Partitioning(JvmObject):
    """How rows are distributed over tasks (``Partitioning``)."""


class BroadcastMode(JvmObject):
    """How rows are hashed for a broadcast join (``BroadcastMode``)."""


@dataclass(frozen=True, eq=False)
class HashedRelation(JvmObject):
    """A broadcast relation in the driver, with the id of its broadcast variable."""

    broadcast: int


class QueryStage(JvmObject):
    """A stage of a query that has run (``QueryStageExec``)."""


class InternalRows(JvmObject):
    """Rows that tasks compute on demand (``RDD[InternalRow]``)."""

    @property
    def tasks(self) -> int:
        """The number of tasks that compute the rows."""
        return int(self._handle.getNumPartitions())

    @property
    def id(self) -> int:
        """The id of the RDD."""
        return int(self._handle.id())


class PhysicalPlan(JvmObject):
    """A physical plan (``SparkPlan``)."""

    def rows(self) -> InternalRows:
        """Run all stages but the last; return the rows of the last."""
        return InternalRows(self._bridge, self._handle.execute())

    @property
    def ordering(self) -> SortOrder:
        """The order of the rows within a partition."""
        return SortOrder(self._bridge, self._handle.outputOrdering())
