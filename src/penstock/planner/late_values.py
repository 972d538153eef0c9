"""Computes values that may fail behind the filter or join that leaves rows out, as Spark's generated code does.

Before::

    Filter(m <> 9)
      Aggregate(k; sum(a) / (max(b) - 9) AS v, max(b) AS m)      a step of its own: its rows are computed as a whole

After::

    Filter(m <> 9)
      Project(k, f0 / (f1 - 9) AS v, f1 AS m)                    in the step of the filter
        Aggregate(k; sum(a) AS f0, max(b) AS f1)

Spark compiles an aggregate by hashing and what follows it in a task into one loop, which computes a value where it is
used first. So it fails on no row that has been left out by then. Other aggregates compute all of their rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.planner.sharing import below
from penstock.spark.aggregates import functions_of, grouping, split
from penstock.spark.fragment import rebuild
from penstock.spark.plans import read_plan

if TYPE_CHECKING:
    from penstock.spark.logical_plan import LogicalPlan
    from penstock.spark.plans import LogicalNode

_LEAVE_OUT = frozenset({"Filter", "Join"})
"""Operators that may leave out rows; `spark/java/NativeShape.java` has the same rule for queries of DuckDB's."""


def with_late_values(plan: LogicalNode) -> LogicalNode:
    """Return a plan in which values that an aggregate makes of its sums, and that may fail, are a projection.

    Only of aggregates right below a filter or join. Where a join's input is exchanged or broadcast, the values are
    computed before, as on Spark.
    """
    replacements = _replacements(plan, may_leave_out=False)
    # A replacement holds the plan below it as it was, so the lowest are replaced first.
    lowest = {node: new for node, new in replacements.items() if not any(n in replacements for n in below(node))}
    return with_late_values(read_plan(rebuild(plan, lowest))) if replacements else plan


def has_late_values(top: LogicalNode) -> bool:
    """Whether a run of operators computes values that may fail right above an aggregate.

    Spark then must not compute what several of them have in common before: an aggregate would not, a projection would.
    """
    while top.name in {"Project", "Filter"}:
        (child,) = top.children
        if top.name == "Project" and child.name == "Aggregate" and not top.cannot_fail:
            return True
        top = child
    return False


def _replacements(node: LogicalNode, *, may_leave_out: bool) -> dict[LogicalNode, LogicalPlan]:
    """Return what replaces the aggregates at or below a node.

    Parameters
    ----------
    node
        The root of the plan that is searched.
    may_leave_out
        Whether what is right above the node may leave out some of its rows.
    """
    replacements: dict[LogicalNode, LogicalPlan] = {}
    for child in node.children:
        replacements |= _replacements(
            child, may_leave_out=node.name in _LEAVE_OUT or (may_leave_out and node.name == "Project")
        )
    if may_leave_out and node.is_generated_hash_aggregate and not node.cannot_fail and grouping(node) is not None:
        functions = functions_of(node)
        late = None if functions is None else split(node, functions)
        if late is not None and not read_plan(late).cannot_fail:
            replacements[node] = late
    return replacements
