"""Extracts the expensive parts that several queries share from their analyzed plans, and optimizes them once.

Each output of a job is a query. In plans, a *placeholder* represents a shared part: a leaf that Spark cannot inspect.
Spark pushes the filters of a query down, also into a part that the query shares with others. A part that runs once has
only filters that all queries have. So it computes rows that a single query would have removed, and may fail on them.
Above the part, a filter that may fail sees fewer rows than inside. So errors may differ: see `unsafe_readings`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product, takewhile
from typing import TYPE_CHECKING

from penstock.decisions.log import Explanation
from penstock.graph import JoinType
from penstock.graph.labels import listed, table_name
from penstock.planner.draft import DraftChoice
from penstock.planner.sharing import CommonPart, EqualParts, Exclusion, extract_common_parts
from penstock.spark.bridge.jvm import Bridge, class_names
from penstock.spark.plans import catalyst
from penstock.spark.plans.aggregates import aggregate_functions, split_aggregate
from penstock.spark.plans.joins import join_type_of
from penstock.spark.plans.nodes import LogicalNode, read_plan

if TYPE_CHECKING:
    from penstock.planner.outputs import Output
    from penstock.spark.plans.logical_plan import LogicalPlan


@dataclass(frozen=True, slots=True)
class Reading:
    """How a query or another part reads a shared part; `reader` is the number of the query, or None for a part."""

    reader: int | None
    part: int
    part_can_fail: bool
    """Whether the part may raise an error on some row."""
    condition_can_fail: bool = False
    """Whether the reader has a condition that may fail and that Spark may push into the part. Or whether the reader
    joins the part with an input that may fail: Spark may filter this input by the part's filters and the join keys."""
    may_skip_rows: bool = False
    """Whether the reader alone might not compute all rows and columns of the part: it has a condition that Spark may
    push into the part, a limit, or expressions that Spark may merge with columns of the part."""
    reads_all: bool = False
    """Whether the reader alone certainly computes all rows of the part, with all columns that any query uses."""


def unsafe_readings(readings: Collection[Reading]) -> list[Reading]:
    """Return the readings for which a job might raise other errors than its queries on their own.

    If a query computes the whole part anyway, errors of the part also occur without sharing, whatever others read.

    >>> partial = Reading(0, 7, part_can_fail=True, may_skip_rows=True)
    >>> whole = Reading(1, 7, part_can_fail=True, reads_all=True)
    >>> unsafe_readings([partial]) == [partial], unsafe_readings([partial, whole])
    (True, [])
    """
    whole = {reading.part for reading in readings if reading.reads_all}
    return [
        reading
        for reading in readings
        if reading.condition_can_fail or (reading.part_can_fail and reading.may_skip_rows and reading.part not in whole)
    ]


_SAFE_OPERATORS = class_names(
    "Project Filter Aggregate Join Window WindowGroupLimit Sort Union Expand Generate Repartition "
    "RepartitionByExpression RebalancePartitions GlobalLimit LocalLimit Offset LogicalRelation HiveTableRelation "
    "DataSourceV2ScanRelation InMemoryRelation LogicalRDD LocalRelation OneRowRelation Range"
)
"""Operators that raise errors only in their expressions."""
_FORWARDS_ALL = frozenset({"Project", "Union", "Expand", "Generate", "Repartition", "RepartitionByExpression"})
"""Operators that read all rows of their input if all of their output is read."""
_READS_ALL = frozenset({"Aggregate", "Sort", "Window"})
"""Operators that read all rows of their input before they return the first row, even below a limit."""
_LIMITS = frozenset({"GlobalLimit", "LocalLimit", "Offset"})
_CALLS_PYTHON = frozenset({"BatchEvalPython", "ArrowEvalPython"})
"""Operators into which Spark extracts the Python functions of conditions and projections above them."""
_MERGED = frozenset({("Project", "Project"), ("Project", "Aggregate"), ("Aggregate", "Project")})
"""Pairs of a reader's operator and the topmost operator of a part that Spark merges."""
_STAYS_ABOVE_PART = {
    *product((JoinType.INNER, JoinType.FULL_OUTER), (True, False)),
    (JoinType.LEFT_OUTER, True),
    (JoinType.RIGHT_OUTER, False),
}
"""Joins (type, whether the part is left) that Spark neither pushes into the part nor replaces by the other input."""


