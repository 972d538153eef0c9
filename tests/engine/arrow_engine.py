"""A second native engine: PyArrow filters rows of Parquet scans, and counts rows of Parquet files.

It shows what the interface of engines requires. Its package registers `ENGINE` in the entry point group
``penstock.engines``.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.errors import PythonException

from penstock.spark.bridge.handles import PhysicalPlan
from penstock.spark.bridge.jvm import children, class_name, items, option
from penstock.spark.plans import catalyst
from penstock.spark.plans.dataframes import dataframe
from penstock.spark.plans.fragment import rdd_leaf
from penstock.spark.plans.logical_plan import Attributes, LogicalPlan
from penstock.spark.plans.nodes import read_plan
from penstock.spark.plans.planning import spark_plan
from penstock.spark.plans.predicates import conditions_of
from penstock.spark.run.query_hook import QueryPredicate

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from penstock.engine.interface import NativeEngine
    from penstock.spark.bridge.handles import Session
    from penstock.spark.bridge.jvm import Bridge
    from penstock.spark.plans.nodes import LogicalNode
    from penstock.spark.plans.predicates import PlainCondition

FAIL_VARIABLE = "ARROW_ENGINE_FAILS"
"""Environment variable that makes the engine fail in tasks."""
FAILURE = "PyArrow fails on purpose"
_COMPARISONS = {"=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def arrow_expression(conditions: Sequence[PlainCondition]) -> pc.Expression:
    """Return the conjunction of conditions as a PyArrow expression."""

    def expression(condition: PlainCondition) -> pc.Expression:
        name, column, values = condition
        if name == "is not null":
            return ~pc.field(column).is_null()
        return _COMPARISONS[name](pc.field(column), values[0])

    return reduce(operator.and_, map(expression, conditions), pc.scalar(value=True))


@dataclass(frozen=True)
class FilterStep:
    """Filters batches of rows in a Python worker."""

    conditions: tuple[PlainCondition, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if FAIL_VARIABLE in os.environ:
            raise RuntimeError(FAILURE)
        for batch in batches:
            yield batch.filter(arrow_expression(self.conditions))


@dataclass(frozen=True)
class CountStep:
    """Counts rows of Parquet files in a Python worker."""

    paths: list[str]
    conditions: tuple[PlainCondition, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if FAIL_VARIABLE in os.environ:
            raise RuntimeError(FAILURE)
        for batch in batches:
            count = ds.dataset(self.paths, format="parquet").count_rows(filter=arrow_expression(self.conditions))
            yield batch.from_pydict({"count": [count] * batch.num_rows})


def supported_conditions(chain: LogicalPlan) -> tuple[PlainCondition, ...] | None:
    """Return the conditions of the filters above a leaf, None if a condition is not a comparison with an integer or text."""
    conditions = conditions_of(chain)
    conjuncts, node = 0, chain._handle
    while node.children().size() == 1:
        if class_name(node) == "Filter":
            conjuncts += _conjunct_count(node.condition())
        node = node.children().apply(0)
    is_supported = all(
        len(condition) == 3
        and condition[0] in {*_COMPARISONS, "is not null"}
        and all(type(value) in {int, str} for value in condition[2])
        for condition in conditions
    )
    return tuple(conditions) if is_supported and len(conditions) == conjuncts else None


def _conjunct_count(condition: Any) -> int:
    is_and = class_name(condition) == "And"
    return _conjunct_count(condition.left()) + _conjunct_count(condition.right()) if is_and else 1


@dataclass(frozen=True)
class ArrowFragment:
    """A filter directly above a scan of Parquet files."""

    table: str
    declined_reason: str | None = None


@dataclass
class ArrowRewriter:
    """Replaces filters above scans of Parquet files."""

    memory: int
    fragments: list[ArrowFragment] = field(default_factory=list)
    failure: str | None = None
    rows_returned: int | None = None
    _rdd_ids: list[int] = field(default_factory=list)
    """The RDDs that the engine computes."""

    def rewrite(self, session: Session, plan: PhysicalPlan) -> PhysicalPlan:
        """Replace all filters that the engine supports."""
        self.fragments.clear()
        self._rdd_ids.clear()
        return plan if self.failure is not None else PhysicalPlan(session._bridge, self._replace(session, plan._handle))

    def _replace(self, session: Session, node: Any) -> Any:
        if class_name(node) == "FilterExec" and class_name(node.child()) == "FileSourceScanExec":
            return self._filter(session, node)
        inputs = children(node)
        return node.withNewChildren(session._bridge.seq([self._replace(session, child) for child in inputs]))

    def _filter(self, session: Session, node: Any) -> Any:
        bridge = session._bridge
        link = option(node.logicalLink())
        conditions = None if link is None else supported_conditions(LogicalPlan(bridge, link))
        name = str(node.child().relation().location().rootPaths().apply(0).getName())
        if conditions is None:
            self.fragments.append(ArrowFragment(name, "its condition is not supported"))
            return node
        self.fragments.append(ArrowFragment(name))
        scan = node.child()
        to_rows = bridge.find("org.apache.spark.sql.execution.ColumnarToRowExec")
        read = PhysicalPlan(bridge, to_rows(scan) if scan.supportsColumnar() else scan).rows()
        rows = dataframe(session, rdd_leaf(session, Attributes(bridge, scan.output()), read))
        leaf = _leaf(rows.mapInArrow(FilterStep(conditions), rows.schema), Attributes(bridge, node.output()))
        self._rdd_ids.append(leaf._handle.rdd().id())
        return spark_plan(session, leaf)

    def fail_fast(self, bridge: Bridge) -> AbstractContextManager[None]:
        """Do nothing: a local session does not retry tasks."""
        del bridge
        return nullcontext()

    def handle_failure(self, bridge: Bridge, error: Exception) -> bool:
        """Replace nothing from now on if the engine has failed."""
        del bridge
        if FAILURE in str(error):
            self.failure = FAILURE
        return self.failure is not None

    def disable_for_last_stage(self, final_plan: PhysicalPlan) -> bool:
        """Replace nothing from now on if the last stage has a replaced filter; return whether it has."""
        if self._is_in_last_stage(final_plan._handle):
            self.failure = "the step ends without an exchange"
        return self.failure is not None

    def _is_in_last_stage(self, node: Any) -> bool:
        if class_name(node) == "RDDScanExec":
            return node.rdd().id() in self._rdd_ids
        return class_name(node) != "ShuffleQueryStageExec" and any(map(self._is_in_last_stage, children(node)))

    def report_rows(self, bridge: Bridge) -> None:
        """Report nothing."""

    def close(self) -> None:
        """Release nothing."""


@dataclass(frozen=True)
class ArrowQuery:
    """A query that counts rows of Parquet files."""

    plan: LogicalPlan
    leaf: LogicalNode
    conditions: tuple[PlainCondition, ...]
    fragment_count: int = 1
    rest_reasons: tuple[str, ...] = ()
    rest_size_in_bytes: int = 0
    rest_may_fail: bool = False

    @property
    def tables(self) -> Sequence[str]:
        """The name of the table."""
        assert self.leaf.files is not None
        return [self.leaf.files.name]

    @property
    def size_in_bytes(self) -> int:
        """The size of the files."""
        return self.leaf.size_in_bytes

    def rows(self, memory: int, threads: int, *, is_checked: bool = False) -> LogicalPlan | str:
        """Return a leaf with the count."""
        del memory, threads, is_checked
        spark = self.plan._bridge.spark
        paths = (str(path).removeprefix("file:") for path in self.leaf._handle.relation().location().inputFiles())
        step = CountStep(list(map(unquote, paths)), self.conditions)
        try:
            counted = spark.range(0, 1, 1, 1).mapInArrow(step, "count long").collect()
        except PythonException as error:
            return FAILURE if FAILURE in str(error) else str(error)
        return _leaf(spark.createDataFrame(counted, "count long"), self.plan.output)


def _leaf(df: DataFrame, output: Attributes) -> LogicalPlan:
    """Return a leaf with the rows of a DataFrame and the columns of `output`."""
    session = output._bridge.session
    plan = LogicalPlan(output._bridge, df._jdf.queryExecution().optimizedPlan())
    return rdd_leaf(session, output, PhysicalPlan(output._bridge, spark_plan(session, plan)).rows())


def _counted_files(plan: LogicalPlan) -> tuple[LogicalNode, tuple[PlainCondition, ...]] | str:
    node = read_plan(plan)
    if node.name != "Aggregate" or catalyst.grouping_keys(node) or not _is_count(plan):
        return "it is not a count of all rows"
    (chain,) = node.children
    below = list(chain.walk())
    if any(part.name not in {"Project", "Filter"} for part in below[:-1]) or below[-1].files is None:
        return "it does not only filter rows of files"
    if below[-1].files.format != "parquet" or below[-1].partition_columns:
        return "its files are not plain Parquet files"
    conditions = supported_conditions(chain)
    return "its condition is not supported" if conditions is None else (below[-1], conditions)


def _is_count(plan: LogicalPlan) -> bool:
    results = items(plan._handle.aggregateExpressions())
    aggregate = results[0].child() if len(results) == 1 and class_name(results[0]) == "Alias" else None
    if aggregate is None or class_name(aggregate) != "AggregateExpression":
        return False
    function = aggregate.aggregateFunction()
    is_plain = not aggregate.isDistinct() and aggregate.filter().isEmpty() and class_name(function) == "Count"
    return is_plain and all(class_name(counted) == "Literal" for counted in items(function.children()))


class ArrowEngine:
    """Runs PyArrow in Spark's Python workers."""

    name = "PyArrow"

    def is_installed(self) -> bool:
        """Return True: tests install PyArrow."""
        return True

    def unavailable_reason(self, bridge: Bridge) -> str | None:
        """Return None: the engine can always be used."""
        del bridge
        return None

    def local_memory(self) -> int:
        """Return the bytes of a few batches."""
        return 64 << 20

    def rewriter(self, memory: int, excluded: Sequence[str] = (), *, only_expensive: bool = False) -> ArrowRewriter:
        """Return a rewriter."""
        return ArrowRewriter(memory)

    def whole_query_predicate(self, bridge: Bridge) -> QueryPredicate:
        """Return a condition that holds for no plan: small queries stay with Spark."""
        return QueryPredicate(bridge, bridge.find("java.util.function.Predicate").isEqual("no plan"))

    def query(self, plan: LogicalPlan, excluded: Sequence[str] = ()) -> ArrowQuery | str:
        """Return the counting query of an optimized plan, or why the engine cannot compute the plan."""
        counted = _counted_files(plan)
        return counted if isinstance(counted, str) else ArrowQuery(plan, *counted)


ENGINE: NativeEngine = ArrowEngine()
