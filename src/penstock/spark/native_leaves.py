"""Leaves of a physical plan that DuckDB computes in Spark's Python workers (``java/NativeLeaves.java``).

A leaf is a scan of Parquet files with the filters, projections, joins with broadcast sides and the partial aggregate
right above it. It becomes one
``MapInArrowExec`` over rows that tell each task which ranges of files it reads: those of Spark's own scan.

Uses ``FileSourceScanExec``, ``FileScanRDD.filePartitions``, ``HashAggregateExec`` and ``MapInArrowExec``.
"""

from __future__ import annotations

import json
import logging
import re
import threading
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.accumulators import _accumulatorRegistry
from pyspark.sql import DataFrame

from penstock.errors import first_line
from penstock.native import worker
from penstock.native.sample import sampled
from penstock.native.worker import Column, FileRange, NativeLeaf, NotNativeError
from penstock.spark import answers
from penstock.spark.expressions import Attributes
from penstock.spark.fragment import rdd_leaf
from penstock.spark.handles import InternalRows, PhysicalPlan
from penstock.spark.jvm import PHYSICAL, children, class_name, with_fields
from penstock.spark.key_rows import key_rows
from penstock.spark.logical_plan import LogicalPlan
from penstock.spark.native_builds import broadcast_build
from penstock.spark.planning import spark_plan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.accumulators import Accumulator

    from penstock.native.sample import Sample
    from penstock.spark.handles import Session
    from penstock.spark.jvm import Bridge

log = logging.getLogger("penstock.native")

MOST_LEFT = 0.1
"""A leaf without an aggregate pays if at most this part of its rows is left.

Per row that it reads it saves some 60 ns, and a row that it hands over costs Spark some 400 ns more (TPC-H, scale 10).
"""
_SAMPLED = 3
"""Row groups that are looked at: one may lie where all rows are alike, as tables are often sorted by time."""
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
    keys
        The numbers of the keys that its rows must be among (`key_rows`).
    aggregates
        Whether it sums up its rows.
    above
        Why what is above it is not part of it, if it could be.
    """

    table: str
    declined: str | None
    sql: str = field(default="", repr=False)
    read: tuple[Column, ...] = field(default=(), repr=False)
    columns: tuple[Column, ...] = field(default=(), repr=False)
    calendar: str = "CORRECTED"
    builds: int = 0
    keys: tuple[int, ...] = ()
    aggregates: bool = False
    above: str | None = None

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> LeafFacts:
        """Return a leaf of what ``java/NativeLeaves.java`` tells about it."""
        if "declined" in facts:
            return cls(facts["table"], facts["declined"])
        columns = {name: tuple(Column(**one) for one in facts[name]) for name in ("read", "columns")}
        return cls(declined=None, **{**facts, **columns, "keys": tuple(facts["keys"])})


def why_not(sample: Sample) -> str | None:
    """Return why a leaf without an aggregate is faster in Spark, None if it is not."""
    if not sample.read:
        return "its files have no rows"
    if sample.share > MOST_LEFT:
        return f"{sample.share:.0%} of the rows stay, and it would cost more to hand them over than is saved"
    return None


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
    _counted: list[RowsRead] = field(default_factory=list, repr=False)

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
        self._counted.clear()
        old, made = [], []
        for place, leaf in enumerate(self.leaves):
            if leaf.declined is not None:
                continue
            node = answer.handle(place)
            function = self._function(session, node, leaf)
            if isinstance(function, str):
                self.leaves[place] = replace(leaf, declined=function)
                continue
            old.append(node)
            self._counted.append(RowsRead(bridge, node))
            made.append(_operator(session, node, leaf, function, self._counted[-1]))
        return bridge.helper("NativeLeaves").replaced(plan, old, made) if old else plan

    def _function(self, session: Session, node: Any, leaf: LeafFacts) -> NativeLeaf | str:
        """Return what computes a leaf, or why Spark shall."""
        bridge, keys = session._bridge, {number: key_rows(number) for number in leaf.keys}
        tables = {f"build_{number}": broadcast_build(bridge, node, number) for number in range(leaf.builds)}
        for number, rows in keys.items():
            if rows is None:
                return "the keys that its rows must be among are gone"
            tables[f"keys_{number}"] = rows.rows(session)
        function = NativeLeaf(leaf.sql, leaf.read, leaf.columns, self.memory, leaf.calendar, tables)
        if leaf.aggregates:
            return function
        files = [FileRange(**one) for one in json.loads(bridge.helper("NativeLeaves").sample(node, _SAMPLED))]
        try:
            return why_not(sampled(function, files)) or function
        except NotNativeError as error:
            return str(error).removeprefix(worker.NOT_NATIVE)

    def tell(self) -> None:
        """Tell the plan that has run how many rows DuckDB has read."""
        for rows in self._counted:
            rows.tell()

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


class RowsRead:
    """The rows that tasks read, which the JVM can only be told after they have ended."""

    def __init__(self, bridge: Bridge, leaf: Any) -> None:
        self.counter: Accumulator[int] = bridge.spark.sparkContext.accumulator(0)
        self.tasks: Any = None
        self._bridge = bridge
        self._leaf = leaf

    def tell(self) -> None:
        """Let the plan of the tasks stand for the scan of the leaf."""
        self._bridge.helper("NativeLeaves").tell(self.tasks, self._leaf, self.counter.value)
        _accumulatorRegistry.pop(self.counter.aid, None)  # PySpark would keep it


def _operator(session: Session, node: Any, leaf: LeafFacts, function: NativeLeaf, rows_read: RowsRead) -> Any:
    """Return the operator that computes a leaf."""
    bridge = session._bridge
    texts = bridge.spark.createDataFrame([], "files string")._jdf.queryExecution().analyzed().output()
    tasks = InternalRows(bridge, bridge.helper("NativeLeaves").tasks(node))
    rows = rdd_leaf(session, Attributes(bridge, texts), tasks)
    made = bridge.companion("org.apache.spark.sql.classic.Dataset").ofRows(session, rows)
    schema = ", ".join(f"{one.name} {one.sent}" for one in leaf.columns)
    with _PICKLING:  # what is registered holds for all threads
        cloudpickle.register_pickle_by_value(worker)  # type: ignore[no-untyped-call]
        try:
            counting = replace(function, rows_read=rows_read.counter)
            mapped: Any = DataFrame(made, bridge.spark).mapInArrow(counting, schema)
            plan = mapped._jdf.queryExecution().analyzed()
        finally:
            cloudpickle.unregister_pickle_by_value(worker)  # type: ignore[no-untyped-call]
    physical = spark_plan(session, LogicalPlan(bridge, plan))
    # A scan claims nothing of its rows, so Spark puts the exchange behind it that the step ends with.
    unknown = bridge.find(PHYSICAL + "UnknownPartitioning")(tasks.tasks)
    told = with_fields(bridge, physical.child(), outputPartitioning=unknown)
    told.copyTagsFrom(physical.child())  # adaptive execution wants to know the logical plan of each
    rows_read.tasks = told
    if any(one.is_short_decimal for one in leaf.columns):
        computed = with_fields(bridge, physical, child=told)
        computed.copyTagsFrom(physical)
        return bridge.helper("NativeLeaves").withDecimals(computed, node.output())
    return with_fields(bridge, physical, output=node.output(), child=told)


def _has_leaf(plan: Any) -> bool:
    if class_name(plan) in {"MapInArrowExec", "PythonMapInArrowExec"} and "files#" in str(plan.child().output()):
        return True
    return class_name(plan) != "ShuffleQueryStageExec" and any(map(_has_leaf, children(plan)))
