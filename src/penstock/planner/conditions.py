"""Conditions under which parts of a query may be moved, split, shared or partitioned differently than by Spark.

The first two lists name what is nondeterministic, the others what is safe. Whatever no list names counts as unsafe.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.hints.plan_hints import consumer_stage_of
from penstock.spark.bridge.jvm import class_names
from penstock.spark.plans import catalyst
from penstock.spark.plans.catalyst import MERGEABLE
from penstock.spark.run.barrier import function_id, is_boundary

if TYPE_CHECKING:
    from penstock.spark.plans.nodes import LogicalNode

PARTITION_DEPENDENT = class_names(
    "Rand Randn RandStr Uniform Uuid Shuffle MonotonicallyIncreasingID SparkPartitionID InputFileName "
    "InputFileBlockStart InputFileBlockLength Sample AttachDistributedSequence"
)
"""Expressions and operators whose values depend only on the task and the position of a row."""

CALL_DEPENDENT = frozenset({"PythonUDF", "ScalaUDF", "CallMethodViaReflection", "RaiseError"})
"""Expressions that may return another value, or raise another error, on each call, also in the same task."""

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
"""Leaves that return the same rows in the same order when a task is retried."""

REPEATABLE_WITHIN_TASKS = PRESERVES_PARTITIONS | {"MapInArrow", "MapInPandas", "MapPartitions", "Sort"}
"""Operators that repeat their rows and their order if a retried task reads the same rows in the same order."""


def unrepeatable_reason(plan: LogicalNode) -> str | None:
    """Return why a plan may return other rows if Spark recomputes lost shuffle files, or None if it cannot."""
    for node in plan.walk():
        nondeterministic, unsafe = sorted(node.nondeterministic), _order_dependent_functions(node)
        is_order_independent = node.name in (ORDER_INDEPENDENT if node.children else REPEATABLE_LEAVES) and not unsafe
        if nondeterministic or not (is_order_independent or _has_repeatable_order(node)):
            cause = [*nondeterministic, *unsafe, node.name][0]
            return f"{cause} may return other rows if Spark recomputes lost shuffle files"
    return None


def _order_dependent_functions(node: LogicalNode) -> list[str]:
    return sorted(node.functions - ORDER_INDEPENDENT_FUNCTIONS) if node.name == "Aggregate" else []


def _has_repeatable_order(node: LogicalNode) -> bool:
    """Whether a retried task returns the same rows of an operator in the same order."""
    if not node.children:
        return node.name in REPEATABLE_LEAVES
    is_repeatable = node.name in REPEATABLE_WITHIN_TASKS and not (node.sort is not None and node.sort.is_global)
    return is_repeatable and all(map(_has_repeatable_order, node.children))


def spark_only_reason(plan: LogicalNode) -> str:
    """Return why Spark must run an optimized plan unchanged, or an empty string if it need not."""
    nodes = _user_nodes(plan)
    checks = (_nondeterministic_reason, _position_reason, _repeated_call_reason, _barrier_reason)
    reasons = (check(node) for check in checks for node in nodes)
    reason = next(filter(None, reasons), "") or _observed_order(plan)[1]
    if not reason and catalyst.mixes_listings(plan):
        reason = "it reads a path before and after its files changed, which only Spark's own plan distinguishes"
    return reason


def leaves_split_by_spark(plan: LogicalNode) -> Iterator[LogicalNode]:
    """Yield the leaves that Spark must split into tasks, because rows or values of the plan depend on the tasks."""
    for node in _user_nodes(plan):
        if node.files is not None and node.files.skips_corrupt_files:
            yield node
        if node.nondeterministic & PARTITION_DEPENDENT:
            for child in node.children:
                yield from child.leaves()


def _user_nodes(plan: LogicalNode) -> list[LogicalNode]:
    """Return the nodes of a plan, without Penstock's own projections that only separate barrier stages from others."""
    nodes = list(plan.walk())
    boundaries = [node for node in nodes if node.name == "RepartitionByExpression" and is_boundary(node)]
    return [node for node in nodes if not any(node in boundary.children for boundary in boundaries)]


def _nondeterministic_reason(node: LogicalNode) -> str:
    nondeterministic = sorted(node.nondeterministic - PARTITION_DEPENDENT - CALL_DEPENDENT)
    return f"{nondeterministic[0]} may return other rows each time it runs" if nondeterministic else ""


def _position_reason(node: LogicalNode) -> str:
    """Return why an operator's values depend on the tasks of rows, which may differ from Spark's; empty if they do not.

    A value may depend on the tasks of a scan, because Spark then splits the scan (`leaves_split_by_spark`). It must not
    depend on tasks after an exchange, in which, for instance, an aggregate evaluates its result expressions.
    """
    dependent = sorted(node.nondeterministic & PARTITION_DEPENDENT)
    if not dependent or (node.name in PRESERVES_PARTITIONS and _has_tasks_of_leaf(node)):
        return ""
    return f"{dependent[0]} depends on which task each row is in, and only Spark's own plan has Spark's tasks"


def _has_tasks_of_leaf(node: LogicalNode) -> bool:
    return not node.children or (node.name in PRESERVES_PARTITIONS and all(map(_has_tasks_of_leaf, node.children)))


def _repeated_call_reason(node: LogicalNode) -> str:
    """Return why Spark must run an operator: Spark decides how often functions in several inputs run; else empty."""
    if len(node.children) < 2:
        return ""
    functions = sorted(
        name for child in node.children for part in child.walk() for name in part.nondeterministic & CALL_DEPENDENT
    )
    reason = "is not deterministic, and only Spark's own plan calls it as often as Spark does"
    return f"{functions[0]} {reason}" if functions else ""


def _barrier_reason(node: LogicalNode) -> str:
    """Return why Spark must run an operator: it is a barrier stage without an adaptive exchange; empty if it is not."""
    if not node.is_barrier or consumer_stage_of(function_id(node)) is not None:
        return ""
    return f"{node.name} is a barrier stage, and only Spark's own plan has Spark's number of tasks"


def _observed_order(node: LogicalNode) -> tuple[bool, str]:
    """Return whether rows have an order within tasks that the user set, and why the plan depends on it (or empty)."""
    inputs = [_observed_order(child) for child in node.children]
    reason = next((reason for _, reason in inputs if reason), "")
    ordered = any(is_ordered for is_ordered, _ in inputs)
    if node.sort is not None:
        return not node.sort.is_global, reason
    is_order_independent = node.name in ORDER_INDEPENDENT and not _order_dependent_functions(node)
    if ordered and not is_order_independent and not reason:
        reason = f"{node.name} depends on the order of rows within tasks, which only Spark's own plan keeps"
    return ordered and node.name != "Aggregate", reason
