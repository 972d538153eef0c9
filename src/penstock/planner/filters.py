"""Where rows of a join's side can be filtered early: down through operators that commute with the filter.

A filter on key columns may move below an operator if dropping a row there drops exactly the rows made of it, and if
nothing fails less or more often by that: neither what the operator computes of the dropped rows, nor a key that is
computed of rows which the operator would have dropped. Where that is not certain, the way ends, and the filter stays
above.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.optimizer.dynamic_filtering import FilterPath
from penstock.optimizer.joins import SIDES, may_be_filtered, other
from penstock.spark import catalyst

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from penstock.spark.joins import JoinFacts, JoinKey
    from penstock.spark.plans import LogicalNode

_PLAIN = frozenset({"Filter", "Sort", "Repartition", "RepartitionByExpression", "RebalancePartitions"})
_BY_GROUP = frozenset({"Aggregate", "Window", "WindowGroupLimit"})
_TYPES = frozenset({"tinyint", "smallint", "int", "bigint", "date", "timestamp", "timestamp_ntz", "boolean", "string"})
_LEFT = ("Inner", "Cross", "LeftOuter", "LeftSemi", "LeftAnti", "ExistenceJoin")
_RIGHT = ("Inner", "Cross", "RightOuter")

Ids = tuple[str, ...]
"""Expression ids of the columns that the keys are computed from, or are."""


@dataclass(frozen=True, slots=True)
class FilterPlace:
    """A place in Spark's plan behind which a filter can stand.

    Parameters
    ----------
    node_id
        The node of the graph.
    place
        The operator.
    ids
        The columns of the keys in its output.
    """

    node_id: int
    place: LogicalNode
    ids: Ids


Places = tuple[FilterPlace, ...]
"""From the lowest to the highest."""


@dataclass(frozen=True, slots=True)
class Way:
    """A `FilterPath` in Spark's terms.

    Parameters
    ----------
    places
        Where the filter can stand.
    giver_keys
        The keys in terms of what gives them.
    keys, ids
        The keys of the filtered side in terms of the join's input, and the columns they are computed from.
    """

    places: Places
    giver_keys: tuple[Any, ...]
    keys: tuple[Any, ...]
    ids: Ids


class FilterFinder:
    """Finds the ways of one plan.

    Parameters
    ----------
    node_of
        The graph's node by the operator whose rows it gives.
    same_leaf
        For leaves of a part that occurs again, those of its first occurrence, which is in the graph.
    facts_of
        The facts of the equi-joins of the graph.
    is_chained
        Whether a side of a join of the graph is not exchanged before it.
    leaves_out
        Whether a node is a source that leaves out data by exact keys: rows of a database, files of a table.
    """

    def __init__(
        self,
        node_of: Mapping[LogicalNode, int],
        same_leaf: Mapping[LogicalNode, LogicalNode],
        facts_of: Mapping[LogicalNode, JoinFacts],
        is_chained: Callable[[int, str], bool],
        leaves_out: Callable[[int], bool],
    ) -> None:
        self._node_of = node_of
        self._same_leaf = same_leaf
        self._facts_of = facts_of
        self._is_chained = is_chained
        self._leaves_out = leaves_out

    def ways(self, join: LogicalNode) -> list[tuple[FilterPath, Way]]:
        """Return every way for filters of an equi-join, as the strategy and as the runner need it."""
        facts = self._facts_of[join]
        if not all(_comparable(*pair) for pair in zip(facts.left, facts.right, strict=True)):
            return []
        ids = {side: self._key_ids(join, side) for side in SIDES}
        child = dict(zip(SIDES, join.children, strict=True))
        found = []
        for side in SIDES:
            given_by = other(side)
            if not may_be_filtered(facts.join_type, side) or not ids[side] or not ids[given_by]:
                continue
            giver = self._giver(join, given_by, ids[given_by])
            if giver is None:
                continue
            keys_from = self._origin(child[given_by], ids[given_by][0])
            moves = all(key.cannot_fail for key in facts.keys(side))
            for places in self._down(child[side], ids[side], (), moves=moves):
                if places:
                    steps = tuple(place.node_id for place in places)
                    place = places[0].place
                    columns = place.expressions(places[0].ids)
                    asked = self._leaves_out(places[0].node_id) and any(map(catalyst.is_attribute, columns))
                    prunes = self._is_plain(join, side) and (asked or catalyst.is_partitioned_by(place, columns))
                    path = FilterPath(side, steps, giver[0], keys_from, prunes, exact=asked)
                    found.append((path, Way(places, giver[1], facts.handles(side), ids[side])))
        return found

    def _key_ids(self, join: LogicalNode, side: str) -> Ids:
        """Return the columns of the keys of a join's side; as many as keys, in their order, where all are plain."""
        keys = self._facts_of[join].keys(side)
        found = tuple(one for key in keys for one in key.columns) if all(key.is_deterministic for key in keys) else ()
        return found if self._is_plain(join, side) else tuple(dict.fromkeys(found))

    def _is_plain(self, join: LogicalNode, side: str) -> bool:
        return all(key.is_column for key in self._facts_of[join].keys(side))

    def _giver(self, join: LogicalNode, side: str, ids: Ids) -> tuple[tuple[int, str], tuple[Any, ...]] | None:
        """Return the exchange that holds all keys of a join's side, as join and side, and the keys in its terms."""
        number = self._node_of[join]
        node = join.children[SIDES.index(side)]
        if not self._is_chained(number, side):
            same = ids == self._key_ids(join, side)
            return (number, side), self._facts_of[join].handles(side) if same else node.expressions(ids)
        if not self._is_plain(join, side):
            return None
        while node.name != "Join":
            if len(node.children) != 1:
                return None
            moved = node.below(ids) if node.name == "Project" else ids
            if moved is None or not node.children[0].has(moved):
                return None
            node, ids = node.children[0], tuple(moved)
        below = next((s for s, child in zip(SIDES, node.children, strict=True) if child.has(ids)), None)
        return None if below is None or node not in self._facts_of else self._giver(node, below, ids)

    def _down(self, node: LogicalNode, ids: Ids, above: Places, *, moves: bool = True) -> Iterator[Places]:
        places = above
        if node in self._node_of:
            places = (FilterPlace(self._node_of[node], node, ids), *above)
        below = list(self._below(node, ids)) if moves else []
        if not below:
            yield places
        for child, moved in below:
            yield from self._down(child, tuple(moved), places)

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
        kind = facts.join_type if facts else str(node.handle.joinType().toString())
        left, right = node.children
        if kind.startswith(_LEFT) and left.has(ids):
            yield left, ids
        elif kind.startswith(_RIGHT) and right.has(ids):
            yield right, ids
        if kind != "Inner" or facts is None or not all(self._is_plain(node, side) for side in SIDES):
            return
        # Keys that this join equates with columns of its other side filter that side as well.
        own, others = self._key_ids(node, "left"), self._key_ids(node, "right")
        for here, there, child in ((own, others, right), (others, own, left)):
            equal = [there[here.index(one)] for one in ids if one in here]
            if len(equal) == len(ids):
                yield child, equal

    def _origin(self, node: LogicalNode, key: str) -> int:
        """Return the source that a key column comes from, -1 if it is computed."""
        while node.children:
            if node.name in {"Project", "Aggregate"}:
                moved = node.below([key])
                if moved is None:
                    return -1
                (key,) = moved
            found = next((child for child in node.children if child.has([key])), None)
            if found is None:
                return -1
            node = found
        return self._node_of.get(self._same_leaf.get(node, node), -1)


def _comparable(left: JoinKey, right: JoinKey) -> bool:
    """Whether equal values of two keys are equal in their bytes, so that their hashes can be compared."""
    return (left.type in _TYPES or left.type.startswith("decimal(")) and left.type == right.type
