"""Building logical plans from parts of the user's plan and from results that lie ready."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.spark.jvm import EXECUTION, EXPRESSIONS, LOGICAL, PHYSICAL, class_name, items, with_fields

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.spark.jvm import Bridge
    from penstock.spark.plans import LogicalNode


def rebuild(bridge: Bridge, node: LogicalNode, replacements: Mapping[LogicalNode, Any]) -> Any:
    """Return a node's plan with some of the nodes below it replaced; attribute ids stay as they were."""
    if node in replacements:
        return replacements[node]
    new = [rebuild(bridge, child, replacements) for child in node.children]
    if all(plan is child.handle for plan, child in zip(new, node.children, strict=True)):
        return node.handle
    return node.handle.withNewChildren(bridge.seq(new))


def hashed(bridge: Bridge, plan: Any, keys: Sequence[Any], subpartitions: int) -> Any:
    """Return a plan that hashes another's rows by keys (``RepartitionByExpression``)."""
    optional = bridge.some(subpartitions), bridge.none
    return bridge.find(LOGICAL + "RepartitionByExpression")(bridge.seq(keys), plan, *optional)


_SOURCES = frozenset({"LogicalRelation", "HiveTableRelation", "Range", "LocalRelation"})
_WIDE = ("long", "double", "decimal", "timestamp", "timestamp_ntz")
_NARROW = ("integer", "date", "float", "short", "byte")
_TEXTS = ("string", "binary")
_ENOUGH = 2
"""So many columns tell rows apart well enough; hashing all of them would cost more than it is worth."""


def slot_columns(bridge: Bridge, plan: Any, keys: Sequence[Any]) -> tuple[Any, ...]:
    """Return the columns of a plan whose hash can deal out rows with equal keys: quick ones that are likely to differ.

    Only values that stand in a source as they are: what is computed may depend on the order of rows (sums of floats,
    row numbers), and a task that runs again would put a row elsewhere. A union's columns go by the names of its first
    input's, so its values may be computed. None before Spark 4.1, which cannot be told the subpartition of a row.
    """
    if bridge.version < (4, 1) or "Union" in str(plan.toString()):
        return ()
    leaves = [leaf for leaf in items(plan.collectLeaves()) if class_name(leaf) in _SOURCES]
    ranks = {name: rank for rank, names in enumerate((_WIDE, _NARROW, _TEXTS)) for name in names}
    found = []
    for column in items(plan.output()):
        rank = ranks.get(str(column.dataType().typeName()).partition("(")[0])
        stored = any(leaf.outputSet().contains(column) for leaf in leaves)
        if rank is not None and stored and not any(column.semanticEquals(key) for key in keys):
            found.append((rank, column))
    return tuple(column for _, column in sorted(found, key=lambda one: one[0])[:_ENOUGH])


def hashed_in_slots(
    bridge: Bridge, plan: Any, keys: Sequence[Any], spread_by: Sequence[Any], subpartitions: int, slots: int
) -> Any:
    """Return a plan that hashes another's rows by keys into subpartitions of several slots each.

    Which slot a row lies in depends on nothing but its values, so that a task that runs again puts it there again.
    Uses ``DirectShufflePartitionID`` and ``HashPartitioning.partitionIdExpression`` (since Spark 4.1).
    """
    hashing = bridge.find(PHYSICAL + "HashPartitioning")
    subpartition = hashing(bridge.seq(keys), subpartitions).partitionIdExpression()
    slot = hashing(bridge.seq(spread_by), slots).partitionIdExpression()
    first = bridge.find(EXPRESSIONS + "Multiply")(
        subpartition, bridge.companion(EXPRESSIONS + "Literal").fromSQL(str(slots))
    )
    place = bridge.find(EXPRESSIONS + "DirectShufflePartitionID")(bridge.find(EXPRESSIONS + "Add")(first, slot))
    optional = bridge.some(subpartitions * slots), bridge.none
    return bridge.find(LOGICAL + "RepartitionByExpression")(bridge.seq([place]), plan, *optional)


def rebalanced(bridge: Bridge, plan: Any, subpartitions: int) -> Any:
    """Return a plan that deals out another's rows in turn (``Repartition``)."""
    return bridge.find(LOGICAL + "Repartition")(subpartitions, True, plan)


def coalesced(bridge: Bridge, plan: Any, partitions: int) -> Any:
    """Return a plan that merges another's partitions without a shuffle (``Repartition``)."""
    return bridge.find(LOGICAL + "Repartition")(partitions, False, plan)


