"""Adds the sinks of a job to the draft of its graph, with their number of tasks and the exchange before them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.base.units import show_bytes, show_count
from penstock.config.options import SINK_AUTO_COMPACTION, SINK_PARALLELISM, SINK_PARTITION_COMMIT, SINK_TARGET_FILE_SIZE
from penstock.connectors.core.base import Sink, SinkOptions
from penstock.decisions.log import DecisionKind
from penstock.graph import Operator, OperatorKind, SinkOperator, StreamNode
from penstock.graph.partitioner import FORWARD, GLOBAL, REBALANCE, HashPartitioner
from penstock.planner.draft import DraftChoice
from penstock.planner.outputs import Output, PlannedOutput
from penstock.planner.plan import NodePlan, WriteKind
from penstock.planner.translation.exchanges import omit_boundary
from penstock.planner.whole_queries import WHOLE_QUERY
from penstock.spark.plans import catalyst
from penstock.spark.plans.fragment import slot_columns
from penstock.spark.plans.logical_plan import LIMITS

if TYPE_CHECKING:
    from penstock.config import Configuration
    from penstock.planner.translation import Translator
    from penstock.spark.bridge.jvm import Bridge
    from penstock.spark.plans.expressions import Expression
    from penstock.spark.plans.nodes import LogicalNode


@dataclass(frozen=True, slots=True)
class UserParallelism:
    """The effects of the user's settings on a sink: on its parallelism, its file size (bytes) and its exchange.

    `parallelism` and `file_size` are None if no setting applies. `keeps_exchange` says whether the partitioning of the
    rows before the sink must be preserved. `chosen` and `reason` are the decision to record, or both empty.
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
    is_ordered: bool,
    accepts_parallelism: bool,
) -> UserParallelism:
    """Decide whether the `parallelism` (tasks) or else the `file_size` (bytes) that a sink requests takes effect.

    `chain` are the nodes that would share the vertex of the sink; `tops` are their topmost operators in Spark's plan,
    None for a node that only forwards rows. `is_ordered` says whether the rows have an order, which another exchange
    would destroy. `accepts_parallelism` says whether the vertex can run `parallelism` tasks without another exchange.
    """
    if parallelism is None and file_size is None:
        return UserParallelism()
    option = SINK_TARGET_FILE_SIZE.key if parallelism is None else SINK_PARALLELISM.key
    if any(node.parallelism is not None for node in chain) or any(map(_has_own_tasks, tops)):
        reason = f"the query sets its own number of tasks, which overrides {option}"
        return UserParallelism(chosen="as the query says", reason=reason)
    repartitioned = any(node.kind is OperatorKind.REPARTITION for node in chain)
    if (is_ordered or repartitioned) and not accepts_parallelism:
        lost = "order of the rows" if is_ordered else "partitioning that the query or its target requests"
        reason = f"{option} would destroy the {lost}"
        return UserParallelism(keeps_exchange=repartitioned, chosen="the tasks before the writer", reason=reason)
    if parallelism is not None:
        reason = f"{option} requests {show_count(parallelism, 'task')} for Spark's writer"
        return UserParallelism(parallelism, None, keeps_exchange=repartitioned, chosen=str(parallelism), reason=reason)
    assert file_size is not None
    reason = f"{option} requests files of {show_bytes(file_size)}, whose size is estimated from the shuffled bytes"
    return UserParallelism(None, file_size, chosen="by the size of files", reason=reason)


def _has_own_tasks(top: LogicalNode | None) -> bool:
    """Whether an operator is a ``coalesce`` or a query that runs as a whole: both set their own number of tasks."""
    if top is None:
        return False
    return top.name == WHOLE_QUERY or (top.repartition is not None and not top.repartition.shuffles)


def config_of(bridge: Bridge, config: Configuration, sink: Sink) -> Configuration:
    """Return the options that apply to a sink: those of its writer or table override those of the job.

    Raises `ConfigError` if a Penstock option of the sink is unknown, or has an invalid value.
    """
    target = sink.target_options(bridge.spark)
    return config.for_table("sink.", target.options, target.properties, sink.name)


def sink_options(config: Configuration) -> SinkOptions:
    """Return the options that `Sink` methods get: target file size, compaction, and partition commit policies."""
    policies = config.get(SINK_PARTITION_COMMIT)
    assert isinstance(policies, tuple)
    return SinkOptions(config.integer(SINK_TARGET_FILE_SIZE), config.flag(SINK_AUTO_COMPACTION), policies)


