"""Sinks at the ends of a draft: with how many tasks, and by which exchange rows get to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config.options import (
    SINK_AUTO_COMPACTION,
    SINK_PARALLELISM,
    SINK_PARTITION_COMMIT,
    SINK_TARGET_FILE_SIZE,
)
from penstock.connectors.base import SinkOptions
from penstock.decisions import DecisionKind
from penstock.graph import Operator, OperatorKind, SinkOperator
from penstock.graph.partitioner import FORWARD, GLOBAL, REBALANCE, HashPartitioner
from penstock.planner.draft import Note
from penstock.planner.outputs import PlannedOutput
from penstock.planner.plan import NodePlan, WriteKind
from penstock.planner.spark_query import WHOLE_QUERY
from penstock.planner.translation.exchanges import read_in_place
from penstock.planner.write_wishes import WriteWish, write_wish
from penstock.spark import catalyst
from penstock.spark.fragment import slot_columns
from penstock.spark.limits import LIMITS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.config import Configuration
    from penstock.connectors.base import Sink
    from penstock.planner.outputs import Output
    from penstock.planner.translation import Translator
    from penstock.spark.expressions import Expression
    from penstock.spark.jvm import Bridge
    from penstock.spark.plans import LogicalNode


_PREFIX = "sink."


def config_of(bridge: Bridge, config: Configuration, sink: Sink) -> Configuration:
    """Return the options as they hold for one sink: what its writer or its table says goes before.

    Raises
    ------
    ConfigError
        If one of these that is Penstock's is unknown, or has a value that is not allowed.
    """
    own = sink.target_options(bridge.spark)
    return config.for_table(_PREFIX, own.options, own.properties, sink.name)


def sink_options(config: Configuration) -> SinkOptions:
    """Return what the options say of sinks."""
    policies = config.get(SINK_PARTITION_COMMIT)
    assert isinstance(policies, tuple)
    return SinkOptions(config.integer(SINK_TARGET_FILE_SIZE), config.flag(SINK_AUTO_COMPACTION), policies)


def add_output(translator: Translator, plan: LogicalNode, output: Output | PlannedOutput) -> None:
    """Translate the plan of an output, and put its sink behind it with the stages that come after the sink."""
    config = config_of(translator.bridge, translator.config, output.sink)
    builder, options = translator.builder, sink_options(config)
    sink_id = before = _add_sink(translator, plan, output, config)
    for stage in output.sink.stages(options):
        node_id = builder.node(Operator(OperatorKind.SINK_STAGE), stage.name, NodePlan(None), location=output.location)
        builder.stages[node_id] = sink_id, stage
        builder.edge(before, node_id, GLOBAL, translator.edge_plan(plan))
        before = node_id


def _add_sink(translator: Translator, plan: LogicalNode, output: Output | PlannedOutput, config: Configuration) -> int:
    """Add a sink, for which some options hold, and its edge; return its node."""
    builder, file_size = translator.builder, output.sink.file_size(sink_options(config))
    is_planned = isinstance(output, PlannedOutput)  # an option for all sinks does not count where rows are collected
    default = None if is_planned else config.maybe_integer(SINK_PARALLELISM)
    parallelism = output.parallelism or output.sink.parallelism or default
    if output.sink.restartable:
        read_in_place(translator, plan)
    inner = translator.translate(plan)
    chain = [builder.nodes[n] for n in builder.chained(inner.node_id)]
    ordered = any(_keeps_an_order(builder.node_plans[node.id].top) for node in chain)
    name = f"Sink: {output.sink.name}"
    wish = WriteWish()
    if is_planned:
        tops = [builder.node_plans[node.id].top for node in chain]
        can_be_given = parallelism is not None and builder.can_be_given(inner.node_id, parallelism)
        wish = write_wish(chain, tops, parallelism, file_size, ordered=ordered, can_be_given=can_be_given)
        parallelism, file_size, ordered = wish.parallelism, wish.file_size, ordered or wish.keeps_exchange
    sized = file_size is not None and parallelism is None and not ordered
    measures = output.sink.measures_tasks and parallelism is None and not ordered
    operator = SinkOperator(file_size if sized else None, measures_tasks=measures)
    node_id = builder.node(operator, name, NodePlan(None), location=output.location)
    builder.sinks[node_id] = output.sink
    if wish.chosen:
        builder.notes.append(Note(node_id, wish.chosen, wish.reason, DecisionKind.SINK_PARALLELISM))
    by = _attributes(plan, output.sink.partition_columns) if sized else []
    if by:
        keys = HashPartitioner(tuple(key.key for key in by))
        spread_by = slot_columns(plan, by)
        written = translator.edge_plan(plan, WriteKind.SIDE, keys=tuple(by), spread_by=spread_by)
        builder.edge(inner.node_id, node_id, keys, written)
        return node_id
    if parallelism is None:
        forward = ordered or not (output.sink.materialised or sized)
    else:
        same = {node.parallelism for node in chain} - {None} == {parallelism}
        forward = same or ordered
        if same or not ordered or builder.can_be_given(inner.node_id, parallelism):
            builder.give(node_id, parallelism=parallelism)
        else:
            builder.notes.append(
                Note(name, "the tasks of the sort", f"{parallelism} tasks would undo the order of the rows")
            )
    if forward:
        builder.edge(inner.node_id, node_id, FORWARD, translator.edge_plan(plan))
    else:
        builder.edge(inner.node_id, node_id, REBALANCE, translator.edge_plan(plan, WriteKind.ROWS))
    return node_id


def _keeps_an_order(operator: LogicalNode | None) -> bool:
    """Whether the rows of an operator are in an order that the user gave them, within partitions or over all."""
    if operator is None:
        return False
    if operator.name in LIMITS:  # Spark plans a limit with the sort below it
        below = operator.children[0]
        return _keeps_an_order(below.children[0] if below.name == "Project" else below)
    may_be = operator.name in {"InMemoryRelation", WHOLE_QUERY}
    return operator.name == "Sort" or (may_be and catalyst.keeps_an_order(operator))


def _attributes(plan: LogicalNode, names: Sequence[str]) -> list[Expression]:
    """Return the columns of a plan with some names, whose case does not matter; none if one is missing."""
    known = {one.name.lower(): one for one in plan.output.columns()}
    found = [known[name.lower()] for name in names if name.lower() in known]
    return found if len(found) == len(names) else []
