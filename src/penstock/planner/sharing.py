"""Detects equal parts of plans, so that they run once.

Within a query, Spark has optimised each part in its context, and only parts that are still equal can be shared. Across
the sinks of a job, a DataFrame used several times is equal in the *analysed* plans, before the filters and columns of
each sink change it. So the common part is extracted first and optimised for all sinks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.spark.bridge.jvm import Bridge, class_names
from penstock.spark.plans import catalyst
from penstock.spark.plans.aggregates import aggregate_functions, grouping, split
from penstock.spark.plans.fragment import no_rows, rdd_leaf, rebuild
from penstock.spark.plans.nodes import LogicalNode, read_plan

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from penstock.spark.plans.logical_plan import LogicalPlan

EXPENSIVE = class_names(
    "Aggregate Join Window WindowInPandas ArrowWindowPython WindowGroupLimit Distinct Deduplicate "
    "FlatMapGroupsInPandas FlatMapGroupsInArrow FlatMapCoGroupsInPandas FlatMapCoGroupsInArrow MapInPandas MapInArrow "
    "PythonMapInArrow Intersect Except"
)
"""Operators that cost more than writing and reading their result once."""

_LEVELS = 3
"""The number of levels of nested aggregates that are made equal."""


class EqualParts:
    """Classes of equal subtrees of some plans. Nondeterministic subtrees are never equal.

    Subtrees of different plans are equal only if they also read the same files, because users may have read a path
    before and after files were added.
    """

    def __init__(self, plans: Sequence[LogicalNode]) -> None:
        self._owner = {node: number for number, plan in enumerate(plans) for node in plan.walk()}
        self._class: dict[LogicalNode, int] = {}
        self._count: Counter[int] = Counter()
        by_shape: dict[Any, list[LogicalNode]] = defaultdict(list)
        for plan in plans:
            self._shape(plan, by_shape)
        members: list[LogicalNode] = []
        for same_shape in by_shape.values():
            if len(same_shape) < 2:
                continue
            by_hash: dict[int, list[tuple[int, LogicalNode]]] = defaultdict(list)
            for node in same_shape:
                if not node.is_deterministic:
                    continue
                classes = by_hash[catalyst.semantic_hash(node)]
                number = next((number for number, other in classes if self._are_equal(node, other)), None)
                if number is None:
                    number = len(members)
                    members.append(node)
                    classes.append((number, node))
                self._class[node] = number
                self._count[number] += 1

    def _are_equal(self, node: LogicalNode, other: LogicalNode) -> bool:
        if not catalyst.same_result(node, other):
            return False
        return self._owner[node] == self._owner[other] or catalyst.lists_same_files(node, other)

    def _shape(self, node: LogicalNode, by_shape: dict[Any, list[LogicalNode]]) -> Any:
        shape = (node.name, tuple(self._shape(child, by_shape) for child in node.children))
        by_shape[shape].append(node)
        return shape

    def class_of(self, node: LogicalNode) -> int | None:
        """Return the class of a subtree that occurs more than once, or None."""
        number = self._class.get(node)
        return number if number is not None and self._count[number] > 1 else None


def is_expensive(node: LogicalNode) -> bool:
    """Whether a subtree contains expensive operators, such as joins and aggregates."""
    return any(part.name in EXPENSIVE for part in node.walk())


def is_worth_sharing(node: LogicalNode) -> bool:
    """Whether running a subtree once and writing its result is likely to be cheaper than running it again.

    Its topmost expensive operators decide. The rows of a join are not written: they may be far more than its inputs,
    which are written for several readers anyway, and later operators in the same task often remove most of them.
    Values that may fail are not written either, because each reader computes them only for the rows that it retains
    (`late_values`).
    """
    if node.name == "Project" and not node.cannot_fail:
        return False
    if node.name in EXPENSIVE:
        return node.name != "Join"
    return any(map(is_worth_sharing, node.children))


def with_equal_aggregates(plans: Sequence[LogicalNode]) -> tuple[list[LogicalNode], EqualParts]:
    """Make aggregates equal that compute the same functions of the same rows, but different expressions on the results.

    Each becomes a projection of an aggregate that returns only its groups and functions. So a quotient of two sums and
    the two sums share an aggregate. Return the plans, changed or not, and their equal parts.

    >>> # before: Aggregate(k, sum(a) / sum(b)) and Aggregate(k, sum(a), sum(b)) of the same rows
    >>> # after:  both are a Project of the same Aggregate(k, sum(a), sum(b)), which runs once
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
    """Return replacements of the aggregates with the same rows and groups as others, but other result expressions."""
    aggregates = [node for plan in plans for node in plan.walk() if node.name == "Aggregate"]
    splits: dict[LogicalNode, LogicalPlan] = {}
    for members in _grouped((node, _rows_and_groups(parts, node)) for node in aggregates):
        if len({parts.class_of(node) or node for node in members}) == 1:
            continue
        functions = {node: calls for node in members if (calls := aggregate_functions(node))}
        for same in _grouped((node, tuple(calls)) for node, calls in functions.items()):
            splits |= {node: split(node, functions[node]) for node in same}
    return splits


def _rows_and_groups(parts: EqualParts, node: LogicalNode) -> Any:
    rows = parts.class_of(node.children[0])
    groups = grouping(node) if rows is not None else None
    return None if groups is None else (rows, groups)


