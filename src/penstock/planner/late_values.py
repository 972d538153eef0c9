"""Computes values that may fail after the filter or join that removes rows, as the generated code of Spark does.

Before::

    Filter(m <> 9)
      Aggregate(k; sum(a) / (max(b) - 9) AS v, max(b) AS m)      a separate step that computes all of its rows

After::

    Filter(m <> 9)
      Project(k, f0 / (f1 - 9) AS v, f1 AS m)                    in the step of the filter
        Aggregate(k; sum(a) AS f0, max(b) AS f1)

Spark compiles a hash aggregate and the operators after it into a single loop, which computes a value at its first use.
So the value of a row that was removed before cannot fail. Other aggregates compute all of their rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.planner.sharing import below
from penstock.spark.plans.aggregates import aggregate_functions, grouping, split
from penstock.spark.plans.fragment import rebuild
from penstock.spark.plans.nodes import LogicalNode, read_plan

if TYPE_CHECKING:
    from penstock.spark.plans.logical_plan import LogicalPlan

_REMOVE_ROWS = frozenset({"Filter", "Join"})
"""Operators that may remove rows; `NativeNormalization.java` has the same rule for DuckDB queries."""


def with_late_values(plan: LogicalNode) -> LogicalNode:
    """Return a plan in which results of aggregate functions that may fail are computed by a projection.

    Applies to aggregates directly below a filter or join. If the input of a join is exchanged or broadcast, the values
    are computed before that, as in Spark.
    """
    replacements = _replacements(plan, rows_may_be_removed=False)
    # A replacement contains the original plan below it, so the lowest nodes are replaced first.
    lowest = {node: new for node, new in replacements.items() if not any(n in replacements for n in below(node))}
    return with_late_values(read_plan(rebuild(plan, lowest))) if replacements else plan


def has_late_values(top: LogicalNode) -> bool:
    """Whether a run of operators computes values that may fail directly above an aggregate.

    Spark must then not evaluate common subexpressions first, which a projection does but an aggregate does not.
    """
    while top.name in {"Project", "Filter"}:
        (child,) = top.children
        if top.name == "Project" and child.name == "Aggregate" and not top.cannot_fail:
            return True
        top = child
    return False


def _replacements(node: LogicalNode, *, rows_may_be_removed: bool) -> dict[LogicalNode, LogicalPlan]:
    """Return the replacements of aggregates at or below a node, whose rows the operator above it may remove."""
    replacements: dict[LogicalNode, LogicalPlan] = {}
    for child in node.children:
        replacements |= _replacements(
            child, rows_may_be_removed=node.name in _REMOVE_ROWS or (rows_may_be_removed and node.name == "Project")
        )
    if rows_may_be_removed and node.is_generated_hash_aggregate and not node.cannot_fail and grouping(node) is not None:
        functions = aggregate_functions(node)
        late = None if functions is None else split(node, functions)
        if late is not None and not read_plan(late).cannot_fail:
            replacements[node] = late
    return replacements
