"""Translates repartitions, rebalance hints, and the hints of Penstock functions."""

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
from penstock.hints.plan_hints import PlanHint, least, lookup
from penstock.planner.distribution import UNKNOWN_DISTRIBUTION, Distribution
from penstock.planner.draft import Note, TranslatedNode
from penstock.planner.plan import NodePlan, WriteKind
from penstock.planner.translation.translator import NARROW, Translator, translates
from penstock.rebalance.adaptive_exchanges import distribution_at
from penstock.spark.plans.catalyst import partition_keys
from penstock.spark.plans.dataframes import hint_number
from penstock.spark.run.jobs import cluster_cores, max_cores

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.connectors.core.base import Source
    from penstock.spark.plans.expressions import Expression
    from penstock.spark.plans.nodes import LogicalNode

_REPARTITION = Operator(OperatorKind.REPARTITION)


@translates("Repartition")
def translate_repartition(translator: Translator, node: LogicalNode) -> TranslatedNode:
    """Exchange rows round-robin to the number of tasks that the user requests."""
    assert node.repartition is not None
    if not node.repartition.shuffles:
        return translator.opaque_node(node, OperatorKind.OPAQUE)  # coalesce(n), for which Spark merges tasks
    inner = translator.translate(node.children[0])
    if distribution_at(node) is not None:  # only plain Spark needs this repartition
        return inner
    return redistribute(translator, node, inner, node.repartition.partitions)


@translates("RepartitionByExpression")
def translate_repartition_by(translator: Translator, node: LogicalNode) -> TranslatedNode:
    """Exchange rows by the keys or ranges that the user requests."""
    if node in translator.omitted_boundaries:
        return translator.translate(rows_before(translator, node))
    inner = translator.translate(node.children[0])
    assert node.repartition is not None
    keys, parallelism = partition_keys(node), node.repartition.partitions
    if not any(key.kind == "SortOrder" for key in keys):
        return redistribute(translator, node, inner, parallelism, keys)
    node_id = translator.draft.node(_REPARTITION, "Repartition by range", NodePlan(node), parallelism=parallelism)
    texts = tuple(key.text for key in keys)
    translator.operator_edge(inner, node_id, node, RangePartitioner(texts))
    return TranslatedNode(node_id)


@translates("RebalancePartitions")
def translate_rebalance(translator: Translator, node: LogicalNode) -> TranslatedNode:
    """Apply a hint of a Penstock function, or the hint ``REBALANCE``."""
    number = hint_number(node)
    if number is None:
        inner = translator.translate(node.children[0])
        return redistribute(translator, node, inner, None, partition_keys(node))
    return _apply_hint(translator, node, lookup(number))


def redistribute(
    translator: Translator,
    node: LogicalNode,
    inner: TranslatedNode,
    parallelism: int | None,
    keys: Sequence[Expression] = (),
) -> TranslatedNode:
    """Exchange rows by keys, or round-robin without keys, to a number of tasks; None lets Penstock decide it."""
    (child,) = node.children
    draft = translator.draft
    node_id = draft.node(
        _REPARTITION, "Repartition", NodePlan(None), description=node.description, parallelism=parallelism
    )
    if not keys:
        draft.edge(inner.node_id, node_id, REBALANCE, translator.edge_plan(child, WriteKind.ROWS))
        return TranslatedNode(node_id)
    texts = tuple(key.key for key in keys)
    plan = translator.edge_plan(child, WriteKind.SIDE, keys=tuple(keys))
    edge = draft.edge(inner.node_id, node_id, HashPartitioner(texts), plan)
    distribution = Distribution((texts,), draft.groups[edge]) if parallelism is None else UNKNOWN_DISTRIBUTION
    return TranslatedNode(node_id, distribution)


def _apply_hint(translator: Translator, node: LogicalNode, hint: PlanHint) -> TranslatedNode:
    child = leaf = node.children[0]
    draft = translator.draft
    changes: dict[str, Any] = {"location": hint.location}
    if hint.name:
        changes["name"] = hint.name
    if hint.source is not None:
        while leaf.name in NARROW or _source_of(leaf) is hint.source:
            leaf = leaf.children[0]
        if not leaf.children:
            translator.source_hints.setdefault(leaf, hint)  # the topmost hint applies
            inner = translator.translate(child)
            draft.update_node(inner.node_id, max_parallelism=hint.max_parallelism, **changes)
            return inner
        reason = "its DataFrame is more than a scan, so it has no tasks of its own"
        draft.notes.append(Note(hint.source.name, "not inferred", reason))
    inner = translator.translate(child)
    if hint.exchange is not None:
        return _exchange_evenly(translator, inner, child, hint)
    number, maximum = hint.parallelism, hint.max_parallelism
    accepts_number = number is None or draft.accepts_parallelism(inner.node_id, number)
    if accepts_number and (maximum is None or draft.accepts_max_parallelism(inner.node_id, maximum)):
        existing = draft.stream_nodes[inner.node_id]
        changes["parallelism"] = number or existing.parallelism
        changes["max_parallelism"] = least(maximum, existing.max_parallelism)
        draft.update_node(inner.node_id, **changes)
        return inner
    requested = str(number) if number is not None else f"at most {maximum}"
    name = hint.name or f"with_parallelism({requested})"
    node_id = draft.node(_REPARTITION, name, NodePlan(None), parallelism=number, location=hint.location)
    draft.update_node(node_id, max_parallelism=maximum)
    draft.edge(inner.node_id, node_id, REBALANCE, translator.edge_plan(child, WriteKind.ROWS))
    below = draft.stream_nodes[inner.node_id].name
    reason = f"the tasks of {below} cannot be set, so its rows go through an additional exchange"
    draft.notes.append(Note(name, requested, reason))
    return TranslatedNode(node_id)


def _source_of(node: LogicalNode) -> Source | None:
    """Return the source that a hint applies to, or None for other operators."""
    number = hint_number(node) if node.name == "RebalancePartitions" else None
    return None if number is None else lookup(number).source


def _exchange_evenly(
    translator: Translator, inner: TranslatedNode, child: LogicalNode, hint: PlanHint
) -> TranslatedNode:
    """Exchange rows evenly. Rows that a function consumes go to as many tasks as can run, even if they are few."""
    assert hint.exchange is not None
    parallelism = hint.parallelism
    if parallelism is None and hint.exchange.function is not None:
        parallelism = cluster_cores(translator.bridge)
    partitioner: Partitioner
    name, partitioner = ("Rescale", RESCALE) if hint.exchange.pointwise else ("Rebalance", REBALANCE)
    if hint.exchange.resolved(translator.config, parallelism)[0]:  # a barrier stage could not replace it
        partitioner, parallelism = PulledRebalancePartitioner(max_cores(translator.bridge)), hint.parallelism
    node_id = translator.draft.node(_REPARTITION, name, NodePlan(None), parallelism=parallelism, location=hint.location)
    plan = translator.edge_plan(child, WriteKind.ROWS)
    translator.draft.edge(inner.node_id, node_id, partitioner, plan)
    return TranslatedNode(node_id)


def rows_before(translator: Translator, boundary: LogicalNode) -> LogicalNode:
    """Return the operator below an omitted boundary, without the column that the boundary would partition by."""
    (numbered,) = boundary.children
    if numbered.name != "Project" or translator.is_shared(numbered):
        return numbered
    (rows,) = numbered.children
    return rows if len(set(numbered.ids) - set(rows.ids)) == 1 else numbered
