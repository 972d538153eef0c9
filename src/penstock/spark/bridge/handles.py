"""Wrappers of JVM objects for other packages, and a map whose values live as long as JVM objects."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.spark.bridge.java_classes import new_instance

if TYPE_CHECKING:
    from penstock.spark.bridge.jvm import Bridge

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class JvmObject:
    """An object of the JVM, opaque outside of `penstock.spark`; calls into the JVM accept it. Compared by identity."""

    _bridge: Bridge = field(repr=False)
    _handle: Any = field(repr=False)

    def _get_object_id(self) -> str:
        return str(self._handle._get_object_id())


class Session(JvmObject):
    """A Spark session: the user's, or a clone of it with different settings."""

    def clone(self) -> Session:
        """Return a session with the same settings, catalog, temporary views, cached data and artifacts."""
        return Session(self._bridge, self._bridge.helper("Artifacts").cloneOf(self._handle))


class LocalProperties(JvmObject):
    """Local properties of a thread's Spark jobs (``java.util.Properties``)."""


class Statistics(JvmObject):
    """The bytes and rows of a result, usually measured (``Statistics``)."""


class SortOrder(JvmObject):
    """The order of rows within a partition (``Seq[SortOrder]``)."""


class Partitioning(JvmObject):
    """How rows are distributed over tasks (``Partitioning``)."""


class BroadcastMode(JvmObject):
    """The form of a broadcast relation that a join requires, such as a hash table by its keys (``BroadcastMode``)."""


@dataclass(frozen=True, eq=False)
class HashedRelation(JvmObject):
    """The hash table of a broadcast join in the driver, with the id of its broadcast variable."""

    broadcast_id: int


class QueryStage(JvmObject):
    """A query stage whose rows have been computed (``QueryStageExec``)."""


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
        """Return the rows, computed when they are read; an adaptive plan first runs all stages but the last."""
        return InternalRows(self._bridge, self._handle.execute())

    @property
    def ordering(self) -> SortOrder:
        """The order of the rows within a partition, up to the first key with a subquery, which has a physical plan."""
        pattern = self._bridge.companion("org.apache.spark.sql.catalyst.trees.TreePattern").PLAN_EXPRESSION()
        order = self._handle.outputOrdering()
        has_plan = (bool(order.apply(index).containsPattern(pattern)) for index in range(order.size()))
        keys = next((index for index, is_subquery in enumerate(has_plan) if is_subquery), order.size())
        return SortOrder(self._bridge, order.take(keys))


class PlanLifetimeMap(Generic[T]):
    """A map from numbers in query plans to values; it retains a value while the JVM has a plan with its number.

    All copies of a plan share a JVM object. After the JVM frees this object, the next `keep` removes the value.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[int, T] = {}
        self._application = ""
        self._watcher: Any = None

    def __len__(self) -> int:
        return len(self._values)

    def keep(self, bridge: Bridge, number: int, shared_object: Any, value: T) -> None:
        """Retain a value while the JVM has `shared_object`, which all copies of the plan share (``Lifetimes.java``)."""
        with self._lock:
            if bridge.application != self._application:  # plans of a stopped application cannot run
                self._values.clear()
                self._watcher = new_instance(bridge, "Lifetimes", on_executors=False)
                self._application = bridge.application
            self._values[number] = value
            for released in str(self._watcher.watch(shared_object, number)).split():
                self._values.pop(int(released), None)

    def get(self, number: int) -> T | None:
        """Return a value by its number, None if it has been released."""
        return self._values.get(number)
