"""Properties of Catalyst plans and expressions; `plans` and `joins` have those that are read in a single call."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from penstock.base.location import SourceLine
from penstock.spark.bridge.handles import InternalRows
from penstock.spark.bridge.jvm import LOGICAL, Bridge, children, class_name, class_names, items, option
from penstock.spark.plans.expressions import Expression
from penstock.spark.plans.logical_plan import LogicalPlan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark.sql import DataFrame

    from penstock.spark.plans.nodes import LogicalNode


def analyzed_plan(bridge: Bridge, df: DataFrame) -> LogicalPlan:
    """Return the analysed plan of a DataFrame (``QueryExecution.analyzed``)."""
    return LogicalPlan(bridge, df._jdf.queryExecution().analyzed())


def cached_plan(bridge: Bridge, df: DataFrame) -> LogicalPlan:
    """Return the analysed plan of a DataFrame with cached data substituted (``QueryExecution.withCachedData``)."""
    return LogicalPlan(bridge, df._jdf.queryExecution().withCachedData())


def optimized_plan(bridge: Bridge, df: DataFrame) -> LogicalPlan:
    """Return the optimised plan of a DataFrame, with cached data substituted (``QueryExecution.optimizedPlan``)."""
    return LogicalPlan(bridge, df._jdf.queryExecution().optimizedPlan())


def optimize(analyzed: LogicalPlan) -> LogicalPlan:
    """Return the optimised plan of an analysed plan, with the user's settings (``SessionState.executePlan``)."""
    analyzed._handle.setAnalyzed()
    state = analyzed._bridge.session._handle.sessionState()
    mode = getattr(state, "executePlan$default$2")()
    return LogicalPlan(analyzed._bridge, state.executePlan(analyzed, mode).optimizedPlan())


MERGEABLE = class_names(
    "Count Sum Average Min Max StddevPop StddevSamp VariancePop VarianceSamp Skewness Kurtosis CovPopulation "
    "CovSample Corr RegrReplacement RegrR2 RegrSXY RegrSlope RegrIntercept BitAndAgg BitOrAgg BitXorAgg "
    "HyperLogLogPlusPlus"
)
"""Aggregate functions whose partial results stay small and do not depend on the order of merging."""

_NOT_MERGEABLE = {
    "CollectList": "collect_list keeps every value",
    "CollectSet": "collect_set keeps every distinct value",
    "ListAgg": "listagg keeps every value",
    "Percentile": "an exact percentile keeps every value",
    "PercentileCont": "an exact percentile keeps every value",
    "PercentileDisc": "an exact percentile keeps every value",
    "Median": "an exact median keeps every value",
    "Mode": "mode keeps every value",
    "PythonUDAF": "a Python function needs all rows of a group at once",
    "First": "first depends on the order of rows",
    "Last": "last depends on the order of rows",
    "MaxBy": "max_by depends on the order of rows",
    "MinBy": "min_by depends on the order of rows",
}


def unmergeable_reason(aggregate: LogicalNode) -> str | None:
    """Return why partial results of a group depend on the merge order or do not stay small; None if neither holds."""
    other = min(aggregate.functions - MERGEABLE, default=None)
    default = f"the result of {other} may depend on the order of rows"
    return None if other is None else _NOT_MERGEABLE.get(other, default)


def grouping_keys(node: LogicalNode) -> list[Expression]:
    """Return the expressions by which an operator groups rows; empty if all rows belong to a single group."""
    match node.name:
        case "Aggregate":
            keys = node._handle.groupingExpressions()
        case "Window" | "WindowInPandas" | "ArrowWindowPython" | "WindowGroupLimit":
            keys = node._handle.partitionSpec()
        case _:
            keys = node._handle.groupingAttributes()
    return [Expression(node._bridge, key) for key in items(keys)]


def partition_keys(node: LogicalNode) -> list[Expression]:
    """Return the expressions by which a repartition moves rows; for a range partitioning they are ``SortOrder``s."""
    return [Expression(node._bridge, key) for key in items(node._handle.partitionExpressions())]


def filter_condition(node: LogicalNode) -> Expression:
    """Return the condition of a ``Filter``."""
    return Expression(node._bridge, node._handle.condition())


def has_ordering(node: LogicalNode) -> bool:
    """Whether Spark guarantees an order of the operator's rows."""
    return not node._handle.outputOrdering().isEmpty()


def row_limit(node: LogicalNode) -> int | None:
    """Return the number of rows of a limit, None for other operators and for a computed limit."""
    if node.name not in {"GlobalLimit", "LocalLimit"} or class_name(node._handle.limitExpr()) != "Literal":
        return None
    return int(str(node._handle.limitExpr().toString()))


_ATTRIBUTE = re.compile(r"#(\d+)(L?)$")


def attribute_ids(expressions: Any) -> list[str]:
    """Return the expression ids of a ``Seq`` of attributes, an empty string for other expressions, in a single call.

    An expression that only prints like an attribute also gets an id; see `is_attribute`.
    """
    texts = [] if expressions.isEmpty() else str(expressions.mkString("\x00")).split("\x00")
    return [match[1] if match else "" for match in map(_ATTRIBUTE.search, texts)]


def is_attribute(expression: Any) -> bool:
    """Whether a JVM expression is a plain column."""
    return class_name(expression) == "AttributeReference"


