"""Finding equal parts of plans, so that they run once.

Inside one query Spark has optimised each part for its place, and only parts that are still equal can be shared.
Across the sinks of a job, what users wrote as one DataFrame is equal in the *analysed* plans, before each sink's own
filters and columns have changed it; there the common part is cut out first and optimised for all.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from penstock.spark import catalyst
from penstock.spark.fragment import placeholder, rebuild

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.spark.catalyst import LogicalNode
    from penstock.spark.jvm import Bridge

HEAVY = frozenset(
    {
        "Aggregate", "Join", "Window", "WindowInPandas", "ArrowWindowPython", "WindowGroupLimit", "Distinct",
        "Deduplicate", "FlatMapGroupsInPandas", "FlatMapGroupsInArrow", "FlatMapCoGroupsInPandas",
        "FlatMapCoGroupsInArrow", "MapInPandas", "MapInArrow", "PythonMapInArrow", "Intersect", "Except",
    }
)  # fmt: skip
"""Operators worth more than writing and reading their result once."""


class EqualParts:
    """Classes of equal subtrees among some plans. Subtrees that are not deterministic are never equal."""

    def __init__(self, plans: Sequence[LogicalNode]) -> None:
        self._class: dict[LogicalNode, int] = {}
        self._count: Counter[int] = Counter()
        by_shape: dict[Any, list[LogicalNode]] = defaultdict(list)
        for plan in plans:
            self._shape(plan, by_shape)
        members: list[LogicalNode] = []
        for alike in by_shape.values():
            if len(alike) < 2:
                continue
            by_hash: dict[int, list[tuple[int, LogicalNode]]] = defaultdict(list)
            for node in alike:
                if not catalyst.is_deterministic(node):
                    continue
                known = by_hash[catalyst.semantic_hash(node.handle)]
                found = next((c for c, other in known if catalyst.same_result(node.handle, other.handle)), None)
                if found is None:
                    found = len(members)
                    members.append(node)
                    known.append((found, node))
                self._class[node] = found
                self._count[found] += 1

    def _shape(self, node: LogicalNode, by_shape: dict[Any, list[LogicalNode]]) -> Any:
        shape = (node.name, tuple(self._shape(child, by_shape) for child in node.children))
        by_shape[shape].append(node)
        return shape

    def class_of(self, node: LogicalNode) -> int | None:
        """Return the class of a subtree that occurs more than once, else None."""
        number = self._class.get(node)
        return number if number is not None and self._count[number] > 1 else None


def is_heavy(node: LogicalNode, is_lookup: Callable[[LogicalNode], bool] = lambda _: False) -> bool:
    """Whether running a subtree once and reading its result often is likely to pay.

    Parameters
    ----------
    node
        The subtree.
    is_lookup
        Whether a join only looks rows up in a small table: that costs less than writing what it gives.
    """
    return any(part.name in HEAVY and not (part.name == "Join" and is_lookup(part)) for part in node.walk())


def cut_common(bridge: Bridge, plans: Sequence[LogicalNode]) -> tuple[list[Any], list[tuple[LogicalNode, list[Any]]]]:
    """Cut heavy common subtrees out of analysed plans.

    Returns
    -------
    plans, commons
        The plans in the JVM, with a placeholder leaf where a common subtree was; and the subtrees, each with its
        placeholders.
    """
    parts = EqualParts(plans)
    owners: dict[int, set[int]] = defaultdict(set)
    for owner, plan in enumerate(plans):
        for node in plan.walk():
            number = parts.class_of(node)
            if number is not None:
                owners[number].add(owner)
    places: dict[int, list[LogicalNode]] = defaultdict(list)

    def find(node: LogicalNode) -> None:
        number = parts.class_of(node)
        if number is not None and len(owners[number]) > 1 and is_heavy(node):
            places[number].append(node)
            return
        for child in node.children:
            find(child)

    for plan in plans:
        find(plan)
    replacements: dict[LogicalNode, Any] = {}
    commons = []
    for nodes in places.values():
        leaves = [placeholder(bridge, node.handle.output()) for node in nodes]
        replacements.update(zip(nodes, leaves, strict=True))
        commons.append((nodes[0], leaves))
    return [rebuild(bridge, plan, replacements) for plan in plans], commons
