"""What must be true of a query before its parts may be moved, split, shared or cut in another way than Spark's.

Every list names what is known to be safe. A query with anything else in a place that matters is run by Spark as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.plan_hints import stage_of
from penstock.spark import catalyst
from penstock.spark.barrier import function_id, is_boundary
from penstock.spark.catalyst import MERGEABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.spark.plans import LogicalNode

PARTITION_DEPENDENT = frozenset(
    {
        "Rand",
        "Randn",
        "RandStr",
        "Uniform",
        "Uuid",
        "Shuffle",
        "MonotonicallyIncreasingID",
        "SparkPartitionID",
        "InputFileName",
        "InputFileBlockStart",
        "InputFileBlockLength",
        "Sample",
        "AttachDistributedSequence",
    }
)
"""What gives each row a value by the task and the position it is at: the same each time for the same tasks."""

CALL_DEPENDENT = frozenset({"PythonUDF", "ScalaUDF", "CallMethodViaReflection", "RaiseError"})
"""What may give another value each time it is called, wherever the row is."""

PRESERVES_PARTITIONS = frozenset(
    {
        "Project",
        "Filter",
        "Generate",
        "Expand",
        "Sample",
        "AttachDistributedSequence",
        "BatchEvalPython",
        "ArrowEvalPython",
        "DeserializeToObject",
        "SerializeFromObject",
        "MapElements",
        "TypedFilter",
    }
)
"""Operators that give each task's rows to the same task, in the same order."""

ORDER_INDEPENDENT = frozenset(
    {
        "Project",
        "Filter",
        "Generate",
        "Expand",
        "BatchEvalPython",
        "ArrowEvalPython",
        "Join",
        "Union",
        "Aggregate",
        "Sort",
        "Repartition",
        "RepartitionByExpression",
        "RebalancePartitions",
    }
)
"""Operators that give the same rows in whatever order they find them; an aggregate if its functions do."""

ORDER_INDEPENDENT_FUNCTIONS = MERGEABLE | {"Percentile", "PercentileCont", "PercentileDisc", "Median"}
"""Aggregate functions that give the same in whatever order they find the rows of a group."""


MADE_AGAIN_ALIKE = frozenset(
    {
        "LogicalRelation",
        "HiveTableRelation",
        "DataSourceV2ScanRelation",
        "Range",
        "LocalRelation",
        "OneRowRelation",
    }
)
"""Leaves that give the same rows, in the same order, to a task that runs again."""

IN_THEIR_ORDER = PRESERVES_PARTITIONS | {"MapInArrow", "MapInPandas", "MapPartitions", "Sort"}
"""Operators whose functions may look at the order of a task's rows: the same each time above nothing but a leaf."""


def why_otherwise_again(plan: LogicalNode) -> str | None:
    """Return why a plan may give other rows when parts of it run again, as lost files make Spark do; None if not."""
    for node in plan.walk():
        unstable = sorted(node.unstable)
        depends = node.functions - ORDER_INDEPENDENT_FUNCTIONS if node.name == "Aggregate" else ()
        is_free = node.name in (ORDER_INDEPENDENT if node.children else MADE_AGAIN_ALIKE) and not depends
        if unstable or not (is_free or _is_in_order_of_leaf(node)):
            what = next(iter([*unstable, *sorted(depends)]), node.name)
            return f"{what} may give other rows if lost files of a shuffle are made again"
    return None


def _is_in_order_of_leaf(node: LogicalNode) -> bool:
    """Whether a task finds the same rows in the same order each time it runs."""
    if not node.children:
        return node.name in MADE_AGAIN_ALIKE
    is_within_task = node.name in IN_THEIR_ORDER and not (node.sort is not None and node.sort.is_global)
    return is_within_task and all(map(_is_in_order_of_leaf, node.children))


def why_run_by_spark(plan: LogicalNode) -> str:
    """Return why Spark has to run an optimised plan as it is, or an empty text if it need not."""
    nodes = _users_nodes(plan)
    reasons = (
        *(_unknown(node) for node in nodes),
        *(_counts_places(node) for node in nodes),
        *(_is_called_again(node) for node in nodes),
        *(_is_barrier(node) for node in nodes),
        _observed_order(plan)[1],
    )
    found = next(filter(None, reasons), "")
    if not found and catalyst.mixes_listings(plan):
        found = "it reads a path before and after the files there changed, which only Spark's own plan keeps apart"
    return found


def leaves_cut_by_spark(plan: LogicalNode) -> Iterator[LogicalNode]:
    """Return the leaves whose tasks have to be Spark's, as their rows or a value above them depend on these."""
    for node in _users_nodes(plan):
        if node.files is not None and node.files.skips_corrupt:
            yield node
        if node.unstable & PARTITION_DEPENDENT:
            for child in node.children:
                yield from child.leaves()


def _users_nodes(plan: LogicalNode) -> list[LogicalNode]:
    """Return the nodes of a plan, less those that number the tasks of an adaptive exchange for its boundary."""
    nodes = list(plan.walk())
    boundaries = [node for node in nodes if node.name == "RepartitionByExpression" and is_boundary(node)]
    return [node for node in nodes if not any(node in boundary.children for boundary in boundaries)]


def _unknown(node: LogicalNode) -> str:
    unknown = sorted(node.unstable - PARTITION_DEPENDENT - CALL_DEPENDENT)
    return f"{unknown[0]} may return other rows each time it runs" if unknown else ""


def _counts_places(node: LogicalNode) -> str:
    """Return what depends on the tasks that rows are in, where these are not just those of a scan.

    An aggregate, for instance, computes its results where its groups are, not where the rows below it are.
    """
    counting = sorted(node.unstable & PARTITION_DEPENDENT)
    if not counting or (node.name in PRESERVES_PARTITIONS and _has_tasks_of_leaf(node)):
        return ""
    return f"{counting[0]} depends on which task each row is in, and only Spark's own plan has Spark's tasks"


def _has_tasks_of_leaf(node: LogicalNode) -> bool:
    return not node.children or (node.name in PRESERVES_PARTITIONS and all(map(_has_tasks_of_leaf, node.children)))


def _is_called_again(node: LogicalNode) -> str:
    """Return which function could be called again where several inputs meet, as one of these may be read twice."""
    if len(node.children) < 2:
        return ""
    called = sorted(name for child in node.children for part in child.walk() for name in part.unstable & CALL_DEPENDENT)
    why = "is not deterministic, and only Spark's own plan calls it as often as Spark does"
    return f"{called[0]} {why}" if called else ""


def _is_barrier(node: LogicalNode) -> str:
    """Return which function of the user's, not of an adaptive exchange, runs in tasks that all start together."""
    if not node.is_barrier or stage_of(function_id(node)) is not None:
        return ""
    return f"{node.name} is a barrier stage, and only Spark's own plan has Spark's number of tasks"


def _observed_order(node: LogicalNode) -> tuple[bool, str]:
    """Return whether rows come in an order that the user made within tasks, and what depends on it."""
    below = [_observed_order(child) for child in node.children]
    reason = next((why for _, why in below if why), "")
    ordered = any(is_ordered for is_ordered, _ in below)
    if node.sort is not None:
        return not node.sort.is_global, reason
    free = node.name in ORDER_INDEPENDENT and not (
        node.name == "Aggregate" and node.functions - ORDER_INDEPENDENT_FUNCTIONS
    )
    if ordered and not free and not reason:
        reason = f"{node.name} depends on the order of rows within tasks, which only Spark's own plan keeps"
    return ordered and node.name != "Aggregate", reason
