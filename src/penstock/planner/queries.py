"""The optimised queries of a job: the plan of every output, and the parts that several outputs share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.config.options import ADAPTIVE_PARTITIONER_ENABLED, EARLY_SUMS
from penstock.plan_hints import has_exchanges
from penstock.planner.conditions import spark_only_reason
from penstock.planner.early_sums import with_early_sums
from penstock.planner.late_values import with_late_values
from penstock.planner.native_query import NativeQuery, native_query, session_query
from penstock.planner.shared_parts import extract_shared_parts
from penstock.planner.sharing import with_equal_aggregates
from penstock.planner.spark_query import WHOLE_QUERY, SparkQuery
from penstock.planner.user_settings import has_user_hints
from penstock.rebalance.adaptive_exchanges import with_adaptive_exchanges
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
    """The optimised plans of a job.

    Parameters
    ----------
    plans
        The optimised plan of each output; a leaf for a query that is not divided into steps.
    whole
        The queries that are not divided into steps, by leaf.
    shared
        The shared parts, each after the parts it reads.
    parts
        The equal parts of all plans.
    notes
        The decisions about the plans.
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
    """Return the optimised queries of a job; aggregates that compute the same functions are made equal.

    Parameters
    ----------
    broadcast_threshold
        The bytes up to which a table is broadcast when planning; -1 disables broadcasts.
    native
        The only query, if it is already decided that DuckDB computes it.
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
        # The optimiser of Spark drops some hints.
        has_hints = native is None and has_user_hints(catalyst.cached_plan(bridge, outputs[0].df))
        whole, notes = _run_whole(None if has_hints else native or native_query(bridge, config, optimized[0]))
    remaining, shared, refusals = extract_shared_parts(
        bridge, {i: output for i, output in enumerate(outputs) if i not in whole}
    )
    plans = [remaining.get(i, plan) for i, plan in enumerate(optimized)]
    return _queries(config, plans, whole, shared, broadcast_threshold, [*notes, *refusals])


def read_planned_query(
    bridge: Bridge, config: Configuration, plan: LogicalPlan, broadcast_threshold: int, *, may_be_native: bool = True
) -> Queries:
    """Return the query of a job that Spark has already optimised; see `read_queries`."""
    query = read_plan(plan)
    notes: list[Note] = []
    whole = _run_by_spark([query])
    if may_be_native and not whole:
        whole, notes = _run_whole(session_query(bridge, config, query))
    return _queries(config, [query], whole, [], broadcast_threshold, notes)


def _run_by_spark(plans: Sequence[LogicalNode]) -> dict[int, SparkQuery]:
    """Return the plans that Spark must run unchanged, by index."""
    reasons = map(spark_only_reason, plans)
    return {index: SparkQuery(plans[index], reason) for index, reason in enumerate(reasons) if reason}


def _run_whole(query: SparkQuery | Note | None) -> tuple[dict[int, SparkQuery], list[Note]]:
    """Return the only query of a job by its index if it is not divided into steps, and the decisions about it."""
    if isinstance(query, SparkQuery):
        return {0: query}, [query.note()] if isinstance(query, NativeQuery) else []
    return {}, [] if query is None else [query]


def _queries(
    config: Configuration,
    optimized: Sequence[LogicalNode],
    whole: Mapping[int, SparkQuery],
    shared: Sequence[SharedPart],
    broadcast_threshold: int,
    notes: Sequence[Note],
) -> Queries:
    plans = [
        replace(plan, name=WHOLE_QUERY, children=()) if index in whole else plan for index, plan in enumerate(optimized)
    ]
    all_plans = [with_late_values(plan) for plan in (*plans, *(part.plan for part in shared))]
    notes = list(notes)
    if config.flag(EARLY_SUMS):
        for index, plan in enumerate(all_plans):
            all_plans[index], decisions = with_early_sums(plan, broadcast_threshold)
            notes += decisions
    changed, parts = with_equal_aggregates(all_plans)
    plans, rest = changed[: len(plans)], changed[len(plans) :]
    return Queries(
        plans,
        {plans[index]: query for index, query in whole.items()},
        [replace(part, plan=plan) for part, plan in zip(shared, rest, strict=True)],
        parts,
        notes,
    )
