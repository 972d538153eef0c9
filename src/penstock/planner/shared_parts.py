"""Extracts the expensive parts that several outputs share from their analysed plans, and optimises them once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.decisions import Explanation
from penstock.graph.labels import listed, table_name
from penstock.planner.draft import Note
from penstock.planner.shared_errors import unsafe_readings
from penstock.planner.shared_readings import SharedPart, placeholders, readings, used_columns
from penstock.planner.sharing import EqualParts, extract_common_parts
from penstock.spark import catalyst
from penstock.spark.plans import read_plan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.planner.outputs import Output
    from penstock.planner.shared_errors import Reading
    from penstock.planner.sharing import CommonPart, Exclusion
    from penstock.spark.jvm import Bridge
    from penstock.spark.plans import LogicalNode

_MAX_ROUNDS = 8
"""The maximum number of attempts with smaller parts, because each optimises all plans again."""


def extract_shared_parts(
    bridge: Bridge, outputs: Mapping[int, Output]
) -> tuple[dict[int, LogicalNode], list[SharedPart], list[Note]]:
    """Return the optimised plans of outputs without the parts that several share, these parts, and the decisions.

    An output does not share a part if the job could then raise other errors than its outputs on their own. It may share
    smaller parts. Nothing is shared if corrupt files are skipped, because the rows read then depend on the columns.
    """
    if len(outputs) < 2:
        return {}, [], []
    analyzed = [read_plan(catalyst.cached_plan(bridge, output.df)) for output in outputs.values()]
    if any(leaf.files is not None and leaf.files.skips_corrupt for plan in analyzed for leaf in plan.leaves()):
        return {}, [], []
    equal, numbers = EqualParts(analyzed), list(outputs)
    excluded: set[Exclusion] = set()
    notes: dict[tuple[str, str], Note] = {}
    for _ in range(_MAX_ROUNDS):
        remaining, commons = extract_common_parts(bridge, analyzed, equal, excluded)
        plans = [read_plan(catalyst.optimize(plan)) for plan in remaining] if commons else []
        shared = _optimized(commons, plans)
        unsafe = unsafe_readings(readings(dict(enumerate(plans)), shared))
        if not unsafe:
            return dict(zip(numbers, plans, strict=False)), shared, list(notes.values())
        parts = {part.number: part for part in shared}
        for reading in unsafe:
            excluded |= {(reading.reader, number) for number in parts[reading.part].equal_parts}
            note = _note(reading, parts[reading.part])
            notes.setdefault((str(note.about), note.reason), note)
    return {}, [], list(notes.values())


def _optimized(commons: Sequence[CommonPart], plans: Sequence[LogicalNode]) -> list[SharedPart]:
    shared: list[SharedPart] = []
    for common in commons:
        readers = [*plans, *(part.plan for part in shared)]
        paths = [path for plan in readers for number, path in placeholders(plan) if number == common.number]
        columns = sorted({position for path in paths for position in used_columns(path)})
        output = common.plan.output
        plan = common.plan if len(columns) == len(output) else common.plan.projected(output.take(columns))
        optimized = read_plan(catalyst.optimize(plan))
        shared.append(_narrowed(SharedPart(common.number, common.equal_parts, plan, optimized, columns), paths))
    return shared


def _narrowed(part: SharedPart, paths: Sequence[Sequence[LogicalNode]]) -> SharedPart:
    """Return a part with the filter that is above all of its placeholders, which Spark would push into it."""
    filters = [path[-2] for path in paths if len(path) > 1 and path[-2].name == "Filter" and part.is_of(path[-1])]
    conditions = list(map(catalyst.filter_condition, filters))
    if len(conditions) < len(paths) or len({condition.key for condition in conditions}) != 1:
        return part
    plan = part.analyzed.filtered_by(conditions[:1])
    return replace(part, analyzed=plan, plan=read_plan(catalyst.optimize(plan)), condition=conditions[0].key)


def _note(reading: Reading, part: SharedPart) -> Note:
    """Return the decision that some results do not share a part."""
    tables = dict.fromkeys(table_name(leaf.files.name) for leaf in part.plan.leaves() if leaf.files is not None)
    name = f"a part of {listed(list(tables), 'tables')}" if tables else "a part"
    reason = (
        "a condition of these results may fail, and sharing changes the rows that it is evaluated on"
        if reading.condition_can_fail
        else "it may fail on rows that the filters of these results remove"
    )
    explanation = Explanation(f"not all results that read {name} share it, as {reason}", tables=tuple(tables))
    return Note(name, "not shared by all results", reason, explanation=lambda *_: explanation)
