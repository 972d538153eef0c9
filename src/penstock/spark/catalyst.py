"""Questions about Catalyst plans and expressions; see `plans` and `joins` for what is read of them at once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from penstock.location import SourceLine
from penstock.spark.expressions import Expression
from penstock.spark.handles import InternalRows
from penstock.spark.jvm import LOGICAL, children, class_name, items, option
from penstock.spark.logical_plan import LogicalPlan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark.sql import DataFrame

    from penstock.spark.jvm import Bridge
    from penstock.spark.plans import LogicalNode


def analyzed_plan(bridge: Bridge, df: DataFrame) -> LogicalPlan:
    """Return the analysed plan of a DataFrame (``QueryExecution.analyzed``)."""
    return LogicalPlan(bridge, df._jdf.queryExecution().analyzed())


def cached_plan(bridge: Bridge, df: DataFrame) -> LogicalPlan:
    """Return the analysed plan of a DataFrame with cached data in place (``QueryExecution.withCachedData``)."""
    return LogicalPlan(bridge, df._jdf.queryExecution().withCachedData())


def optimized_plan(bridge: Bridge, df: DataFrame) -> LogicalPlan:
    """Return the optimised plan of a DataFrame, with cached data in place (``QueryExecution.optimizedPlan``)."""
    return LogicalPlan(bridge, df._jdf.queryExecution().optimizedPlan())


def optimize(analyzed: LogicalPlan) -> LogicalPlan:
    """Return the optimised plan of an analysed one, with the user's settings (``SessionState.executePlan``)."""
    analyzed._handle.setAnalyzed()
    state = analyzed._bridge.session._handle.sessionState()
    mode = getattr(state, "executePlan$default$2")()
    return LogicalPlan(analyzed._bridge, state.executePlan(analyzed, mode).optimizedPlan())


MERGEABLE = frozenset(
    {
        "Count",
        "Sum",
        "Average",
        "Min",
        "Max",
        "StddevPop",
        "StddevSamp",
        "VariancePop",
        "VarianceSamp",
        "Skewness",
        "Kurtosis",
        "CovPopulation",
        "CovSample",
        "Corr",
        "RegrReplacement",
        "RegrR2",
        "RegrSXY",
        "RegrSlope",
        "RegrIntercept",
        "BitAndAgg",
        "BitOrAgg",
        "BitXorAgg",
        "HyperLogLogPlusPlus",
    }
)
"""Aggregate functions whose partial results stay small, and give the same in whatever order they are merged."""

_NOT_MERGEABLE = {
    "CollectList": "collect_list keeps every value",
    "CollectSet": "collect_set keeps every distinct value",
    "ListAgg": "listagg keeps every value",
    "Percentile": "an exact percentile keeps every value",
    "PercentileCont": "an exact percentile keeps every value",
    "PercentileDisc": "an exact percentile keeps every value",
    "Median": "an exact median keeps every value",
    "Mode": "mode keeps every value",
    "PythonUDAF": "a Python function wants all rows of a group at once",
    "First": "first depends on the order of rows",
    "Last": "last depends on the order of rows",
    "MaxBy": "max_by depends on the order of rows",
    "MinBy": "min_by depends on the order of rows",
}


def why_not_mergeable(aggregate: LogicalNode) -> str | None:
    """Return why partial results of a group cannot be merged in any order or do not stay small; None if they do."""
    others = sorted(aggregate.functions - MERGEABLE)
    if not others:
        return None
    return _NOT_MERGEABLE.get(others[0], f"{others[0]} is not known to give the same in any order")


def grouping_keys(node: LogicalNode) -> list[Expression]:
    """Return the expressions by which an operator wants its rows together; empty if all rows belong to one group."""
    match node.name:
        case "Aggregate":
            found = node._handle.groupingExpressions()
        case "Window" | "WindowInPandas" | "ArrowWindowPython" | "WindowGroupLimit":
            found = node._handle.partitionSpec()
        case _:
            found = node._handle.groupingAttributes()
    return [Expression(node._bridge, one) for one in items(found)]


