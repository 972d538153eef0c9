"""Translates adaptive exchanges (more rows to faster tasks): in a barrier stage, or as chunks that tasks pull."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.config.options import ADAPTIVE_PARTITIONER_ENABLED, ADAPTIVE_PARTITIONER_MAX_TRAVERSE
from penstock.decisions.log import Explanation
from penstock.graph import Operator, OperatorKind
from penstock.graph.partitioner import (
    AdaptiveRebalancePartitioner,
    AdaptiveRescalePartitioner,
    PulledRebalancePartitioner,
)
from penstock.hints.plan_hints import ConsumerStage
from penstock.planner.draft import DraftChoice, TranslatedNode
from penstock.planner.plan import NodePlan, WriteKind
from penstock.planner.translation.repartitions import redistribute
from penstock.planner.translation.translator import NARROW, Translator
from penstock.rebalance.adaptive_exchanges import (
    BATCH_FUNCTIONS,
    LocatedExchange,
    consumer_stage_at,
    exchange_at,
    exchange_before,
)
from penstock.rebalance.operator import PulledConsumer, release_with_owner, report_accumulator
from penstock.spark.bridge.jvm import class_names
from penstock.spark.run.barrier import is_boundary, task_slots
from penstock.spark.run.jobs import max_cores
from penstock.spark.run.pulled_rows import schema_of

if TYPE_CHECKING:
    from penstock.spark.plans.nodes import LogicalNode

_REPARTITION = Operator(OperatorKind.REPARTITION)
_CALLS_USER_FUNCTIONS = BATCH_FUNCTIONS | class_names(
    "ArrowEvalPython BatchEvalPython ArrowEvalPythonUDTF BatchEvalPythonUDTF MapElements MapPartitions TypedFilter "
    "ScriptTransformation"
)
"""Operators that call functions of the user."""


def add_adaptive_edge(
    translator: Translator, input_node: TranslatedNode, node_id: int, below: LogicalNode, stage: ConsumerStage
) -> None:
    """Add an exchange that runs in a barrier stage together with its consumer: `stage`, at the node `node_id`."""
    hint = stage.hint
    assert hint.exchange is not None
    _, max_compared = hint.exchange.resolve_options(translator.config, hint.parallelism)
    kind = AdaptiveRescalePartitioner if hint.exchange.pointwise else AdaptiveRebalancePartitioner
    draft = translator.draft
    draft.consumer_stages[node_id] = stage
    draft.update_node(node_id, max_parallelism=task_slots(translator.bridge), location=hint.location)
    if hint.parallelism is not None and draft.accepts_parallelism(input_node.node_id, hint.parallelism):
        draft.update_node(input_node.node_id, parallelism=hint.parallelism)  # the stage has a task per consumer
    draft.add_edge(input_node.node_id, node_id, kind(max_compared), translator.edge_plan(below))
    consumers = max_compared if hint.parallelism is None else min(max_compared, hint.parallelism)
    reason = f"each batch goes to the least loaded of {consumers} consumers"
    name = draft.stream_nodes[node_id].name
    explanation = Explanation(f"{name}: {reason}", ADAPTIVE_PARTITIONER_MAX_TRAVERSE.key)
    draft.choices.append(DraftChoice(name, "adaptive", reason, explain=lambda *_: explanation))


def pulled_exchange_at(translator: Translator, node: LogicalNode) -> LocatedExchange | None:
    """Return the exchange before a function if the tasks of the function pull rows in chunks, or None.

    In queries that Spark delegates, all exchanges are pulled; in jobs, those that cannot run as barrier stages.
    """
    if node.name not in BATCH_FUNCTIONS:
        return None
    located = exchange_before(node, translator.config)
    if located is None:
        return None
    carrier, hint, exchange = located
    is_adaptive, _ = exchange.resolve_options(translator.config, hint.parallelism)
    if not is_adaptive or exchange.function is None:
        return None
    names = [column.name for column in carrier.children[0].output.columns()]
    return located if len(set(names)) == len(names) else None  # Spark cannot send columns with equal names to Python


def add_pulled(translator: Translator, node: LogicalNode, located: LocatedExchange) -> TranslatedNode:
    """Add a node for the exchange `located` and the function `node`, whose tasks pull the rows in chunks."""
    carrier, hint, exchange = located
    (rows,) = carrier.children
    draft, bridge = translator.draft, translator.bridge
    input_node = translator.translate(rows)
    name = "Rescale" if exchange.pointwise else hint.name
    node_id = draft.add_node(_REPARTITION, name, NodePlan(None), parallelism=hint.parallelism, location=hint.location)
    reports = report_accumulator(bridge.spark)
    consumer = PulledConsumer(node, exchange, schema_of(rows.output), reports)
    plan = translator.edge_plan(rows, WriteKind.ROWS, consumer=consumer)
    draft.add_edge(input_node.node_id, node_id, PulledRebalancePartitioner(max_cores(bridge)), plan)
    draft.consumer_stages[node_id] = stage = ConsumerStage(hint, lambda: list(reports.value))
    release_with_owner(stage, reports)
    consumers = "each consumer" if hint.parallelism is None else f"each of {hint.parallelism} consumers"
    reason = f"{consumers} takes the next chunk when idle; until all have started, at most an even share of the chunks"
    explanation = Explanation(f"{name}: {reason}", ADAPTIVE_PARTITIONER_ENABLED.key)
    draft.choices.append(DraftChoice(name, "adaptive", reason, explain=lambda *_: explanation))
    return TranslatedNode(node_id)


def is_worth_pulling(translator: Translator, operators: Sequence[LogicalNode]) -> bool:
    """Whether narrow operators should pull rows: the option is on; they call a user function outside barrier stages."""
    is_allowed = translator.config.flag(ADAPTIVE_PARTITIONER_ENABLED) and consumer_stage_at(operators[-1]) is None
    return is_allowed and any(part.name in _CALLS_USER_FUNCTIONS for part in operators)


def add_pulled_repartition(translator: Translator, node: LogicalNode) -> TranslatedNode:
    """Add a ``repartition(n)`` whose tasks pull rows in chunks when idle; translate any other repartition as usual."""
    assert node.repartition is not None
    (child,) = node.children
    number = node.repartition.partitions
    if not node.repartition.shuffles or number is None or number < 2 or exchange_at(node) is not None:
        return translator.translate(node)
    input_node = translator.translate(child)
    node_id = translator.draft.add_node(_REPARTITION, "Repartition", NodePlan(None), parallelism=number)
    plan = translator.edge_plan(child, WriteKind.ROWS)
    partitioner = PulledRebalancePartitioner(max_cores(translator.bridge))
    translator.draft.add_edge(input_node.node_id, node_id, partitioner, plan)
    return TranslatedNode(node_id)


def translate_stage_repartition(translator: Translator, node: LogicalNode) -> TranslatedNode:
    """Translate the repartition before a barrier stage, or omit it if its input can run with as many tasks."""
    input_node = translator.translate(node.children[0])
    number = None if node.repartition is None else node.repartition.partitions
    if number is not None and translator.draft.accepts_parallelism(input_node.node_id, number):
        return input_node
    return redistribute(translator, node, input_node, number)


def omit_boundary(translator: Translator, child: LogicalNode) -> None:
    """Omit the boundary (repartition after a barrier stage) at or below `child`, whose consumer does not need it."""
    while child.name in NARROW and consumer_stage_at(child) is None and not translator.is_shared(child):
        child = child.children[0]
    if child.name == "RepartitionByExpression" and is_boundary(child):
        translator.omitted_boundaries.add(child)
