"""How plans read the parts that they share: what Spark might have moved into a part, had it not been cut out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.graph import JoinType
from penstock.planner.shared_errors import Reading
from penstock.spark import catalyst
from penstock.spark.joins import join_type_of

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
_MOVES_DOWN = frozenset({JoinType.LEFT_SEMI, JoinType.LEFT_ANTI, None})
"""Joins that Spark may move into their left input; those of a type that is not known among them."""


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
    """

    number: int
    equal_parts: frozenset[int]
    analyzed: LogicalPlan
    plan: LogicalNode
    columns: list[int]


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
        _reading(reader, plan, above, parts[number], parts)
        for reader, plan in readers
        for number, above in placeholders(plan)
        if number in parts
    ]


def placeholders(plan: LogicalNode) -> Iterator[tuple[int, list[LogicalNode]]]:
    """Iterate over the leaves that may stand for parts: with their numbers, and with what is on the way to each."""

    def visit(node: LogicalNode, above: list[LogicalNode]) -> Iterator[tuple[int, list[LogicalNode]]]:
        if node.name == "LogicalRDD":
            yield catalyst.rdd_id(node), [*above, node]
        for child in node.children:
            yield from visit(child, [*above, node])

    return visit(plan, [])


def used_columns(plan: LogicalNode, number: int) -> set[int]:
    """Return the positions of the columns that a plan refers to of placeholders with a number."""
    found: set[int] = set()
    for one, (*above, leaf) in placeholders(plan):
        if one != number:
            continue
        readers: list[LogicalNode] = []
        for reader in reversed(above):
            readers.append(reader)
            if reader.name != "Filter":
                break
        if readers and readers[-1].name == "Project":
            references = {one for reader in readers for one in reader.references}
            found.update(i for i, one in enumerate(leaf.ids) if one in references)
        else:
            found.update(range(len(leaf.ids)))
    return found


def _reading(
    reader: int | None,
    plan: LogicalNode,
    path: Sequence[LogicalNode],
    part: SharedPart,
    parts: Mapping[int, SharedPart],
) -> Reading:
    *above, leaf = path
    part_can_fail = _can_fail(part, parts)
    movable = [node for node in _movable(above) if _matters(node, part_can_fail=part_can_fail)]
    if len(movable) == 1 and movable[0] is above[-1] and _stays(movable[0], leaf, part):
        movable = []
    upward = list(reversed(above))
    whole = next((place for place, node in enumerate(upward) if node.name in _READS_ALL), len(upward))
    return Reading(
        reader,
        part.number,
        part_can_fail,
        condition_can_fail=any(not node.cannot_fail for node in movable),
        leaves_out_rows=bool(movable) or any(node.name in _LIMITS for node in upward[:whole]),
        reads_all=all(node.name in _PASSES_ALL_ON for node in upward[:whole])
        and used_columns(plan, part.number) == set(part.columns),
    )


def _movable(above: Sequence[LogicalNode]) -> Iterator[LogicalNode]:
    """Iterate over the conditions right above a placeholder: Spark has moved there what it can move down."""
    for node in reversed(above):
        if node.name == "Filter" or (node.name == "Join" and join_type_of(node) in _MOVES_DOWN):
            yield node
        if node.name not in {"Filter", "Project"}:
            return


def _matters(condition: LogicalNode, *, part_can_fail: bool) -> bool:
    return part_can_fail or not condition.cannot_fail


def _can_fail(part: SharedPart, parts: Mapping[int, SharedPart]) -> bool:
    """Whether a part may raise an error, or one that it reads."""
    if any(node.name not in _KNOWN or not node.cannot_fail for node in part.plan.walk()):
        return True
    return any(_can_fail(parts[number], parts) for number, _ in placeholders(part.plan) if number in parts)


def _stays(condition: LogicalNode, leaf: LogicalNode, part: SharedPart) -> bool:
    """Whether Spark leaves a filter above a part, such as one of the results of groups."""
    if condition.name != "Filter" or tuple(leaf.ids[place] for place in part.columns) != part.plan.ids:
        return False
    wanted = [catalyst.filter_condition(condition)]
    return catalyst.same_result(catalyst.optimize(part.analyzed.filtered_by(wanted)), part.plan.filtered_by(wanted))
