"""Building logical plans from parts of the user's plan and from results that lie ready."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.graph import Side
from penstock.spark.catalyst import rows_of
from penstock.spark.expressions import Expression
from penstock.spark.handles import InternalRows, Partitioning, PhysicalPlan, SortOrder, Statistics
from penstock.spark.jvm import EXECUTION, LOGICAL, PHYSICAL, class_name, items, with_fields
from penstock.spark.logical_plan import LogicalPlan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.spark.expressions import Attributes
    from penstock.spark.handles import QueryStage, Session
    from penstock.spark.jvm import Bridge
    from penstock.spark.plans import LogicalNode


def rebuild(node: LogicalNode, replacements: Mapping[LogicalNode, LogicalPlan]) -> LogicalPlan:
    """Return a node's plan with some of the nodes below it replaced; attribute ids stay as they were."""
    if node in replacements:
        return replacements[node]
    new = [rebuild(child, replacements) for child in node.children]
    is_same = all(plan is child for plan, child in zip(new, node.children, strict=True))
    return node if is_same else node.with_children(new)


_SOURCES = frozenset({"LogicalRelation", "HiveTableRelation", "Range", "LocalRelation"})
_WIDE = ("long", "double", "decimal", "timestamp", "timestamp_ntz")
_NARROW = ("integer", "date", "float", "short", "byte")
_TEXTS = ("string", "binary")
_ENOUGH = 2
"""So many columns tell rows apart well enough; hashing all of them would cost more than it is worth."""


def slot_columns(plan: LogicalPlan, keys: Sequence[Expression]) -> tuple[Expression, ...]:
    """Return the columns of a plan whose hash can deal out rows with equal keys: quick ones that are likely to differ.

    Only values that stand in a source as they are: what is computed may depend on the order of rows (sums of floats,
    row numbers), and a task that runs again would put a row elsewhere. A union's columns go by the names of its first
    input's, so its values may be computed. None before Spark 4.1, which cannot be told the subpartition of a row.
    """
    if plan._bridge.version < (4, 1) or "Union" in str(plan._handle.toString()):
        return ()
    leaves = [leaf for leaf in items(plan._handle.collectLeaves()) if class_name(leaf) in _SOURCES]
    ranks = {name: rank for rank, names in enumerate((_WIDE, _NARROW, _TEXTS)) for name in names}
    found = []
    for column in items(plan._handle.output()):
        rank = ranks.get(str(column.dataType().typeName()).partition("(")[0])
        stored = any(leaf.outputSet().contains(column) for leaf in leaves)
        if rank is not None and stored and not any(column.semanticEquals(key) for key in keys):
            found.append((rank, column))
    return tuple(Expression(plan._bridge, column) for _, column in sorted(found, key=lambda one: one[0])[:_ENOUGH])


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
    """Return rows as a leaf (``LogicalRDD``; one constructor argument more since Spark 4.3).

    Parameters
    ----------
    session
        The session that the leaf belongs to.
    output
        Its columns.
    layout
        What the leaf claims: what Spark says of the plan whose rows these are (`layouts.layout`), or `joint_layout`;
        None claims nothing. A single partition needs no claim: it is right for any operator.
    ordering
        The order of rows within a partition, as Spark's own plan tells it.
    statistics
        What was measured.
    plan
        The plan whose rows these are, where DuckDB may compute what comes above it.
    """
    bridge, tasks = output._bridge, rows.tasks
    if tasks == 1:
        partitioning = bridge.companion(PHYSICAL + "SinglePartition")
    elif layout is not None:
        partitioning = layout
    else:
        partitioning = bridge.find(PHYSICAL + "UnknownPartitioning")(tasks)
    known = bridge.none if statistics is None else bridge.some(statistics)
    order = bridge.seq([]) if ordering is None else ordering
    since_4_3 = [False] if bridge.version >= (4, 3) else []
    leaf = bridge.find(EXECUTION + "LogicalRDD")(
        output, rows, partitioning, order, False, bridge.none, session, known, bridge.none, *since_4_3
    )
    if plan is not None:
        bridge.helper("NativeExchange").remember(leaf, plan)
    return LogicalPlan(bridge, leaf)


def joint_layout(keys: Sequence[Expression], tasks: int) -> Partitioning:
    """Return the layout that the inputs of a join with split subpartitions claim towards that join.

    It is equal for inputs of as many tasks, and for nothing else. The rows of a key lie in several tasks, so it is true
    of the join's pairs only: the join must be planned as `layouts.joins_its_leaves` wants it, and the claim must end
    there.
    """
    bridge = keys[0]._bridge
    boundary = bridge.find(PHYSICAL + "CoalescedBoundary")
    hashing = bridge.find(PHYSICAL + "HashPartitioning")(bridge.seq(keys), tasks)
    boundaries = bridge.seq(boundary(i, i + 1) for i in range(tasks))
    return Partitioning(bridge, bridge.find(PHYSICAL + "CoalescedHashPartitioning")(hashing, boundaries))


def without_layout(session: Session, leaf: LogicalPlan) -> LogicalPlan:
    """Return a leaf of the same rows that claims nothing of their layout."""
    bridge, old = leaf._bridge, leaf._handle
    measured, order = Statistics(bridge, old.stats()), SortOrder(bridge, old.outputOrdering())
    return rdd_leaf(session, leaf.output, rows_of(leaf), ordering=order, statistics=measured)


def no_rows(bridge: Bridge) -> InternalRows:
    """Return rows of which there are none."""
    return InternalRows(bridge, bridge.spark.sparkContext._jsc.emptyRDD().rdd())


def placeholder(output: Attributes) -> LogicalPlan:
    """Return a leaf of no rows that stands for a plan with an output; the optimiser does not know that it is empty."""
    return rdd_leaf(output._bridge.session, output, no_rows(output._bridge))


def broadcast_leaf(output: Attributes, stage: QueryStage) -> LogicalPlan:
    """Return a broadcast relation as a leaf (``LogicalQueryStage``); a join right above it uses it as it is."""
    bridge, reused = output._bridge, stage._handle.newReuseInstance(0, output)
    return LogicalPlan(bridge, bridge.find(EXECUTION + "adaptive.LogicalQueryStage")(placeholder(output), reused))


def hash_join(join: LogicalPlan, build: Side) -> LogicalPlan:
    """Return a join that Spark is told to run as a shuffled hash join that builds its hash table of a side."""
    return _hinted(join, build, "SHUFFLE_HASH")


def merge_join(join: LogicalPlan) -> LogicalPlan:
    """Return a join that Spark is told to run as a sort-merge join."""
    return _hinted(join, Side.LEFT, "SHUFFLE_MERGE")


def broadcast_join(join: LogicalPlan, build: Side) -> LogicalPlan:
    """Return a join of which Spark is told to broadcast a side (``JoinHint``)."""
    return _hinted(join, build, "BROADCAST")


def _hinted(join: LogicalPlan, build: Side, strategy: str) -> LogicalPlan:
    bridge = join._bridge
    info = bridge.find(LOGICAL + "HintInfo")(bridge.some(bridge.companion(LOGICAL + strategy)))
    sides = (bridge.some(info), bridge.none) if build is Side.LEFT else (bridge.none, bridge.some(info))
    return LogicalPlan(bridge, with_fields(bridge, join._handle, hint=bridge.find(LOGICAL + "JoinHint")(*sides)))
