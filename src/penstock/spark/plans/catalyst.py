"""Properties of Catalyst plans and expressions; the modules `nodes` and `joins` read many of them in a single call."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.base.location import UserLine
from penstock.spark.bridge.handles import InternalRows
from penstock.spark.bridge.jvm import LOGICAL, Bridge, children, class_name, class_names, items, option
from penstock.spark.plans.expressions import Expression
from penstock.spark.plans.logical_plan import LogicalPlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.spark.plans.nodes import LogicalNode


def analyzed_plan(bridge: Bridge, df: DataFrame) -> LogicalPlan:
    """Return the analyzed plan of a DataFrame (``QueryExecution.analyzed``)."""
    return LogicalPlan(bridge, df._jdf.queryExecution().analyzed())


def cached_plan(bridge: Bridge, df: DataFrame) -> LogicalPlan:
    """Return the analyzed plan of a DataFrame with cached data substituted (``QueryExecution.withCachedData``)."""
    return LogicalPlan(bridge, df._jdf.queryExecution().withCachedData())


def optimized_plan(bridge: Bridge, df: DataFrame) -> LogicalPlan:
    """Return the optimized plan of a DataFrame, with cached data substituted (``QueryExecution.optimizedPlan``)."""
    return LogicalPlan(bridge, df._jdf.queryExecution().optimizedPlan())


def optimize(analyzed: LogicalPlan) -> LogicalPlan:
    """Return the optimized plan of an analyzed plan, with the user's settings (``SessionState.executePlan``)."""
    analyzed._handle.setAnalyzed()
    session_state = analyzed._bridge.session._handle.sessionState()
    mode = getattr(session_state, "executePlan$default$2")()  # the default of the second argument
    return LogicalPlan(analyzed._bridge, session_state.executePlan(analyzed, mode).optimizedPlan())


MERGEABLE = class_names(
    "Count Sum Average Min Max StddevPop StddevSamp VariancePop VarianceSamp Skewness Kurtosis CovPopulation "
    "CovSample Corr RegrReplacement RegrR2 RegrSXY RegrSlope RegrIntercept BitAndAgg BitOrAgg BitXorAgg "
    "HyperLogLogPlusPlus"
)
"""Functions with small partial results that can be merged in any order, except for overflows and last digits."""

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
    """Return why partial results cannot be merged in any order or would not stay small; None if neither applies."""
    function = min(aggregate.functions - MERGEABLE, default=None)
    default = f"the result of {function} may depend on the order of rows"
    return None if function is None else _NOT_MERGEABLE.get(function, default)


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
    """Return the expressions by which a repartition distributes rows: ``SortOrder``s for a range partitioning."""
    return [Expression(node._bridge, key) for key in items(node._handle.partitionExpressions())]


def filter_condition(node: LogicalNode) -> Expression:
    """Return the condition of a ``Filter``."""
    return Expression(node._bridge, node._handle.condition())


def has_ordering(node: LogicalNode) -> bool:
    """Whether Spark guarantees an order of the operator's rows."""
    return not node._handle.outputOrdering().isEmpty()


def row_limit(node: LogicalNode) -> int | None:
    """Return the number of rows of a limit; None for a computed limit, and for other operators."""
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
    """Whether a JVM expression is a column, without any computation."""
    return class_name(expression) == "AttributeReference"


def rebind(
    keys: Sequence[Expression], ids: Sequence[str], node: LogicalNode, target_ids: Sequence[str]
) -> tuple[Expression, ...]:
    """Replace the columns with `ids` in expressions by the columns with `target_ids` in a node's output, pairwise."""
    columns = dict(zip(ids, node.expressions(target_ids), strict=True))

    def column(expression: Any) -> Any | None:
        if not is_attribute(expression):
            return None
        (attribute_id,) = attribute_ids(expression.references().toSeq())
        return columns[attribute_id]._handle

    return tuple(Expression(key._bridge, transform(key._handle, column)) for key in keys)


def transform(expression: Any, replacement: Callable[[Any], Any | None]) -> Any:
    """Replace parts of an expression; `replacement` returns None for parts that remain."""
    replaced = replacement(expression)
    if replaced is not None:
        return replaced
    old_children = children(expression)
    new_children = [transform(child, replacement) for child in old_children]
    if all(old is new for old, new in zip(old_children, new_children, strict=True)):
        return expression
    child_seq = expression.children().empty()  # an empty Scala `Seq`
    for child in new_children:
        child_seq = child_seq.appended(child)
    return expression.withNewChildren(child_seq)


def groups_by(node: LogicalNode, ids: Iterable[str]) -> bool:
    """Whether an aggregate or window groups by all columns with these ids, and possibly by more expressions."""
    groups = node._handle.groupingExpressions() if node.name == "Aggregate" else node._handle.partitionSpec()
    group_ids = attribute_ids(groups)
    return all(column in group_ids and is_attribute(groups.apply(group_ids.index(column))) for column in ids)


def is_partitioned_by(leaf: LogicalNode, keys: Sequence[Expression]) -> bool:
    """Whether the files of a leaf are partitioned by a column that is one of the keys."""
    names = leaf.partition_columns
    return bool(names) and any(key.is_attribute and key.name in names for key in keys)


def reduces_rows(node: LogicalNode) -> bool:
    """Whether a subtree may return far fewer rows than its leaves; filters that only exclude nulls are ignored."""
    preserving = {"Project", "Sort", "Repartition", "RepartitionByExpression", "RebalancePartitions"}
    return any(part.children and part.name not in preserving and not part.filters_only_nulls for part in node.walk())


def filters_groups(node: LogicalNode) -> bool:
    """Whether a subtree is an aggregate below a filter that selects some of its groups (HAVING)."""
    has_filter = False
    while node.name in {"Project", "Filter", "Aggregate"}:
        if node.name == "Aggregate":
            return has_filter
        has_filter = has_filter or (node.name == "Filter" and not node.filters_only_nulls)
        node = node.children[0]
    return False


def same_result(left: LogicalPlan, right: LogicalPlan) -> bool:
    """Whether two plans return the same rows, column by column."""
    return bool(left._handle.sameResult(right))


def lists_same_files(left: LogicalPlan, right: LogicalPlan) -> bool:
    """Whether two plans with the same result have listed the same files; Spark itself compares only the root paths."""
    return bool(left._bridge.helper("ListingComparison").readsSameFiles(left, right))


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
    """Replace the current time by a common value in all analyzed plans; return None if no plan uses it.

    Spark's rule uses the same time throughout a plan, so it is applied to a union of the plans, which never runs.
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
    """Whether a plan, its subqueries or its cached inputs contain ``CollectMetrics`` (``DataFrame.observe``)."""
    return bool(plan._bridge.helper("PlanSearch").observesMetrics(plan))


def buckets_save_shuffle(plan: LogicalPlan) -> bool:
    """Whether tables are bucketed or partitioned by keys of a join, aggregate or window, which saves a shuffle."""
    return bool(plan._bridge.helper("BucketedTables").savesShuffle(plan))


def user_line(plan: LogicalPlan) -> UserLine | None:
    """Return the user's line that created a column of an operator, else None; PySpark records only column functions."""
    todo = items(plan._handle.expressions())[:8]  # limited, as an operator may have thousands of expressions
    for _ in range(64):
        if not todo:
            return None
        expression = todo.pop(0)
        context = option(expression.origin().pysparkErrorContext())
        if context is not None:
            file, _, line = str(context._2()).rpartition(":")
            if line.isdigit():
                return UserLine(file, int(line))
        todo += children(expression)
    return None
