"""What a job has to do, as Spark has optimised it: the plan of every output, and the parts that several share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.config.options import ADAPTIVE_PARTITIONER_ENABLED, EARLY_SUMS
from penstock.plan_hints import has_exchanges
from penstock.planner.conditions import why_run_by_spark
from penstock.planner.early_sums import with_early_sums
from penstock.planner.late_values import with_late_values
from penstock.planner.native_query import NativeQuery, native_query, query_of_session
from penstock.planner.run_wishes import plan_says_how
from penstock.planner.shared_parts import without_shared
from penstock.planner.sharing import with_equal_aggregates
from penstock.planner.spark_query import WHOLE_QUERY, SparkQuery
from penstock.rebalance.adapted import with_adaptive_exchanges
from penstock.spark import catalyst
from penstock.spark.plans import read_plan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.config import Configuration
    from penstock.planner.draft import Note
    from penstock.planner.outputs import Output
    from penstock.planner.shared_readings import SharedPart
    from penstock.planner.sharing import EqualParts
    from penstock.spark.jvm import Bridge
    from penstock.spark.logical_plan import LogicalPlan
    from penstock.spark.plans import LogicalNode


@dataclass(frozen=True, slots=True)
class Queries:
    """The plans of a job.

    Parameters
    ----------
    plans
        The optimised plan of each output; one that is not cut is a leaf.
    whole
        How some of them are run that are not cut, by the leaf.
    shared
        The parts that others share, each after those it reads.
    parts
        The equal parts of all plans.
    notes
        What was decided about them.
    """

    plans: Sequence[LogicalNode]
    whole: Mapping[LogicalNode, SparkQuery]
    shared: Sequence[SharedPart]
    parts: EqualParts
    notes: Sequence[Note] = ()


def read_queries(
    bridge: Bridge,
    config: Configuration,
    outputs: Sequence[Output],
    broadcast_threshold: int,
    native: NativeQuery | None = None,
    *,
    may_be_native: bool = True,
) -> Queries:
    """Return what a job has to do, as Spark has optimised it; aggregates that compute alike are made equal.

    Parameters
    ----------
    bridge, config
        The session, and the options.
    outputs
        What is wanted.
    broadcast_threshold
        The bytes up to which a table is broadcast when planning; -1 for never.
    native
        The only query, if it is known that DuckDB computes it.
    may_be_native
        Whether DuckDB may compute the only query.
    """
    outputs = [
        replace(output, df=with_adaptive_exchanges(bridge, config, output.df))
        if config.flag(ADAPTIVE_PARTITIONER_ENABLED) or has_exchanges(catalyst.analyzed_plan(bridge, output.df))
        else output
        for output in outputs
    ]
    optimized = [read_plan(catalyst.optimized_plan(bridge, output.df)) for output in outputs]
    notes: list[Note] = []
    whole = _run_by_spark(optimized)
    if may_be_native and not whole and len(outputs) == 1:
        # Spark's optimiser drops some hints.
        says_how = native is None and plan_says_how(catalyst.cached_plan(bridge, outputs[0].df))
        whole, notes = _run_whole(None if says_how else native or native_query(bridge, config, optimized[0]))
    cut, shared, refused = without_shared(bridge, {i: output for i, output in enumerate(outputs) if i not in whole})
    plans = [cut.get(i, plan) for i, plan in enumerate(optimized)]
    return _queries(config, plans, whole, shared, broadcast_threshold, [*notes, *refused])


def read_planned_query(
    bridge: Bridge, config: Configuration, plan: LogicalPlan, broadcast_threshold: int, *, may_be_native: bool = True
) -> Queries:
    """Return what a job has to do whose one query Spark has optimised already; see `read_queries`."""
    read = read_plan(plan)
    notes: list[Note] = []
    whole = _run_by_spark([read])
    if may_be_native and not whole:
        whole, notes = _run_whole(query_of_session(bridge, config, read))
    return _queries(config, [read], whole, [], broadcast_threshold, notes)


def _run_by_spark(plans: Sequence[LogicalNode]) -> dict[int, SparkQuery]:
    """Return those of some plans that Spark has to run as they are, by their places."""
    reasons = map(why_run_by_spark, plans)
    return {place: SparkQuery(plans[place], why) for place, why in enumerate(reasons) if why}


def _run_whole(found: SparkQuery | Note | None) -> tuple[dict[int, SparkQuery], list[Note]]:
    """Return the only query of a job if it is not cut, and what is recorded of that."""
    if isinstance(found, SparkQuery):
        return {0: found}, [found.note()] if isinstance(found, NativeQuery) else []
    return {}, [] if found is None else [found]


def _queries(
    config: Configuration,
    given: Sequence[LogicalNode],
    whole: Mapping[int, SparkQuery],
    shared: Sequence[SharedPart],
    broadcast_threshold: int,
    notes: Sequence[Note],
) -> Queries:
    plans = [
        replace(plan, name=WHOLE_QUERY, children=()) if place in whole else plan for place, plan in enumerate(given)
    ]
    every = [with_late_values(plan) for plan in (*plans, *(part.plan for part in shared))]
    notes = list(notes)
    if config.flag(EARLY_SUMS):
        for place, plan in enumerate(every):
            every[place], made = with_early_sums(plan, broadcast_threshold)
            notes += made
    changed, parts = with_equal_aggregates(every)
    plans, rest = changed[: len(plans)], changed[len(plans) :]
    return Queries(
        plans,
        {plans[place]: query for place, query in whole.items()},
        [replace(one, plan=plan) for one, plan in zip(shared, rest, strict=True)],
        parts,
        notes,
    )
