"""Plans a job from its DataFrames and sinks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config.options import BROADCAST_JOIN_STRATEGY, BROADCAST_THRESHOLD
from penstock.planner.conditions import leaves_split_by_spark
from penstock.planner.draft import DraftBuilder, TranslatedNode
from penstock.planner.outputs import check_output, fix_current_time
from penstock.planner.passes import PASSES
from penstock.planner.passes.exchange_widths import job_plan
from penstock.planner.queries import Queries, read_planned_query, read_queries
from penstock.planner.sinks import add_output
from penstock.planner.sources import SourceMaker
from penstock.planner.translation import Translator
from penstock.spark import catalyst
from penstock.spark.session import broadcast_threshold

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.config import Configuration
    from penstock.planner.draft import Draft
    from penstock.planner.native_query import NativeQuery
    from penstock.planner.outputs import Output, PlannedOutput
    from penstock.planner.plan import JobPlan
    from penstock.spark.expressions import Attributes
    from penstock.spark.jvm import Bridge
    from penstock.spark.plans import LogicalNode


def plan_job(
    bridge: Bridge,
    config: Configuration,
    outputs: Sequence[Output],
    name: str,
    native: NativeQuery | None = None,
    *,
    has_own_strategies: bool = False,
) -> JobPlan:
    """Return the plan of a job with some outputs, which contains shared parts once.

    Parameters
    ----------
    native
        The only query, if it is already decided that DuckDB computes it.
    has_own_strategies
        Whether the user passed strategies, which need the steps of the query.

    Raises
    ------
    PenstockError
        If an output is a streaming DataFrame, or belongs to another Spark session.
    """
    for output in outputs:
        check_output(bridge, output)
    outputs = fix_current_time(bridge, outputs)
    broadcast = planned_broadcast_threshold(bridge, config)
    queries = read_queries(bridge, config, outputs, broadcast[0], native, may_be_native=not has_own_strategies)
    return _run_passes(_translate(bridge, config, outputs, queries, broadcast), name)


def plan_query(
    bridge: Bridge, config: Configuration, output: PlannedOutput, name: str, *, has_own_strategies: bool = False
) -> JobPlan:
    """Return the plan of a job for a query that Spark has already optimised."""
    broadcast = planned_broadcast_threshold(bridge, config)
    queries = read_planned_query(bridge, config, output.plan, broadcast[0], may_be_native=not has_own_strategies)
    return _run_passes(_translate(bridge, config, [output], queries, broadcast), name)


def _run_passes(draft: Draft, name: str) -> JobPlan:
    for planner_pass in PASSES:
        draft = planner_pass(draft)
    return job_plan(draft, name)


def _translate(
    bridge: Bridge,
    config: Configuration,
    outputs: Sequence[Output | PlannedOutput],
    queries: Queries,
    broadcast: tuple[int, str],
) -> Draft:
    """Translate the plans of all outputs; a shared part is translated at its first placeholder."""
    shared = {part.number: part for part in queries.shared}
    translated: dict[int, TranslatedNode] = {}

    def placeholder(node: LogicalNode) -> tuple[TranslatedNode, Attributes] | None:
        part = shared.get(catalyst.rdd_id(node)) if shared and node.name == "LogicalRDD" else None
        if part is None:
            return None
        if part.number not in translated:
            translated[part.number] = TranslatedNode(translator.translate(part.plan).node_id)
        return translated[part.number], node.output.take(part.columns)

    all_plans = [*queries.plans, *(part.plan for part in queries.shared)]
    split_by_spark = {leaf for plan in all_plans for leaf in leaves_split_by_spark(plan)}
    sources = SourceMaker(bridge, config, queries.whole, split_by_spark)
    builder = DraftBuilder()
    builder.notes += queries.notes
    translator = Translator(bridge, config, builder, queries.parts, sources, *broadcast, placeholder)
    for output, plan in zip(outputs, queries.plans, strict=True):
        add_output(translator, plan, output)
    return builder.draft()


def planned_broadcast_threshold(bridge: Bridge, config: Configuration) -> tuple[int, str]:
    """Return the bytes up to which a join side is broadcast when planning (-1 for never), and the option key."""
    if config.get(BROADCAST_JOIN_STRATEGY) == "RUNTIME_ONLY":
        return -1, BROADCAST_JOIN_STRATEGY.key
    threshold = config.maybe_integer(BROADCAST_THRESHOLD)
    return broadcast_threshold(bridge) if threshold is None else (threshold, BROADCAST_THRESHOLD.key)
