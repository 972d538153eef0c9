"""The expensive parts that several outputs of a job share: cut out of their analysed plans, and optimised once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.decisions import Told
from penstock.graph.wording import listed, table_name
from penstock.planner.draft import Note
from penstock.planner.shared_errors import with_other_errors
from penstock.planner.shared_readings import SharedPart, placeholders, readings, used_columns
from penstock.planner.sharing import EqualParts, cut_common
from penstock.spark import catalyst
from penstock.spark.plans import read_plan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.planner.outputs import Output
    from penstock.planner.shared_errors import Reading
    from penstock.planner.sharing import Common, Refused
    from penstock.spark.jvm import Bridge
    from penstock.spark.plans import LogicalNode

_ROUNDS = 8
"""So often a smaller part is tried, as each time all plans are optimised again."""


def without_shared(
    bridge: Bridge, outputs: Mapping[int, Output]
) -> tuple[dict[int, LogicalNode], list[SharedPart], list[Note]]:
    """Return the optimised plans of outputs less the parts that several share, these parts, and what is recorded.

    An output does not share a part if the job could then raise other errors than its outputs do one by one. It may
    share smaller parts. Nothing is shared where files may be corrupt: what is read of them depends on the columns.
    """
    if len(outputs) < 2:
        return {}, [], []
    analyzed = [read_plan(catalyst.cached_plan(bridge, output.df)) for output in outputs.values()]
    if any(leaf.files is not None and leaf.files.skips_corrupt for plan in analyzed for leaf in plan.leaves()):
        return {}, [], []
    equal, places = EqualParts(analyzed), list(outputs)
    refused: set[Refused] = set()
    notes: dict[tuple[str, str], Note] = {}
    for _ in range(_ROUNDS):
        cut, commons = cut_common(bridge, analyzed, equal, refused)
        plans = [read_plan(catalyst.optimize(plan)) for plan in cut] if commons else []
        shared = _optimized(commons, plans)
        unlike = with_other_errors(readings(dict(enumerate(plans)), shared))
        if not unlike:
            return dict(zip(places, plans, strict=False)), shared, list(notes.values())
        parts = {part.number: part for part in shared}
        for reading in unlike:
            refused |= {(reading.reader, number) for number in parts[reading.part].equal_parts}
            note = _note(reading, parts[reading.part])
            notes.setdefault((str(note.about), note.reason), note)
    return {}, [], list(notes.values())


def _optimized(commons: Sequence[Common], plans: Sequence[LogicalNode]) -> list[SharedPart]:
    shared: list[SharedPart] = []
    for common in commons:
        readers = [*plans, *(one.plan for one in shared)]
        paths = [path for plan in readers for number, path in placeholders(plan) if number == common.number]
        columns = sorted({place for path in paths for place in used_columns(path)})
        output = common.plan.output
        plan = common.plan if len(columns) == len(output) else common.plan.projected(output.take(columns))
        optimized = read_plan(catalyst.optimize(plan))
        shared.append(_narrowed(SharedPart(common.number, common.equal_parts, plan, optimized, columns), paths))
    return shared


def _narrowed(part: SharedPart, paths: Sequence[Sequence[LogicalNode]]) -> SharedPart:
    """Return a part with the filter that stands above all of its placeholders, which each output alone has in it."""
    filters = [path[-2] for path in paths if len(path) > 1 and path[-2].name == "Filter" and part.is_of(path[-1])]
    conditions = [catalyst.filter_condition(one) for one in filters]
    if len(conditions) < len(paths) or len({one.key for one in conditions}) != 1:
        return part
    plan = part.analyzed.filtered_by(conditions[:1])
    return replace(part, analyzed=plan, plan=read_plan(catalyst.optimize(plan)), condition=conditions[0].key)


def _note(reading: Reading, part: SharedPart) -> Note:
    """Return what is recorded of results that do not share a part."""
    tables = dict.fromkeys(table_name(leaf.files.name) for leaf in part.plan.leaves() if leaf.files is not None)
    name = f"a part of {listed(list(tables), 'tables')}" if tables else "a part"
    why = (
        "a condition of theirs may fail, on fewer rows above it than below it"
        if reading.condition_can_fail
        else "it may fail on rows that they leave out"
    )
    told = Told(f"not all results that read {name} share it, as {why}", tables=tuple(tables))
    return Note(name, "not shared by all results", why, told=lambda *_: told)
