"""Adds the sinks to a draft: their number of tasks, and the exchange before them."""

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
from penstock.planner.translation.exchanges import omit_boundary
from penstock.planner.user_parallelism import UserParallelism, choose_user_parallelism
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
    """Return the options that apply to a sink: those of its writer or table override those of the job.

    Raises
    ------
    ConfigError
        If a Penstock option of the sink is unknown, or has an invalid value.
    """
    own = sink.target_options(bridge.spark)
    return config.for_table(_PREFIX, own.options, own.properties, sink.name)


def sink_options(config: Configuration) -> SinkOptions:
    """Return the options for sinks."""
    policies = config.get(SINK_PARTITION_COMMIT)
    assert isinstance(policies, tuple)
    return SinkOptions(config.integer(SINK_TARGET_FILE_SIZE), config.flag(SINK_AUTO_COMPACTION), policies)


def add_output(translator: Translator, plan: LogicalNode, output: Output | PlannedOutput) -> None:
    """Translate the plan of an output, and add its sink and the stages after the sink."""
    config = config_of(translator.bridge, translator.config, output.sink)
    builder, options = translator.builder, sink_options(config)
    sink_id = last_id = _add_sink(translator, plan, output, config)
    for stage in output.sink.stages(options):
        node_id = builder.node(Operator(OperatorKind.SINK_STAGE), stage.name, NodePlan(None), location=output.location)
        builder.stages[node_id] = sink_id, stage
        builder.edge(last_id, node_id, GLOBAL, translator.edge_plan(plan))
        last_id = node_id


def _add_sink(translator: Translator, plan: LogicalNode, output: Output | PlannedOutput, config: Configuration) -> int:
    """Add a sink and its input edge; return the id of its node."""
    builder, file_size = translator.builder, output.sink.file_size(sink_options(config))
    is_planned = isinstance(output, PlannedOutput)  # options for all sinks do not apply if rows are collected
    default = None if is_planned else config.maybe_integer(SINK_PARALLELISM)
    parallelism = output.parallelism or output.sink.parallelism or default
    if output.sink.restartable:
        omit_boundary(translator, plan)
    inner = translator.translate(plan)
    chain = [builder.nodes[n] for n in builder.chained(inner.node_id)]
    ordered = any(_has_user_order(builder.node_plans[node.id].top) for node in chain)
    name = f"Sink: {output.sink.name}"
    setting = UserParallelism()
    if is_planned:
        tops = [builder.node_plans[node.id].top for node in chain]
        accepted = parallelism is not None and builder.accepts_parallelism(inner.node_id, parallelism)
        setting = choose_user_parallelism(
            chain, tops, parallelism, file_size, ordered=ordered, accepts_parallelism=accepted
        )
        parallelism, file_size = setting.parallelism, setting.file_size
        ordered = ordered or setting.keeps_exchange
    sized = file_size is not None and parallelism is None and not ordered
    measures = output.sink.measures_tasks and parallelism is None and not ordered
    operator = SinkOperator(file_size if sized else None, measures_tasks=measures)
    node_id = builder.node(operator, name, NodePlan(None), location=output.location)
    builder.sinks[node_id] = output.sink
    if setting.chosen:
        builder.notes.append(Note(node_id, setting.chosen, setting.reason, DecisionKind.SINK_PARALLELISM))
    partition_columns = _attributes(plan, output.sink.partition_columns) if sized else []
    if partition_columns:
        partitioner = HashPartitioner(tuple(column.key for column in partition_columns))
        spread_by = slot_columns(plan, partition_columns)
        edge_plan = translator.edge_plan(plan, WriteKind.SIDE, keys=tuple(partition_columns), spread_by=spread_by)
        builder.edge(inner.node_id, node_id, partitioner, edge_plan)
        return node_id
    if parallelism is None:
        forward = ordered or not (output.sink.materialised or sized)
    else:
        same = {node.parallelism for node in chain} - {None} == {parallelism}
        forward = same or ordered
        if same or not ordered or builder.accepts_parallelism(inner.node_id, parallelism):
            builder.update_node(node_id, parallelism=parallelism)
        else:
            builder.notes.append(
                Note(name, "the tasks of the sort", f"{parallelism} tasks would undo the order of the rows")
            )
    if forward:
        builder.edge(inner.node_id, node_id, FORWARD, translator.edge_plan(plan))
    else:
        builder.edge(inner.node_id, node_id, REBALANCE, translator.edge_plan(plan, WriteKind.ROWS))
    return node_id


def _has_user_order(operator: LogicalNode | None) -> bool:
    """Whether the user has sorted the rows of an operator, within partitions or globally."""
    if operator is None:
        return False
    if operator.name in LIMITS:  # Spark plans a limit together with the sort below it
        below = operator.children[0]
        return _has_user_order(below.children[0] if below.name == "Project" else below)
    may_be = operator.name in {"InMemoryRelation", WHOLE_QUERY}
    return operator.name == "Sort" or (may_be and catalyst.has_ordering(operator))


def _attributes(plan: LogicalNode, names: Sequence[str]) -> list[Expression]:
    """Return the columns of a plan by case-insensitive names; empty if any is missing."""
    columns = {column.name.lower(): column for column in plan.output.columns()}
    matches = [columns[name.lower()] for name in names if name.lower() in columns]
    return matches if len(matches) == len(names) else []
