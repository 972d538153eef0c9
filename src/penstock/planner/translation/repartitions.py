"""Translates repartitions, ``REBALANCE`` hints, and the hints that functions such as `rebalance` add to plans."""

from __future__ import annotations

from collections.abc import Sequence
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
from penstock.hints.plan_hints import PlanHint, hint_of_number, smallest_bound
from penstock.planner.distribution import UNKNOWN_DISTRIBUTION, Distribution
from penstock.planner.draft import DraftChoice, TranslatedNode
from penstock.planner.plan import NodePlan, WriteKind
from penstock.planner.translation.translator import NARROW, Translator, translates
from penstock.rebalance.adaptive_exchanges import exchange_at
from penstock.spark.plans.catalyst import partition_keys
from penstock.spark.plans.dataframes import hint_number
from penstock.spark.run.jobs import cluster_cores, max_cores

if TYPE_CHECKING:
    from penstock.connectors.core.base import Source
    from penstock.spark.plans.expressions import Expression
    from penstock.spark.plans.nodes import LogicalNode

_REPARTITION = Operator(OperatorKind.REPARTITION)


@translates("Repartition")
def translate_repartition(translator: Translator, node: LogicalNode) -> TranslatedNode:
    """Exchange rows round-robin to the number of tasks that the user requests."""
    assert node.repartition is not None
    if not node.repartition.shuffles:
        return translator.add_opaque_node(node, OperatorKind.OPAQUE)  # coalesce(n): Spark merges partitions
    input_node = translator.translate(node.children[0])
    if exchange_at(node) is not None:  # the repartition sets the number of partitions for plain Spark only
        return input_node
    return redistribute(translator, node, input_node, node.repartition.partitions)


@translates("RepartitionByExpression")
def translate_repartition_by(translator: Translator, node: LogicalNode) -> TranslatedNode:
    """Exchange rows by the keys or ranges that the user requests."""
    if node in translator.omitted_boundaries:  # a repartition after a barrier stage, see `barrier_stage`
        return translator.translate(rows_before_boundary(translator, node))
    input_node = translator.translate(node.children[0])
    assert node.repartition is not None
    keys, parallelism = partition_keys(node), node.repartition.partitions
    if not any(key.kind == "SortOrder" for key in keys):
        return redistribute(translator, node, input_node, parallelism, keys)
    node_id = translator.draft.add_node(_REPARTITION, "Repartition by range", NodePlan(node), parallelism=parallelism)
    partitioner = RangePartitioner(tuple(key.text for key in keys))
    translator.add_operator_edge(input_node, node_id, node, partitioner)
    return TranslatedNode(node_id)


@translates("RebalancePartitions")
def translate_rebalance(translator: Translator, node: LogicalNode) -> TranslatedNode:
    """Apply a hint of a Penstock function, or the hint ``REBALANCE``."""
    number = hint_number(node)
    if number is None:
        input_node = translator.translate(node.children[0])
        return redistribute(translator, node, input_node, None, partition_keys(node))
    return _apply_hint(translator, node, hint_of_number(number))


def redistribute(
    translator: Translator,
    node: LogicalNode,
    input_node: TranslatedNode,
    parallelism: int | None,
    keys: Sequence[Expression] = (),
) -> TranslatedNode:
    """Exchange rows by keys, or round-robin without keys, to `parallelism` tasks; None lets Penstock decide."""
    (child,) = node.children
    draft = translator.draft
    node_id = draft.add_node(
        _REPARTITION, "Repartition", NodePlan(None), description=node.description, parallelism=parallelism
    )
    if not keys:
        draft.add_edge(input_node.node_id, node_id, REBALANCE, translator.edge_plan(child, WriteKind.ROWS))
        return TranslatedNode(node_id)
    hash_keys = tuple(key.key for key in keys)
    plan = translator.edge_plan(child, WriteKind.SIDE, keys=tuple(keys))
    edge = draft.add_edge(input_node.node_id, node_id, HashPartitioner(hash_keys), plan)
    distribution = Distribution((hash_keys,), draft.groups[edge]) if parallelism is None else UNKNOWN_DISTRIBUTION
    return TranslatedNode(node_id, distribution)


