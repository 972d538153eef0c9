"""The expensive parts that several outputs of a job share: cut out of their analysed plans, and optimised once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.decisions import Told
from penstock.planner.draft import Note
from penstock.planner.shared_errors import with_other_errors
from penstock.planner.sharing import EqualParts, cut_common
from penstock.spark import catalyst
from penstock.spark.barrier import with_output
from penstock.spark.error_sites import error_sites
from penstock.spark.fragment import rebuild
from penstock.spark.plans import read_plan

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from penstock.planner.outputs import Output
    from penstock.planner.sharing import Common
    from penstock.spark.jvm import Bridge
    from penstock.spark.logical_plan import LogicalPlan
    from penstock.spark.plans import LogicalNode

_WHY = "filters above it decide which of its rows can raise errors"


@dataclass(frozen=True, slots=True)
class SharedPart:
    """A part that several outputs share.

    Parameters
    ----------
    number
        What tells its placeholders from other leaves.
    plan
        The part, optimised, with the columns that are used.
    columns
        Which of a placeholder's columns these are.
    """

    number: int
    plan: LogicalNode
    columns: list[int]


def without_shared(
    bridge: Bridge, outputs: Mapping[int, Output], alone: Mapping[int, LogicalNode]
) -> tuple[dict[int, LogicalNode], list[SharedPart], list[Note]]:
    """Return the optimised plans of outputs less the parts that several share, these parts, and what is recorded.

    A part is not shared if the job could raise other errors than its outputs do one by one; smaller parts of it may be.

    Parameters
    ----------
    outputs
        What is wanted, by numbers.
    alone
        The optimised plan of each, by the same numbers.
    """
    if len(outputs) < 2:
        return {}, [], []
    analyzed = [read_plan(catalyst.cached_plan(bridge, output.df)) for output in outputs.values()]
    equal = EqualParts(analyzed)
    refused: set[int] = set()
    while True:
        cut, commons = cut_common(bridge, analyzed, equal, refused)
        if not commons:
            return {}, [], _notes(refused)
        plans = {place: read_plan(catalyst.optimize(plan)) for place, plan in zip(outputs, cut, strict=True)}
        shared = _optimized(commons, plans)
        others = _with_other_errors(alone, plans, shared)
        if not others:
            return plans, shared, _notes(refused)
        read = {number for place in others for number, _ in _placeholders(plans[place])}
        refused |= {common.equal_part for common in commons if common.number in read}


def _notes(refused: set[int]) -> list[Note]:
    if not refused:
        return []
    told = Told(f"a part that several results share is computed for each of them, as {_WHY}")
    return [Note("a shared part", "run for each", _WHY, told=lambda *_: told)]


def _optimized(commons: Sequence[Common], plans: Mapping[int, LogicalNode]) -> list[SharedPart]:
    shared: list[SharedPart] = []
    for common in commons:
        readers = [*plans.values(), *(one.plan for one in shared)]
        columns = sorted({i for plan in readers for i in _used_columns(plan, common.number)})
        output = common.plan.output
        plan = common.plan if len(columns) == len(output) else common.plan.projected(output.take(columns))
        shared.append(SharedPart(common.number, read_plan(catalyst.optimize(plan)), columns))
    return shared


def _with_other_errors(
    alone: Mapping[int, LogicalNode], plans: Mapping[int, LogicalNode], shared: Sequence[SharedPart]
) -> set[int]:
    """Return the outputs that may raise other errors with shared parts than alone."""
    parts = {part.number: part for part in shared}
    return with_other_errors(
        {place: error_sites(alone[place]) for place in plans},
        {place: error_sites(_put_together(plan, parts)) for place, plan in plans.items()},
    )


def _put_together(plan: LogicalNode, parts: Mapping[int, SharedPart]) -> LogicalPlan:
    """Return a plan with the shared parts in place of their placeholders."""
    replacements: dict[LogicalNode, LogicalPlan] = {}
    for number, leaf in _placeholders(plan):
        part = parts.get(number)
        if part is not None:
            replacements[leaf] = with_output(_put_together(part.plan, parts), leaf.output.take(part.columns))
    return rebuild(plan, replacements)


def _placeholders(plan: LogicalNode) -> Iterator[tuple[int, LogicalNode]]:
    """Iterate over the leaves that may stand for shared parts, with their numbers."""
    return ((catalyst.rdd_id(leaf), leaf) for leaf in plan.leaves() if leaf.name == "LogicalRDD")


def _used_columns(plan: LogicalNode, number: int) -> set[int]:
    """Return the positions of the columns that a plan refers to of placeholders with a number."""
    found: set[int] = set()

    def visit(node: LogicalNode, above: list[LogicalNode]) -> None:
        if node.name == "LogicalRDD" and catalyst.rdd_id(node) == number:
            readers: list[LogicalNode] = []
            for reader in reversed(above):
                readers.append(reader)
                if reader.name != "Filter":
                    break
            if readers and readers[-1].name == "Project":
                references = {one for reader in readers for one in reader.references}
                found.update(i for i, one in enumerate(node.ids) if one in references)
            else:
                found.update(range(len(node.ids)))
        for child in node.children:
            visit(child, [*above, node])

    visit(plan, [])
    return found
