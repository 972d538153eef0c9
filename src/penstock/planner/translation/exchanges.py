"""Adaptive exchanges: a rebalance or rescale and the function behind it are one stage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config.options import ADAPTIVE_PARTITIONER_ENABLED, ADAPTIVE_PARTITIONER_MAX_TRAVERSE
from penstock.decisions import Told
from penstock.graph import Operator, OperatorKind
from penstock.graph.partitioner import (
    AdaptiveRebalancePartitioner,
    AdaptiveRescalePartitioner,
    PulledRebalancePartitioner,
)
from penstock.plan_hints import Stage
from penstock.planner.draft import Note, TranslatedNode
from penstock.planner.plan import NodePlan, WriteKind
from penstock.planner.translation.families import NARROW
from penstock.planner.translation.repartitions import redistribute
from penstock.rebalance.adapted import CONSUMERS, distribution_at, exchange_before, stage_at
from penstock.rebalance.consumer import PulledConsumer
from penstock.rebalance.reports import drop_with, new_reports
from penstock.spark.barrier import is_boundary, task_slots
from penstock.spark.jobs import most_cores
from penstock.spark.pulled import columns_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.plan_hints import Exchange, PlanHint
    from penstock.planner.translation.translator import Translator
    from penstock.spark.plans import LogicalNode


_SLOW = frozenset(
    {
        *CONSUMERS,
        "ArrowEvalPython",
        "BatchEvalPython",
        "ArrowEvalPythonUDTF",
        "BatchEvalPythonUDTF",
        "MapElements",
        "MapPartitions",
        "TypedFilter",
        "ScriptTransformation",
    }
)
"""Operators that call a function of the user's."""


def add_adaptive_edge(
    translator: Translator, inner: TranslatedNode, node_id: int, below: LogicalNode, stage: Stage
) -> None:
    """Deal rows out within the stage: as many tasks run as there are slots, for they must run together."""
    hint = stage.hint
    assert hint.exchange is not None
    _, traverse = hint.exchange.resolved(translator.config, hint.parallelism)
    kind = AdaptiveRescalePartitioner if hint.exchange.pointwise else AdaptiveRebalancePartitioner
    builder = translator.builder
    builder.exchanges[node_id] = stage
    builder.give(node_id, max_parallelism=task_slots(translator.bridge), location=hint.location)
    if hint.parallelism is not None and builder.can_be_given(inner.node_id, hint.parallelism):
        builder.give(inner.node_id, parallelism=hint.parallelism)
    builder.edge(inner.node_id, node_id, kind(traverse), translator.edge_plan(below))
    consumers = traverse if hint.parallelism is None else min(traverse, hint.parallelism)
    compared = f"each batch goes to the least loaded of {consumers} consumers"
    name = builder.nodes[node_id].name
    told = Told(f"{name}: {compared}", ADAPTIVE_PARTITIONER_MAX_TRAVERSE.key)
    builder.notes.append(Note(name, "adaptive", compared, told=lambda *_: told))


def pulled_at(translator: Translator, node: LogicalNode) -> tuple[LogicalNode, PlanHint, Exchange] | None:
    """Return the exchange before a function, and what was said of it, if the function's tasks take its rows in pieces.

    It is adaptive, and still as the user wrote it: no barrier stage could take its place.
    """
    if node.name not in CONSUMERS:
        return None
    found = exchange_before(node, translator.config)
    if found is None:
        return None
    carrier, hint, exchange = found
    is_adaptive, _ = exchange.resolved(translator.config, hint.parallelism)
    if not is_adaptive or exchange.function is None:
        return None
    names = [column.name for column in carrier.children[0].output.columns()]
    return found if len(set(names)) == len(names) else None  # Spark refuses to send columns of equal names


def add_pulled(
    translator: Translator, node: LogicalNode, carrier: LogicalNode, hint: PlanHint, exchange: Exchange
) -> TranslatedNode:
    """Write rows in pieces, and let the tasks of a function take them."""
    (rows,) = carrier.children
    builder, bridge = translator.builder, translator.bridge
    inner = translator.translate(rows)
    name = "Rescale" if exchange.pointwise else hint.name
    node_id = builder.node(
        Operator(OperatorKind.REPARTITION), name, NodePlan(None), parallelism=hint.parallelism, location=hint.location
    )
    reports = new_reports(bridge.spark)
    consumer = PulledConsumer(node, exchange, columns_of(rows.output), reports)
    plan = translator.edge_plan(rows, WriteKind.ROWS, consumer=consumer)
    builder.edge(inner.node_id, node_id, PulledRebalancePartitioner(most_cores(bridge)), plan)
    builder.exchanges[node_id] = stage = Stage(hint, lambda: list(reports.value))
    drop_with(stage, reports)
    who = "each consumer" if hint.parallelism is None else f"each of {hint.parallelism} consumers"
    why = f"{who} takes the next piece whenever it is free, at most an even share until all have begun"
    told = Told(f"{name}: {why}", ADAPTIVE_PARTITIONER_ENABLED.key)
    builder.notes.append(Note(name, "adaptive", why, told=lambda *_: told))
    return TranslatedNode(node_id)


def is_worth_pulling(translator: Translator, run: Sequence[LogicalNode]) -> bool:
    """Whether options let the tasks of a run of operators take rows in pieces, and one of them may be slow."""
    is_wanted = translator.config.flag(ADAPTIVE_PARTITIONER_ENABLED) and stage_at(run[-1]) is None
    return is_wanted and any(part.name in _SLOW for part in run)


def pulled(translator: Translator, node: LogicalNode) -> TranslatedNode:
    """Write the rows of a ``repartition(n)`` in pieces, which the tasks above take whenever they are free."""
    assert node.repartition is not None
    (child,) = node.children
    number = node.repartition.partitions
    if not node.repartition.shuffles or number is None or number < 2 or distribution_at(node) is not None:
        return translator.translate(node)
    inner = translator.translate(child)
    node_id = translator.builder.node(
        Operator(OperatorKind.REPARTITION), "Repartition", NodePlan(None), parallelism=number
    )
    plan = translator.edge_plan(child, WriteKind.ROWS)
    partitioner = PulledRebalancePartitioner(most_cores(translator.bridge))
    translator.builder.edge(inner.node_id, node_id, partitioner, plan)
    return TranslatedNode(node_id)


def without_bound(translator: Translator, node: LogicalNode) -> TranslatedNode:
    """Leave out what brings rows to as many tasks as there are slots, where so many tasks can make them at once."""
    inner = translator.translate(node.children[0])
    number = None if node.repartition is None else node.repartition.partitions
    if number is not None and translator.builder.can_be_given(inner.node_id, number):
        return inner
    return redistribute(translator, node, inner, number)


def read_in_place(translator: Translator, child: LogicalNode) -> None:
    """Leave out the boundary behind an adaptive exchange, as what reads the rows can do without it."""
    while child.name in NARROW and stage_at(child) is None and not translator.is_shared(child):
        child = child.children[0]
    if child.name == "RepartitionByExpression" and is_boundary(child):
        translator.read_in_place.add(child)