@dataclass(frozen=True, slots=True)
class SharedPart:
    """A part that several queries share.

    `number` and `subtree_classes` are as in `CommonPart`. `analyzed` is the analyzed part with the used columns, `plan`
    is the optimized part, and `columns` are the positions of these columns in a placeholder. `condition` is the filter
    above each of its placeholders, as `Expression.key`, or empty; the part contains this filter, too.
    """

    number: int
    subtree_classes: frozenset[int]
    analyzed: LogicalPlan
    plan: LogicalNode
    columns: list[int]
    condition: str = ""

    def is_read_by(self, leaf: LogicalNode) -> bool:
        """Whether the leaf `leaf` is a placeholder with the column ids of the part."""
        return tuple(leaf.ids[position] for position in self.columns) == self.plan.ids


def readings(plans: Mapping[int, LogicalNode], shared: Sequence[SharedPart]) -> list[Reading]:
    """Return how optimized queries and shared parts read shared parts; Spark has pushed down their conditions."""
    parts = {part.number: part for part in shared}
    readers: list[tuple[int | None, LogicalNode]] = [*plans.items(), *((None, part.plan) for part in shared)]
    return [
        _reading(reader, path, parts[number], parts)
        for reader, plan in readers
        for number, path in placeholders(plan)
        if number in parts
    ]


def placeholders(plan: LogicalNode) -> Iterator[tuple[int, list[LogicalNode]]]:
    """Iterate over the leaves that may be placeholders: the number of each, and the path from the root to it."""

    def visit(node: LogicalNode, above: list[LogicalNode]) -> Iterator[tuple[int, list[LogicalNode]]]:
        if node.name == "LogicalRDD":
            yield catalyst.rdd_id(node), [*above, node]
        for child in node.children:
            yield from visit(child, [*above, node])

    return visit(plan, [])


def used_columns(path: Sequence[LogicalNode]) -> set[int]:
    """Return a placeholder's used column positions; all unless the first operator above its filters is a projection."""
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
    movable = [node for node in _movable_conditions(path) if part_can_fail or not node.cannot_fail]
    if len(movable) == 1 and movable[0] is above[-1] and _has_no_effect_on(movable[0], leaf, part):
        movable = []
    until_all_read = list(takewhile(lambda node: node.name not in _READS_ALL, reversed(above)))
    may_inline = _may_inline(path, part.plan)
    return Reading(
        reader,
        part.number,
        part_can_fail,
        condition_can_fail=any(not node.cannot_fail for node in movable) or _protects_join_partner(path, part, parts),
        may_skip_rows=bool(movable) or may_inline or any(node.name in _LIMITS for node in until_all_read),
        reads_all=not may_inline
        and all(node.name in _FORWARDS_ALL for node in until_all_read)
        and used_columns(path) == set(part.columns),
    )


def _movable_conditions(path: Sequence[LogicalNode]) -> Iterator[LogicalNode]:
    """Iterate over the filters (with their Python operators) and the join that Spark may push into the leaf's part."""
    python_operators: list[LogicalNode] = []
    child = path[-1]
    for node in reversed(path[:-1]):
        if node.name in _CALLS_PYTHON:
            python_operators.append(node)
        elif node.name == "Filter":
            yield from (*python_operators, node)
        elif node.name == "Join" and (join_type_of(node), child is node.children[0]) not in _STAYS_ABOVE_PART:
            yield node
        if node.name not in {"Filter", "Project", *_CALLS_PYTHON}:
            return
        child = node


def _may_inline(path: Sequence[LogicalNode], top: LogicalNode) -> bool:
    """Whether Spark may inline columns of the part where they are used, such as in a branch that few rows take.

    Spark does so when it merges two projections, or a projection and an aggregate. `top` is the part's top operator.
    """
    *above, leaf = path
    node = next((operator for operator in reversed(above) if operator.name != "Filter"), None)
    if node is None or (node.name, top.name) not in _MERGED:
        return False
    if node.name == "Project" and all(column in leaf.ids or column in node.renamed_columns for column in node.ids):
        return False
    # Of an aggregate, Spark inlines only the expressions over the results of its functions.
    functions = aggregate_functions(top) if top.name == "Aggregate" else None
    return not (read_plan(split_aggregate(top, functions)) if functions else top).cannot_fail


def _protects_join_partner(path: Sequence[LogicalNode], part: SharedPart, parts: Mapping[int, SharedPart]) -> bool:
    """Whether conditions of the part might prevent an error of an input that it is joined with."""
    if not any(node.name == "Filter" and not node.filters_only_nulls for node in part.plan.walk()):
        return False
    joins = ((node, below) for node, below in pairwise(path) if node.name == "Join")
    return any(_plan_can_fail(child, parts) for join, below in joins for child in join.children if child is not below)


def _plan_can_fail(plan: LogicalNode, parts: Mapping[int, SharedPart]) -> bool:
    """Whether a plan, or a part that it reads, may raise an error."""
    if any(node.name not in _SAFE_OPERATORS or not node.cannot_fail for node in plan.walk()):
        return True
    return any(_plan_can_fail(parts[number].plan, parts) for number, _ in placeholders(plan) if number in parts)