def _grouped(keyed: Iterable[tuple[LogicalNode, Any]]) -> list[list[LogicalNode]]:
    """Return the groups of at least two nodes with the same key; None is not a key."""
    groups: dict[Any, list[LogicalNode]] = defaultdict(list)
    for node, key in keyed:
        groups[key].append(node)
    return [group for key, group in groups.items() if key is not None and len(group) > 1]


def below(node: LogicalNode) -> Iterator[LogicalNode]:
    """Iterate over all nodes below a node."""
    return (part for child in node.children for part in child.walk())


@dataclass(frozen=True, slots=True)
class CommonPart:
    """A part that was extracted from several plans.

    `number` identifies its placeholders among the leaves, see `catalyst.rdd_id`. `equal_parts` are its class among the
    equal parts, and the classes below it, down to the first expensive operator. `plan` is the part, with placeholders
    for smaller extracted parts.
    """

    number: int
    equal_parts: frozenset[int]
    plan: LogicalPlan


Exclusion = tuple[int | None, int]
"""The index of a plan (None for all) and the class of a part that must not be extracted from it."""


def extract_common_parts(
    bridge: Bridge, plans: Sequence[LogicalNode], equal: EqualParts, excluded: Collection[Exclusion]
) -> tuple[list[LogicalPlan], list[CommonPart]]:
    """Extract expensive common subtrees from analysed plans.

    Return the plans, with placeholder leaves for these subtrees; and the subtrees, each after those that contain it.
    """
    parts = _CommonParts(equal, plans, excluded)
    placeholders = {number: no_rows(bridge) for number in parts.extracted}

    def without(node: LogicalNode, occurrences: Iterable[tuple[LogicalNode, int]]) -> LogicalPlan:
        leaves = {part: rdd_leaf(bridge.session, part.output, placeholders[number]) for part, number in occurrences}
        return rebuild(node, leaves)

    remaining = [without(plan, parts.occurrences(plan, owner)) for owner, plan in enumerate(plans)]
    largest_first = sorted(parts.extracted.items(), key=lambda item: -sum(1 for _ in item[1].walk()))
    return remaining, [
        CommonPart(
            placeholders[number].id, parts.classes_down_from(node), without(node, parts.occurrences_below(node, None))
        )
        for number, node in largest_first
    ]


class _CommonParts:
    """The expensive subtrees that several plans or larger extracted subtrees read; `extracted` has them by class."""

    def __init__(self, parts: EqualParts, plans: Sequence[LogicalNode], excluded: Collection[Exclusion]) -> None:
        self._parts = parts
        self._excluded = excluded
        self._owners: dict[int, set[int]] = defaultdict(set)
        self._readers: dict[int, set[str]] = defaultdict(set)
        for owner, plan in enumerate(plans):
            for node in plan.walk():
                number = parts.class_of(node)
                if number is not None and not self._is_excluded(owner, number):
                    self._owners[number].add(owner)
        self.extracted: dict[int, LogicalNode] = {}
        for owner, plan in enumerate(plans):
            self._visit(plan, owner, f"plan {owner}")
        self.extracted = {number: node for number, node in self.extracted.items() if len(self._readers[number]) > 1}

    def _visit(self, node: LogicalNode, owner: int | None, reader: str) -> None:
        number = self._common(node, owner)
        if number is not None:
            self._readers[number].add(reader)
            if number in self.extracted:
                return
            self.extracted[number], owner, reader = node, None, f"part {number}"
        for child in _searchable_inputs(node):
            self._visit(child, owner, reader)

    def _is_excluded(self, owner: int | None, number: int) -> bool:
        return (None, number) in self._excluded or (owner, number) in self._excluded

    def _common(self, node: LogicalNode, owner: int | None) -> int | None:
        number = self._parts.class_of(node)
        if number is None or self._is_excluded(owner, number):
            return None
        return number if len(self._owners[number]) > 1 and is_expensive(node) else None

    def occurrences(self, node: LogicalNode, owner: int | None) -> list[tuple[LogicalNode, int]]:
        """Return the topmost extracted subtrees at or below a node, with their classes.

        An owner of None means that the node belongs to an extracted part instead of a plan.
        """
        number = self._common(node, owner)
        return (
            [(node, number)] if number is not None and number in self.extracted else self.occurrences_below(node, owner)
        )

    def occurrences_below(self, node: LogicalNode, owner: int | None) -> list[tuple[LogicalNode, int]]:
        """Return the topmost extracted subtrees below a node, with their classes."""
        return [occurrence for child in _searchable_inputs(node) for occurrence in self.occurrences(child, owner)]

    def classes_down_from(self, node: LogicalNode) -> frozenset[int]:
        """Return the class of a subtree, and the classes below it, down to the first expensive operator."""
        classes = {self._parts.class_of(node)}
        while node.name not in EXPENSIVE and len(node.children) == 1 and node.children[0].name not in EXPENSIVE:
            (node,) = node.children
            classes.add(self._parts.class_of(node))
        return frozenset(number for number in classes if number is not None)


def _searchable_inputs(node: LogicalNode) -> tuple[LogicalNode, ...]:
    """Return the inputs that parts may be extracted from.

    Empty for operators whose rows depend on the partitioning of their input, and for ``WithCTE``, because the parts
    below refer to its relations.
    """
    return () if node.unstable or node.name == "WithCTE" else node.children
