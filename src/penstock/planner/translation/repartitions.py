"""What users say about how rows are spread: repartitions, hints, and the hints of Penstock's own functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.graph import Operator, OperatorKind
from penstock.graph.partitioner import (
    REBALANCE,
    RESCALE,
    HashPartitioner,
    Partitioner,
    PulledRebalancePartitioner,
    RangePartitioner,
)
from penstock.plan_hints import PlanHint, least, lookup
from penstock.planner.distribution import NOT_KNOWN, Distribution
from penstock.planner.draft import Note, TranslatedNode
from penstock.planner.plan import NodePlan, WriteKind
from penstock.planner.translation.families import NARROW
from penstock.planner.translation.rules import translates
from penstock.rebalance.adapted import distribution_at
from penstock.spark.catalyst import partition_keys
from penstock.spark.dataframes import hint_number
from penstock.spark.jobs import cluster_cores, most_cores

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.connectors.base import Source
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
    if distribution_at(node) is not None:  # it is there for plain Spark
        return inner
    return redistribute(translator, node, inner, node.repartition.partitions)


@translates("RepartitionByExpression")
def translate_repartition_by(translator: Translator, node: LogicalNode) -> TranslatedNode:
    """Exchange rows by keys or ranges that the user gave."""
    if node in translator.read_in_place:
        return translator.translate(rows_before(translator, node))
    inner = translator.translate(node.children[0])
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
    """Do what a hint says, or follow the hint ``REBALANCE``."""
    number = hint_number(node)
    if number is None:
        inner = translator.translate(node.children[0])
        return redistribute(translator, node, inner, None, partition_keys(node))
    return _translate_hint(translator, node, lookup(number))


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


def _translate_hint(translator: Translator, node: LogicalNode, hint: PlanHint) -> TranslatedNode:
    """Drop a hint, and give what it says to the operator below."""
    child = leaf = node.children[0]
    builder = translator.builder
    changes: dict[str, Any] = {"location": hint.location}
    if hint.name:
        changes["name"] = hint.name
    if hint.source is not None:
        while leaf.name in NARROW or _source_of(leaf) is hint.source:
            leaf = leaf.children[0]
        if not leaf.children:
            translator.source_hints.setdefault(leaf, hint)  # one above it holds
            inner = translator.translate(child)
            builder.give(inner.node_id, max_parallelism=hint.max_parallelism, **changes)
            return inner
        why = "its DataFrame is more than a scan, so it has no tasks of its own"
        builder.notes.append(Note(hint.source.name, "not inferred", why))
    inner = translator.translate(child)
    if hint.exchange is not None:
        return _deal_out(translator, inner, child, hint)
    number, most = hint.parallelism, hint.max_parallelism
    can_be_given = number is None or builder.can_be_given(inner.node_id, number)
    if can_be_given and (most is None or builder.can_be_bounded(inner.node_id, most)):
        known = builder.nodes[inner.node_id]
        said = {"parallelism": number or known.parallelism, "max_parallelism": least(most, known.max_parallelism)}
        builder.give(inner.node_id, **said, **changes)
        return inner
    wanted = str(number) if number is not None else f"at most {most}"
    name = hint.name or f"with_parallelism({wanted})"
    node_id = builder.node(_REPARTITION, name, NodePlan(None), parallelism=number, location=hint.location)
    builder.give(node_id, max_parallelism=most)
    builder.edge(inner.node_id, node_id, REBALANCE, translator.edge_plan(child, WriteKind.ROWS))
    why = (
        f"the tasks of {builder.nodes[inner.node_id].name} cannot be set, so its rows go through an additional exchange"
    )
    builder.notes.append(Note(name, wanted, why))
    return TranslatedNode(node_id)


def _source_of(node: LogicalNode) -> Source | None:
    """Return the source that a hint is about, None of other operators."""
    number = hint_number(node) if node.name == "RebalancePartitions" else None
    return None if number is None else lookup(number).source


def _deal_out(translator: Translator, inner: TranslatedNode, child: LogicalNode, hint: PlanHint) -> TranslatedNode:
    """Deal rows out evenly; those that a function consumes go to as many tasks as can run, however few they are."""
    assert hint.exchange is not None
    wanted = hint.parallelism
    if wanted is None:
        wanted = cluster_cores(translator.bridge) if hint.exchange.function is not None else None
    partitioner: Partitioner
    name, partitioner = ("Rescale", RESCALE) if hint.exchange.pointwise else ("Rebalance", REBALANCE)
    if hint.exchange.resolved(translator.config, wanted)[0]:  # no barrier stage could take its place
        partitioner, wanted = PulledRebalancePartitioner(most_cores(translator.bridge)), hint.parallelism
    node_id = translator.builder.node(_REPARTITION, name, NodePlan(None), parallelism=wanted, location=hint.location)
    plan = translator.edge_plan(child, WriteKind.ROWS)
    translator.builder.edge(inner.node_id, node_id, partitioner, plan)
    return TranslatedNode(node_id)


def rows_before(translator: Translator, boundary: LogicalNode) -> LogicalNode:
    """Return what is below a boundary that is left out, without the column by which it would exchange the rows."""
    (numbered,) = boundary.children
    if numbered.name != "Project" or translator.is_shared(numbered):
        return numbered
    (rows,) = numbered.children
    return rows if len(set(numbered.ids) - set(rows.ids)) == 1 else numbered
