"""Finding equal parts of plans, so that they run once.

Inside one query Spark has optimised each part for its place, and only parts that are still equal can be shared.
Across the sinks of a job, what users wrote as one DataFrame is equal in the *analysed* plans, before each sink's own
filters and columns have changed it; there the common part is cut out first and optimised for all.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.spark import catalyst
from penstock.spark.aggregates import functions_of, grouping, split
from penstock.spark.fragment import no_rows, rdd_leaf, rebuild
from penstock.spark.plans import read_plan

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from penstock.spark.jvm import Bridge
    from penstock.spark.logical_plan import LogicalPlan
    from penstock.spark.plans import LogicalNode

EXPENSIVE = frozenset(
    {
        "Aggregate",
        "Join",
        "Window",
        "WindowInPandas",
        "ArrowWindowPython",
        "WindowGroupLimit",
        "Distinct",
        "Deduplicate",
        "FlatMapGroupsInPandas",
        "FlatMapGroupsInArrow",
        "FlatMapCoGroupsInPandas",
        "FlatMapCoGroupsInArrow",
        "MapInPandas",
        "MapInArrow",
        "PythonMapInArrow",
        "Intersect",
        "Except",
    }
)
"""Operators worth more than writing and reading their result once."""

_LEVELS = 3
"""How many levels of aggregates over aggregates are made equal."""


class EqualParts:
    """Classes of equal subtrees among some plans. Subtrees that are not deterministic are never equal.

    Subtrees of different plans are equal only if they also read the same files: users may have read one path before
    and after it grew.
    """

    def __init__(self, plans: Sequence[LogicalNode]) -> None:
        self._owner = {node: number for number, plan in enumerate(plans) for node in plan.walk()}
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
                if not node.is_deterministic:
                    continue
                known = by_hash[catalyst.semantic_hash(node)]
                found = next((c for c, other in known if self._are_equal(node, other)), None)
                if found is None:
                    found = len(members)
                    members.append(node)
                    known.append((found, node))
                self._class[node] = found
                self._count[found] += 1

    def _are_equal(self, node: LogicalNode, other: LogicalNode) -> bool:
        if not catalyst.same_result(node, other):
            return False
        return self._owner[node] == self._owner[other] or catalyst.reads_same(node, other)

    def _shape(self, node: LogicalNode, by_shape: dict[Any, list[LogicalNode]]) -> Any:
        shape = (node.name, tuple(self._shape(child, by_shape) for child in node.children))
        by_shape[shape].append(node)
        return shape

    def class_of(self, node: LogicalNode) -> int | None:
        """Return the class of a subtree that occurs more than once, else None."""
        number = self._class.get(node)
        return number if number is not None and self._count[number] > 1 else None


def is_expensive(node: LogicalNode) -> bool:
    """Whether a subtree does more than reading and narrow operators."""
    return any(part.name in EXPENSIVE for part in node.walk())


def is_worth_keeping(node: LogicalNode) -> bool:
    """Whether running a subtree once and keeping its result is likely to be cheaper than running it again.

    Its highest expensive operators decide. A join's rows are not kept: they may be many times what it reads, which lies
    written for several readers anyway, and what follows a join often leaves few of them in the same task. Nor are
    values that may fail: each reader computes them of the rows that it does not leave out (`late_values`).
    """
    if node.name == "Project" and not node.cannot_fail:
        return False
    if node.name in EXPENSIVE:
        return node.name != "Join"
    return any(map(is_worth_keeping, node.children))


def with_equal_aggregates(plans: Sequence[LogicalNode]) -> tuple[list[LogicalNode], EqualParts]:
    """Make aggregates equal that compute the same of the same rows and differ in what they make of it.

    Each becomes a projection of an aggregate that gives its groups and functions only: a quotient of two sums here and
    the sums there are one aggregate then.

    Returns
    -------
    plans, parts
        The plans, changed or not, and their equal parts.

    Example
    -------
    >>> # before: Aggregate(k, sum(a) / sum(b)) and Aggregate(k, sum(a), sum(b)) of the same rows
    >>> # after:  both are a Project of one Aggregate(k, sum(a), sum(b)), which runs once
    """
    current = list(plans)
    parts = EqualParts(current)
    for _ in range(_LEVELS):
        replacements = _splits(current, parts)
        if not replacements:
            break
        lowest = {n: new for n, new in replacements.items() if not any(m in replacements for m in below(n))}
        current = [read_plan(rebuild(plan, lowest)) if lowest.keys() & set(plan.walk()) else plan for plan in current]
        parts = EqualParts(current)
    return current, parts


def _splits(plans: Sequence[LogicalNode], parts: EqualParts) -> dict[LogicalNode, LogicalPlan]:
    """Return what replaces the aggregates that differ from others of their rows and groups in their results only."""
    aggregates = [node for plan in plans for node in plan.walk() if node.name == "Aggregate"]
    found: dict[LogicalNode, LogicalPlan] = {}
    for members in _grouped((node, _rows_and_groups(parts, node)) for node in aggregates):
        if len({parts.class_of(node) or node for node in members}) == 1:
            continue
        functions = {node: known for node in members if (known := functions_of(node))}
        for same in _grouped((node, tuple(known)) for node, known in functions.items()):
            found |= {node: split(node, functions[node]) for node in same}
    return found


def _rows_and_groups(parts: EqualParts, node: LogicalNode) -> Any:
    rows = parts.class_of(node.children[0])
    groups = grouping(node) if rows is not None else None
    return None if groups is None else (rows, groups)


def _grouped(keyed: Iterable[tuple[LogicalNode, Any]]) -> list[list[LogicalNode]]:
    """Return groups of at least two nodes with the same key, which is not None."""
    found: dict[Any, list[LogicalNode]] = defaultdict(list)
    for node, key in keyed:
        found[key].append(node)
    return [group for key, group in found.items() if key is not None and len(group) > 1]


def below(node: LogicalNode) -> Iterator[LogicalNode]:
    """Iterate over all nodes below a node."""
    return (part for child in node.children for part in child.walk())


@dataclass(frozen=True, slots=True)
class Common:
    """A part that was cut out of several plans.

    Parameters
    ----------
    number
        What tells its placeholders from all other leaves, see `catalyst.rdd_id`.
    equal_parts
        Its class among the equal parts, and those of what is below it, down to its first expensive operator.
    plan
        The part, with placeholders of smaller ones that are cut out of it in turn.
    """

    number: int
    equal_parts: frozenset[int]
    plan: LogicalPlan


Refused = tuple[int | None, int]
"""A plan by its place, None for all, and the class of a part that is not cut out of it."""


def cut_common(
    bridge: Bridge, plans: Sequence[LogicalNode], equal: EqualParts, refused: Collection[Refused]
) -> tuple[list[LogicalPlan], list[Common]]:
    """Cut expensive common subtrees out of analysed plans.

    Parameters
    ----------
    plans, equal
        The plans, and their equal parts.
    refused
        Which parts are not cut out of which plans.

    Returns
    -------
    plans, commons
        The plans, with a placeholder leaf where a common subtree was; and these subtrees, each after all
        those that it is cut out of.
    """
    parts = _CommonParts(equal, plans, refused)
    none = {number: no_rows(bridge) for number in parts.cut}

    def without(node: LogicalNode, places: Iterable[tuple[LogicalNode, int]]) -> LogicalPlan:
        replacements = {place: rdd_leaf(bridge.session, place.output, none[number]) for place, number in places}
        return rebuild(node, replacements)

    whole = [without(plan, parts.places(plan, owner)) for owner, plan in enumerate(plans)]
    largest_first = sorted(parts.cut.items(), key=lambda one: -sum(1 for _ in one[1].walk()))
    return whole, [
        Common(none[number].id, parts.cheap_down_from(node), without(node, parts.places_below(node, None)))
        for number, node in largest_first
    ]


class _CommonParts:
    """The expensive subtrees that several of some plans read, or one of the plans and a larger such subtree.

    Attributes
    ----------
    cut
        For the class of each of them, where it was found first.
    """

    def __init__(self, parts: EqualParts, plans: Sequence[LogicalNode], refused: Collection[Refused]) -> None:
        self._parts = parts
        self._refused = refused
        self._owners: dict[int, set[int]] = defaultdict(set)
        self._readers: dict[int, set[str]] = defaultdict(set)
        for owner, plan in enumerate(plans):
            for node in plan.walk():
                number = parts.class_of(node)
                if number is not None and not self._is_refused(owner, number):
                    self._owners[number].add(owner)
        self.cut: dict[int, LogicalNode] = {}
        for owner, plan in enumerate(plans):
            self._visit(plan, owner, f"plan {owner}")
        self.cut = {number: node for number, node in self.cut.items() if len(self._readers[number]) > 1}

    def _visit(self, node: LogicalNode, owner: int | None, reader: str) -> None:
        number = self._common(node, owner)
        if number is not None:
            self._readers[number].add(reader)
            if number in self.cut:
                return
            self.cut[number], owner, reader = node, None, f"part {number}"
        for child in _may_be_cut(node):
            self._visit(child, owner, reader)

    def _is_refused(self, owner: int | None, number: int) -> bool:
        return (None, number) in self._refused or (owner, number) in self._refused

    def _common(self, node: LogicalNode, owner: int | None) -> int | None:
        number = self._parts.class_of(node)
        if number is None or self._is_refused(owner, number):
            return None
        return number if len(self._owners[number]) > 1 and is_expensive(node) else None

    def places(self, node: LogicalNode, owner: int | None) -> list[tuple[LogicalNode, int]]:
        """Return the highest places at or below a node where a subtree is cut out, with its class.

        The node is one of a plan, or of a part that is cut out itself if the owner is None.
        """
        number = self._common(node, owner)
        return [(node, number)] if number is not None and number in self.cut else self.places_below(node, owner)

    def places_below(self, node: LogicalNode, owner: int | None) -> list[tuple[LogicalNode, int]]:
        """Return the highest places below a node where a subtree is cut out, with its class."""
        return [place for child in _may_be_cut(node) for place in self.places(child, owner)]

    def cheap_down_from(self, node: LogicalNode) -> frozenset[int]:
        """Return the class of a subtree, and those of what is below it, down to its first expensive operator."""
        found = {self._parts.class_of(node)}
        while node.name not in EXPENSIVE and len(node.children) == 1 and node.children[0].name not in EXPENSIVE:
            (node,) = node.children
            found.add(self._parts.class_of(node))
        return frozenset(number for number in found if number is not None)


def _may_be_cut(node: LogicalNode) -> tuple[LogicalNode, ...]:
    """Return the inputs that a part may be cut out of.

    None of an operator whose rows depend on how its input lies. And none of ``WithCTE``, as the parts below it refer
    to its relations.
    """
    return () if node.unstable or node.name == "WithCTE" else node.children
