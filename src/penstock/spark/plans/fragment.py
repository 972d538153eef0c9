"""Builds logical plans from parts of the user's plan and from materialized results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.graph import Side
from penstock.spark.bridge.handles import InternalRows, Partitioning, PhysicalPlan, SortOrder, Statistics
from penstock.spark.bridge.jvm import EXECUTION, LOGICAL, PHYSICAL, Bridge, class_name, items, with_fields
from penstock.spark.plans.catalyst import rows_of
from penstock.spark.plans.expressions import Attributes, Expression
from penstock.spark.plans.logical_plan import LogicalPlan

if TYPE_CHECKING:
    from penstock.spark.bridge.handles import QueryStage, Session
    from penstock.spark.plans.nodes import LogicalNode


def rebuild(node: LogicalNode, replacements: Mapping[LogicalNode, LogicalPlan]) -> LogicalPlan:
    """Return the plan of a node in which some nodes are replaced; attribute ids do not change."""
    if node in replacements:
        return replacements[node]
    new_children = [rebuild(child, replacements) for child in node.children]
    is_unchanged = all(new is old for new, old in zip(new_children, node.children, strict=True))
    return node if is_unchanged else node.with_children(new_children)


_SOURCE_LEAVES = frozenset({"LogicalRelation", "HiveTableRelation", "Range", "LocalRelation"})
_WIDE_TYPES = ("long", "double", "decimal", "timestamp", "timestamp_ntz")
_NARROW_TYPES = ("integer", "date", "float", "short", "byte")
_VARIABLE_TYPES = ("string", "binary")


def slot_columns(plan: LogicalPlan, keys: Sequence[Expression]) -> tuple[Expression, ...]:
    """Return up to two columns whose hash distributes rows with equal keys over slots, the parts of a subpartition.

    Only unchanged columns of sources qualify: computed values may depend on the order of rows (sums of floats, row
    numbers), and then a retried task would write a row to a different slot. Plans with a union have no such columns, as
    its column ids are those of its first input. Empty before Spark 4.1, where plans cannot choose a row's partition.
    """
    if plan._bridge.version < (4, 1) or "Union" in str(plan._handle.toString()):
        return ()
    leaves = [leaf for leaf in items(plan._handle.collectLeaves()) if class_name(leaf) in _SOURCE_LEAVES]
    ranks = {name: rank for rank, names in enumerate((_WIDE_TYPES, _NARROW_TYPES, _VARIABLE_TYPES)) for name in names}
    candidates = []
    for column in items(plan._handle.output()):
        rank = ranks.get(str(column.dataType().typeName()).partition("(")[0])
        is_stored = any(leaf.outputSet().contains(column) for leaf in leaves)
        if rank is not None and is_stored and not any(column.semanticEquals(key) for key in keys):
            candidates.append((rank, column))
    candidates.sort(key=lambda candidate: candidate[0])  # first those that are cheap to hash and have many values
    return tuple(Expression(plan._bridge, column) for _, column in candidates[:2])  # more are costly to hash


def rdd_leaf(
    session: Session,
    output: Attributes,
    rows: InternalRows,
    *,
    layout: Partitioning | None = None,
    ordering: SortOrder | None = None,
    statistics: Statistics | None = None,
    plan: PhysicalPlan | None = None,
) -> LogicalPlan:
    """Return rows as a leaf (``LogicalRDD``, which has another constructor argument since Spark 4.3).

    `layout` is the partitioning that the leaf declares: what Spark reports for the plan of these rows
    (`layouts.layout`), `split_join_layout`, or None. It is ignored for a single partition, which suits any operator.
    `statistics` are the measured statistics; if None, Spark uses its default. `plan` is the plan of the rows, if DuckDB
    may compute the operators above the leaf.
    """
    bridge, tasks = output._bridge, rows.tasks
    if tasks == 1:
        partitioning = bridge.companion(PHYSICAL + "SinglePartition")
    elif layout is not None:
        partitioning = layout
    else:
        partitioning = bridge.find(PHYSICAL + "UnknownPartitioning")(tasks)
    measured = bridge.none if statistics is None else bridge.some(statistics)
    order = bridge.seq([]) if ordering is None else ordering
    since_4_3 = [False] if bridge.version >= (4, 3) else []
    leaf = bridge.find(EXECUTION + "LogicalRDD")(
        output, rows, partitioning, order, False, bridge.none, session, measured, bridge.none, *since_4_3
    )
    if plan is not None:
        bridge.helper("ColumnarExchange").tagLeaf(leaf, plan)
    return LogicalPlan(bridge, leaf)


def split_join_layout(keys: Sequence[Expression], tasks: int) -> Partitioning:
    """Return the partitioning that the inputs of a join with split subpartitions declare for that join.

    Spark treats two of these partitionings as equal only if they have the same number of tasks. The rows of a key are
    in several tasks, so the partitioning is true only for the pairs of rows that the join compares. The join must be
    planned as `layouts.joins_its_leaves` requires, and operators above the join must not use the partitioning.
    """
    bridge = keys[0]._bridge
    boundary = bridge.find(PHYSICAL + "CoalescedBoundary")
    hashing = bridge.find(PHYSICAL + "HashPartitioning")(bridge.seq(keys), tasks)
    boundaries = bridge.seq(boundary(i, i + 1) for i in range(tasks))
    return Partitioning(bridge, bridge.find(PHYSICAL + "CoalescedHashPartitioning")(hashing, boundaries))


def without_layout(session: Session, leaf: LogicalPlan) -> LogicalPlan:
    """Return a leaf of the same rows that declares no partitioning."""
    bridge, rdd = leaf._bridge, leaf._handle
    measured, order = Statistics(bridge, rdd.stats()), SortOrder(bridge, rdd.outputOrdering())
    return rdd_leaf(session, leaf.output, rows_of(leaf), ordering=order, statistics=measured)


def empty_rows(bridge: Bridge) -> InternalRows:
    """Return an empty RDD of rows."""
    return InternalRows(bridge, bridge.spark.sparkContext._jsc.emptyRDD().rdd())


def placeholder(output: Attributes) -> LogicalPlan:
    """Return an empty leaf that represents a plan with the columns `output`; Spark cannot detect that it is empty."""
    return rdd_leaf(output._bridge.session, output, empty_rows(output._bridge))


def broadcast_leaf(output: Attributes, stage: QueryStage) -> LogicalPlan:
    """Return a broadcast relation as a leaf (``LogicalQueryStage``); a join directly above uses it unchanged."""
    bridge, reused = output._bridge, stage._handle.newReuseInstance(0, output)
    return LogicalPlan(bridge, bridge.find(EXECUTION + "adaptive.LogicalQueryStage")(placeholder(output), reused))


def hinted_join(join: LogicalPlan, side: Side, strategy: str) -> LogicalPlan:
    """Return a join with a hint at a side (``JoinHint``).

    `strategy` is ``BROADCAST`` or ``SHUFFLE_HASH``, which build the hash table from that side, or ``SHUFFLE_MERGE``.
    """
    bridge = join._bridge
    info = bridge.find(LOGICAL + "HintInfo")(bridge.some(bridge.companion(LOGICAL + strategy)))
    sides = (bridge.some(info), bridge.none) if side is Side.LEFT else (bridge.none, bridge.some(info))
    return LogicalPlan(bridge, with_fields(bridge, join._handle, hint=bridge.find(LOGICAL + "JoinHint")(*sides)))
