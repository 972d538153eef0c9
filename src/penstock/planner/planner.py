"""Plans a job from its DataFrames and sinks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from penstock.config.options import (
    ADAPTIVE_PARTITIONER_ENABLED,
    BROADCAST_JOIN_STRATEGY,
    BROADCAST_THRESHOLD,
    PRE_AGGREGATION,
)
from penstock.hints.plan_hints import has_exchanges
from penstock.planner.conditions import leaves_split_by_spark, spark_only_reason
from penstock.planner.draft import Draft, DraftChoice, TranslatedNode, build_job_plan
from penstock.planner.engine_choice import EngineChoice
from penstock.planner.late_values import with_late_values
from penstock.planner.outputs import Output, PlannedOutput, check_outputs, fix_current_time
from penstock.planner.passes import PASSES
from penstock.planner.plan import JobPlan, SparkPlan
from penstock.planner.pre_aggregation import with_pre_aggregation
from penstock.planner.shared_parts import SharedPart, extract_shared_parts
from penstock.planner.sharing import with_equal_aggregates
from penstock.planner.sinks import add_output
from penstock.planner.sources import SourceFactory
from penstock.planner.translation import Translator
from penstock.planner.whole_queries import WHOLE_QUERY, NativeQuery, SparkQuery
from penstock.rebalance.adaptive_exchanges import with_adaptive_exchanges
from penstock.spark.bridge.session import broadcast_threshold
from penstock.spark.plans import catalyst
from penstock.spark.plans.nodes import LogicalNode, read_plan

if TYPE_CHECKING:
    from penstock.config import Configuration
    from penstock.spark.bridge.jvm import Bridge
    from penstock.spark.plans.expressions import Attributes


def plan_job(
    bridge: Bridge, config: Configuration, outputs: Sequence[Output], name: str, *, has_user_strategies: bool = False
) -> SparkPlan | JobPlan:
    """Return the plan of a job for its outputs; a part that several outputs share is planned once.

    Spark runs a job unchanged if a plan observes metrics, because Spark reports them only for queries that it runs
    itself. It also runs some jobs with a single output, see `EngineChoice.for_output`; with several outputs, it would
    run shared parts again for each. `has_user_strategies` says whether the user passed strategies, which need the steps
    of the query. Raises `PenstockError` if an output is a streaming DataFrame, or belongs to another Spark session.
    """
    check_outputs(bridge, outputs)
    outputs = fix_current_time(bridge, outputs)
    optimized = [catalyst.optimized_plan(bridge, output.df) for output in outputs]
    if any(map(catalyst.observes_metrics, optimized)):
        reason = "it observes metrics (DataFrame.observe), which Spark reports for whole queries only"
        return SparkPlan(outputs, None, reason)
    engine_choice: EngineChoice | None = None
    native: NativeQuery | None = None
    if len(outputs) == 1 and not has_user_strategies:
        (output,) = outputs
        engine_choice = EngineChoice(bridge, config, optimized[0], partial(catalyst.cached_plan, bridge, output.df))
        plan_or_query = engine_choice.for_output(output)
        if isinstance(plan_or_query, SparkPlan):
            return plan_or_query
        native = plan_or_query
    outputs = list(outputs)
    for index, output in enumerate(outputs):
        if config.flag(ADAPTIVE_PARTITIONER_ENABLED) or has_exchanges(catalyst.analyzed_plan(bridge, output.df)):
            df = with_adaptive_exchanges(bridge, config, output.df)
            if df is not output.df:
                outputs[index], optimized[index] = replace(output, df=df), catalyst.optimized_plan(bridge, df)
                unoptimized = partial(catalyst.cached_plan, bridge, df)
                engine_choice = engine_choice and EngineChoice(bridge, config, optimized[index], unoptimized)
    plans = [read_plan(plan) for plan in optimized]
    choices: list[DraftChoice] = []
    whole_queries = _spark_only_queries(plans)
    if engine_choice is not None and not whole_queries:
        whole_queries, choices = _whole_query(native or engine_choice.large_query())
    remaining, shared, refusals = extract_shared_parts(
        bridge, {index: output for index, output in enumerate(outputs) if index not in whole_queries}
    )
    plans = [remaining.get(index, plan) for index, plan in enumerate(plans)]
    return _plan_queries(bridge, config, outputs, name, plans, whole_queries, shared, [*choices, *refusals])


def plan_query(
    bridge: Bridge, config: Configuration, output: PlannedOutput, name: str, *, has_user_strategies: bool = False
) -> JobPlan:
    """Return the plan of a job for a query that Spark has already optimized."""
    query = read_plan(output.plan)
    choices: list[DraftChoice] = []
    whole_queries = _spark_only_queries([query])
    if not (has_user_strategies or whole_queries):
        whole_queries, choices = _whole_query(EngineChoice(bridge, config, query, lambda: query).for_session())
    return _plan_queries(bridge, config, [output], name, [query], whole_queries, [], choices)


def _spark_only_queries(plans: Sequence[LogicalNode]) -> dict[int, SparkQuery]:
    reasons = map(spark_only_reason, plans)
    return {index: SparkQuery(plans[index], reason) for index, reason in enumerate(reasons) if reason}


def _whole_query(query_or_refusal: SparkQuery | DraftChoice | None) -> tuple[dict[int, SparkQuery], list[DraftChoice]]:
    """Return the only query of a job by its index (0) if it is not divided into steps, and the decisions about it."""
    if isinstance(query_or_refusal, SparkQuery):
        query = query_or_refusal
        return {0: query}, [query.choice()] if isinstance(query, NativeQuery) else []
    return {}, [] if query_or_refusal is None else [query_or_refusal]


def _plan_queries(
    bridge: Bridge,
    config: Configuration,
    outputs: Sequence[Output | PlannedOutput],
    name: str,
    plans: Sequence[LogicalNode],
    whole_queries: Mapping[int, SparkQuery],
    shared: Sequence[SharedPart],
    choices: Sequence[DraftChoice],
) -> JobPlan:
    """Return the plan of a job.

    `plans` has the optimized plan of each output. `whole_queries` has the queries that are not divided into steps, by
    the index of their output. `shared` are the shared parts, each before the parts it reads; a part is translated where
    the first leaf that represents it is read. `choices` are the decisions about the plans.
    """
    threshold, option = planned_broadcast_threshold(bridge, config)
    all_plans = [
        with_late_values(replace(plan, name=WHOLE_QUERY, children=()) if index in whole_queries else plan)
        for index, plan in enumerate((*plans, *(part.plan for part in shared)))
    ]
    draft = Draft(choices=list(choices))
    if config.flag(PRE_AGGREGATION):
        for index, plan in enumerate(all_plans):
            all_plans[index], pre_aggregations = with_pre_aggregation(plan, threshold)
            draft.choices.extend(pre_aggregations)
    all_plans, equal_parts = with_equal_aggregates(all_plans)
    plans, part_plans = all_plans[: len(outputs)], all_plans[len(outputs) :]
    parts = {part.number: replace(part, plan=plan) for part, plan in zip(shared, part_plans, strict=True)}
    translated: dict[int, TranslatedNode] = {}

    def shared_part_of(node: LogicalNode) -> tuple[TranslatedNode, Attributes] | None:
        part = parts.get(catalyst.rdd_id(node)) if parts and node.name == "LogicalRDD" else None
        if part is None:
            return None
        if part.number not in translated:
            translated[part.number] = TranslatedNode(translator.translate(part.plan).node_id)
        return translated[part.number], node.output.take(part.columns)

    split_by_spark = {leaf for plan in all_plans for leaf in leaves_split_by_spark(plan)}
    sources = SourceFactory(bridge, config, {plans[i]: query for i, query in whole_queries.items()}, split_by_spark)
    translator = Translator(bridge, config, draft, equal_parts, sources, threshold, option, shared_part_of)
    for output, plan in zip(outputs, plans, strict=True):
        add_output(translator, plan, output)
    for planner_pass in PASSES:
        planner_pass(draft)
    return build_job_plan(draft, name)


def planned_broadcast_threshold(bridge: Bridge, config: Configuration) -> tuple[int, str]:
    """Return the bytes up to which a join side is broadcast when planning (-1 for never), and the option key."""
    if config.get(BROADCAST_JOIN_STRATEGY) == "RUNTIME_ONLY":
        return -1, BROADCAST_JOIN_STRATEGY.key
    threshold = config.maybe_integer(BROADCAST_THRESHOLD)
    return broadcast_threshold(bridge) if threshold is None else (threshold, BROADCAST_THRESHOLD.key)
