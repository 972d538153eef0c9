"""Tells joins where rows of their sides can be filtered early: down through operators that commute with the filter.

A filter on key columns may move below an operator if dropping a row there drops exactly the rows made of it, and if
nothing fails less or more often by that: neither what the operator computes of the dropped rows, nor a key that is
computed of rows which the operator would have dropped. Where that is not certain, the path ends, and the filter stays
above.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.graph import FilterPath, JoinInput, JoinOperator, JoinType, Side
from penstock.planner.plan import FilterTarget, SparkFilterPath
from penstock.spark import catalyst
from penstock.spark.joins import join_type_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.graph import Operator
    from penstock.planner.draft import Draft
    from penstock.planner.plan import Ids
    from penstock.spark.expressions import Expression
    from penstock.spark.joins import JoinKey
    from penstock.spark.plans import LogicalNode

_PLAIN = frozenset({"Filter", "Sort", "Repartition", "RepartitionByExpression", "RebalancePartitions"})
_BY_GROUP = frozenset({"Aggregate", "Window", "WindowGroupLimit"})
_TYPES = frozenset({"tinyint", "smallint", "int", "bigint", "date", "timestamp", "timestamp_ntz", "boolean", "string"})


def add_filter_paths(draft: Draft) -> Draft:
    """Tell joins where their sides can be filtered; above what several consumers read, as all get the same."""
    finder = FilterFinder(draft)
    plans = dict(draft.node_plans)
    operators: dict[int, Operator] = {}
    for node_id, (join, _) in draft.joins.items():
        found = [kept for path in finder.paths(join) if (kept := _above_shared(draft, *path)) is not None]
        plans[node_id] = replace(plans[node_id], filter_paths=tuple(planned for _, planned in found))
        operator = draft.nodes[node_id].operator
        assert isinstance(operator, JoinOperator)
        operators[node_id] = replace(operator, filters=tuple(path for path, _ in found))
    return replace(draft, node_plans=plans).with_operators(operators)


def _above_shared(
    draft: Draft, path: FilterPath, planned: SparkFilterPath
) -> tuple[FilterPath, SparkFilterPath] | None:
    """Return the part of a path above all nodes that several consumers read, or None if nothing is left of it."""
    shared = [i for i, target in enumerate(path.targets) if len(draft.out_edges(target)) > 1]
    start = shared[-1] + 1 if shared else 0
    if not path.targets[start:]:
        return None
    return (
        replace(path, targets=path.targets[start:], prunes=path.prunes and not start),
        replace(planned, targets=planned.targets[start:]),
    )


class FilterFinder:
    """Finds the filter paths of one plan.

    Parameters
    ----------
    draft
        The translated job.
    """

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._node_of = draft.node_of
        self._facts_of = dict(draft.joins.values())

    def paths(self, join: LogicalNode) -> list[tuple[FilterPath, SparkFilterPath]]:
        """Return every path for filters of an equi-join, as strategies and as the scheduler need it."""
        facts = self._facts_of[join]
        if not all(_comparable(*pair) for pair in zip(facts.left, facts.right, strict=True)):
            return []
        ids = {side: self._key_ids(join, side) for side in Side}
        child = dict(zip(Side, join.children, strict=True))
        found = []
        for side in Side:
            if not facts.type.can_filter(side) or not ids[side] or not ids[side.other]:
                continue
            source = self._filter_source(join, side.other, ids[side.other])
            if source is None:
                continue
            keys_from = self._origin(child[side.other], ids[side.other][0])
            moves = all(key.cannot_fail for key in facts.keys(side))
            for targets in self._down(child[side], ids[side], (), moves=moves):
                if targets:
                    lowest = targets[0]
                    columns = lowest.operator.expressions(lowest.ids)
                    exact = self._leaves_out(lowest.node_id) and any(column.is_attribute for column in columns)
                    prunes = self._is_plain(join, side) and (
                        exact or catalyst.is_partitioned_by(lowest.operator, columns)
                    )
                    path = FilterPath(
                        side,
                        tuple(target.node_id for target in targets),
                        source[0],
                        keys_from,
                        prunes=prunes,
                        exact=exact,
                    )
                    found.append((path, SparkFilterPath(targets, source[1], facts.expressions(side), ids[side])))
        return found

    def _key_ids(self, join: LogicalNode, side: Side) -> Ids:
        """Return the columns of the keys of a join's side; as many as keys, in their order, where all are plain."""
        keys = self._facts_of[join].keys(side)
        found = tuple(one for key in keys for one in key.columns) if all(key.is_deterministic for key in keys) else ()
        return found if self._is_plain(join, side) else tuple(dict.fromkeys(found))

    def _is_plain(self, join: LogicalNode, side: Side) -> bool:
        return all(key.is_column for key in self._facts_of[join].keys(side))

    def _filter_source(
        self, join: LogicalNode, side: Side, ids: Ids
    ) -> tuple[JoinInput, tuple[Expression, ...]] | None:
        """Return the exchanged join input that holds all keys of a join's side, and the keys in its terms."""
        own = JoinInput(self._node_of[join], side)
        if not self._is_chained(own):
            return own, self._facts_of[join].expressions(side)
        if not self._is_plain(join, side):
            return None
        return self._source_below(dict(zip(Side, join.children, strict=True))[side], ids)

    def _source_below(self, node: LogicalNode, ids: Ids) -> tuple[JoinInput, tuple[Expression, ...]] | None:
        """Return the nearest exchanged join input below an operator that holds columns of it, and these columns there.

        The keys of that join are not asked for: the null-safe ones of Spark are two expressions of a column each.
        """
        while node.name != "Join":
            if len(node.children) != 1:
                return None
            moved = node.below(ids) if node.name in {"Project", "Aggregate"} else ids
            if moved is None or not node.children[0].has(moved):
                return None
            node, ids = node.children[0], moved
        found = next(((s, child) for s, child in zip(Side, node.children, strict=True) if child.has(ids)), None)
        if found is None or node not in self._facts_of:
            return None
        side, child = found
        where = JoinInput(self._node_of[node], side)
        return self._source_below(child, ids) if self._is_chained(where) else (where, child.expressions(ids))

    def _is_chained(self, where: JoinInput) -> bool:
        """Whether an input of a join is not exchanged before it."""
        number = where.side.input_number
        edges = (edge for edge in self._draft.edges if edge.target_id == where.join_id)
        return any(edge.is_forward and edge.type_number == number for edge in edges)

    def _leaves_out(self, node_id: int) -> bool:
        """Whether a node is a source that leaves out data by exact keys of its columns."""
        source = self._draft.sources.get(node_id)
        return source is not None and source.scan.uses_predicates

    def _down(
        self, node: LogicalNode, ids: Ids, above: tuple[FilterTarget, ...], *, moves: bool = True
    ) -> Iterator[tuple[FilterTarget, ...]]:
        """Return the targets of every path from an operator down, the lowest first."""
        if not node.children and _has_decimal_folders(node, ids):
            return
        targets = above
        if node in self._node_of:
            targets = (FilterTarget(self._node_of[node], node, ids), *above)
        below = list(self._below(node, ids)) if moves else []
        if not below:
            yield targets
        for child, moved in below:
            yield from self._down(child, tuple(moved), targets)

    def _below(self, node: LogicalNode, ids: Ids) -> Iterator[tuple[LogicalNode, Sequence[str]]]:
        """Return the inputs that may be filtered instead of an operator's output, with the keys in their terms."""
        if not node.children or not node.is_deterministic or not node.cannot_fail:
            return
        if node.name == "Join":
            yield from self._below_join(node, ids)
        elif node.name == "Union":
            places = [node.ids.index(one) for one in ids]
            for child in node.children:
                yield child, [child.ids[i] for i in places]
        else:
            moved = self._through(node, ids)
            if moved is not None:
                yield node.children[0], moved

    def _through(self, node: LogicalNode, ids: Ids) -> Sequence[str] | None:
        """Return the keys in terms of an operator's one input, None if the filter must stay above it."""
        if node.name in _PLAIN or (node.name == "Generate" and node.children[0].has(ids)):
            return ids
        if node.name == "Project":
            return node.below(ids)
        if node.name in _BY_GROUP:  # all rows of a group are dropped, or none
            moved = node.below(ids) if node.name == "Aggregate" else ids
            if moved is not None and catalyst.grouped_by(node, moved):
                return moved
        return None

    def _below_join(self, node: LogicalNode, ids: Ids) -> Iterator[tuple[LogicalNode, Sequence[str]]]:
        facts = self._facts_of.get(node)
        join_type = facts.type if facts else join_type_of(node)
        if join_type is None:
            return
        left, right = node.children
        if join_type.can_split(Side.LEFT) and left.has(ids):
            yield left, ids
        elif join_type.can_split(Side.RIGHT) and right.has(ids):
            yield right, ids
        if join_type is not JoinType.INNER or facts is None or not all(self._is_plain(node, side) for side in Side):
            return
        # Keys that this join equates with columns of its other side filter that side as well.
        own, others = self._key_ids(node, Side.LEFT), self._key_ids(node, Side.RIGHT)
        for here, there, child in ((own, others, right), (others, own, left)):
            equal = [there[here.index(one)] for one in ids if one in here]
            if len(equal) == len(ids):
                yield child, equal

    def _origin(self, node: LogicalNode, key: str) -> int | None:
        """Return the source that a key column comes from, None if it is computed."""
        while node.children:
            if node.name in {"Project", "Aggregate"}:
                moved = node.below([key])
                if moved is None:
                    return None
                (key,) = moved
            found = next((child for child in node.children if child.has([key])), None)
            if found is None:
                return None
            node = found
        return self._node_of.get(self._draft.same_leaf.get(node, node))


def _has_decimal_folders(leaf: LogicalNode, ids: Ids) -> bool:
    """Whether one of some columns is a decimal that the names of folders tell.

    With a schema of the user's, Spark compares the number as the name has it where it chooses folders, and its digits
    at the column's scale in the rows: of ``p=1.5`` as ``decimal(38,10)`` these are 1.5 and 0.0000000015.
    """
    columns = leaf.expressions(ids) if leaf.partition_columns else ()
    return catalyst.is_partitioned_by(leaf, [column for column in columns if column.type.startswith("decimal(")])


def _comparable(left: JoinKey, right: JoinKey) -> bool:
    """Whether equal values of two keys are equal in their bytes, so that their hashes can be compared."""
    return (left.type in _TYPES or left.type.startswith("decimal(")) and left.type == right.type