def _apply_hint(translator: Translator, node: LogicalNode, hint: PlanHint) -> TranslatedNode:
    """Apply the hint of a Penstock function: the settings of a source, an exchange, or a number of tasks."""
    child = leaf = node.children[0]
    draft = translator.draft
    changes: dict[str, Any] = {"location": hint.location}
    if hint.name:
        changes["name"] = hint.name
    if hint.source is not None:
        while leaf.name in NARROW or _source_of(leaf) is hint.source:  # down to the scan, if nothing else is above
            leaf = leaf.children[0]
        if not leaf.children:
            translator.source_hints.setdefault(leaf, hint)  # the topmost hint applies
            input_node = translator.translate(child)
            draft.update_node(input_node.node_id, max_parallelism=hint.max_parallelism, **changes)
            return input_node
        reason = "its DataFrame is more than a scan, so it has no tasks of its own"
        draft.choices.append(DraftChoice(hint.source.name, "not inferred", reason))
    input_node = translator.translate(child)
    if hint.exchange is not None:
        return _exchange_evenly(translator, input_node, child, hint)
    number, maximum = hint.parallelism, hint.max_parallelism
    sets_no_tasks = number is None and maximum is None
    if sets_no_tasks or draft.accepts_parallelism(input_node.node_id, number, maximum):
        existing = draft.stream_nodes[input_node.node_id]
        changes["parallelism"] = number or existing.parallelism
        changes["max_parallelism"] = smallest_bound(maximum, existing.max_parallelism)
        draft.update_node(input_node.node_id, **changes)
        return input_node
    requested = str(number) if number is not None else f"at most {maximum}"
    name = hint.name or f"with_parallelism({requested})"
    node_id = draft.add_node(_REPARTITION, name, NodePlan(None), parallelism=number, location=hint.location)
    draft.update_node(node_id, max_parallelism=maximum)
    draft.add_edge(input_node.node_id, node_id, REBALANCE, translator.edge_plan(child, WriteKind.ROWS))
    below = draft.stream_nodes[input_node.node_id].name
    reason = f"the tasks of {below} cannot be set, so its rows go through an additional exchange"
    draft.choices.append(DraftChoice(name, requested, reason))
    return TranslatedNode(node_id)


def _source_of(node: LogicalNode) -> Source | None:
    """Return the source that the hint at a node is for; None without a hint, or if the hint is not for a source."""
    number = hint_number(node) if node.name == "RebalancePartitions" else None
    return None if number is None else hint_of_number(number).source


def _exchange_evenly(
    translator: Translator, input_node: TranslatedNode, child: LogicalNode, hint: PlanHint
) -> TranslatedNode:
    """Exchange rows evenly (to a function, by default with a task per core), or in chunks that tasks pull."""
    assert hint.exchange is not None
    tasks = hint.parallelism
    if tasks is None and hint.exchange.function is not None:
        tasks = cluster_cores(translator.bridge)
    partitioner: Partitioner
    name, partitioner = ("Rescale", RESCALE) if hint.exchange.pointwise else ("Rebalance", REBALANCE)
    is_adaptive, _ = hint.exchange.resolve_options(translator.config, tasks)
    if is_adaptive:  # no barrier stage has replaced it (see `pulled_exchange_at`), so tasks pull the rows in chunks
        partitioner, tasks = PulledRebalancePartitioner(max_cores(translator.bridge)), hint.parallelism
    node_id = translator.draft.add_node(_REPARTITION, name, NodePlan(None), parallelism=tasks, location=hint.location)
    plan = translator.edge_plan(child, WriteKind.ROWS)
    translator.draft.add_edge(input_node.node_id, node_id, partitioner, plan)
    return TranslatedNode(node_id)


def rows_before_boundary(translator: Translator, boundary: LogicalNode) -> LogicalNode:
    """Return the plan below an omitted boundary, without an operator that only adds the column to partition by."""
    (below,) = boundary.children
    if below.name != "Project" or translator.is_shared(below):
        return below
    (rows,) = below.children
    return rows if len(set(below.ids) - set(rows.ids)) == 1 else below
