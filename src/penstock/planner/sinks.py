"""Adds the sinks to a draft: their number of tasks, and the exchange before them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.base.units import show_bytes, show_count
from penstock.config.options import SINK_AUTO_COMPACTION, SINK_PARALLELISM, SINK_PARTITION_COMMIT, SINK_TARGET_FILE_SIZE
from penstock.connectors.core.base import Sink, SinkOptions
from penstock.decisions.log import DecisionKind
from penstock.graph import Operator, OperatorKind, SinkOperator, StreamNode
from penstock.graph.partitioner import FORWARD, GLOBAL, REBALANCE, HashPartitioner
from penstock.planner.draft import Note
from penstock.planner.outputs import Output, PlannedOutput
from penstock.planner.plan import NodePlan, WriteKind
from penstock.planner.translation.exchanges import omit_boundary
from penstock.planner.whole_queries import WHOLE_QUERY
from penstock.spark.plans import catalyst
from penstock.spark.plans.fragment import slot_columns
from penstock.spark.plans.limits import LIMITS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.config import Configuration
    from penstock.planner.translation import Translator
    from penstock.spark.bridge.jvm import Bridge
    from penstock.spark.plans.expressions import Expression
    from penstock.spark.plans.nodes import LogicalNode


@dataclass(frozen=True, slots=True)
class UserParallelism:
    """The parallelism and file size of a sink, None if the query determines them, and the recorded decision.

    `keeps_exchange` says whether the partitioning of the exchange before the sink must be preserved.
    """

    parallelism: int | None = None
    file_size: int | None = None
    keeps_exchange: bool = False
    chosen: str = ""
    reason: str = ""


def choose_user_parallelism(
    chain: Sequence[StreamNode],
    tops: Sequence[LogicalNode | None],
    parallelism: int | None,
    file_size: int | None,
    *,
    ordered: bool,
    accepts_parallelism: bool,
) -> UserParallelism:
    """Resolve the requested tasks, or else the file size, of a sink against the nodes of its vertex.

    `chain` are the nodes that would share the vertex of the sink, and `tops` their topmost operators in Spark's plan.
    `ordered` says whether the rows have an order, which another exchange would destroy. `accepts_parallelism` says
    whether the vertex can have the requested number of tasks without another exchange.
    """
    if parallelism is None and file_size is None:
        return UserParallelism()
    option = SINK_TARGET_FILE_SIZE.key if parallelism is None else SINK_PARALLELISM.key
    if any(node.parallelism is not None for node in chain) or any(map(_has_own_tasks, tops)):
        reason = f"the query sets its own number of tasks, which overrides {option}"
        return UserParallelism(chosen="as the query says", reason=reason)
    repartitioned = any(node.kind is OperatorKind.REPARTITION for node in chain)
    if (ordered or repartitioned) and not accepts_parallelism:
        lost = "order of the rows" if ordered else "partitioning that the query or its target requests"
        reason = f"{option} would destroy the {lost}"
        return UserParallelism(keeps_exchange=repartitioned, chosen="the tasks before the writer", reason=reason)
    if parallelism is not None:
        reason = f"{option} requests {show_count(parallelism, 'task')} for Spark's writer"
        return UserParallelism(parallelism, None, keeps_exchange=repartitioned, chosen=str(parallelism), reason=reason)
    assert file_size is not None
    reason = f"{option} requests files of {show_bytes(file_size)}, whose size is estimated from the shuffled bytes"
    return UserParallelism(None, file_size, chosen="by the size of files", reason=reason)


def _has_own_tasks(top: LogicalNode | None) -> bool:
    """Whether an operator has the tasks of a coalesce, or of a query that Spark runs unchanged."""
    if top is None:
        return False
    return top.name == WHOLE_QUERY or (top.repartition is not None and not top.repartition.shuffles)


def config_of(bridge: Bridge, config: Configuration, sink: Sink) -> Configuration:
    """Return the options that apply to a sink: those of its writer or table override those of the job.

    Raises `ConfigError` if a Penstock option of the sink is unknown, or has an invalid value.
    """
    own = sink.target_options(bridge.spark)
    return config.for_table("sink.", own.options, own.properties, sink.name)


def sink_options(config: Configuration) -> SinkOptions:
    """Return the options for sinks."""
    policies = config.get(SINK_PARTITION_COMMIT)
    assert isinstance(policies, tuple)
    return SinkOptions(config.integer(SINK_TARGET_FILE_SIZE), config.flag(SINK_AUTO_COMPACTION), policies)


def add_output(translator: Translator, plan: LogicalNode, output: Output | PlannedOutput) -> None:
    """Translate the plan of an output, and add its sink and the stages after the sink."""
    config = config_of(translator.bridge, translator.config, output.sink)
    draft, options = translator.draft, sink_options(config)
    sink_id = last_id = _add_sink(translator, plan, output, config)
    for stage in output.sink.stages(options):
        node_id = draft.node(Operator(OperatorKind.SINK_STAGE), stage.name, NodePlan(None), location=output.location)
        draft.stages[node_id] = sink_id, stage
        draft.edge(last_id, node_id, GLOBAL, translator.edge_plan(plan))
        last_id = node_id


def _add_sink(translator: Translator, plan: LogicalNode, output: Output | PlannedOutput, config: Configuration) -> int:
    draft, file_size = translator.draft, output.sink.file_size(sink_options(config))
    is_planned = isinstance(output, PlannedOutput)  # options for all sinks do not apply if rows are collected
    default = None if is_planned else config.maybe_integer(SINK_PARALLELISM)
    parallelism = output.parallelism or output.sink.parallelism or default
    if output.sink.restartable:
        omit_boundary(translator, plan)
    inner = translator.translate(plan)
    chain = [draft.stream_nodes[n] for n in draft.chained(inner.node_id)]
    ordered = any(_has_user_order(draft.nodes[node.id].top) for node in chain)
    name = f"Sink: {output.sink.name}"
    setting = UserParallelism()
    if is_planned:
        tops = [draft.nodes[node.id].top for node in chain]
        accepted = parallelism is not None and draft.accepts_parallelism(inner.node_id, parallelism)
        setting = choose_user_parallelism(
            chain, tops, parallelism, file_size, ordered=ordered, accepts_parallelism=accepted
        )
        parallelism, file_size = setting.parallelism, setting.file_size
        ordered = ordered or setting.keeps_exchange
    sized = file_size is not None and parallelism is None and not ordered
    measures = output.sink.measures_tasks and parallelism is None and not ordered
    operator = SinkOperator(file_size if sized else None, measures_tasks=measures)
    node_id = draft.node(operator, name, NodePlan(None), location=output.location)
    draft.sinks[node_id] = output.sink
    if setting.chosen:
        draft.notes.append(Note(node_id, setting.chosen, setting.reason, DecisionKind.SINK_PARALLELISM))
    partition_columns = _attributes(plan, output.sink.partition_columns) if sized else []
    if partition_columns:
        partitioner = HashPartitioner(tuple(column.key for column in partition_columns))
        spread_by = slot_columns(plan, partition_columns)
        edge_plan = translator.edge_plan(plan, WriteKind.SIDE, keys=tuple(partition_columns), spread_by=spread_by)
        draft.edge(inner.node_id, node_id, partitioner, edge_plan)
        return node_id
    if parallelism is None:
        forward = ordered or not (output.sink.materialised or sized)
    else:
        same = {node.parallelism for node in chain} - {None} == {parallelism}
        forward = same or ordered
        if same or not ordered or draft.accepts_parallelism(inner.node_id, parallelism):
            draft.update_node(node_id, parallelism=parallelism)
        else:
            draft.notes.append(
                Note(name, "the tasks of the sort", f"{parallelism} tasks would undo the order of the rows")
            )
    if forward:
        draft.edge(inner.node_id, node_id, FORWARD, translator.edge_plan(plan))
    else:
        draft.edge(inner.node_id, node_id, REBALANCE, translator.edge_plan(plan, WriteKind.ROWS))
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
