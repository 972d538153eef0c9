"""Translates joins: equi-joins hash partition both sides or broadcast a side; Spark runs other joins unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.base.units import show_bytes
from penstock.decisions.estimates import Estimate, Unit
from penstock.decisions.log import DecisionKind, Explanation
from penstock.graph import JoinOperator, JoinSide, JoinType, OperatorKind, Side, StreamGraph
from penstock.graph.labels import join_name, side_name, tables_of
from penstock.graph.partitioner import BROADCAST, ForwardForConsecutiveHashPartitioner, HashPartitioner
from penstock.planner.distribution import UNKNOWN_DISTRIBUTION, Distribution, static_build_side
from penstock.planner.draft import DraftChoice, TranslatedNode
from penstock.planner.plan import NodePlan, WriteKind
from penstock.planner.sharing import is_expensive
from penstock.planner.translation.translator import Translator, translates
from penstock.spark.plans import catalyst
from penstock.spark.plans.joins import JoinFacts, join_facts
from penstock.spark.plans.logical_plan import MAX_ESTIMATE_BYTES

if TYPE_CHECKING:
    from penstock.spark.plans.nodes import LogicalNode


@translates("Join")
def translate_join(translator: Translator, node: LogicalNode) -> TranslatedNode:
    """Add a broadcast or shuffled join, as Spark would plan it; Spark runs a join without hashable keys unchanged."""
    facts = join_facts(node)
    if facts is None or not facts.is_hashable:
        return translator.add_opaque_node(node, OperatorKind.JOIN)
    children = dict(zip(Side, node.children, strict=True))
    hint = {Side.LEFT: facts.left_hint, Side.RIGHT: facts.right_hint}
    left, right = (
        JoinSide(hint[side], frozenset(child.ids), may_shrink=catalyst.reduces_rows(child), keys=facts.names(side))
        for side, child in children.items()
    )
    columns = frozenset(node.references)
    operator = JoinOperator(facts.type, left, right, condition_columns=columns, cannot_fail=facts.cannot_fail)
    size = {side: child.size_in_bytes for side, child in children.items()}
    build = static_build_side(facts.type, size, hint, translator.broadcast_threshold)
    plan = NodePlan(node, {side: facts.expressions(side) for side in Side})
    node_id = translator.draft.add_node(operator, "Join", plan, description=node.description)
    translator.draft.joins[node_id] = node, facts
    if build is not None:
        _record_broadcast(translator, node_id, build, size[build], is_hinted=hint[build] == "broadcast")
        return _broadcast(translator, node, node_id, facts, build)
    return _shuffled(translator, node, node_id, facts)


def _record_broadcast(translator: Translator, node_id: int, build: Side, size: int, *, is_hinted: bool) -> None:
    limit, option = translator.broadcast_threshold, translator.broadcast_option

    def explanation(graph: StreamGraph, _: Mapping[str, str]) -> Explanation:
        join = graph.node(node_id).operator
        assert isinstance(join, JoinOperator)
        table, estimate = side_name(join, build), None
        cause = "a join hint asks for it"
        if not is_hinted:
            cause = f"Spark's statistics say {show_bytes(size)} for {table} (limit {show_bytes(limit)})"
        if size < MAX_ESTIMATE_BYTES:
            estimate = Estimate(f"bytes of {table} in memory", Unit.BYTES, size, limit=None if is_hinted else limit)
        name = join_name(join, build.other)
        sentence = f"{name}: {table} is broadcast from the start, as {cause}"
        return Explanation(sentence, None if is_hinted else option, estimate, tables=tables_of(join), location=name)

    if is_hinted:
        reason, figures = "a join hint asks for it", {} if size >= MAX_ESTIMATE_BYTES else {"bytes": size}
    else:
        figures = {"bytes": size, "limit": limit}
        reason = f"Spark's statistics say {show_bytes(size)} for this side; the limit is {show_bytes(limit)} ({option})"
    translator.draft.choices.append(DraftChoice(node_id, build, reason, DecisionKind.BROADCAST, figures, explanation))


def _broadcast(
    translator: Translator, node: LogicalNode, node_id: int, facts: JoinFacts, build: Side
) -> TranslatedNode:
    children = dict(zip(Side, node.children, strict=True))
    child, probe = children[build], children[build.other]
    columns = key_signature(child, [key.key for key in facts.keys(build)])
    signature = f"broadcast by {columns}" if columns else ""
    plan = translator.edge_plan(child, WriteKind.BROADCAST, operator=node, signature=signature)
    producer = _producer(translator, child, signature)
    translator.draft.add_edge(producer, node_id, BROADCAST, plan, number=build.input_number)
    probe_node = translator.translate(probe)
    translator.add_forward_edge(probe_node, node_id, probe, build.other.input_number)
    if facts.type is not JoinType.INNER or not probe_node.distribution.hashed_by:
        return TranslatedNode(node_id, probe_node.distribution)
    keys = [(left.key, right.key) for left, right in zip(facts.left, facts.right, strict=True)]
    equal = {right: left for left, right in keys} if build is Side.LEFT else dict(keys)  # the build key by probe key
    return TranslatedNode(node_id, probe_node.distribution.with_equal_keys(equal))


def _shuffled(translator: Translator, node: LogicalNode, node_id: int, facts: JoinFacts) -> TranslatedNode:
    """Exchange both sides by the keys in the same order; chain a side that is already hash partitioned by the keys."""
    draft = translator.draft
    children = dict(zip(Side, node.children, strict=True))
    keys = {side: facts.expressions(side) for side in Side}
    texts = {side: [key.key for key in facts.keys(side)] for side in Side}
    translated: dict[Side, TranslatedNode] = {}
    order: list[int] | None = None  # positions of the keys, in the order in which a chained side is hashed
    group: int | None = None  # the exchange group of both sides
    for side in Side:  # chain a side that is hash partitioned, unless it is already written for another join
        writer_key = translator.equal_parts.class_of(children[side]), key_signature(children[side], texts[side])
        if not _may_be_hash_partitioned(children[side]) or writer_key in translator.input_writers:
            continue
        input_node = translated[side] = translator.translate(children[side])
        # A filter on groups (HAVING) may leave few rows. An exchange measures them, so the join may become a broadcast.
        hash_order = input_node.distribution.hash_order(texts[side])
        if hash_order is None or (order is not None and hash_order != order) or catalyst.filters_groups(children[side]):
            continue
        side_group = input_node.distribution.group
        assert side_group is not None  # hash partitioned rows belong to a group
        if group is not None and side_group != group:
            # The join reads both sides by the same ranges, so their exchange groups are merged.
            draft.groups.update({edge: group for edge, edge_group in draft.groups.items() if edge_group == side_group})
        order, group = hash_order, side_group if group is None else group
        plan = translator.edge_plan(children.pop(side), WriteKind.SIDE, keys=tuple(keys[side][i] for i in order))
        chained = ForwardForConsecutiveHashPartitioner(HashPartitioner(tuple(texts[side][i] for i in order)))
        draft.add_edge(input_node.node_id, node_id, chained, plan, number=side.input_number, group=group)
    order = order or list(range(len(facts.left)))
    group = draft.new_group() if group is None else group
    texts = {side: [texts[side][i] for i in order] for side in Side}
    for side, child in children.items():  # exchange the sides that are not chained
        signature = key_signature(child, texts[side])
        draft.add_edge(
            _producer(translator, child, signature, translated.get(side)),
            node_id,
            HashPartitioner(tuple(texts[side])),
            translator.edge_plan(child, WriteKind.SIDE, keys=tuple(keys[side][i] for i in order), signature=signature),
            number=side.input_number,
            group=group,
        )
    hashed_by = tuple(tuple(texts[side]) for side in Side if facts.type.keeps_keys(side))
    return TranslatedNode(node_id, Distribution(hashed_by, group) if hashed_by else UNKNOWN_DISTRIBUTION)


def _may_be_hash_partitioned(node: LogicalNode) -> bool:
    """Whether a join input may be hash partitioned already: it has a repartition, or an operator like an aggregate."""
    return is_expensive(node) or any(part.name.startswith("Repartition") for part in node.walk())


def _producer(
    translator: Translator, child: LogicalNode, signature: str, translated: TranslatedNode | None = None
) -> int:
    """Return the id of the node that writes a join input; equal inputs with equal signatures (layouts) share a node."""
    equal_class = translator.equal_parts.class_of(child)
    # For a part that is worth sharing, `translate` itself returns a shared node.
    if equal_class is None or not signature or translator.is_worth_sharing(child):
        return (translated or translator.translate(child)).node_id
    key = (equal_class, signature)
    if translated is not None or key not in translator.input_writers:
        translator.input_writers[key] = (translated or translator.translate(child)).node_id
    translator.record_leaves(equal_class, child)
    return translator.input_writers[key]


def key_signature(child: LogicalNode, keys: list[str]) -> str:
    """Return a hash layout as text: the positions of its keys in a join input; empty if a key is not a column of it."""
    positions = [child.keys.index(key) if key in child.keys else None for key in keys]
    return "" if None in positions else f"hash{positions}"