def add_output(translator: Translator, plan: LogicalNode, output: Output | PlannedOutput) -> None:
    """Translate the plan of an output; add its sink, and a node for each step after the write, such as a compaction."""
    config = config_of(translator.bridge, translator.config, output.sink)
    draft, options = translator.draft, sink_options(config)
    sink_id = last_id = _add_sink(translator, plan, output, config)
    for stage in output.sink.stages(options):
        new_id = draft.add_node(Operator(OperatorKind.SINK_STAGE), stage.name, NodePlan(None), location=output.location)
        draft.sink_stages[new_id] = sink_id, stage
        draft.add_edge(last_id, new_id, GLOBAL, translator.edge_plan(plan))
        last_id = new_id


def _add_sink(translator: Translator, plan: LogicalNode, output: Output | PlannedOutput, config: Configuration) -> int:
    draft, file_size = translator.draft, output.sink.file_size(sink_options(config))
    is_planned = isinstance(output, PlannedOutput)  # its sink applies `sink.parallelism` itself, if at all
    option_parallelism = None if is_planned else config.maybe_integer(SINK_PARALLELISM)
    parallelism = output.parallelism or output.sink.parallelism or option_parallelism
    if output.sink.restartable:  # the sink can repeat a failed barrier stage, so that stage needs no exchange after it
        omit_boundary(translator, plan)
    input_node = translator.translate(plan)
    chain = [draft.stream_nodes[n] for n in draft.chained_upstream(input_node.node_id)]
    is_ordered = any(_has_user_order(draft.nodes[node.id].top) for node in chain)
    name = f"Sink: {output.sink.name}"
    setting = UserParallelism()
    if is_planned:
        tops = [draft.nodes[node.id].top for node in chain]
        accepted = parallelism is not None and draft.accepts_parallelism(input_node.node_id, parallelism)
        setting = choose_user_parallelism(
            chain, tops, parallelism, file_size, is_ordered=is_ordered, accepts_parallelism=accepted
        )
        parallelism, file_size = setting.parallelism, setting.file_size
        is_ordered = is_ordered or setting.keeps_exchange  # like an order, a partitioning must not be undone
    has_file_size = file_size is not None and parallelism is None and not is_ordered
    measures_tasks = output.sink.measures_tasks and parallelism is None and not is_ordered
    operator = SinkOperator(file_size if has_file_size else None, measures_tasks=measures_tasks)
    node_id = draft.add_node(operator, name, NodePlan(None), location=output.location)
    draft.sinks[node_id] = output.sink
    if setting.chosen:
        draft.choices.append(DraftChoice(node_id, setting.chosen, setting.reason, DecisionKind.SINK_PARALLELISM))
    partition_columns = _attributes(plan, output.sink.partition_columns) if has_file_size else []
    if partition_columns:  # hash partition the rows by these columns, written like a join side
        partitioner = HashPartitioner(tuple(column.key for column in partition_columns))
        spread_by = slot_columns(plan, partition_columns)
        edge_plan = translator.edge_plan(plan, WriteKind.SIDE, keys=tuple(partition_columns), spread_by=spread_by)
        draft.add_edge(input_node.node_id, node_id, partitioner, edge_plan)
        return node_id
    if parallelism is None:
        is_chained = is_ordered or not (output.sink.materialised or has_file_size)
    else:
        already_set = {node.parallelism for node in chain} - {None} == {parallelism}
        is_chained = already_set or is_ordered
        if already_set or not is_ordered or draft.accepts_parallelism(input_node.node_id, parallelism):
            draft.update_node(node_id, parallelism=parallelism)
        else:
            reason = f"{parallelism} tasks would undo the order of the rows"
            draft.choices.append(DraftChoice(name, "the tasks of the sort", reason))
    if is_chained:
        draft.add_edge(input_node.node_id, node_id, FORWARD, translator.edge_plan(plan))
    else:
        draft.add_edge(input_node.node_id, node_id, REBALANCE, translator.edge_plan(plan, WriteKind.ROWS))
    return node_id


def _has_user_order(operator: LogicalNode | None) -> bool:
    """Whether rows have an order to preserve: of the user's sort, or of cached data or a query that runs as a whole."""
    if operator is None:
        return False
    if operator.name in LIMITS:  # Spark plans a limit together with the sort below it
        below = operator.children[0]
        return _has_user_order(below.children[0] if below.name == "Project" else below)
    may_be_ordered = operator.name in {"InMemoryRelation", WHOLE_QUERY}
    return operator.name == "Sort" or (may_be_ordered and catalyst.has_ordering(operator))


def _attributes(plan: LogicalNode, names: Sequence[str]) -> list[Expression]:
    """Return the columns of a plan by case-insensitive names; empty if any is missing."""
    columns = {column.name.lower(): column for column in plan.output.columns()}
    matches = [columns[name.lower()] for name in names if name.lower() in columns]
    return matches if len(matches) == len(names) else []
