"""Adds filter paths to joins: the operators through which a dynamic filter on the rows of a side can be pushed down.

A filter on key columns may move below an operator if each output row comes from input rows with the same keys, so that
filtering the input drops the same output rows. The errors of the query must stay the same, too: the operator must not
have expressions that may fail on rows that the filter drops, and keys must not fail on rows that the operator drops.
Otherwise the path ends, and the filter stays above the operator.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.graph import FilterPath, JoinInput, JoinOperator, JoinType, Side
from penstock.planner.plan import FilterTarget, Ids, SparkFilterPath
from penstock.spark.plans import catalyst
from penstock.spark.plans.joins import JoinKey, join_type_of

if TYPE_CHECKING:
    from penstock.planner.draft import Draft
    from penstock.spark.plans.expressions import Expression
    from penstock.spark.plans.nodes import LogicalNode

_RETURNS_INPUT_ROWS = frozenset({"Filter", "Sort", "Repartition", "RepartitionByExpression", "RebalancePartitions"})
"""Operators that return all or some of their input rows, unchanged."""
_KEYED = frozenset({"Aggregate", "Window", "WindowGroupLimit"})  # operators that compute rows per group
_HASHABLE_TYPES = frozenset(
    {"tinyint", "smallint", "int", "bigint", "date", "timestamp", "timestamp_ntz", "boolean", "string"}
)


def add_filter_paths(draft: Draft) -> None:
    """Add the filter paths of joins; a path ends above a node with several consumers, which all read the same rows."""
    finder = FilterFinder(draft)
    for node_id, (join, _) in draft.joins.items():
        pairs = [pair for path in finder.paths(join) if (pair := _above_shared(draft, *path)) is not None]
        draft.nodes[node_id] = replace(draft.nodes[node_id], filter_paths=tuple(spark_path for _, spark_path in pairs))
        operator = draft.stream_nodes[node_id].operator
        assert isinstance(operator, JoinOperator)
        draft.update_node(node_id, operator=replace(operator, filters=tuple(path for path, _ in pairs)))


def _above_shared(
    draft: Draft, path: FilterPath, spark_path: SparkFilterPath
) -> tuple[FilterPath, SparkFilterPath] | None:
    """Return the part of a path above all nodes with several consumers, or None if nothing remains."""
    shared = [i for i, target in enumerate(path.targets) if len(draft.out_edges(target)) > 1]
    start = shared[-1] + 1 if shared else 0
    if not path.targets[start:]:
        return None
    return (
        replace(path, targets=path.targets[start:], prunes=path.prunes and not start),
        replace(spark_path, targets=spark_path.targets[start:]),
    )


class FilterFinder:
    """Finds the filter paths of the joins of a draft."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._node_of = draft.node_of
        self._facts_of = dict(draft.joins.values())

    def paths(self, join: LogicalNode) -> list[tuple[FilterPath, SparkFilterPath]]:
        """Return each filter path of an equi-join as a pair: for strategies, and with Spark's operators and keys."""
        facts = self._facts_of[join]
        if not all(_are_comparable(*pair) for pair in zip(facts.left, facts.right, strict=True)):
            return []
        ids = {side: self._key_ids(join, side) for side in Side}
        child = dict(zip(Side, join.children, strict=True))
        paths = []
        for side in Side:
            if not facts.type.can_filter(side) or not ids[side] or not ids[side.other]:
                continue
            source_and_keys = self._filter_source(join, side.other, ids[side.other])
            if source_and_keys is None:
                continue
            filter_source, source_keys = source_and_keys
            keys_from = self._scan_of_column(child[side.other], ids[side.other][0])
            can_move = all(key.cannot_fail for key in facts.keys(side))
            for targets in self._paths_down(child[side], ids[side], (), can_move=can_move):
                if targets:
                    lowest = targets[0]
                    columns = lowest.operator.expressions(lowest.ids)
                    scan_plan = self._draft.sources.get(lowest.node_id)
                    uses_predicates = scan_plan is not None and scan_plan.scan.uses_predicates
                    exact = uses_predicates and any(column.is_attribute for column in columns)  # needs exact keys
                    prunes = self._is_plain(join, side) and (
                        exact or catalyst.is_partitioned_by(lowest.operator, columns)
                    )
                    nodes = tuple(target.node_id for target in targets)
                    path = FilterPath(side, nodes, filter_source, keys_from, prunes=prunes, exact=exact)
                    paths.append((path, SparkFilterPath(targets, source_keys, facts.expressions(side), ids[side])))
        return paths

    def _key_ids(self, join: LogicalNode, side: Side) -> Ids:
        """Return the columns of a side's keys, in key order if all are columns; empty if a key is nondeterministic."""
        keys = self._facts_of[join].keys(side)
        is_deterministic = all(key.is_deterministic for key in keys)
        columns = tuple(column for key in keys for column in key.columns) if is_deterministic else ()
        return columns if self._is_plain(join, side) else tuple(dict.fromkeys(columns))

    def _is_plain(self, join: LogicalNode, side: Side) -> bool:
        return all(key.is_column for key in self._facts_of[join].keys(side))

    def _filter_source(
        self, join: LogicalNode, side: Side, ids: Ids
    ) -> tuple[JoinInput, tuple[Expression, ...]] | None:
        """Return an exchanged join input with all keys of a join side, and the keys as expressions on it, or None."""
        join_input = JoinInput(self._node_of[join], side)
        if not self._is_chained(join_input):
            return join_input, self._facts_of[join].expressions(side)
        if not self._is_plain(join, side):
            return None
        return self._source_below(dict(zip(Side, join.children, strict=True))[side], ids)

    def _source_below(self, node: LogicalNode, ids: Ids) -> tuple[JoinInput, tuple[Expression, ...]] | None:
        """Return the nearest exchanged join input at or below a node if it has the columns `ids`, with these columns.

        The key expressions of that join are not used, because Spark rewrites a null-safe key to two expressions.
        """
        while node.name != "Join":
            if len(node.children) != 1:
                return None
            input_ids = node.input_columns(ids) if node.name in {"Project", "Aggregate"} else ids
            if input_ids is None or not node.children[0].has_columns(input_ids):
                return None
            node, ids = node.children[0], input_ids
        inputs = zip(Side, node.children, strict=True)
        side, child = next(((side, child) for side, child in inputs if child.has_columns(ids)), (None, None))
        if side is None or child is None or node not in self._facts_of:
            return None
        join_input = JoinInput(self._node_of[node], side)
        return self._source_below(child, ids) if self._is_chained(join_input) else (join_input, child.expressions(ids))

    def _is_chained(self, join_input: JoinInput) -> bool:
        number = join_input.side.input_number
        edges = (edge for edge in self._draft.stream_edges if edge.target_id == join_input.join_id)
        return any(edge.is_forward and edge.type_number == number for edge in edges)

    def _paths_down(
        self, node: LogicalNode, ids: Ids, above: tuple[FilterTarget, ...], *, can_move: bool = True
    ) -> Iterator[tuple[FilterTarget, ...]]:
        """Yield the targets of each path down from an operator, lowest first; `can_move` allows targets below it."""
        if not node.children and _has_decimal_folders(node, ids):
            return
        targets = above
        if node in self._node_of:
            targets = (FilterTarget(self._node_of[node], node, ids), *above)
        below = list(self._filterable_inputs(node, ids)) if can_move else []
        if not below:
            yield targets
        for child, input_ids in below:
            yield from self._paths_down(child, tuple(input_ids), targets)

    def _filterable_inputs(self, node: LogicalNode, ids: Ids) -> Iterator[tuple[LogicalNode, Sequence[str]]]:
        """Yield the inputs that may be filtered instead of the output of an operator, with their key columns."""
        if not node.children or not node.is_deterministic or not node.cannot_fail:
            return
        if node.name == "Join":
            yield from self._below_join(node, ids)
        elif node.name == "Union":
            positions = [node.ids.index(column) for column in ids]
            for child in node.children:
                yield child, [child.ids[i] for i in positions]
        else:
            moved = self._input_columns(node, ids)
            if moved is not None:
                yield node.children[0], moved

    def _input_columns(self, node: LogicalNode, ids: Ids) -> Sequence[str] | None:
        """Return the keys as columns of the only input of an operator, or None if the filter must stay above it."""
        if node.name in _RETURNS_INPUT_ROWS or (node.name == "Generate" and node.children[0].has_columns(ids)):
            return ids
        if node.name == "Project":
            return node.input_columns(ids)
        if node.name in _KEYED:  # the filter drops all rows of a group, or none
            input_ids = node.input_columns(ids) if node.name == "Aggregate" else ids
            if input_ids is not None and catalyst.groups_by(node, input_ids):
                return input_ids
        return None

    def _below_join(self, node: LogicalNode, ids: Ids) -> Iterator[tuple[LogicalNode, Sequence[str]]]:
        facts = self._facts_of.get(node)
        join_type = facts.type if facts else join_type_of(node)
        if join_type is None:
            return
        left, right = node.children
        # Rows of a side that can be split are joined independently, so its columns can be filtered before the join.
        if join_type.can_split(Side.LEFT) and left.has_columns(ids):
            yield left, ids
        elif join_type.can_split(Side.RIGHT) and right.has_columns(ids):
            yield right, ids
        if join_type is not JoinType.INNER or facts is None or not all(self._is_plain(node, side) for side in Side):
            return
        # If the filtered columns are keys of this join, the equal keys of its opposite side can be filtered as well.
        left_keys, right_keys = self._key_ids(node, Side.LEFT), self._key_ids(node, Side.RIGHT)
        for keys, equated, child in ((left_keys, right_keys, right), (right_keys, left_keys, left)):
            equal = [equated[keys.index(column)] for column in ids if column in keys]
            if len(equal) == len(ids):
                yield child, equal

    def _scan_of_column(self, node: LogicalNode, key: str) -> int | None:
        """Return the node of the scan that a key column comes from, or None if the column is computed."""
        while node.children:
            if node.name in {"Project", "Aggregate"}:
                input_ids = node.input_columns([key])
                if input_ids is None:
                    return None
                (key,) = input_ids
            child = next((child for child in node.children if child.has_columns([key])), None)
            if child is None:
                return None
            node = child
        return self._node_of.get(self._draft.first_leaf.get(node, node))


def _has_decimal_folders(leaf: LogicalNode, ids: Ids) -> bool:
    """Whether any of the columns `ids` is a decimal partition column.

    With a schema set by the user, Spark prunes folders by the number in the folder name, but returns its digits at the
    scale of the column in the rows. For ``p=1.5`` as ``decimal(38,10)`` these are 1.5 and 0.0000000015.
    """
    columns = leaf.expressions(ids) if leaf.partition_columns else ()
    return catalyst.is_partitioned_by(leaf, [column for column in columns if column.type.startswith("decimal(")])


def _are_comparable(left: JoinKey, right: JoinKey) -> bool:
    """Whether equal values of two keys have equal bytes, so that their hashes can be compared."""
    return (left.type in _HASHABLE_TYPES or left.type.startswith("decimal(")) and left.type == right.type