def partition_keys(node: LogicalNode) -> list[Expression]:
    """Return the expressions by which a repartition moves rows; those of a range are of the kind ``SortOrder``."""
    return [Expression(node._bridge, key) for key in items(node._handle.partitionExpressions())]


def filter_condition(node: LogicalNode) -> Expression:
    """Return what a ``Filter`` wants of its rows."""
    return Expression(node._bridge, node._handle.condition())


def keeps_an_order(node: LogicalNode) -> bool:
    """Whether the rows of an operator come in an order, as far as Spark knows."""
    return not node._handle.outputOrdering().isEmpty()


def row_limit(node: LogicalNode) -> int | None:
    """Return how many rows a limit lets through, None of an operator that is none or computes it."""
    if node.name not in {"GlobalLimit", "LocalLimit"} or class_name(node._handle.limitExpr()) != "Literal":
        return None
    return int(str(node._handle.limitExpr().toString()))


_ATTRIBUTE = re.compile(r"#(\d+)(L?)$")


def attribute_ids(expressions: Any) -> list[str]:
    """Return the expression ids of a ``Seq`` of attributes, an empty text for what cannot be one.

    Whatever prints like an attribute has an id here; see `is_attribute`. All cost one call.
    """
    found = map(_ATTRIBUTE.search, _texts(expressions))
    return [match[1] if match else "" for match in found]


def _texts(expressions: Any) -> list[str]:
    return [] if expressions.isEmpty() else str(expressions.mkString("\x00")).split("\x00")


def is_attribute(expression: Any) -> bool:
    """Whether an expression of the JVM is a plain column."""
    return class_name(expression) == "AttributeReference"


def rebound(
    keys: Sequence[Expression], ids: Sequence[str], node: LogicalNode, there: Sequence[str]
) -> tuple[Expression, ...]:
    """Return expressions with their columns, given by id, replaced by columns of a plan's output."""
    columns = dict(zip(ids, node.expressions(there), strict=True))

    def column(expression: Any) -> Any | None:
        if not is_attribute(expression):
            return None
        (found,) = attribute_ids(expression.references().toSeq())
        return columns[found]._handle

    return tuple(Expression(key._bridge, replaced(key._handle, column)) for key in keys)


def replaced(expression: Any, replacement: Callable[[Any], Any | None]) -> Any:
    """Return an expression with some of its parts replaced; `replacement` returns None for what stays."""
    new = replacement(expression)
    if new is not None:
        return new
    old = children(expression)
    inner = [replaced(child, replacement) for child in old]
    if all(a is b for a, b in zip(old, inner, strict=True)):
        return expression
    changed = expression.children().empty()
    for child in inner:
        changed = changed.appended(child)
    return expression.withNewChildren(changed)


def grouped_by(node: LogicalNode, ids: Iterable[str]) -> bool:
    """Whether all of some columns are among those by which an operator wants its rows together."""
    groups = node._handle.groupingExpressions() if node.name == "Aggregate" else node._handle.partitionSpec()
    found = attribute_ids(groups)
    return all(one in found and is_attribute(groups.apply(found.index(one))) for one in ids)


def is_partitioned_by(leaf: LogicalNode, keys: Sequence[Expression]) -> bool:
    """Whether one of some columns is one that the files or partitions of a leaf are laid out by."""
    names = leaf.partition_columns
    return bool(names) and any(key.is_attribute and key.name in names for key in keys)


def reduces(node: LogicalNode) -> bool:
    """Whether a subtree may give much less than its leaves hold: it is more than columns that are not null."""
    return any(
        not (part.name == "Project" or not part.children or part.name in _ALL_ROWS) and not part.only_not_null
        for part in node.walk()
    )


