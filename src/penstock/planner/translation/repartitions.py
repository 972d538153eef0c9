"""What users say about how rows are spread: repartitions, hints, and the marks of Penstock's own functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.graph import Operator, OperatorKind
from penstock.graph.partitioner import REBALANCE, RESCALE, HashPartitioner, RangePartitioner
from penstock.marks import Mark, recall
from penstock.planner.distribution import NOT_KNOWN, Distribution
from penstock.planner.draft import Note, TranslatedNode
from penstock.planner.plan import NodePlan, WriteKind
from penstock.planner.translation.families import NARROW
from penstock.planner.translation.rules import translates
from penstock.rebalance.adapted import dealt_out_at
from penstock.spark.catalyst import partition_keys
from penstock.spark.dataframes import mark_of
from penstock.spark.jobs import cluster_cores

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.planner.translation.translator import Translator
    from penstock.spark.expressions import Expression
    from penstock.spark.plans import LogicalNode

_REPARTITION = Operator(OperatorKind.REPARTITION)


@translates("Repartition")
def translate_repartition(translator: Translator, node: LogicalNode) -> TranslatedNode:
    """Deal rows out to as many tasks as the user asked for."""
    assert node.repartition is not None
    if not node.repartition.shuffles:
        return translator.one_piece(node, OperatorKind.OPAQUE)  # coalesce(n): Spark merges tasks in place
    inner = translator.translate(node.children[0])
    if dealt_out_at(node) is not None:  # it is there for plain Spark
        return inner
    return redistribute(translator, node, inner, node.repartition.partitions)


@translates("RepartitionByExpression")
def translate_repartition_by(translator: Translator, node: LogicalNode) -> TranslatedNode:
    """Exchange rows by keys or ranges that the user gave."""
    inner = translator.translate(node.children[0])
    if node in translator.read_in_place:
        return inner
    assert node.repartition is not None
    keys, wanted = partition_keys(node), node.repartition.partitions
    if not any(key.kind == "SortOrder" for key in keys):
        return redistribute(translator, node, inner, wanted, keys)
    node_id = translator.builder.node(_REPARTITION, "Repartition by range", NodePlan(node), parallelism=wanted)
    texts = tuple(key.text for key in keys)
    translator.operator_edge(inner, node_id, node, RangePartitioner(texts))
    return TranslatedNode(node_id)


@translates("RebalancePartitions")
def translate_rebalance(translator: Translator, node: LogicalNode) -> TranslatedNode:
    """Do what a mark says, or follow the hint ``REBALANCE``."""
    number = mark_of(node)
    if number is None:
        inner = translator.translate(node.children[0])
        return redistribute(translator, node, inner, None, partition_keys(node))
    return _translate_mark(translator, node, recall(number))


def redistribute(
    translator: Translator,
    node: LogicalNode,
    inner: TranslatedNode,
    wanted: int | None,
    keys: Sequence[Expression] = (),
) -> TranslatedNode:
    """Exchange rows by keys, or deal them out where there are none, to as many tasks as are wanted."""
    (child,) = node.children
    builder = translator.builder
    node_id = builder.node(
        _REPARTITION, "Repartition", NodePlan(None), description=node.description, parallelism=wanted
    )
    if not keys:
        builder.edge(inner.node_id, node_id, REBALANCE, translator.edge_plan(child, WriteKind.ROWS))
        return TranslatedNode(node_id)
    texts = tuple(key.key for key in keys)
    plan = translator.edge_plan(child, WriteKind.SIDE, keys=tuple(keys))
    edge = builder.edge(inner.node_id, node_id, HashPartitioner(texts), plan)
    known = Distribution((texts,), builder.groups[edge]) if wanted is None else NOT_KNOWN
    return TranslatedNode(node_id, known)


def _translate_mark(translator: Translator, node: LogicalNode, mark: Mark) -> TranslatedNode:
    """Drop a mark, and give what it says to the operator below."""
    child = leaf = node.children[0]
    builder = translator.builder
    if mark.source is not None:
        while leaf.name in NARROW:
            leaf = leaf.children[0]
        if not leaf.children:
            translator.source_marks[leaf] = mark
            return translator.translate(child)
        why = "its DataFrame is more than a scan, so it has no tasks of its own"
        builder.notes.append(Note(mark.source.name, "not inferred", why))
    inner = translator.translate(child)
    if mark.exchange is not None:
        return _deal_out(translator, inner, child, mark)
    changes: dict[str, Any] = {"location": mark.location}
    if mark.name:
        changes["name"] = mark.name
    if mark.parallelism is None:
        builder.give(inner.node_id, **changes)
        return inner
    if builder.can_be_given(inner.node_id, mark.parallelism):
        builder.give(inner.node_id, parallelism=mark.parallelism, **changes)
        return inner
    name = mark.name or f"with_parallelism({mark.parallelism})"
    node_id = builder.node(_REPARTITION, name, NodePlan(None), parallelism=mark.parallelism, location=mark.location)
    builder.edge(inner.node_id, node_id, REBALANCE, translator.edge_plan(child, WriteKind.ROWS))
    why = (
        f"the tasks of {builder.nodes[inner.node_id].name} cannot be set, so its rows go through an additional exchange"
    )
    builder.notes.append(Note(name, str(mark.parallelism), why))
    return TranslatedNode(node_id)


def _deal_out(translator: Translator, inner: TranslatedNode, child: LogicalNode, mark: Mark) -> TranslatedNode:
    """Deal rows out evenly; those that a function consumes go to as many tasks as can run, however few they are."""
    assert mark.exchange is not None
    wanted = mark.parallelism
    if wanted is None:
        wanted = cluster_cores(translator.bridge) if mark.exchange.function is not None else None
    name, partitioner = ("Rescale", RESCALE) if mark.exchange.pointwise else ("Rebalance", REBALANCE)
    node_id = translator.builder.node(_REPARTITION, name, NodePlan(None), parallelism=wanted, location=mark.location)
    plan = translator.edge_plan(child, WriteKind.ROWS)
    translator.builder.edge(inner.node_id, node_id, partitioner, plan)
    return TranslatedNode(node_id)
