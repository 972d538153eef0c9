"""Leaves of a physical plan that DuckDB computes in Spark's Python workers (``java/NativeLeaves.java``).

A leaf is a scan of Parquet files with the filters, projections, joins with broadcast sides and the partial aggregate
right above it. It becomes one
``MapInArrowExec`` over rows that tell each task which ranges of files it reads: those of Spark's own scan.

Uses ``FileSourceScanExec``, ``FileScanRDD.filePartitions``, ``HashAggregateExec`` and ``MapInArrowExec``.
"""

from __future__ import annotations

import logging
import re
import threading
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql import DataFrame

from penstock.errors import first_line
from penstock.native import worker
from penstock.native.worker import Column, NativeLeaf
from penstock.spark import answers
from penstock.spark.expressions import Attributes
from penstock.spark.fragment import rdd_leaf
from penstock.spark.handles import InternalRows, PhysicalPlan
from penstock.spark.jvm import PHYSICAL, children, class_name, with_fields
from penstock.spark.logical_plan import LogicalPlan
from penstock.spark.native_builds import broadcast_build
from penstock.spark.planning import spark_plan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.spark.handles import Session
    from penstock.spark.jvm import Bridge

log = logging.getLogger("penstock.native")

_PICKLING = threading.Lock()
_PACKAGES = ("duckdb", "pyarrow")
_WITHOUT: dict[str, str] = {}
"""Applications that have executors without the packages, and what is missing there."""
_WHY = re.compile(rf"(?:{worker.NOT_NATIVE}|ModuleNotFoundError: )(.*)")
_OF_WORKERS = ("PythonException", "Python worker", "org.apache.spark.api.python", "ExecutorLostFailure")
"""Words of the errors with which a task ends whose Python worker failed or was killed, alone or with its executor."""


def _missing(bridge: Bridge) -> str | None:
    """Return what is not installed, as far as that is known; None if nothing is missing."""
    if find_spec("duckdb") is None:
        return "the package duckdb is not installed"
    if str(bridge.spark.sparkContext.getConf().get("spark.io.encryption.enabled", "false")) == "true":
        return "DuckDB would write to disks what Spark has to encrypt there"
    return _WITHOUT.get(_application(bridge))


def _application(bridge: Bridge) -> str:
    return str(bridge.spark.sparkContext.applicationId)


def is_worth_it(*, aggregates: bool) -> bool:
    """Whether a leaf is faster in DuckDB.

    Without an aggregate it may give nearly all of its rows, and to make Spark's rows of them costs more than was saved:
    TPC-H Q3 at scale 1 took 1.25 times as long.
    """
    return aggregates


@dataclass(frozen=True, slots=True)
class LeafFacts:
    """A leaf of a plan, and whether DuckDB can compute it.

    Parameters
    ----------
    table
        What it reads.
    declined
        Why Spark computes it; None if DuckDB does.
    sql
        The query of DuckDB; ``{scan}`` stands for the rows of the files.
    read, columns
        What it reads of the files, and what it gives.
    calendar
        As of a `NativeLeaf`.
    builds
        How many sides were broadcast to its joins.
    """

    table: str
    declined: str | None
    sql: str = field(default="", repr=False)
    read: tuple[Column, ...] = field(default=(), repr=False)
    columns: tuple[Column, ...] = field(default=(), repr=False)
    calendar: str = "CORRECTED"
    builds: int = 0

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> LeafFacts:
        """Return a leaf of what ``java/NativeLeaves.java`` tells about it."""
        if "declined" in facts:
            return cls(facts["table"], facts["declined"])
        if not is_worth_it(aggregates=facts["aggregates"]):
            return cls(facts["table"], facts["above"] or "no aggregate makes its rows few")
        read, columns = (tuple(Column(**one) for one in facts[name]) for name in ("read", "columns"))
        return cls(facts["table"], None, facts["sql"], read, columns, facts["calendar"], facts["builds"])


