"""Conditions under which parts of a query may be moved, split, shared or partitioned differently than by Spark.

Every list names what is safe. Spark runs a query unchanged if anything else occurs where it matters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.hints.plan_hints import stage_of
from penstock.spark.bridge.jvm import class_names
from penstock.spark.plans import catalyst
from penstock.spark.plans.catalyst import MERGEABLE
from penstock.spark.run.barrier import function_id, is_boundary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.spark.plans.nodes import LogicalNode

PARTITION_DEPENDENT = class_names(
    "Rand Randn RandStr Uniform Uuid Shuffle MonotonicallyIncreasingID SparkPartitionID InputFileName "
    "InputFileBlockStart InputFileBlockLength Sample AttachDistributedSequence"
)
"""Expressions and operators whose values depend only on the task and the position of a row."""

CALL_DEPENDENT = frozenset({"PythonUDF", "ScalaUDF", "CallMethodViaReflection", "RaiseError"})
"""Expressions that may return another value on each call, independently of the task of the row."""

PRESERVES_PARTITIONS = class_names(
    "Project Filter Generate Expand Sample AttachDistributedSequence BatchEvalPython ArrowEvalPython "
    "DeserializeToObject SerializeFromObject MapElements TypedFilter"
)
"""Operators that preserve the task and the order of rows."""

ORDER_INDEPENDENT = class_names(
    "Project Filter Generate Expand BatchEvalPython ArrowEvalPython Join Union Aggregate Sort Repartition "
    "RepartitionByExpression RebalancePartitions"
)
"""Operators that return the same rows for any order of their input; aggregates only if their functions do."""

ORDER_INDEPENDENT_FUNCTIONS = MERGEABLE | {"Percentile", "PercentileCont", "PercentileDisc", "Median"}
"""Aggregate functions that return the same value for any order of the rows of a group."""

REPEATABLE_LEAVES = class_names(
    "LogicalRelation HiveTableRelation DataSourceV2ScanRelation Range LocalRelation OneRowRelation"
)
"""Leaves that return the same rows in the same order to a repeated task."""

ORDER_SENSITIVE_WITHIN_TASKS = PRESERVES_PARTITIONS | {"MapInArrow", "MapInPandas", "MapPartitions", "Sort"}
"""Operators that may depend on the order of rows within a task, which is repeatable if there are only leaves below."""


def unrepeatable_reason(plan: LogicalNode) -> str | None:
    """Return why a plan may return other rows if Spark recomputes lost files, or None if it cannot."""
    for node in plan.walk():
        unstable, depends = sorted(node.unstable), _order_dependent_functions(node)
        is_order_independent = node.name in (ORDER_INDEPENDENT if node.children else REPEATABLE_LEAVES) and not depends
        if unstable or not (is_order_independent or _has_repeatable_order(node)):
            cause = [*unstable, *depends, node.name][0]
            return f"{cause} may return other rows if Spark recomputes lost shuffle files"
    return None


def _order_dependent_functions(node: LogicalNode) -> list[str]:
    return sorted(node.functions - ORDER_INDEPENDENT_FUNCTIONS) if node.name == "Aggregate" else []


def _has_repeatable_order(node: LogicalNode) -> bool:
    """Whether a repeated task reads the same rows in the same order."""
    if not node.children:
        return node.name in REPEATABLE_LEAVES
    is_within_task = node.name in ORDER_SENSITIVE_WITHIN_TASKS and not (node.sort is not None and node.sort.is_global)
    return is_within_task and all(map(_has_repeatable_order, node.children))


def spark_only_reason(plan: LogicalNode) -> str:
    """Return why Spark must run an optimised plan unchanged, or an empty string if it need not."""
    nodes = _user_nodes(plan)
    checks = (_unstable_reason, _position_reason, _repeated_call_reason, _barrier_reason)
    reasons = (check(node) for check in checks for node in nodes)
    reason = next(filter(None, reasons), "") or _observed_order(plan)[1]
    if not reason and catalyst.mixes_listings(plan):
        reason = "it reads a path before and after its files changed, which only Spark's own plan distinguishes"
    return reason


def leaves_split_by_spark(plan: LogicalNode) -> Iterator[LogicalNode]:
    """Return the leaves that Spark must split into tasks, because rows or values of the plan depend on the tasks."""
    for node in _user_nodes(plan):
        if node.files is not None and node.files.skips_corrupt:
            yield node
        if node.unstable & PARTITION_DEPENDENT:
            for child in node.children:
                yield from child.leaves()


def _user_nodes(plan: LogicalNode) -> list[LogicalNode]:
    """Return the nodes of a plan without those that number the tasks of an adaptive exchange for its boundary."""
    nodes = list(plan.walk())
    boundaries = [node for node in nodes if node.name == "RepartitionByExpression" and is_boundary(node)]
    return [node for node in nodes if not any(node in boundary.children for boundary in boundaries)]


def _unstable_reason(node: LogicalNode) -> str:
    unstable = sorted(node.unstable - PARTITION_DEPENDENT - CALL_DEPENDENT)
    return f"{unstable[0]} may return other rows each time it runs" if unstable else ""


def _position_reason(node: LogicalNode) -> str:
    """Return why a value depends on the tasks of rows that are not simply the tasks of a scan; empty if none does.

    An aggregate, for instance, evaluates its result expressions in the tasks of its groups, not of its input rows.
    """
    dependent = sorted(node.unstable & PARTITION_DEPENDENT)
    if not dependent or (node.name in PRESERVES_PARTITIONS and _has_tasks_of_leaf(node)):
        return ""
    return f"{dependent[0]} depends on which task each row is in, and only Spark's own plan has Spark's tasks"


def _has_tasks_of_leaf(node: LogicalNode) -> bool:
    return not node.children or (node.name in PRESERVES_PARTITIONS and all(map(_has_tasks_of_leaf, node.children)))


def _repeated_call_reason(node: LogicalNode) -> str:
    """Return which function may be called again because an operator with several inputs may read an input twice."""
    if len(node.children) < 2:
        return ""
    functions = sorted(
        name for child in node.children for part in child.walk() for name in part.unstable & CALL_DEPENDENT
    )
    reason = "is not deterministic, and only Spark's own plan calls it as often as Spark does"
    return f"{functions[0]} {reason}" if functions else ""


def _barrier_reason(node: LogicalNode) -> str:
    """Return which user function runs in a barrier stage that does not belong to an adaptive exchange."""
    if not node.is_barrier or stage_of(function_id(node)) is not None:
        return ""
    return f"{node.name} is a barrier stage, and only Spark's own plan has Spark's number of tasks"


def _observed_order(node: LogicalNode) -> tuple[bool, str]:
    """Return whether rows have an order within tasks requested by the user, and why a node depends on it."""
    below = [_observed_order(child) for child in node.children]
    reason = next((reason for _, reason in below if reason), "")
    ordered = any(is_ordered for is_ordered, _ in below)
    if node.sort is not None:
        return not node.sort.is_global, reason
    is_order_independent = node.name in ORDER_INDEPENDENT and not _order_dependent_functions(node)
    if ordered and not is_order_independent and not reason:
        reason = f"{node.name} depends on the order of rows within tasks, which only Spark's own plan keeps"
    return ordered and node.name != "Aggregate", reason
