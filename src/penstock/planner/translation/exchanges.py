"""Adaptive exchanges: a rebalance or rescale and the function behind it are one stage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config.options import ADAPTIVE_PARTITIONER_MAX_TRAVERSE
from penstock.decisions import Told
from penstock.graph.partitioner import AdaptiveRebalancePartitioner, AdaptiveRescalePartitioner
from penstock.plan_hints import stage_of
from penstock.planner.draft import Note
from penstock.planner.translation.families import NARROW
from penstock.planner.translation.repartitions import redistribute
from penstock.spark.barrier import function_id, is_boundary, task_slots

if TYPE_CHECKING:
    from penstock.plan_hints import Stage
    from penstock.planner.draft import TranslatedNode
    from penstock.planner.translation.translator import Translator
    from penstock.spark.plans import LogicalNode


def stage_at(node: LogicalNode) -> Stage | None:
    """Return what an operator was made for that is one stage with the rebalance or rescale before it."""
    if node.name not in {"MapInArrow", "PythonMapInArrow"}:
        return None
    return stage_of(function_id(node))


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
    compared = f"each batch goes to the least loaded of {traverse} consumers"
    name = builder.nodes[node_id].name
    told = Told(f"{name}: {compared}", ADAPTIVE_PARTITIONER_MAX_TRAVERSE.key)
    builder.notes.append(Note(name, "adaptive", compared, told=lambda *_: told))


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