def rdd_leaf(
    bridge: Bridge,
    session: Any,
    output: Any,
    rdd: Any,
    *,
    layout: Any = None,
    ordering: Any = None,
    statistics: Any = None,
) -> Any:
    """Return an ``RDD[InternalRow]`` as a leaf (``LogicalRDD``; one constructor argument more since Spark 4.3).

    Parameters
    ----------
    output
        Its attributes.
    layout
        The ``Partitioning`` that the leaf claims: what Spark says of the plan whose rows these are (`exchange.layout`),
        or `joint_layout`; None claims nothing. A single partition needs no claim: it is right for any operator.
    ordering
        The order of rows within a partition, as Spark's own plan tells it.
    statistics
        Measured ``Statistics``.
    """
    partitions = rdd.getNumPartitions()
    if partitions == 1:
        partitioning = bridge.companion(PHYSICAL + "SinglePartition")
    elif layout is not None:
        partitioning = layout
    else:
        partitioning = bridge.find(PHYSICAL + "UnknownPartitioning")(partitions)
    known = bridge.none if statistics is None else bridge.some(statistics)
    order = bridge.seq([]) if ordering is None else ordering
    since_4_3 = [False] if bridge.version >= (4, 3) else []
    return bridge.find(EXECUTION + "LogicalRDD")(
        output, rdd, partitioning, order, False, bridge.none, session, known, bridge.none, *since_4_3
    )


def joint_layout(bridge: Bridge, keys: Sequence[Any], tasks: int) -> Any:
    """Return the ``Partitioning`` that the inputs of a join with split subpartitions claim towards that join.

    It is equal for inputs of as many tasks, and for nothing else. The rows of a key lie in several tasks, so it is true
    of the join's pairs only: the join must be planned as `exchange.joins_its_leaves` wants it, and the claim must end
    there.
    """
    boundary = bridge.find(PHYSICAL + "CoalescedBoundary")
    hashing = bridge.find(PHYSICAL + "HashPartitioning")(bridge.seq(keys), tasks)
    return bridge.find(PHYSICAL + "CoalescedHashPartitioning")(
        hashing, bridge.seq(boundary(i, i + 1) for i in range(tasks))
    )


def without_layout(bridge: Bridge, session: Any, leaf: Any) -> Any:
    """Return a leaf of the same rows that claims nothing of their layout."""
    measured = leaf.stats()
    return rdd_leaf(bridge, session, leaf.output(), leaf.rdd(), ordering=leaf.outputOrdering(), statistics=measured)


def placeholder(bridge: Bridge, output: Any) -> Any:
    """Return a leaf of no rows that stands for a plan with an output; the optimiser does not know that it is empty."""
    empty = bridge.spark.sparkContext._jsc.emptyRDD().rdd()
    return rdd_leaf(bridge, bridge.session, output, empty)


def broadcast_leaf(bridge: Bridge, output: Any, stage: Any) -> Any:
    """Return a broadcast relation as a leaf (``LogicalQueryStage``); a join right above it uses it as it is."""
    reused = stage.newReuseInstance(0, output)
    return bridge.find(EXECUTION + "adaptive.LogicalQueryStage")(placeholder(bridge, output), reused)


def projected(bridge: Bridge, plan: Any, columns: Any) -> Any:
    """Return a plan that keeps some columns of another (``Project``)."""
    return bridge.find(LOGICAL + "Project")(columns, plan)


def hash_join(bridge: Bridge, join: Any, build: str) -> Any:
    """Return a join that Spark is told to run as a shuffled hash join with a ``left`` or ``right`` build side."""
    return _hinted(bridge, join, build, "SHUFFLE_HASH")


def merge_join(bridge: Bridge, join: Any) -> Any:
    """Return a join that Spark is told to run as a sort-merge join."""
    return _hinted(bridge, join, "left", "SHUFFLE_MERGE")


def broadcast_join(bridge: Bridge, join: Any, build: str) -> Any:
    """Return a join whose ``left`` or ``right`` side Spark is told to broadcast (``JoinHint``)."""
    return _hinted(bridge, join, build, "BROADCAST")


def _hinted(bridge: Bridge, join: Any, build: str, strategy: str) -> Any:
    info = bridge.find(LOGICAL + "HintInfo")(bridge.some(bridge.companion(LOGICAL + strategy)))
    sides = (bridge.some(info), bridge.none) if build == "left" else (bridge.none, bridge.some(info))
    return with_fields(bridge, join, hint=bridge.find(LOGICAL + "JoinHint")(*sides))
