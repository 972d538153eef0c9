"""Where rows of a join's side can be filtered early: down through operators that commute with the filter.

A filter on key columns may move below an operator if dropping a row there drops exactly the rows made of it. Where
that is not certain, the way ends, and the filter stays above.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.optimizer.dynamic_filtering import FilterPath
from penstock.optimizer.joins import SIDES, may_be_filtered, other
from penstock.spark import catalyst
from penstock.spark.jvm import class_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from penstock.spark.catalyst import JoinFacts, LogicalNode

_PLAIN = frozenset({"Filter", "Sort", "Repartition", "RepartitionByExpression", "RebalancePartitions"})
_BY_GROUP = frozenset({"Aggregate", "Window", "WindowGroupLimit"})
_WITH_MORE_COLUMNS = frozenset({"Generate", "ArrowEvalPython", "BatchEvalPython"})
_TYPES = frozenset({"tinyint", "smallint", "int", "bigint", "date", "timestamp", "timestamp_ntz", "boolean", "string"})
_LEFT = ("Inner", "Cross", "LeftOuter", "LeftSemi", "LeftAnti", "ExistenceJoin")
_RIGHT = ("Inner", "Cross", "RightOuter")


@dataclass(frozen=True, slots=True)
class FilterPlace:
    """A place in Spark's plan behind which a filter can stand.

    Parameters
    ----------
    node_id
        The node of the graph.
    place
        The operator.
    keys
        The key expressions in terms of its output.
    """

    node_id: int
    place: LogicalNode
    keys: tuple[Any, ...]


Way = tuple[FilterPlace, ...]
"""Places from the lowest to the highest."""


class FilterFinder:
    """Finds the ways of one plan.

    Parameters
    ----------
    node_of
        The graph's node by the operator whose rows it gives.
    join_facts
        Returns the facts of a join.
    """

    def __init__(
        self, node_of: Mapping[LogicalNode, int], join_facts: Callable[[LogicalNode], JoinFacts | None]
    ) -> None:
        self._node_of = node_of
        self._join_facts = join_facts

    def ways(self, join: LogicalNode, facts: JoinFacts) -> list[tuple[FilterPath, Way]]:
        """Return every way for filters of an equi-join, as the strategy and as the runner need it."""
        keys = {"left": facts.left_keys, "right": facts.right_keys}
        pairs = zip(facts.left_keys, facts.right_keys, strict=True)
        if not all(_comparable(left, right) for left, right in pairs):
            return []
        child = dict(zip(SIDES, join.children, strict=True))
        found = []
        for side in SIDES:
            if not may_be_filtered(facts.join_type, side):
                continue
            keys_from = self._origin(child[other(side)], keys[other(side)][0])
            for way in self._down(child[side], keys[side], ()):
                steps = tuple(place.node_id for place in way)
                prunes = bool(way) and catalyst.is_partitioned_by(way[0].place.handle, way[0].keys)
                found.append((FilterPath(side, steps, keys_from, prunes), way))
        return [one for one in found if one[1]]

    def _down(self, node: LogicalNode, keys: Sequence[Any], above: Way) -> Iterator[Way]:
        way = above
        if node in self._node_of:
            way = (FilterPlace(self._node_of[node], node, tuple(keys)), *above)
        below = list(self._below(node, keys))
        if not below:
            yield way
        for child, moved in below:
            yield from self._down(child, moved, way)

    def _below(self, node: LogicalNode, keys: Sequence[Any]) -> Iterator[tuple[LogicalNode, Sequence[Any]]]:
        """Return the inputs that may be filtered instead of an operator's output, with the keys in their terms."""
        if not node.children or any(class_name(key) != "AttributeReference" for key in keys):
            return
        if not bool(node.handle.deterministic()):
            return
        if node.name == "Join":
            yield from self._below_join(node, keys)
        elif node.name == "Union":
            positions = catalyst.positions(node.handle, keys)
            for child in node.children:
                yield child, [child.handle.output().apply(i) for i in positions]
        else:
            moved = _through(node, keys)
            if moved is not None:
                yield node.children[0], moved

    def _below_join(self, node: LogicalNode, keys: Sequence[Any]) -> Iterator[tuple[LogicalNode, Sequence[Any]]]:
        kind = str(node.handle.joinType().toString())
        left, right = node.children
        from_left, from_right = kind.startswith(_LEFT), kind.startswith(_RIGHT)
        if from_left and _has(left, keys):
            yield left, keys
        elif from_right and _has(right, keys):
            yield right, keys
        if kind != "Inner":
            return
        # Keys that this join equates with columns of its other side filter that side as well.
        facts = self._join_facts(node)
        if facts is None:
            return
        for own, others, child in (
            (facts.left_keys, facts.right_keys, right),
            (facts.right_keys, facts.left_keys, left),
        ):
            equal = [
                next((b for a, b in zip(own, others, strict=True) if bool(key.semanticEquals(a))), None) for key in keys
            ]
            if all(key is not None and class_name(key) == "AttributeReference" for key in equal):
                yield child, equal

    def _origin(self, node: LogicalNode, key: Any) -> int:
        """Return the source that a key column comes from, -1 if it is computed."""
        while node.children:
            if class_name(key) != "AttributeReference":
                return -1
            if node.name in {"Project", "Aggregate"}:
                moved = catalyst.before_projection(node, [key])
                if moved is None:
                    return -1
                (key,) = moved
            node = next((child for child in node.children if _has(child, [key])), node.children[0])
            if not _has(node, [key]):
                return -1
        return self._node_of.get(node, -1)


def _through(node: LogicalNode, keys: Sequence[Any]) -> Sequence[Any] | None:
    """Return the keys in terms of an operator's one input, None if the filter must stay above it."""
    if node.name in _PLAIN or (node.name in _WITH_MORE_COLUMNS and _has(node.children[0], keys)):
        return keys
    if node.name == "Project":
        return catalyst.before_projection(node, keys)
    if node.name in _BY_GROUP:  # all rows of a group are dropped, or none
        moved = catalyst.before_projection(node, keys) if node.name == "Aggregate" else keys
        groups = catalyst.grouping_keys(node)
        if moved is not None and all(any(key.semanticEquals(group) for group in groups) for key in moved):
            return moved
    return None


def _has(node: LogicalNode, keys: Sequence[Any]) -> bool:
    output = node.handle.outputSet()
    return all(bool(output.contains(key)) for key in keys)


def _comparable(left: Any, right: Any) -> bool:
    """Whether equal values of two keys are equal in their bytes, so that their hashes can be compared."""
    kind = left.dataType()
    name = str(kind.catalogString())
    return bool(kind.equals(right.dataType())) and (name in _TYPES or name.startswith("decimal("))
