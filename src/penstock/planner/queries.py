"""What a job has to do, as Spark has optimised it: the plan of every output, and the parts that several share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.config.options import EARLY_SUMS
from penstock.plan_hints import has_exchanges
from penstock.planner.conditions import why_run_by_spark
from penstock.planner.early_sums import with_early_sums
from penstock.planner.sharing import EqualParts, cut_common, with_equal_aggregates
from penstock.rebalance.adapted import with_adaptive_exchanges
from penstock.spark import catalyst
from penstock.spark.plans import read_plan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.config import Configuration
    from penstock.planner.draft import Note
    from penstock.planner.outputs import Output
    from penstock.spark.jvm import Bridge
    from penstock.spark.logical_plan import LogicalPlan
    from penstock.spark.plans import LogicalNode

RUN_BY_SPARK = "Query"
"""The name of a leaf that stands for a whole query."""


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


@dataclass(frozen=True, slots=True)
class Queries:
    """The plans of a job.

    Parameters
    ----------
    plans
        The optimised plan of each output; one that Spark runs as it is is a leaf.
    run_by_spark
        Why Spark has to run some of them, by the leaf.
    shared
        The parts that others share, each after those it reads.
    parts
        The equal parts of all plans.
    notes
        What was decided about them.
    """

    plans: Sequence[LogicalNode]
    run_by_spark: Mapping[LogicalNode, str]
    shared: Sequence[SharedPart]
    parts: EqualParts
    notes: Sequence[Note] = ()


def read_queries(bridge: Bridge, config: Configuration, outputs: Sequence[Output], broadcast_threshold: int) -> Queries:
    """Return what a job has to do, as Spark has optimised it; aggregates that compute alike are made equal.

    Parameters
    ----------
    bridge, config
        The session, and the options.
    outputs
        What is wanted.
    broadcast_threshold
        The bytes up to which a table is broadcast when planning; -1 for never.
    """
    outputs = [
        replace(output, df=with_adaptive_exchanges(bridge, config, output.df))
        if has_exchanges(catalyst.analyzed_plan(bridge, output.df))
        else output
        for output in outputs
    ]
    optimized = [read_plan(catalyst.optimized_plan(bridge, output.df)) for output in outputs]
    plans, reasons = _unless_run_by_spark(optimized)
    cut, shared = _without_shared(bridge, {i: outputs[i] for i, why in enumerate(reasons) if not why})
    plans = [cut.get(i, plan) for i, plan in enumerate(plans)]
    return _queries(config, plans, reasons, shared, broadcast_threshold)


def read_planned_query(config: Configuration, plan: LogicalPlan, broadcast_threshold: int) -> Queries:
    """Return what a job has to do whose one query Spark has optimised already; see `read_queries`."""
    return _queries(config, *_unless_run_by_spark([read_plan(plan)]), [], broadcast_threshold)


def _unless_run_by_spark(plans: Sequence[LogicalNode]) -> tuple[list[LogicalNode], list[str]]:
    """Return plans, leaves in place of those that Spark has to run as they are, and for each plan the reason."""
    reasons = [why_run_by_spark(plan) for plan in plans]
    return [
        replace(plan, name=RUN_BY_SPARK, children=()) if why else plan for plan, why in zip(plans, reasons, strict=True)
    ], reasons


def _queries(
    config: Configuration,
    plans: Sequence[LogicalNode],
    reasons: Sequence[str],
    shared: Sequence[SharedPart],
    broadcast_threshold: int,
) -> Queries:
    every, notes = [*plans, *(one.plan for one in shared)], []
    if config.flag(EARLY_SUMS):
        for place, plan in enumerate(every):
            every[place], made = with_early_sums(plan, broadcast_threshold)
            notes += made
    changed, parts = with_equal_aggregates(every)
    plans, rest = changed[: len(plans)], changed[len(plans) :]
    return Queries(
        plans,
        {plan: why for plan, why in zip(plans, reasons, strict=True) if why},
        [replace(one, plan=plan) for one, plan in zip(shared, rest, strict=True)],
        parts,
        notes,
    )


def _without_shared(bridge: Bridge, outputs: Mapping[int, Output]) -> tuple[dict[int, LogicalNode], list[SharedPart]]:
    """Return the optimised plans of outputs less the expensive parts that several share, and these, if any."""
    if len(outputs) < 2:
        return {}, []
    analyzed = [read_plan(catalyst.cached_plan(bridge, output.df)) for output in outputs.values()]
    cut, commons = cut_common(bridge, analyzed)
    if not commons:
        return {}, []
    plans = {place: read_plan(catalyst.optimize(plan)) for place, plan in zip(outputs, cut, strict=True)}
    shared: list[SharedPart] = []
    for common in commons:
        readers = [*plans.values(), *(one.plan for one in shared)]
        columns = sorted({i for plan in readers for i in _used_columns(plan, common.number)})
        output = common.plan.output
        plan = common.plan if len(columns) == len(output) else common.plan.projected(output.take(columns))
        optimized = read_plan(catalyst.optimize(plan))
        shared.append(SharedPart(common.number, optimized, columns))
    return plans, shared


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
