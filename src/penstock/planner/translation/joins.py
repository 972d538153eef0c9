"""Translates joins: equi-joins hash partition both sides or broadcast a side; Spark runs other joins unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.base.units import show_bytes
from penstock.decisions.estimates import Estimate, Unit
from penstock.decisions.log import DecisionKind, Explanation
from penstock.graph import JoinOperator, JoinSide, JoinType, OperatorKind, Side, StreamGraph
from penstock.graph.labels import join_name, side_name, tables_of
from penstock.graph.partitioner import BROADCAST, ForwardForConsecutiveHashPartitioner, HashPartitioner
from penstock.planner.distribution import UNKNOWN_DISTRIBUTION, Distribution, static_build_side
from penstock.planner.draft import Note, TranslatedNode
from penstock.planner.plan import NodePlan, WriteKind
from penstock.planner.sharing import is_expensive
from penstock.planner.translation.translator import Translator, translates
from penstock.spark.plans import catalyst
from penstock.spark.plans.joins import JoinFacts, join_facts
from penstock.spark.plans.logical_plan import LARGE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.spark.plans.nodes import LogicalNode


@translates("Join")
def translate_join(translator: Translator, node: LogicalNode) -> TranslatedNode:
    """Add a broadcast or shuffled join, as Spark would plan it."""
    facts = join_facts(node)
    if facts is None or not facts.is_hashable:
        return translator.opaque_node(node, OperatorKind.JOIN)
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
    node_id = translator.draft.node(operator, "Join", plan, description=node.description)
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
        if size < LARGE:
            estimate = Estimate(f"bytes of {table} in memory", Unit.BYTES, size, limit=None if is_hinted else limit)
        location = join_name(join, build.other)
        sentence = f"{location}: {table} is broadcast from the start, as {cause}"
        return Explanation(sentence, None if is_hinted else option, estimate, tables=tables_of(join), location=location)

    if is_hinted:
        reason, figures = "a join hint asks for it", {} if size >= LARGE else {"bytes": size}
    else:
        figures = {"bytes": size, "limit": limit}
        reason = f"Spark's statistics say {show_bytes(size)} for this side; the limit is {show_bytes(limit)} ({option})"
    translator.draft.notes.append(Note(node_id, build, reason, DecisionKind.BROADCAST, figures, explanation))


def _broadcast(
    translator: Translator, node: LogicalNode, node_id: int, facts: JoinFacts, build: Side
) -> TranslatedNode:
    children = dict(zip(Side, node.children, strict=True))
    child, probe = children[build], children[build.other]
    positions = key_positions(child, [key.key for key in facts.keys(build)])
    signature = f"broadcast by {positions}" if positions else ""
    plan = translator.edge_plan(child, WriteKind.BROADCAST, operator=node, signature=signature)
    producer = _producer(translator, child, signature)
    translator.draft.edge(producer, node_id, BROADCAST, plan, number=build.input_number)
    inner = translator.translate(probe)
    translator.forward(inner, node_id, probe, build.other.input_number)
    if facts.type is not JoinType.INNER or not inner.distribution.hashed_by:
        return TranslatedNode(node_id, inner.distribution)
    keys = [(left.key, right.key) for left, right in zip(facts.left, facts.right, strict=True)]
    equal = {right: left for left, right in keys} if build is Side.LEFT else dict(keys)
    return TranslatedNode(node_id, inner.distribution.with_equal_keys(equal))


def _shuffled(translator: Translator, node: LogicalNode, node_id: int, facts: JoinFacts) -> TranslatedNode:
    """Exchange both sides by the keys in the same order; chain a side that is already hash partitioned by them."""
    draft = translator.draft
    children = dict(zip(Side, node.children, strict=True))
    keys = {side: facts.expressions(side) for side in Side}
    texts = {side: [key.key for key in facts.keys(side)] for side in Side}
    translated: dict[Side, TranslatedNode] = {}
    order: list[int] | None = None
    group: int | None = None
    for side in Side:
        layout = translator.parts.class_of(children[side]), key_positions(children[side], texts[side])
        if not _may_be_hash_partitioned(children[side]) or layout in translator.written:
            continue
        inner = translated[side] = translator.translate(children[side])
        hash_order = inner.distribution.hash_order(texts[side])
        if hash_order is None or (order is not None and hash_order != order) or catalyst.filters_groups(children[side]):
            continue
        own = inner.distribution.group
        assert own is not None  # hash partitioned rows belong to a group
        if group is not None and own != group:
            draft.merge_groups(group, own)
        order, group = hash_order, own if group is None else group
        plan = translator.edge_plan(children.pop(side), WriteKind.SIDE, keys=tuple(keys[side][i] for i in order))
        chained = ForwardForConsecutiveHashPartitioner(HashPartitioner(tuple(texts[side][i] for i in order)))
        draft.edge(inner.node_id, node_id, chained, plan, number=side.input_number, group=group)
    order = order or list(range(len(facts.left)))
    group = draft.new_group() if group is None else group
    texts = {side: [texts[side][i] for i in order] for side in Side}
    for side, child in children.items():
        signature = key_positions(child, texts[side])
        draft.edge(
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
    """Whether a join input may already be hash partitioned. A cheap input is not, and several readers may share it."""
    return is_expensive(node) or any(part.name.startswith("Repartition") for part in node.walk())


def _producer(
    translator: Translator, child: LogicalNode, signature: str, translated: TranslatedNode | None = None
) -> int:
    """Return the node that writes a join input; equal inputs with the same layout (`signature`) share a node."""
    number = translator.parts.class_of(child)
    if number is None or not signature or translator.is_worth_sharing(child):
        return (translated or translator.translate(child)).node_id
    key = (number, signature)
    if translated is not None or key not in translator.written:
        translator.written[key] = (translated or translator.translate(child)).node_id
    translator.record_leaves(number, child)
    return translator.written[key]


def key_positions(child: LogicalNode, keys: list[str]) -> str:
    """Return the keys as column positions of the input, or an empty string if they are not plain columns."""
    positions = [child.keys.index(key) if key in child.keys else None for key in keys]
    return "" if None in positions else f"hash{positions}"
