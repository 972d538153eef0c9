"""Delays values that may raise errors until a filter or join has removed rows, as Spark's generated code does.

Before::

    Filter(m <> 9)
      Aggregate(k; sum(a) / (max(b) - 9) AS v, max(b) AS m)      a separate step that computes all of its rows

After::

    Filter(m <> 9)
      Project(k, f0 / (f1 - 9) AS v, f1 AS m)                    in the step of the filter
        Aggregate(k; sum(a) AS f0, max(b) AS f1)

Spark compiles a hash aggregate and the operators after it into a single loop, which computes a value at its first use.
So the value of a row that a filter or join removed cannot fail. Other aggregates compute the values of all rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.planner.sharing import nodes_below
from penstock.spark.plans.aggregates import aggregate_functions, grouping_positions, split_aggregate
from penstock.spark.plans.fragment import rebuild
from penstock.spark.plans.nodes import LogicalNode, read_plan

if TYPE_CHECKING:
    from penstock.spark.plans.logical_plan import LogicalPlan

_REMOVE_ROWS = frozenset({"Filter", "Join"})
"""Operators that may remove rows; `NativeNormalization.java` has the same rule for DuckDB queries."""


def with_late_values(plan: LogicalNode) -> LogicalNode:
    """Return a plan in which projections compute the values of aggregates if these values may fail.

    Applies to aggregates below a filter or join, with only projections in between. If the input of a join is exchanged
    or broadcast, the values are computed before the exchange or broadcast, as in Spark.
    """
    replacements = _replacements(plan, rows_may_be_removed=False)
    # A replacement contains the original plan below it, so the lowest nodes are replaced first, the others afterwards.
    lowest = {node: new for node, new in replacements.items() if not any(n in replacements for n in nodes_below(node))}
    return with_late_values(read_plan(rebuild(plan, lowest))) if replacements else plan


def has_late_values(top: LogicalNode) -> bool:
    """Whether a projection that may fail is directly above an aggregate, with only projections and filters up to `top`.

    If so, Spark must not compute common subexpressions in advance: projections do so, but aggregates do not.
    """
    while top.name in {"Project", "Filter"}:
        (child,) = top.children
        if top.name == "Project" and child.name == "Aggregate" and not top.cannot_fail:
            return True
        top = child
    return False


def _replacements(node: LogicalNode, *, rows_may_be_removed: bool) -> dict[LogicalNode, LogicalPlan]:
    """Return replacements of aggregates at or below a node; operators above remove rows if `rows_may_be_removed`."""
    replacements: dict[LogicalNode, LogicalPlan] = {}
    for child in node.children:
        replacements |= _replacements(
            child, rows_may_be_removed=node.name in _REMOVE_ROWS or (rows_may_be_removed and node.name == "Project")
        )
    can_be_late = node.is_generated_hash_aggregate and not node.cannot_fail
    if rows_may_be_removed and can_be_late and grouping_positions(node) is not None:
        functions = aggregate_functions(node)
        late = None if functions is None else split_aggregate(node, functions)
        if late is not None and not read_plan(late).cannot_fail:
            replacements[node] = late
    return replacements
