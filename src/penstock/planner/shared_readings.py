"""Analyses how plans read shared parts: what Spark might have pushed into a part if it had not been extracted."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from penstock.graph import JoinType
from penstock.planner.shared_errors import Reading
from penstock.spark import catalyst
from penstock.spark.aggregates import aggregate_functions, split
from penstock.spark.joins import join_type_of
from penstock.spark.plans import read_plan

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from penstock.spark.logical_plan import LogicalPlan
    from penstock.spark.plans import LogicalNode

_SAFE_OPERATORS = frozenset(
    {
        "Project",
        "Filter",
        "Aggregate",
        "Join",
        "Window",
        "WindowGroupLimit",
        "Sort",
        "Union",
        "Expand",
        "Generate",
        "Repartition",
        "RepartitionByExpression",
        "RebalancePartitions",
        "GlobalLimit",
        "LocalLimit",
        "Offset",
        "LogicalRelation",
        "HiveTableRelation",
        "DataSourceV2ScanRelation",
        "InMemoryRelation",
        "LogicalRDD",
        "LocalRelation",
        "OneRowRelation",
        "Range",
    }
)
"""Operators that raise errors only in their expressions."""
_FORWARDS_ALL = frozenset({"Project", "Union", "Expand", "Generate", "Repartition", "RepartitionByExpression"})
_READS_ALL = frozenset({"Aggregate", "Sort", "Window"})
_LIMITS = frozenset({"GlobalLimit", "LocalLimit", "Offset"})
_CALLS_PYTHON = frozenset({"BatchEvalPython", "ArrowEvalPython"})
"""Operators into which Spark extracts the Python functions of conditions and projections above them."""
_MERGED = frozenset({("Project", "Project"), ("Project", "Aggregate"), ("Aggregate", "Project")})
"""Operators of a reader that Spark merges with the topmost operator of a part."""
_KEEPS_ALL = frozenset(
    {
        (JoinType.INNER, True),
        (JoinType.INNER, False),
        (JoinType.LEFT_OUTER, True),
        (JoinType.RIGHT_OUTER, False),
        (JoinType.FULL_OUTER, True),
        (JoinType.FULL_OUTER, False),
    }
)
"""Join types, and whether the part is the left input: Spark does not push these joins down or remove the part."""


@dataclass(frozen=True, slots=True)
class SharedPart:
    """A part that several outputs share.

    Parameters
    ----------
    number
        Identifies its placeholders among the leaves.
    equal_parts
        Its class among the equal parts, and the classes below it, down to the first expensive operator.
    analyzed
        The analysed part, with the columns that are used.
    plan
        The optimised part.
    columns
        The positions of these columns in a placeholder.
    condition
        The filter above each of its placeholders, as `Expression.key`; the part contains it, too.
    """

    number: int
    equal_parts: frozenset[int]
    analyzed: LogicalPlan
    plan: LogicalNode
    columns: list[int]
    condition: str = ""

    def is_of(self, leaf: LogicalNode) -> bool:
        """Whether a placeholder has the same column ids as the part."""
        return tuple(leaf.ids[position] for position in self.columns) == self.plan.ids


def readings(plans: Mapping[int, LogicalNode], shared: Sequence[SharedPart]) -> list[Reading]:
    """Return how outputs and shared parts read shared parts.

    Spark has pushed the conditions of the optimised plans down to the placeholders of the parts.
    """
    parts = {part.number: part for part in shared}
    readers: list[tuple[int | None, LogicalNode]] = [*plans.items(), *((None, part.plan) for part in shared)]
    return [
        _reading(reader, path, parts[number], parts)
        for reader, plan in readers
        for number, path in placeholders(plan)
        if number in parts
    ]


def placeholders(plan: LogicalNode) -> Iterator[tuple[int, list[LogicalNode]]]:
    """Iterate over the leaves that may be placeholders: their numbers, and the path from the root to each."""

    def visit(node: LogicalNode, above: list[LogicalNode]) -> Iterator[tuple[int, list[LogicalNode]]]:
        if node.name == "LogicalRDD":
            yield catalyst.rdd_id(node), [*above, node]
        for child in node.children:
            yield from visit(child, [*above, node])

    return visit(plan, [])


def used_columns(path: Sequence[LogicalNode]) -> set[int]:
    """Return the positions of the placeholder columns that the plan on its path refers to."""
    *above, leaf = path
    readers: list[LogicalNode] = []
    for reader in reversed(above):
        readers.append(reader)
        if reader.name != "Filter":
            break
    if not readers or readers[-1].name != "Project":
        return set(range(len(leaf.ids)))
    references = {column for reader in readers for column in reader.references}
    return {position for position, column in enumerate(leaf.ids) if column in references}


def _reading(
    reader: int | None, path: Sequence[LogicalNode], part: SharedPart, parts: Mapping[int, SharedPart]
) -> Reading:
    *above, leaf = path
    part_can_fail = _plan_can_fail(part.plan, parts)
    movable = [node for node in _movable(path) if part_can_fail or not node.cannot_fail]
    if len(movable) == 1 and movable[0] is above[-1] and _stays(movable[0], leaf, part):
        movable = []
    upward = list(reversed(above))
    first_reading_all = next((i for i, node in enumerate(upward) if node.name in _READS_ALL), len(upward))
    below_all = upward[:first_reading_all]
    is_lazy = _may_inline(path, part.plan)
    return Reading(
        reader,
        part.number,
        part_can_fail,
        condition_can_fail=any(not node.cannot_fail for node in movable) or _protects_join_partner(path, part, parts),
        may_skip_rows=bool(movable) or is_lazy or any(node.name in _LIMITS for node in below_all),
        reads_all=not is_lazy
        and all(node.name in _FORWARDS_ALL for node in below_all)
        and used_columns(path) == set(part.columns),
    )


def _movable(path: Sequence[LogicalNode]) -> Iterator[LogicalNode]:
    """Iterate over the conditions directly above a placeholder, where Spark has pushed all that it can push down."""
    calls: list[LogicalNode] = []
    child = path[-1]
    for node in reversed(path[:-1]):
        if node.name in _CALLS_PYTHON:
            calls.append(node)
        elif node.name == "Filter":
            yield from (*calls, node)
        elif node.name == "Join" and (join_type_of(node), child is node.children[0]) not in _KEEPS_ALL:
            yield node
        if node.name not in {"Filter", "Project", *_CALLS_PYTHON}:
            return
        child = node


def _may_inline(path: Sequence[LogicalNode], top: LogicalNode) -> bool:
    """Whether Spark may inline columns of the part where they are used, such as in a branch that few rows take.

    It merges two projections, or a projection and an aggregate.
    """
    *above, leaf = path
    node = next((operator for operator in reversed(above) if operator.name != "Filter"), None)
    if node is None or (node.name, top.name) not in _MERGED:
        return False
    is_plain = node.name == "Project" and all(column in leaf.ids or column in node.moved for column in node.ids)
    return not is_plain and _values_can_fail(top)


def _values_can_fail(top: LogicalNode) -> bool:
    """Whether a projection may fail, or the expressions of an aggregate on the results of its functions."""
    functions = aggregate_functions(top) if top.name == "Aggregate" else None
    return not (read_plan(split(top, functions)) if functions else top).cannot_fail


def _protects_join_partner(path: Sequence[LogicalNode], part: SharedPart, parts: Mapping[int, SharedPart]) -> bool:
    """Whether conditions of the part might prevent an error of an input that it is joined with."""
    if not any(node.name == "Filter" and not node.only_not_null for node in part.plan.walk()):
        return False
    joins = ((node, below) for node, below in pairwise(path) if node.name == "Join")
    return any(_plan_can_fail(child, parts) for join, below in joins for child in join.children if child is not below)


def _plan_can_fail(plan: LogicalNode, parts: Mapping[int, SharedPart]) -> bool:
    """Whether a plan, or a part that it reads, may raise an error."""
    if any(node.name not in _SAFE_OPERATORS or not node.cannot_fail for node in plan.walk()):
        return True
    return any(_plan_can_fail(parts[number].plan, parts) for number, _ in placeholders(plan) if number in parts)


def _stays(condition: LogicalNode, leaf: LogicalNode, part: SharedPart) -> bool:
    """Whether a filter does not reduce a part: Spark cannot push it down (as on sums), or the part contains it."""
    if condition.name != "Filter" or not part.is_of(leaf):
        return False
    if part.condition and catalyst.filter_condition(condition).key == part.condition:
        return True
    conditions = [catalyst.filter_condition(condition)]
    pushed_down = catalyst.optimize(part.analyzed.filtered_by(conditions))
    return catalyst.same_result(pushed_down, part.plan.filtered_by(conditions))
