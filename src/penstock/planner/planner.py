"""From DataFrames and sinks to a job plan."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.config.options import (
    BROADCAST_JOIN_STRATEGY,
    BROADCAST_THRESHOLD,
    SINK_AUTO_COMPACTION,
    SINK_PARALLELISM,
    SINK_PARTITION_COMMIT,
    SINK_TARGET_FILE_SIZE,
)
from penstock.connectors.base import SinkOptions
from penstock.errors import PenstockError
from penstock.graph import UNDECIDED, OperatorKind
from penstock.graph.partitioner import FORWARD, GLOBAL, REBALANCE, HashPartitioner
from penstock.marks import has_exchanges
from penstock.planner.builder import GraphBuilder, Out
from penstock.planner.conditions import leaves_cut_by_spark, why_run_by_spark
from penstock.planner.filters import FilterFinder
from penstock.planner.grouping_sets import grouping_sets
from penstock.planner.plan import JobPlan, NodePlan, WriteKind
from penstock.planner.sharing import cut_common, with_equal_aggregates
from penstock.planner.sources import SourceMaker
from penstock.planner.translate import Translator
from penstock.rebalance.adapted import with_adaptive_exchanges
from penstock.spark import catalyst
from penstock.spark.dataframes import dataframe
from penstock.spark.fragment import projected, slot_columns
from penstock.spark.jvm import items
from penstock.spark.plans import read_plan
from penstock.spark.session import broadcast_threshold

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from penstock.config import Configuration
    from penstock.connectors.base import Sink
    from penstock.location import SourceLine
    from penstock.spark.jvm import Bridge
    from penstock.spark.plans import LogicalNode


RUN_BY_SPARK = "Query"
"""The name of a leaf that stands for a whole query."""


@dataclass(frozen=True, slots=True)
class Output:
    """A DataFrame and where its rows go.

    Parameters
    ----------
    df, sink
        The two.
    parallelism
        The sink's number of tasks, or None.
    location
        The user's line that asked for it.
    """

    df: DataFrame
    sink: Sink
    parallelism: int | None = None
    location: SourceLine | None = None


def plan_job(bridge: Bridge, config: Configuration, outputs: Sequence[Output], name: str) -> JobPlan:
    """Return the plan of a job with some outputs; parts they share are in it once.

    Raises
    ------
    PenstockError
        If an output is a streaming DataFrame, or belongs to another Spark session.
    """
    for output in outputs:
        check_output(bridge, output)
    builder = GraphBuilder()
    plans, run_by_spark, commons = _optimized(bridge, config, at_one_time(bridge, outputs))
    changed, parts = with_equal_aggregates(bridge, [*plans, *(one.plan for one in commons)])
    plans = changed[: len(plans)]
    commons = [replace(one, plan=plan) for one, plan in zip(commons, changed[len(plans) :], strict=True)]
    standing = {one.number: one for one in commons}
    translated: dict[int, Out] = {}

    def placeholder(node: LogicalNode) -> tuple[Out, Any] | None:
        common = standing.get(catalyst.rdd_id(node)) if standing and node.name == "LogicalRDD" else None
        if common is None:
            return None
        if common.number not in translated:
            translated[common.number] = Out(translator.translate(common.plan).node_id)
        attributes = items(node.handle.output())
        return translated[common.number], bridge.seq(attributes[i] for i in common.columns)

    cut_by_spark = {leaf for plan in changed for leaf in leaves_cut_by_spark(plan)}
    sources = SourceMaker(bridge, config, {plans[i]: why for i, why in run_by_spark.items()}, cut_by_spark)
    threshold = _threshold(bridge, config)
    translator = Translator(bridge, config, builder, parts, sources, threshold, placeholder)
    default = config.maybe_integer(SINK_PARALLELISM)
    options = sink_options(config)
    for output, plan in zip(outputs, plans, strict=True):
        wanted = output.parallelism or output.sink.parallelism or default
        node_id = _add_sink(bridge, builder, translator, plan, output, wanted, output.sink.file_size(options))
        sink_id = node_id
        for stage in output.sink.stages(options):
            before = node_id
            node_id = builder.node(OperatorKind.SINK_STAGE, stage.name, NodePlan(None), location=output.location)
            builder.stages[node_id] = sink_id, stage
            builder.edge(before, node_id, GLOBAL, translator.edge_plan(plan))
    finder = FilterFinder(
        translator.node_of,
        translator.same_leaf,
        dict(builder.joins.values()),
        builder.is_chained,
        builder.leaves_out,
    )
    builder.find_filters(finder)
    builder.find_chains()
    builder.tell_hints()
    builder.find_grouping_sets(lambda aggregate: grouping_sets(bridge, aggregate, translator.node_of))
    return builder.finish(name)


def sink_options(config: Configuration) -> SinkOptions:
    """Return what the options say of sinks."""
    policies = config.get(SINK_PARTITION_COMMIT)
    assert isinstance(policies, tuple)
    return SinkOptions(config.integer(SINK_TARGET_FILE_SIZE), config.flag(SINK_AUTO_COMPACTION), policies)


def check_output(bridge: Bridge, output: Output) -> None:
    """Refuse a DataFrame that no job can run.

    Raises
    ------
    PenstockError
        If it is a stream, or belongs to another session.
    """
    df = output.df
    if not bridge.owns(df):
        raise PenstockError("the DataFrame belongs to another Spark session", hint="use Environment(df.sparkSession)")
    if df.isStreaming:
        raise PenstockError(
            "the DataFrame is a stream, which does not end", hint="use writeStream; Penstock runs batch jobs"
        )


def _threshold(bridge: Bridge, config: Configuration) -> int:
    """Return below which size a join side is broadcast when planning, -1 for never."""
    if config.get(BROADCAST_JOIN_STRATEGY) == "RUNTIME_ONLY":
        return -1
    given = config.maybe_integer(BROADCAST_THRESHOLD)
    return broadcast_threshold(bridge) if given is None else given


@dataclass(frozen=True, slots=True)
class _OptimizedCommon:
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


def at_one_time(bridge: Bridge, outputs: Sequence[Output]) -> Sequence[Output]:
    """Return outputs that have one value for the present time in all of them."""
    if len(outputs) == 1:  # Spark gives one value to all of a query
        return outputs
    for output in outputs:
        check_output(bridge, output)
    # With cached data in place: it has the time at which it was made, and would not be found under another one.
    plans = catalyst.at_one_time(bridge, [catalyst.cached_plan(output.df) for output in outputs])
    if plans is None:
        return outputs
    frames = [dataframe(bridge, bridge.session, plan) for plan in plans]
    return [replace(output, df=df) for output, df in zip(outputs, frames, strict=True)]


def _optimized(
    bridge: Bridge, config: Configuration, outputs: Sequence[Output]
) -> tuple[list[LogicalNode], dict[int, str], list[_OptimizedCommon]]:
    """Return the optimised plans of all outputs, why Spark runs some of them, and the parts that others share.

    A plan that Spark runs is a leaf.
    """
    if has_exchanges():
        made = [with_adaptive_exchanges(bridge, config, catalyst.analyzed_plan(output.df)) for output in outputs]
        frames = [dataframe(bridge, bridge.session, plan) for plan in made]
        outputs = [replace(output, df=df) for output, df in zip(outputs, frames, strict=True)]
    plans = [read_plan(bridge, catalyst.optimized_plan(output.df)) for output in outputs]
    run_by_spark = {place: why for place, plan in enumerate(plans) if (why := why_run_by_spark(bridge, plan))}
    for place in run_by_spark:
        plans[place] = replace(plans[place], name=RUN_BY_SPARK, children=())
    others = [place for place in range(len(plans)) if place not in run_by_spark]
    if len(others) < 2:
        return plans, run_by_spark, []
    analyzed = [read_plan(bridge, catalyst.cached_plan(outputs[place].df)) for place in others]
    cut, commons = cut_common(bridge, analyzed)
    if not commons:
        return plans, run_by_spark, []
    for place, plan in zip(others, cut, strict=True):
        plans[place] = read_plan(bridge, catalyst.optimize(bridge.session, plan))
    pruned: list[_OptimizedCommon] = []
    for common in commons:
        readers = [*(plans[place] for place in others), *(one.plan for one in pruned)]
        columns = sorted({i for plan in readers for i in _used_columns(plan, common.number)})
        attributes = items(common.plan.output())
        whole = len(columns) == len(attributes)
        wanted = bridge.seq(attributes[i] for i in columns)
        plan = common.plan if whole else projected(bridge, common.plan, wanted)
        optimized = read_plan(bridge, catalyst.optimize(bridge.session, plan))
        pruned.append(_OptimizedCommon(common.number, optimized, columns))
    return plans, run_by_spark, pruned


def _used_columns(plan: LogicalNode, number: int) -> set[int]:
    """Return the positions of the columns that a plan refers to of placeholders with a number."""
    found: set[int] = set()

    def visit(node: LogicalNode, above: list[LogicalNode]) -> None:
        if node.name == "LogicalRDD" and catalyst.rdd_id(node) == number:
            attributes = items(node.handle.output())
            readers: list[LogicalNode] = []
            for reader in reversed(above):
                readers.append(reader)
                if reader.name != "Filter":
                    break
            if readers and readers[-1].name == "Project":
                references = [reader.handle.references() for reader in readers]
                found.update(
                    i for i, attribute in enumerate(attributes) if any(r.contains(attribute) for r in references)
                )
            else:
                found.update(range(len(attributes)))
        for child in node.children:
            visit(child, [*above, node])

    visit(plan, [])
    return found


def _add_sink(
    bridge: Bridge,
    builder: GraphBuilder,
    translator: Translator,
    plan: LogicalNode,
    output: Output,
    parallelism: int | None,
    file_size: int | None,
) -> int:
    """Add a sink and its edge; return its node."""
    if output.sink.restartable:
        translator.read_directly(plan)
    inner = translator.translate(plan)
    chain = [builder.nodes[n] for n in builder.chained(inner.node_id)]
    ordered = any(_keeps_an_order(builder.node_plans[node.id].top) for node in chain)
    sized: dict[str, Any] = (
        {"file_size": file_size} if file_size is not None and parallelism is None and not ordered else {}
    )
    name = f"Sink: {output.sink.name}"
    node_id = builder.node(OperatorKind.SINK, name, NodePlan(None), location=output.location, **sized)
    builder.sinks[node_id] = output.sink
    by = _attributes(plan, output.sink.folders_by) if sized else []
    if by:
        keys = HashPartitioner(tuple(map(catalyst.expression_key, by)))
        spread_by = slot_columns(bridge, plan.handle, by)
        builder.edge(
            inner.node_id, node_id, keys,
            translator.edge_plan(plan, WriteKind.SIDE, keys=tuple(by), spread_by=spread_by),
        )  # fmt: skip
        return node_id
    if parallelism is None:
        forward = ordered or not (output.sink.materialised or sized)
    else:
        same = {node.parallelism for node in chain} - {UNDECIDED} == {parallelism}
        forward = same or ordered
        if same or not ordered or builder.can_be_given(inner.node_id, parallelism):
            builder.give(node_id, parallelism=parallelism)
        else:
            builder.notes.append((name, "the tasks that sort", f"{parallelism} tasks would undo the order of the rows"))
    if forward:
        builder.edge(inner.node_id, node_id, FORWARD, translator.edge_plan(plan))
    else:
        builder.edge(inner.node_id, node_id, REBALANCE, translator.edge_plan(plan, WriteKind.ROWS))
    return node_id


def _keeps_an_order(operator: LogicalNode | None) -> bool:
    """Whether the rows of an operator are in an order that the user gave them, within partitions or over all."""
    if operator is None:
        return False
    may_be = operator.name in {"InMemoryRelation", RUN_BY_SPARK}
    return operator.name == "Sort" or (may_be and not operator.handle.outputOrdering().isEmpty())


def _attributes(plan: LogicalNode, names: Sequence[str]) -> list[Any]:
    """Return the columns of a plan with some names, whose case does not matter; none if one is missing."""
    known = {str(one.name()).lower(): one for one in items(plan.handle.output())}
    found = [known[name.lower()] for name in names if name.lower() in known]
    return found if len(found) == len(names) else []
