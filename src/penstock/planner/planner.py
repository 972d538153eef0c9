"""Plans a job from its DataFrames and sinks."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from penstock.config.options import (
    ADAPTIVE_PARTITIONER_ENABLED,
    BROADCAST_JOIN_STRATEGY,
    BROADCAST_THRESHOLD,
    EARLY_SUMS,
)
from penstock.hints.plan_hints import has_exchanges
from penstock.planner.conditions import leaves_split_by_spark, spark_only_reason
from penstock.planner.draft import Draft, Note, TranslatedNode, job_plan
from penstock.planner.early_sums import with_early_sums
from penstock.planner.engine_choice import EngineChoice
from penstock.planner.late_values import with_late_values
from penstock.planner.outputs import Output, PlannedOutput, check_outputs, fix_current_time
from penstock.planner.passes import PASSES
from penstock.planner.plan import JobPlan, SparkPlan
from penstock.planner.shared_parts import SharedPart, extract_shared_parts
from penstock.planner.sharing import with_equal_aggregates
from penstock.planner.sinks import add_output
from penstock.planner.sources import SourceMaker
from penstock.planner.translation import Translator
from penstock.planner.whole_queries import WHOLE_QUERY, NativeQuery, SparkQuery
from penstock.rebalance.adaptive_exchanges import with_adaptive_exchanges
from penstock.spark.bridge.session import broadcast_threshold
from penstock.spark.plans import catalyst
from penstock.spark.plans.nodes import LogicalNode, read_plan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.config import Configuration
    from penstock.spark.bridge.jvm import Bridge
    from penstock.spark.plans.expressions import Attributes


def plan_job(
    bridge: Bridge, config: Configuration, outputs: Sequence[Output], name: str, *, has_own_strategies: bool = False
) -> SparkPlan | JobPlan:
    """Return the plan of a job with some outputs, which contains shared parts once.

    Spark runs a job unchanged if a plan observes metrics, which Spark reports only for queries that it runs itself, and
    some jobs with a single output, see `EngineChoice.for_output`. Several outputs may share work, which Spark would
    repeat for each. `has_own_strategies` says whether the user passed strategies, which need the steps of the query.
    Raises `PenstockError` if an output is a streaming DataFrame, or belongs to another Spark session.
    """
    check_outputs(bridge, outputs)
    outputs = fix_current_time(bridge, outputs)
    optimized = [catalyst.optimized_plan(bridge, output.df) for output in outputs]
    if any(map(catalyst.observes_metrics, optimized)):
        reason = "it observes metrics (DataFrame.observe), which Spark reports for whole queries only"
        return SparkPlan(outputs, None, reason)
    choice: EngineChoice | None = None
    native: NativeQuery | None = None
    if len(outputs) == 1 and not has_own_strategies:
        (output,) = outputs
        choice = EngineChoice(bridge, config, optimized[0], partial(catalyst.cached_plan, bridge, output.df))
        decided = choice.for_output(output)
        if isinstance(decided, SparkPlan):
            return decided
        native = decided
    outputs = list(outputs)
    for index, output in enumerate(outputs):
        if config.flag(ADAPTIVE_PARTITIONER_ENABLED) or has_exchanges(catalyst.analyzed_plan(bridge, output.df)):
            df = with_adaptive_exchanges(bridge, config, output.df)
            if df is not output.df:
                outputs[index], optimized[index] = replace(output, df=df), catalyst.optimized_plan(bridge, df)
                cached = partial(catalyst.cached_plan, bridge, df)
                choice = choice and EngineChoice(bridge, config, optimized[index], cached)
    plans = [read_plan(plan) for plan in optimized]
    notes: list[Note] = []
    whole = _run_by_spark(plans)
    if choice is not None and not whole:
        whole, notes = _run_whole(native or choice.large_query())
    remaining, shared, refusals = extract_shared_parts(
        bridge, {index: output for index, output in enumerate(outputs) if index not in whole}
    )
    plans = [remaining.get(index, plan) for index, plan in enumerate(plans)]
    return _plan_queries(bridge, config, outputs, name, plans, whole, shared, [*notes, *refusals])


def plan_query(
    bridge: Bridge, config: Configuration, output: PlannedOutput, name: str, *, has_own_strategies: bool = False
) -> JobPlan:
    """Return the plan of a job for a query that Spark has already optimised."""
    query = read_plan(output.plan)
    notes: list[Note] = []
    whole = _run_by_spark([query])
    if not (has_own_strategies or whole):
        whole, notes = _run_whole(EngineChoice(bridge, config, query, lambda: query).for_session())
    return _plan_queries(bridge, config, [output], name, [query], whole, [], notes)


def _run_by_spark(plans: Sequence[LogicalNode]) -> dict[int, SparkQuery]:
    reasons = map(spark_only_reason, plans)
    return {index: SparkQuery(plans[index], reason) for index, reason in enumerate(reasons) if reason}


def _run_whole(query: SparkQuery | Note | None) -> tuple[dict[int, SparkQuery], list[Note]]:
    """Return the only query of a job by its index if it is not divided into steps, and the decisions about it."""
    if isinstance(query, SparkQuery):
        return {0: query}, [query.note()] if isinstance(query, NativeQuery) else []
    return {}, [] if query is None else [query]


def _plan_queries(
    bridge: Bridge,
    config: Configuration,
    outputs: Sequence[Output | PlannedOutput],
    name: str,
    plans: Sequence[LogicalNode],
    whole: Mapping[int, SparkQuery],
    shared: Sequence[SharedPart],
    notes: Sequence[Note],
) -> JobPlan:
    """Return the plan of a job.

    `plans` has the optimised plan of each output, and `whole` the queries that are not divided into steps, by the index
    of their output. `shared` are the shared parts, each after the parts it reads; a part is translated at its first
    placeholder. `notes` are the decisions about the plans.
    """
    threshold, option = planned_broadcast_threshold(bridge, config)
    all_plans = [
        with_late_values(replace(plan, name=WHOLE_QUERY, children=()) if index in whole else plan)
        for index, plan in enumerate((*plans, *(part.plan for part in shared)))
    ]
    draft = Draft(notes=list(notes))
    if config.flag(EARLY_SUMS):
        for index, plan in enumerate(all_plans):
            all_plans[index], decisions = with_early_sums(plan, threshold)
            draft.notes.extend(decisions)
    all_plans, equal_parts = with_equal_aggregates(all_plans)
    plans, part_plans = all_plans[: len(outputs)], all_plans[len(outputs) :]
    parts = {part.number: replace(part, plan=plan) for part, plan in zip(shared, part_plans, strict=True)}
    translated: dict[int, TranslatedNode] = {}

    def placeholder(node: LogicalNode) -> tuple[TranslatedNode, Attributes] | None:
        part = parts.get(catalyst.rdd_id(node)) if parts and node.name == "LogicalRDD" else None
        if part is None:
            return None
        if part.number not in translated:
            translated[part.number] = TranslatedNode(translator.translate(part.plan).node_id)
        return translated[part.number], node.output.take(part.columns)

    split_by_spark = {leaf for plan in all_plans for leaf in leaves_split_by_spark(plan)}
    sources = SourceMaker(bridge, config, {plans[index]: query for index, query in whole.items()}, split_by_spark)
    translator = Translator(bridge, config, draft, equal_parts, sources, threshold, option, placeholder)
    for output, plan in zip(outputs, plans, strict=True):
        add_output(translator, plan, output)
    for planner_pass in PASSES:
        planner_pass(draft)
    return job_plan(draft, name)


def planned_broadcast_threshold(bridge: Bridge, config: Configuration) -> tuple[int, str]:
    """Return the bytes up to which a join side is broadcast when planning (-1 for never), and the option key."""
    if config.get(BROADCAST_JOIN_STRATEGY) == "RUNTIME_ONLY":
        return -1, BROADCAST_JOIN_STRATEGY.key
    threshold = config.maybe_integer(BROADCAST_THRESHOLD)
    return broadcast_threshold(bridge) if threshold is None else (threshold, BROADCAST_THRESHOLD.key)
