"""Builds logical plans from parts of the user's plan and from materialized results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.graph import Side
from penstock.spark.bridge.handles import InternalRows, Partitioning, PhysicalPlan, SortOrder, Statistics
from penstock.spark.bridge.jvm import EXECUTION, LOGICAL, PHYSICAL, Bridge, class_name, items, with_fields
from penstock.spark.plans.catalyst import rows_of
from penstock.spark.plans.expressions import Attributes, Expression
from penstock.spark.plans.logical_plan import LogicalPlan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.spark.bridge.handles import QueryStage, Session
    from penstock.spark.plans.nodes import LogicalNode


def rebuild(node: LogicalNode, replacements: Mapping[LogicalNode, LogicalPlan]) -> LogicalPlan:
    """Replace some nodes of a node's plan; attribute ids do not change."""
    if node in replacements:
        return replacements[node]
    new = [rebuild(child, replacements) for child in node.children]
    is_same = all(plan is child for plan, child in zip(new, node.children, strict=True))
    return node if is_same else node.with_children(new)


_SOURCES = frozenset({"LogicalRelation", "HiveTableRelation", "Range", "LocalRelation"})
_WIDE = ("long", "double", "decimal", "timestamp", "timestamp_ntz")
_NARROW = ("integer", "date", "float", "short", "byte")
_TEXTS = ("string", "binary")


def slot_columns(plan: LogicalPlan, keys: Sequence[Expression]) -> tuple[Expression, ...]:
    """Return columns whose hash can spread rows with equal keys over slots: cheap to hash, probably with many values.

    Only columns that come unchanged from a source: computed values may depend on the order of rows (sums of floats, row
    numbers), so a repeated task would put a row elsewhere. A union names its columns after its first input, so its
    columns may be computed. Empty before Spark 4.1, which cannot send a row to a chosen subpartition.
    """
    if plan._bridge.version < (4, 1) or "Union" in str(plan._handle.toString()):
        return ()
    leaves = [leaf for leaf in items(plan._handle.collectLeaves()) if class_name(leaf) in _SOURCES]
    ranks = {name: rank for rank, names in enumerate((_WIDE, _NARROW, _TEXTS)) for name in names}
    candidates = []
    for column in items(plan._handle.output()):
        rank = ranks.get(str(column.dataType().typeName()).partition("(")[0])
        stored = any(leaf.outputSet().contains(column) for leaf in leaves)
        if rank is not None and stored and not any(column.semanticEquals(key) for key in keys):
            candidates.append((rank, column))
    candidates.sort(key=lambda candidate: candidate[0])
    return tuple(Expression(plan._bridge, column) for _, column in candidates[:2])  # more would cost too much


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

    `layout` is the partitioning that the leaf declares: Spark's own for the plan of these rows (`layouts.layout`), or
    `joint_layout`; None declares nothing. A single partition needs no declaration: it suits any operator. `statistics`
    are the measured statistics, None to let Spark use its default. `plan` is the plan of the rows, if DuckDB may
    compute the operators above the leaf.
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
        bridge.helper("ColumnarExchange").remember(leaf, plan)
    return LogicalPlan(bridge, leaf)


def joint_layout(keys: Sequence[Expression], tasks: int) -> Partitioning:
    """Return the partitioning that the inputs of a join with split subpartitions declare for that join.

    It equals only that of inputs with the same number of tasks. The rows of a key are in several tasks, so it is true
    only of the pairs that the join compares: the join must be planned as `layouts.joins_its_leaves` requires, and
    operators above the join must not use the partitioning.
    """
    bridge = keys[0]._bridge
    boundary = bridge.find(PHYSICAL + "CoalescedBoundary")
    hashing = bridge.find(PHYSICAL + "HashPartitioning")(bridge.seq(keys), tasks)
    boundaries = bridge.seq(boundary(i, i + 1) for i in range(tasks))
    return Partitioning(bridge, bridge.find(PHYSICAL + "CoalescedHashPartitioning")(hashing, boundaries))


def without_layout(session: Session, leaf: LogicalPlan) -> LogicalPlan:
    """Return a leaf of the same rows that declares no partitioning."""
    bridge, old = leaf._bridge, leaf._handle
    measured, order = Statistics(bridge, old.stats()), SortOrder(bridge, old.outputOrdering())
    return rdd_leaf(session, leaf.output, rows_of(leaf), ordering=order, statistics=measured)


def no_rows(bridge: Bridge) -> InternalRows:
    """Return an empty RDD of rows."""
    return InternalRows(bridge, bridge.spark.sparkContext._jsc.emptyRDD().rdd())


def placeholder(output: Attributes) -> LogicalPlan:
    """Return an empty leaf that represents a plan with an output; the optimiser does not know that it is empty."""
    return rdd_leaf(output._bridge.session, output, no_rows(output._bridge))


def broadcast_leaf(output: Attributes, stage: QueryStage) -> LogicalPlan:
    """Return a broadcast relation as a leaf (``LogicalQueryStage``); a join directly above it uses it unchanged."""
    bridge, reused = output._bridge, stage._handle.newReuseInstance(0, output)
    return LogicalPlan(bridge, bridge.find(EXECUTION + "adaptive.LogicalQueryStage")(placeholder(output), reused))


def hash_join(join: LogicalPlan, build: Side) -> LogicalPlan:
    """Return a join with a hint for a shuffled hash join that builds its hash table from a side."""
    return _hinted(join, build, "SHUFFLE_HASH")


def merge_join(join: LogicalPlan) -> LogicalPlan:
    """Return a join with a hint for a sort-merge join."""
    return _hinted(join, Side.LEFT, "SHUFFLE_MERGE")


def broadcast_join(join: LogicalPlan, build: Side) -> LogicalPlan:
    """Return a join with a hint to broadcast a side (``JoinHint``)."""
    return _hinted(join, build, "BROADCAST")


def _hinted(join: LogicalPlan, build: Side, strategy: str) -> LogicalPlan:
    bridge = join._bridge
    info = bridge.find(LOGICAL + "HintInfo")(bridge.some(bridge.companion(LOGICAL + strategy)))
    sides = (bridge.some(info), bridge.none) if build is Side.LEFT else (bridge.none, bridge.some(info))
    return LogicalPlan(bridge, with_fields(bridge, join._handle, hint=bridge.find(LOGICAL + "JoinHint")(*sides)))
