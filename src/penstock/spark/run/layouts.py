"""How the rows of physical plans are partitioned (*layout*), according to Spark's own plans.

A leaf declares the partitioning that Spark reports for the plan of its rows, including each task's range of
subpartitions (`layout`). With `as_shareable`, Spark treats two inputs as co-partitioned only if they have the same
ranges, and never repartitions an input to match the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.spark.bridge.handles import Partitioning, PhysicalPlan
from penstock.spark.bridge.jvm import children, class_name

if TYPE_CHECKING:
    from penstock.spark.plans.expressions import Attributes


def layout(plan: PhysicalPlan, output: Attributes) -> Partitioning | None:
    """Return the hash partitioning of a plan, in the columns `output` of the leaf that replaces it; None if not hashed.

    For merged subpartitions, the partitioning includes the ranges of the tasks (``CoalescedHashPartitioning``).
    """
    bridge = plan._bridge
    partitioning = bridge.helper("HashedLayout").of(plan, output)
    return None if partitioning is None else Partitioning(bridge, partitioning)


def as_shareable(layout: Partitioning | None) -> Partitioning | None:
    """Return a partitioning that Spark treats as equal for inputs with the same ranges (``CoalescedLayouts.java``).

    Planning fails if Spark tries to repartition another input to match it, see `is_repartition_refused`.
    """
    if layout is None:
        return None
    bridge = layout._bridge
    return Partitioning(bridge, bridge.helper("CoalescedLayouts", on_executors=True).of(layout))


def is_repartition_refused(error: BaseException) -> bool:
    """Whether planning failed because Spark tried to repartition an input to match merged subpartitions."""
    return "no other input can be repartitioned like coalesced subpartitions" in str(error)


def joins_its_leaves(physical: PhysicalPlan) -> bool:
    """Whether a physical plan is a sort-merge or shuffled hash join directly over two leaves, without exchanges.

    Only such a join may have inputs with split subpartitions: it joins only rows of the same task.
    """
    plan = physical._handle
    if class_name(plan) == "AdaptiveSparkPlanExec":
        plan = plan.initialPlan()
    plan = _below_narrow(plan)
    return class_name(plan) in {"SortMergeJoinExec", "ShuffledHashJoinExec"} and all(
        class_name(_below_narrow(side)) == "RDDScanExec" for side in children(plan)
    )


def _below_narrow(plan: Any) -> Any:
    while class_name(plan) in {"ProjectExec", "FilterExec", "SortExec", "WholeStageCodegenExec", "InputAdapter"}:
        plan = plan.child()
    return plan
