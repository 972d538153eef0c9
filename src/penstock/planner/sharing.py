"""Detects equal parts of plans, so that they run once.

Within a query, Spark has optimized each part in its context, and only parts that are still equal can be shared. Across
the sinks of a job, a DataFrame used several times is equal in the *analyzed* plans, before the filters and columns of
each sink change it. So the common part is extracted first and optimized for all sinks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.spark.bridge.jvm import Bridge, class_names
from penstock.spark.plans import catalyst
from penstock.spark.plans.aggregates import aggregate_functions, grouping_positions, split_aggregate
from penstock.spark.plans.fragment import empty_rows, rdd_leaf, rebuild
from penstock.spark.plans.nodes import LogicalNode, read_plan

if TYPE_CHECKING:
    from penstock.spark.plans.logical_plan import LogicalPlan

EXPENSIVE = class_names(
    "Aggregate Join Window WindowInPandas ArrowWindowPython WindowGroupLimit Distinct Deduplicate "
    "FlatMapGroupsInPandas FlatMapGroupsInArrow FlatMapCoGroupsInPandas FlatMapCoGroupsInArrow MapInPandas MapInArrow "
    "PythonMapInArrow Intersect Except"
)
"""Operators that cost more than writing and reading their result once."""

_MAX_LEVELS = 3
"""The maximum number of levels of nested aggregates that are rewritten to be equal."""


class EqualParts:
    """Classes of equal subtrees of plans. Nondeterministic subtrees are never equal.

    Subtrees of different plans are equal only if they also read the same files, because users may have read a path
    before and after files were added.
    """

    def __init__(self, plans: Sequence[LogicalNode]) -> None:
        self._plan_index = {node: index for index, plan in enumerate(plans) for node in plan.walk()}
        self._class: dict[LogicalNode, int] = {}
        self._occurrences: Counter[int] = Counter()
        by_shape: dict[Any, list[LogicalNode]] = defaultdict(list)
        for plan in plans:
            self._add_shapes(plan, by_shape)
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
                self._occurrences[number] += 1

    def _are_equal(self, node: LogicalNode, other: LogicalNode) -> bool:
        if not catalyst.same_result(node, other):
            return False
        return self._plan_index[node] == self._plan_index[other] or catalyst.lists_same_files(node, other)

    def _add_shapes(self, node: LogicalNode, by_shape: dict[Any, list[LogicalNode]]) -> Any:
        """Add a subtree and all subtrees below it to `by_shape`; return its shape: the names of its operators."""
        shape = (node.name, tuple(self._add_shapes(child, by_shape) for child in node.children))
        by_shape[shape].append(node)
        return shape

    def class_of(self, node: LogicalNode) -> int | None:
        """Return the class of a subtree that occurs more than once, or None."""
        number = self._class.get(node)
        return number if number is not None and self._occurrences[number] > 1 else None


def is_expensive(node: LogicalNode) -> bool:
    """Whether a subtree contains expensive operators, such as joins and aggregates."""
    return any(part.name in EXPENSIVE for part in node.walk())


def is_worth_sharing(node: LogicalNode) -> bool:
    """Whether running a subtree once and writing its result is likely to be cheaper than running it again.

    Its topmost expensive operators decide. The rows of a join are not written: they may be far more than its inputs,
    which are written for several readers anyway, and later operators in the same task often remove most of them.
    Values that may fail are not written either, because each reader computes them only for its rows (`late_values`).
    """
    if node.name == "Project" and not node.cannot_fail:
        return False
    if node.name in EXPENSIVE:
        return node.name != "Join"
    return any(map(is_worth_sharing, node.children))


def with_equal_aggregates(plans: Sequence[LogicalNode]) -> tuple[list[LogicalNode], EqualParts]:
    """Rewrite aggregates with the same functions of the same rows but different result expressions to be equal.

    Each becomes a projection of an aggregate that returns only its groups and functions. So a quotient of two sums and
    the two sums share an aggregate. Return the plans, changed or not, and their equal parts.

    Before: Aggregate(k, sum(a) / sum(b)) and Aggregate(k, sum(a), sum(b)) of the same rows
    After:  both are a Project of the same Aggregate(k, sum(a), sum(b)), which runs once
    """
    current = list(plans)
    parts = EqualParts(current)
    for _ in range(_MAX_LEVELS):
        replacements = _split_aggregates(current, parts)
        if not replacements:
            break
        # A replacement contains the original plan below it, so the lowest nodes are replaced first.
        lowest = {n: new for n, new in replacements.items() if not any(m in replacements for m in nodes_below(n))}
        current = [read_plan(rebuild(plan, lowest)) if lowest.keys() & set(plan.walk()) else plan for plan in current]
        parts = EqualParts(current)
    return current, parts


def _split_aggregates(plans: Sequence[LogicalNode], parts: EqualParts) -> dict[LogicalNode, LogicalPlan]:
    """Return replacements of aggregates that equal others except in their result expressions."""
    aggregates = [node for plan in plans for node in plan.walk() if node.name == "Aggregate"]
    splits: dict[LogicalNode, LogicalPlan] = {}
    for members in _grouped((node, _rows_and_groups(parts, node)) for node in aggregates):
        if len({parts.class_of(node) or node for node in members}) == 1:
            continue
        functions = {node: calls for node in members if (calls := aggregate_functions(node))}
        for same in _grouped((node, tuple(calls)) for node, calls in functions.items()):
            splits |= {node: split_aggregate(node, functions[node]) for node in same}
    return splits


def _rows_and_groups(parts: EqualParts, node: LogicalNode) -> Any:
    rows = parts.class_of(node.children[0])
    groups = grouping_positions(node) if rows is not None else None
    return None if groups is None else (rows, groups)


def _grouped(keyed: Iterable[tuple[LogicalNode, Any]]) -> list[list[LogicalNode]]:
    """Return the groups of at least two nodes with the same key; None is not a key."""
    groups: dict[Any, list[LogicalNode]] = defaultdict(list)
    for node, key in keyed:
        groups[key].append(node)
    return [group for key, group in groups.items() if key is not None and len(group) > 1]


def nodes_below(node: LogicalNode) -> Iterator[LogicalNode]:
    """Iterate over all nodes below a node."""
    return (part for child in node.children for part in child.walk())


@dataclass(frozen=True, slots=True)
class CommonPart:
    """A part that was extracted from several plans.

    `number` identifies its placeholders among the leaves, see `catalyst.rdd_id`. `subtree_classes` are the classes, in
    `EqualParts`, of its top operator and of the cheap operators below it, down to (and without) the first expensive
    operator. `plan` has placeholders for smaller parts.
    """

    number: int
    subtree_classes: frozenset[int]
    plan: LogicalPlan


Exclusion = tuple[int | None, int]
"""The index of a plan (None for all) and the class of a part that must not be extracted from it."""


def extract_common_parts(
    bridge: Bridge, plans: Sequence[LogicalNode], equal_parts: EqualParts, excluded: Collection[Exclusion]
) -> tuple[list[LogicalPlan], list[CommonPart]]:
    """Extract expensive common subtrees from analyzed plans.

    Return the plans, with placeholder leaves for these subtrees; and the subtrees, each after those that contain it.
    """
    common = _CommonParts(equal_parts, plans, excluded)
    placeholders = {number: empty_rows(bridge) for number in common.extracted}

    def without(plan: LogicalNode, occurrences: Iterable[tuple[LogicalNode, int]]) -> LogicalPlan:
        """Return a plan with placeholders for the occurrences of extracted subtrees, which come with their classes."""
        leaves = {node: rdd_leaf(bridge.session, node.output, placeholders[number]) for node, number in occurrences}
        return rebuild(plan, leaves)

    remaining = [without(plan, common.occurrences(plan, index)) for index, plan in enumerate(plans)]
    largest_first = sorted(common.extracted.items(), key=lambda item: -sum(1 for _ in item[1].walk()))
    return remaining, [
        CommonPart(
            placeholders[number].id, common.classes_down_from(node), without(node, common.occurrences_below(node, None))
        )
        for number, node in largest_first
    ]


class _CommonParts:
    """The expensive subtrees that several plans or larger extracted subtrees read; `extracted` has them by class.

    An `owner` is the index of the plan that contains a subtree; None if an extracted subtree contains it.
    """

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
        number = self._common_class(node, owner)
        if number is not None:
            self._readers[number].add(reader)
            if number in self.extracted:
                return
            self.extracted[number], owner, reader = node, None, f"part {number}"
        for child in _searchable_inputs(node):
            self._visit(child, owner, reader)

    def _is_excluded(self, owner: int | None, number: int) -> bool:
        return (None, number) in self._excluded or (owner, number) in self._excluded

    def _common_class(self, node: LogicalNode, owner: int | None) -> int | None:
        number = self._parts.class_of(node)
        if number is None or self._is_excluded(owner, number):
            return None
        return number if len(self._owners[number]) > 1 and is_expensive(node) else None

    def occurrences(self, node: LogicalNode, owner: int | None) -> list[tuple[LogicalNode, int]]:
        """Return the topmost extracted subtrees at or below a node, with their classes."""
        number = self._common_class(node, owner)
        return (
            [(node, number)] if number is not None and number in self.extracted else self.occurrences_below(node, owner)
        )

    def occurrences_below(self, node: LogicalNode, owner: int | None) -> list[tuple[LogicalNode, int]]:
        """Return the topmost extracted subtrees below a node, with their classes."""
        return [occurrence for child in _searchable_inputs(node) for occurrence in self.occurrences(child, owner)]

    def classes_down_from(self, node: LogicalNode) -> frozenset[int]:
        """Return the `CommonPart.subtree_classes` of a subtree, down to the first operator with several inputs."""
        classes = {self._parts.class_of(node)}
        while node.name not in EXPENSIVE and len(node.children) == 1 and node.children[0].name not in EXPENSIVE:
            (node,) = node.children
            classes.add(self._parts.class_of(node))
        return frozenset(number for number in classes if number is not None)


def _searchable_inputs(node: LogicalNode) -> tuple[LogicalNode, ...]:
    """Return the inputs that parts may be extracted from.

    Empty for ``WithCTE``, whose inputs refer to its relations. Also empty for an operator that is nondeterministic
    itself, as its rows may depend on the partitioning of its input. (`is_deterministic` would include the inputs.)
    """
    return () if node.nondeterministic or node.name == "WithCTE" else node.children
