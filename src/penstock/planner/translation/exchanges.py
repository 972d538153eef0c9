"""Translates adaptive exchanges: a rebalance or rescale and its consumer function run in the same stage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config.options import ADAPTIVE_PARTITIONER_ENABLED, ADAPTIVE_PARTITIONER_MAX_TRAVERSE
from penstock.decisions.log import Explanation
from penstock.graph import Operator, OperatorKind
from penstock.graph.partitioner import (
    AdaptiveRebalancePartitioner,
    AdaptiveRescalePartitioner,
    PulledRebalancePartitioner,
)
from penstock.hints.plan_hints import Exchange, PlanHint, Stage
from penstock.planner.draft import Note, TranslatedNode
from penstock.planner.plan import NodePlan, WriteKind
from penstock.planner.translation.repartitions import redistribute
from penstock.planner.translation.translator import NARROW, Translator
from penstock.rebalance.adaptive_exchanges import CONSUMERS, distribution_at, exchange_before, stage_at
from penstock.rebalance.consumer import PulledConsumer
from penstock.rebalance.operator import drop_with, new_reports
from penstock.spark.bridge.jvm import class_names
from penstock.spark.run.barrier import is_boundary, task_slots
from penstock.spark.run.jobs import max_cores
from penstock.spark.run.pulled import columns_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.spark.plans.nodes import LogicalNode

_SLOW = CONSUMERS | class_names(
    "ArrowEvalPython BatchEvalPython ArrowEvalPythonUDTF BatchEvalPythonUDTF MapElements MapPartitions TypedFilter "
    "ScriptTransformation"
)
"""Operators that call user-defined functions."""


def add_adaptive_edge(
    translator: Translator, inner: TranslatedNode, node_id: int, below: LogicalNode, stage: Stage
) -> None:
    """Add an exchange within a stage. Its tasks must run together, so it has at most as many as there are slots."""
    hint = stage.hint
    assert hint.exchange is not None
    _, traverse = hint.exchange.resolved(translator.config, hint.parallelism)
    kind = AdaptiveRescalePartitioner if hint.exchange.pointwise else AdaptiveRebalancePartitioner
    draft = translator.draft
    draft.exchanges[node_id] = stage
    draft.update_node(node_id, max_parallelism=task_slots(translator.bridge), location=hint.location)
    if hint.parallelism is not None and draft.accepts_parallelism(inner.node_id, hint.parallelism):
        draft.update_node(inner.node_id, parallelism=hint.parallelism)
    draft.edge(inner.node_id, node_id, kind(traverse), translator.edge_plan(below))
    consumers = traverse if hint.parallelism is None else min(traverse, hint.parallelism)
    reason = f"each batch goes to the least loaded of {consumers} consumers"
    name = draft.stream_nodes[node_id].name
    explanation = Explanation(f"{name}: {reason}", ADAPTIVE_PARTITIONER_MAX_TRAVERSE.key)
    draft.notes.append(Note(name, "adaptive", reason, explanation=lambda *_: explanation))


def pulled_at(translator: Translator, node: LogicalNode) -> tuple[LogicalNode, PlanHint, Exchange] | None:
    """Return the exchange before a function and its hint if the tasks of the function pull its rows in chunks.

    That is an adaptive exchange that a barrier stage could not replace.
    """
    if node.name not in CONSUMERS:
        return None
    adaptive = exchange_before(node, translator.config)
    if adaptive is None:
        return None
    carrier, hint, exchange = adaptive
    is_adaptive, _ = exchange.resolved(translator.config, hint.parallelism)
    if not is_adaptive or exchange.function is None:
        return None
    names = [column.name for column in carrier.children[0].output.columns()]
    return adaptive if len(set(names)) == len(names) else None  # Spark cannot send columns with equal names


def add_pulled(
    translator: Translator, node: LogicalNode, carrier: LogicalNode, hint: PlanHint, exchange: Exchange
) -> TranslatedNode:
    """Add an exchange that writes rows in chunks, which the tasks of a function pull."""
    (rows,) = carrier.children
    draft, bridge = translator.draft, translator.bridge
    inner = translator.translate(rows)
    name = "Rescale" if exchange.pointwise else hint.name
    node_id = draft.node(
        Operator(OperatorKind.REPARTITION), name, NodePlan(None), parallelism=hint.parallelism, location=hint.location
    )
    reports = new_reports(bridge.spark)
    consumer = PulledConsumer(node, exchange, columns_of(rows.output), reports)
    plan = translator.edge_plan(rows, WriteKind.ROWS, consumer=consumer)
    draft.edge(inner.node_id, node_id, PulledRebalancePartitioner(max_cores(bridge)), plan)
    draft.exchanges[node_id] = stage = Stage(hint, lambda: list(reports.value))
    drop_with(stage, reports)
    consumers = "each consumer" if hint.parallelism is None else f"each of {hint.parallelism} consumers"
    reason = f"{consumers} takes the next chunk when it is idle, at most an even share until all have started"
    explanation = Explanation(f"{name}: {reason}", ADAPTIVE_PARTITIONER_ENABLED.key)
    draft.notes.append(Note(name, "adaptive", reason, explanation=lambda *_: explanation))
    return TranslatedNode(node_id)


def is_worth_pulling(translator: Translator, run: Sequence[LogicalNode]) -> bool:
    """Whether options allow the tasks of a run of operators to pull rows in chunks, and an operator may be slow."""
    is_allowed = translator.config.flag(ADAPTIVE_PARTITIONER_ENABLED) and stage_at(run[-1]) is None
    return is_allowed and any(part.name in _SLOW for part in run)


def pulled(translator: Translator, node: LogicalNode) -> TranslatedNode:
    """Add a ``repartition(n)`` that writes rows in chunks, which idle tasks above it pull."""
    assert node.repartition is not None
    (child,) = node.children
    number = node.repartition.partitions
    if not node.repartition.shuffles or number is None or number < 2 or distribution_at(node) is not None:
        return translator.translate(node)
    inner = translator.translate(child)
    node_id = translator.draft.node(
        Operator(OperatorKind.REPARTITION), "Repartition", NodePlan(None), parallelism=number
    )
    plan = translator.edge_plan(child, WriteKind.ROWS)
    partitioner = PulledRebalancePartitioner(max_cores(translator.bridge))
    translator.draft.edge(inner.node_id, node_id, partitioner, plan)
    return TranslatedNode(node_id)


def without_slot_repartition(translator: Translator, node: LogicalNode) -> TranslatedNode:
    """Omit the repartition to the number of slots if the operators below can run with that number of tasks."""
    inner = translator.translate(node.children[0])
    number = None if node.repartition is None else node.repartition.partitions
    if number is not None and translator.draft.accepts_parallelism(inner.node_id, number):
        return inner
    return redistribute(translator, node, inner, number)


def omit_boundary(translator: Translator, child: LogicalNode) -> None:
    """Omit the boundary after an adaptive exchange, because the reader of the rows does not need it."""
    while child.name in NARROW and stage_at(child) is None and not translator.is_shared(child):
        child = child.children[0]
    if child.name == "RepartitionByExpression" and is_boundary(child):
        translator.omitted_boundaries.add(child)
