"""How the rows of physical plans lie in their tasks, as Spark's own plans say.

A leaf claims what Spark says of the plan whose rows it has, the ranges that it is read by included (`layout`). Spark
takes two inputs for laid out alike only if they are cut alike, and lays no other input out like one of them
(`shareable`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.spark.handles import Partitioning
from penstock.spark.jvm import children, class_name

if TYPE_CHECKING:
    from penstock.spark.expressions import Attributes
    from penstock.spark.handles import PhysicalPlan


def layout(plan: PhysicalPlan, output: Attributes) -> Partitioning | None:
    """Return how Spark says that a physical plan's rows are hashed, in the columns of a leaf; None if it does not.

    Of merged subpartitions Spark says which ones each task has (``CoalescedHashPartitioning``).
    """
    bridge = plan._bridge
    partitioning = bridge.helper("HashedLayout").of(plan, output)
    return None if partitioning is None else Partitioning(bridge, partitioning)


def shareable(layout: Partitioning | None) -> Partitioning | None:
    """Return a layout that inputs of one operator can have in common, if they are cut alike.

    Where Spark wants to lay another input out like it, planning fails; see `is_refused` and ``java/CutLayouts.java``.
    """
    if layout is None:
        return None
    bridge = layout._bridge
    return Partitioning(bridge, bridge.helper("CutLayouts", on_executors=True).of(layout))


_REFUSED = "no other input can be laid out like merged subpartitions"


def is_refused(error: BaseException) -> bool:
    """Whether planning failed as Spark wanted to lay an input out like merged subpartitions."""
    return _REFUSED in str(error)


def joins_its_leaves(physical: PhysicalPlan) -> bool:
    """Whether a physical plan is a sort-merge or shuffled hash join right over two leaves, with nothing moved between.

    Only such a join may have inputs with split subpartitions: it joins each task's rows with each other, and no more.
    """
    plan = physical._handle
    if class_name(plan) == "AdaptiveSparkPlanExec":
        plan = plan.initialPlan()
    plan = _below(plan, _WITHIN_A_TASK)
    return class_name(plan) in {"SortMergeJoinExec", "ShuffledHashJoinExec"} and all(
        class_name(_below(side, _WITHIN_A_TASK)) == "RDDScanExec" for side in children(plan)
    )


_WITHIN_A_TASK = frozenset({"ProjectExec", "FilterExec", "SortExec", "WholeStageCodegenExec", "InputAdapter"})


def _below(plan: Any, names: frozenset[str]) -> Any:
    """Return the first plan, from the top, that is none of some operators."""
    while class_name(plan) in names:
        plan = plan.child()
    return plan
