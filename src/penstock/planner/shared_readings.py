"""How plans read the parts that they share: what Spark might have moved into a part, had it not been cut out."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from penstock.graph import JoinType
from penstock.planner.shared_errors import Reading
from penstock.spark import catalyst
from penstock.spark.aggregates import functions_of, split
from penstock.spark.joins import join_type_of
from penstock.spark.plans import read_plan

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from penstock.spark.logical_plan import LogicalPlan
    from penstock.spark.plans import LogicalNode

_KNOWN = frozenset(
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
"""Operators that raise no error but by their expressions."""
_PASSES_ALL_ON = frozenset({"Project", "Union", "Expand", "Generate", "Repartition", "RepartitionByExpression"})
_READS_ALL = frozenset({"Aggregate", "Sort", "Window"})
_LIMITS = frozenset({"GlobalLimit", "LocalLimit", "Offset"})
_CALLS_PYTHON = frozenset({"BatchEvalPython", "ArrowEvalPython"})
"""Operators that Spark makes of functions in the conditions and projections above them."""
_MADE_ONE = frozenset({("Project", "Project"), ("Project", "Aggregate"), ("Aggregate", "Project")})
"""Operators of a reader that Spark makes one with the top of a part."""
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
"""Types of joins, and whether the part is the left input: Spark neither moves these down nor drops the part."""


@dataclass(frozen=True, slots=True)
class SharedPart:
    """A part that several outputs share.

    Parameters
    ----------
    number
        What tells its placeholders from other leaves.
    equal_parts
        Its class among the equal parts, and those of what is below it, down to its first expensive operator.
    analyzed
        The part as it was written, with the columns that are used.
    plan
        The same, optimised.
    columns
        Which of a placeholder's columns these are.
    condition
        The filter that stands above each of its placeholders, as `Expression.key`; the part has it, too.
    """

    number: int
    equal_parts: frozenset[int]
    analyzed: LogicalPlan
    plan: LogicalNode
    columns: list[int]
    condition: str = ""

    def is_of(self, leaf: LogicalNode) -> bool:
        """Whether the columns of a placeholder have the ids of its own."""
        return tuple(leaf.ids[place] for place in self.columns) == self.plan.ids


def readings(plans: Mapping[int, LogicalNode], shared: Sequence[SharedPart]) -> list[Reading]:
    """Return how outputs and parts read parts.

    Parameters
    ----------
    plans
        The optimised plan of each output, with placeholders of the parts. Spark has moved conditions down to these.
    shared
        The parts, which may have placeholders, too; as readers they are None.
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
    """Iterate over the leaves that may stand for parts: with their numbers, and with the way to each."""

    def visit(node: LogicalNode, above: list[LogicalNode]) -> Iterator[tuple[int, list[LogicalNode]]]:
        if node.name == "LogicalRDD":
            yield catalyst.rdd_id(node), [*above, node]
        for child in node.children:
            yield from visit(child, [*above, node])

    return visit(plan, [])


def used_columns(path: Sequence[LogicalNode]) -> set[int]:
    """Return the positions of the columns of a placeholder that the plan on the way to it refers to."""
    *above, leaf = path
    readers: list[LogicalNode] = []
    for reader in reversed(above):
        readers.append(reader)
        if reader.name != "Filter":
            break
    if not readers or readers[-1].name != "Project":
        return set(range(len(leaf.ids)))
    references = {one for reader in readers for one in reader.references}
    return {place for place, one in enumerate(leaf.ids) if one in references}


def _reading(
    reader: int | None, path: Sequence[LogicalNode], part: SharedPart, parts: Mapping[int, SharedPart]
) -> Reading:
    *above, leaf = path
    part_can_fail = _plan_can_fail(part.plan, parts)
    movable = [node for node in _movable(path) if part_can_fail or not node.cannot_fail]
    if len(movable) == 1 and movable[0] is above[-1] and _stays(movable[0], leaf, part):
        movable = []
    upward = list(reversed(above))
    below_all = upward[: next((place for place, node in enumerate(upward) if node.name in _READS_ALL), len(upward))]
    is_lazy = _may_take_in(path, part.plan)
    return Reading(
        reader,
        part.number,
        part_can_fail,
        condition_can_fail=any(not node.cannot_fail for node in movable) or _helps_another(path, part, parts),
        leaves_out_rows=bool(movable) or is_lazy or any(node.name in _LIMITS for node in below_all),
        reads_all=not is_lazy
        and all(node.name in _PASSES_ALL_ON for node in below_all)
        and used_columns(path) == set(part.columns),
    )


def _movable(path: Sequence[LogicalNode]) -> Iterator[LogicalNode]:
    """Iterate over the conditions right above a placeholder: Spark has moved there what it can move down."""
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


def _may_take_in(path: Sequence[LogicalNode], top: LogicalNode) -> bool:
    """Whether Spark may compute columns of the part where they are used, such as in a branch that few rows take.

    It makes one of two projections, and of a projection and an aggregate.
    """
    *above, leaf = path
    node = next((one for one in reversed(above) if one.name != "Filter"), None)
    if node is None or (node.name, top.name) not in _MADE_ONE:
        return False
    is_plain = node.name == "Project" and all(one in leaf.ids or one in node.moved for one in node.ids)
    return not is_plain and _values_can_fail(top)


def _values_can_fail(top: LogicalNode) -> bool:
    """Whether a projection may fail, or what an aggregate makes of the values of its functions."""
    functions = functions_of(top) if top.name == "Aggregate" else None
    return not (read_plan(split(top, functions)) if functions else top).cannot_fail


def _helps_another(path: Sequence[LogicalNode], part: SharedPart, parts: Mapping[int, SharedPart]) -> bool:
    """Whether conditions of the part might keep from failing what it is joined with."""
    if not any(node.name == "Filter" and not node.only_not_null for node in part.plan.walk()):
        return False
    joins = ((node, below) for node, below in pairwise(path) if node.name == "Join")
    return any(_plan_can_fail(one, parts) for join, below in joins for one in join.children if one is not below)


def _plan_can_fail(plan: LogicalNode, parts: Mapping[int, SharedPart]) -> bool:
    """Whether a plan may raise an error, or a part that it reads."""
    if any(node.name not in _KNOWN or not node.cannot_fail for node in plan.walk()):
        return True
    return any(_plan_can_fail(parts[number].plan, parts) for number, _ in placeholders(plan) if number in parts)


def _stays(condition: LogicalNode, leaf: LogicalNode, part: SharedPart) -> bool:
    """Whether a filter leaves nothing out of a part: Spark leaves it above, as one of sums, or the part has it, too."""
    if condition.name != "Filter" or not part.is_of(leaf):
        return False
    if part.condition and catalyst.filter_condition(condition).key == part.condition:
        return True
    wanted = [catalyst.filter_condition(condition)]
    return catalyst.same_result(catalyst.optimize(part.analyzed.filtered_by(wanted)), part.plan.filtered_by(wanted))