def _has_no_effect_on(condition: LogicalNode, leaf: LogicalNode, part: SharedPart) -> bool:
    """Whether a filter has no effect on a part: Spark cannot push it down (for example on sums), or the part has it."""
    if condition.name != "Filter" or not part.is_read_by(leaf):
        return False
    if part.condition and catalyst.filter_condition(condition).key == part.condition:
        return True
    conditions = [catalyst.filter_condition(condition)]
    pushed_down = catalyst.optimize(part.analyzed.filtered_by(conditions))
    return catalyst.same_result(pushed_down, part.plan.filtered_by(conditions))


_MAX_ROUNDS = 8
"""The maximum number of attempts with smaller parts, because each attempt optimizes all plans again."""


def extract_shared_parts(
    bridge: Bridge, outputs: Mapping[int, Output]
) -> tuple[dict[int, LogicalNode], list[SharedPart], list[DraftChoice]]:
    """Return the optimized plans of queries without their shared parts, the shared parts, and the decisions.

    The plans are by output number; there are none if nothing is shared. A query does not share a part if the job
    could then raise other errors than its queries alone, but it may share smaller parts. Nothing is shared if corrupt
    files are skipped, because the rows read then depend on the columns.
    """
    if len(outputs) < 2:
        return {}, [], []
    analyzed = [read_plan(catalyst.cached_plan(bridge, output.df)) for output in outputs.values()]
    if any(leaf.files is not None and leaf.files.skips_corrupt_files for plan in analyzed for leaf in plan.leaves()):
        return {}, [], []
    equal_parts, numbers = EqualParts(analyzed), list(outputs)
    excluded: set[Exclusion] = set()
    choices: dict[tuple[str, str], DraftChoice] = {}
    for _ in range(_MAX_ROUNDS):
        remaining, common_parts = extract_common_parts(bridge, analyzed, equal_parts, excluded)
        plans = [read_plan(catalyst.optimize(plan)) for plan in remaining] if common_parts else []
        shared = _optimized_parts(common_parts, plans)
        unsafe = unsafe_readings(readings(dict(enumerate(plans)), shared))
        if not unsafe:
            return dict(zip(numbers, plans, strict=False)), shared, list(choices.values())
        parts = {part.number: part for part in shared}
        for reading in unsafe:
            excluded |= {(reading.reader, subtree_class) for subtree_class in parts[reading.part].subtree_classes}
            choice = _choice(reading, parts[reading.part])
            choices.setdefault((str(choice.about), choice.reason), choice)
    return {}, [], list(choices.values())


def _optimized_parts(common_parts: Sequence[CommonPart], plans: Sequence[LogicalNode]) -> list[SharedPart]:
    shared: list[SharedPart] = []
    for common_part in common_parts:
        readers = [*plans, *(earlier.plan for earlier in shared)]
        paths = [path for plan in readers for number, path in placeholders(plan) if number == common_part.number]
        columns = sorted({position for path in paths for position in used_columns(path)})
        output = common_part.plan.output
        plan = common_part.plan if len(columns) == len(output) else common_part.plan.projected(output.take(columns))
        optimized = read_plan(catalyst.optimize(plan))
        part = SharedPart(common_part.number, common_part.subtree_classes, plan, optimized, columns)
        shared.append(_with_common_filter(part, paths))
    return shared


def _with_common_filter(part: SharedPart, paths: Sequence[Sequence[LogicalNode]]) -> SharedPart:
    """Return a part with the filter that is above all of its placeholders, which Spark would push into it."""
    filters = [path[-2] for path in paths if len(path) > 1 and path[-2].name == "Filter" and part.is_read_by(path[-1])]
    conditions = list(map(catalyst.filter_condition, filters))
    if len(conditions) < len(paths) or len({condition.key for condition in conditions}) != 1:
        return part
    plan = part.analyzed.filtered_by(conditions[:1])
    return replace(part, analyzed=plan, plan=read_plan(catalyst.optimize(plan)), condition=conditions[0].key)


def _choice(reading: Reading, part: SharedPart) -> DraftChoice:
    tables = dict.fromkeys(table_name(leaf.files.name) for leaf in part.plan.leaves() if leaf.files is not None)
    name = f"a part of {listed(list(tables), 'tables')}" if tables else "a part"
    reason = (
        "a condition of these results may fail, and sharing changes the rows that it is evaluated on"
        if reading.condition_can_fail
        else "it may fail on rows that the filters of these results remove"
    )
    explanation = Explanation(f"not all results that read {name} share it, as {reason}", tables=tuple(tables))
    return DraftChoice(name, "not shared by all results", reason, explain=lambda *_: explanation)
