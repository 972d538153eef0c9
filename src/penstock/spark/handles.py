"""Objects of Spark's JVM as the other rooms hold them: each with its session, and closed but for its own methods."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.spark.jvm import Bridge


@dataclass(frozen=True, eq=False)
class JvmObject:
    """An object of the JVM. Nobody outside of this room looks behind it; two of them are equal if they are the same.

    It can be an argument of a call into the JVM as it is.
    """

    _bridge: Bridge = field(repr=False)
    _handle: Any = field(repr=False)

    def _get_object_id(self) -> str:
        """Return the name by which py4j sends it."""
        return str(self._handle._get_object_id())


class Session(JvmObject):
    """A session: the user's, or a clone of it with settings of its own."""

    def clone(self) -> Session:
        """Return a session with the same settings, catalog, temporary views, cached data and artifacts."""
        return Session(self._bridge, self._bridge.helper("Artifacts").cloneOf(self._handle))


class LocalProperties(JvmObject):
    """What a thread's Spark jobs are told besides their plans (``java.util.Properties``)."""


class Statistics(JvmObject):
    """What Spark has measured of rows (``Statistics``)."""


class SortOrder(JvmObject):
    """The order of rows within a partition (``Seq[SortOrder]``)."""


class Partitioning(JvmObject):
    """How rows are laid out in tasks, as Spark says it (``Partitioning``)."""


class BroadcastMode(JvmObject):
    """How rows are hashed for a broadcast join (``BroadcastMode``)."""


@dataclass(frozen=True, eq=False)
class HashedRelation(JvmObject):
    """A broadcast relation in the driver.

    Parameters
    ----------
    broadcast
        The number of the broadcast.
    """

    broadcast: int


class QueryStage(JvmObject):
    """A stage of a query that has run (``QueryStageExec``)."""


class InternalRows(JvmObject):
    """Rows that tasks make when they are asked for (``RDD[InternalRow]``)."""

    @property
    def tasks(self) -> int:
        """How many tasks make them."""
        return int(self._handle.getNumPartitions())

    @property
    def id(self) -> int:
        """The number of the RDD."""
        return int(self._handle.id())


class PhysicalPlan(JvmObject):
    """A plan as Spark runs it (``SparkPlan``)."""

    def rows(self) -> InternalRows:
        """Run all of its stages but the last; return that one."""
        return InternalRows(self._bridge, self._handle.execute())

    @property
    def ordering(self) -> SortOrder:
        """The order of its rows within a partition."""
        return SortOrder(self._bridge, self._handle.outputOrdering())