def rebind(
    keys: Sequence[Expression], ids: Sequence[str], node: LogicalNode, target_ids: Sequence[str]
) -> tuple[Expression, ...]:
    """Replace the columns of expressions, identified by `ids`, by columns of a plan's output."""
    columns = dict(zip(ids, node.expressions(target_ids), strict=True))

    def column(expression: Any) -> Any | None:
        if not is_attribute(expression):
            return None
        (attribute_id,) = attribute_ids(expression.references().toSeq())
        return columns[attribute_id]._handle

    return tuple(Expression(key._bridge, transform(key._handle, column)) for key in keys)


def transform(expression: Any, replacement: Callable[[Any], Any | None]) -> Any:
    """Replace parts of an expression; `replacement` returns None for parts that stay."""
    new = replacement(expression)
    if new is not None:
        return new
    old = children(expression)
    inner = [transform(child, replacement) for child in old]
    if all(a is b for a, b in zip(old, inner, strict=True)):
        return expression
    changed = expression.children().empty()
    for child in inner:
        changed = changed.appended(child)
    return expression.withNewChildren(changed)


def groups_by(node: LogicalNode, ids: Iterable[str]) -> bool:
    """Whether the grouping expressions of an operator include all of some columns."""
    groups = node._handle.groupingExpressions() if node.name == "Aggregate" else node._handle.partitionSpec()
    group_ids = attribute_ids(groups)
    return all(column in group_ids and is_attribute(groups.apply(group_ids.index(column))) for column in ids)


def is_partitioned_by(leaf: LogicalNode, keys: Sequence[Expression]) -> bool:
    """Whether the files or partitions of a leaf are partitioned by at least one of some columns."""
    names = leaf.partition_columns
    return bool(names) and any(key.is_attribute and key.name in names for key in keys)


def reduces_rows(node: LogicalNode) -> bool:
    """Whether a subtree may return far fewer rows than its leaves; not-null filters alone do not count."""
    all_rows = {"Project", "Sort", "Repartition", "RepartitionByExpression", "RebalancePartitions"}
    return any(part.children and part.name not in all_rows and not part.only_not_null for part in node.walk())


def filters_groups(node: LogicalNode) -> bool:
    """Whether a subtree returns groups of an aggregate that a filter has selected (HAVING)."""
    has_filter = False
    while node.name in {"Project", "Filter", "Aggregate"}:
        if node.name == "Aggregate":
            return has_filter
        has_filter = has_filter or (node.name == "Filter" and not node.only_not_null)
        node = node.children[0]
    return False


def same_result(left: LogicalPlan, right: LogicalPlan) -> bool:
    """Whether two plans return the same rows, column by column."""
    return bool(left._handle.sameResult(right))


def lists_same_files(left: LogicalPlan, right: LogicalPlan) -> bool:
    """Whether two plans with the same result have listed the same files; Spark itself compares only their paths."""
    return bool(left._bridge.helper("ListingComparison").readsSame(left, right))


def mixes_listings(plan: LogicalPlan) -> bool:
    """Whether a plan has relations that Spark considers equal although they have listed different files."""
    return bool(plan._bridge.helper("ListingComparison").mixesListings(plan))


def rdd_id(leaf: LogicalNode) -> int:
    """Return the id of the RDD of a ``LogicalRDD``, the only property of the leaf that all of its copies share."""
    return rows_of(leaf).id


def rows_of(leaf: LogicalPlan) -> InternalRows:
    """Return the rows of a ``LogicalRDD``."""
    return InternalRows(leaf._bridge, leaf._handle.rdd())


def fix_current_time(bridge: Bridge, plans: Sequence[LogicalPlan]) -> list[LogicalPlan] | None:
    """Replace the current time by a common value in all analysed plans; return None if no plan uses it.

    Spark sets the same time in a whole plan: here a union of the plans, which never runs.
    """
    pattern = bridge.companion("org.apache.spark.sql.catalyst.trees.TreePattern").CURRENT_LIKE()
    if not any(plan._handle.containsPattern(pattern) for plan in plans):
        return None
    union = bridge.find(LOGICAL + "Union")(bridge.seq(plans), False, False)
    fixed = bridge.companion("org.apache.spark.sql.catalyst.optimizer.ComputeCurrentTime").apply(union)
    return [LogicalPlan(bridge, plan) for plan in children(fixed)]


def semantic_hash(plan: LogicalPlan) -> int:
    """Return a hash that is equal for plans with the same result."""
    return int(plan._handle.semanticHash())


def leaf_bytes(plan: LogicalPlan) -> int:
    """Return Spark's estimated bytes of all leaves of a plan, including subqueries."""
    return int(plan._bridge.helper("SourceBytes").total(plan))


def observes_metrics(plan: LogicalPlan) -> bool:
    """Whether a plan contains ``CollectMetrics`` (``DataFrame.observe``)."""
    return bool(plan._bridge.helper("PlanSearch").observesMetrics(plan))


def buckets_save_shuffle(plan: LogicalPlan) -> bool:
    """Whether tables of a plan are bucketed by the keys of a join, aggregate or window, so that Spark shuffles less."""
    return bool(plan._bridge.helper("BucketedTables").saveShuffle(plan))


def user_line(plan: LogicalPlan) -> SourceLine | None:
    """Return the user's line that created an operator; PySpark records none for DataFrame methods, only on columns."""
    todo = items(plan._handle.expressions())[:8]
    for _ in range(64):
        if not todo:
            return None
        expression = todo.pop(0)
        context = option(expression.origin().pysparkErrorContext())
        if context is not None:
            file, _, line = str(context._2()).rpartition(":")
            if line.isdigit():
                return SourceLine(file, int(line))
        todo += children(expression)
    return None