_ALL_ROWS = frozenset({"Sort", "Repartition", "RepartitionByExpression", "RebalancePartitions"})


def filters_groups(node: LogicalNode) -> bool:
    """Whether what a subtree gives are groups of an aggregate that a filter has chosen from (HAVING)."""
    chooses = False
    while node.name in {"Project", "Filter", "Aggregate"}:
        if node.name == "Aggregate":
            return chooses
        chooses = chooses or (node.name == "Filter" and not node.only_not_null)
        node = node.children[0]
    return False


def same_result(left: LogicalPlan, right: LogicalPlan) -> bool:
    """Whether two plans give the same rows, column by column."""
    return bool(left._handle.sameResult(right))


def reads_same(left: LogicalPlan, right: LogicalPlan) -> bool:
    """Whether two plans with the same result have listed the same files (Spark compares no more than their paths)."""
    return bool(left._bridge.helper("ListingComparison").readsSame(left, right))


def mixes_listings(plan: LogicalPlan) -> bool:
    """Whether a plan has relations that are equal to Spark though they have listed other files."""
    return bool(plan._bridge.helper("ListingComparison").mixesListings(plan))


def rdd_id(leaf: LogicalNode) -> int:
    """Return the number of the RDD behind a ``LogicalRDD``: of all facts of such a leaf, the one that no copy loses."""
    return rows_of(leaf).id


def rows_of(leaf: LogicalPlan) -> InternalRows:
    """Return the rows of a ``LogicalRDD``."""
    return InternalRows(leaf._bridge, leaf._handle.rdd())


def at_one_time(bridge: Bridge, plans: Sequence[LogicalPlan]) -> list[LogicalPlan] | None:
    """Return analysed plans with one value for the present time in all of them; None if none of them asks for it.

    Uses ``ComputeCurrentTime``, which gives all of one plan the same time, on a union of the plans that is never run.
    """
    asks = bridge.companion("org.apache.spark.sql.catalyst.trees.TreePattern").CURRENT_LIKE()
    if not any(plan._handle.containsPattern(asks) for plan in plans):
        return None
    together = bridge.find(LOGICAL + "Union")(bridge.seq(plans), False, False)
    given = bridge.companion("org.apache.spark.sql.catalyst.optimizer.ComputeCurrentTime").apply(together)
    return [LogicalPlan(bridge, plan) for plan in children(given)]


def semantic_hash(plan: LogicalPlan) -> int:
    """Return a hash that is equal for plans with the same result."""
    return int(plan._handle.semanticHash())


def leaf_bytes(plan: LogicalPlan) -> int:
    """Return Spark's estimate of the bytes all leaves of a plan hold, those of subqueries included."""
    return int(plan._bridge.helper("SourceBytes").inAll(plan))


def observes_metrics(plan: LogicalPlan) -> bool:
    """Whether a plan has ``CollectMetrics`` in it (``DataFrame.observe``)."""
    return bool(plan._bridge.helper("PlanSearch").observesMetrics(plan))


def buckets_save_a_shuffle(plan: LogicalPlan) -> bool:
    """Whether tables of a plan lie by the keys of a join, an aggregation or a window, so that Spark shuffles less."""
    return bool(plan._bridge.helper("BucketedTables").saveAShuffle(plan))


def user_line(plan: LogicalPlan) -> SourceLine | None:
    """Return the user's line that made an operator, from what PySpark noted on its expressions, if anything.

    PySpark notes the line of functions and operators on columns (``Origin.pysparkErrorContext``), not of methods
    of a DataFrame.
    """
    todo = items(plan._handle.expressions())[:8]
    for _ in range(64):
        if not todo:
            return None
        expression = todo.pop(0)
        context = option(expression.origin().pysparkErrorContext())
        if context is not None:
            site = str(context._2())
            file, _, line = site.rpartition(":")
            if line.isdigit():
                return SourceLine(file, int(line))
        todo += children(expression)
    return None