@dataclass(slots=True)
class NativeLeaves:
    """Lets DuckDB compute leaves of the plans of one vertex.

    Parameters
    ----------
    memory
        Bytes that DuckDB may use in a task before it spills.

    Attributes
    ----------
    leaves
        What was found in the plan that was made last.
    failure
        Why Spark has computed all leaves after all, None if it has not.
    """

    memory: int
    leaves: list[LeafFacts] = field(default_factory=list)
    failure: str | None = None

    @property
    def is_used(self) -> bool:
        """Whether DuckDB computes a leaf."""
        return self.failure is None and any(leaf.declined is None for leaf in self.leaves)

    def rewritten(self, session: Session, plan: PhysicalPlan) -> PhysicalPlan:
        """Return a physical plan, before exchanges are added, with leaves that DuckDB computes."""
        if self.failure is not None:
            return plan
        try:
            return PhysicalPlan(session._bridge, self._rewritten(session, plan._handle))
        except Exception as error:  # Spark's plan is there
            log.exception("no leaf can be computed by DuckDB")
            self.failure = first_line(error)
            return plan

    def _rewritten(self, session: Session, plan: Any) -> Any:
        bridge = session._bridge
        answer = bridge.helper("NativeLeaves").find(plan)
        self.leaves = [LeafFacts.of(one) for one in answers.facts(answer)]
        self.failure = _missing(bridge)
        if self.failure is not None:
            return plan
        old = [answer.handle(place) for place, leaf in enumerate(self.leaves) if leaf.declined is None]
        taken = [leaf for leaf in self.leaves if leaf.declined is None]
        made = [self._made(session, node, leaf) for node, leaf in zip(old, taken, strict=True)]
        return bridge.helper("NativeLeaves").replaced(plan, old, made) if old else plan

    def gives_up(self, bridge: Bridge, error: Exception) -> bool:
        """Whether an error comes from a worker of a leaf, perhaps; from now on Spark computes all leaves then.

        Where it comes from the query's own function, Spark will raise it again.
        """
        if not self.is_used or not any(words in str(error) for words in _OF_WORKERS):
            return False
        found = [_WHY.search(line) for line in str(error).splitlines()]
        reasons = [one for one in found if one is not None]
        self.failure = reasons[-1][1].strip() if reasons else "a Python worker failed"
        if any(f"No module named '{package}'" in str(self.failure) for package in _PACKAGES):
            self.failure += " on an executor"
            _WITHOUT[_application(bridge)] = self.failure  # no other leaf has to find out
        log.warning("Spark computes what DuckDB could not: %s", self.failure)
        return True

    def refuses(self, above: PhysicalPlan) -> bool:
        """Whether the part of a plan that has not run yet has a leaf of DuckDB: nothing could take its place later."""
        if not self.is_used or not _has_leaf(above._handle):
            return False
        self.failure = "the step ends without an exchange"
        return True

    def _made(self, session: Session, node: Any, leaf: LeafFacts) -> Any:
        """Return the operator that computes a leaf."""
        bridge = session._bridge
        builds = tuple(broadcast_build(bridge, node, number) for number in range(leaf.builds))
        function = NativeLeaf(leaf.sql, leaf.read, leaf.columns, self.memory, leaf.calendar, builds)
        texts = bridge.spark.createDataFrame([], "files string")._jdf.queryExecution().analyzed().output()
        tasks = InternalRows(bridge, bridge.helper("NativeLeaves").tasks(node))
        rows = rdd_leaf(session, Attributes(bridge, texts), tasks)
        made = bridge.companion("org.apache.spark.sql.classic.Dataset").ofRows(session, rows)
        schema = ", ".join(f"{one.name} {one.type}" for one in leaf.columns)
        with _PICKLING:  # what is registered holds for all threads
            cloudpickle.register_pickle_by_value(worker)  # type: ignore[no-untyped-call]
            try:
                mapped: Any = DataFrame(made, bridge.spark).mapInArrow(function, schema)
                plan = mapped._jdf.queryExecution().analyzed()
            finally:
                cloudpickle.unregister_pickle_by_value(worker)  # type: ignore[no-untyped-call]
        physical = spark_plan(session, LogicalPlan(bridge, plan))
        # A scan claims nothing of its rows, so Spark puts the exchange behind it that the step ends with.
        unknown = bridge.find(PHYSICAL + "UnknownPartitioning")(tasks.tasks)
        told = with_fields(bridge, physical.child(), outputPartitioning=unknown)
        told.copyTagsFrom(physical.child())  # adaptive execution wants to know the logical plan of each
        return with_fields(bridge, physical, output=node.output(), child=told)


def _has_leaf(plan: Any) -> bool:
    if class_name(plan) in {"MapInArrowExec", "PythonMapInArrowExec"} and "files#" in str(plan.child().output()):
        return True
    return class_name(plan) != "ShuffleQueryStageExec" and any(map(_has_leaf, children(plan)))
