"""How the rows of physical plans are partitioned, according to Spark's own plans.

A leaf declares the partitioning that Spark reports for the plan of its rows, including the ranges that tasks read
(`layout`). Spark treats two inputs as co-partitioned only if they have the same ranges, and never repartitions another
input to match (`shareable`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.spark.handles import Partitioning
from penstock.spark.jvm import children, class_name

if TYPE_CHECKING:
    from penstock.spark.expressions import Attributes
    from penstock.spark.handles import PhysicalPlan


def layout(plan: PhysicalPlan, output: Attributes) -> Partitioning | None:
    """Return the hash partitioning that Spark reports for a plan, in the columns of a leaf; None if there is none.

    For merged subpartitions it includes the ranges of the tasks (``CoalescedHashPartitioning``).
    """
    bridge = plan._bridge
    partitioning = bridge.helper("HashedLayout").of(plan, output)
    return None if partitioning is None else Partitioning(bridge, partitioning)


def shareable(layout: Partitioning | None) -> Partitioning | None:
    """Return a partitioning that inputs of an operator can share if they read the same ranges.

    If Spark tries to repartition another input to match it, planning fails; see `is_refused` and
    ``java/CoalescedLayouts.java``.
    """
    if layout is None:
        return None
    bridge = layout._bridge
    return Partitioning(bridge, bridge.helper("CoalescedLayouts", on_executors=True).of(layout))


_REFUSED = "no other input can be repartitioned like coalesced subpartitions"


def is_refused(error: BaseException) -> bool:
    """Whether planning failed because Spark tried to repartition an input to match merged subpartitions."""
    return _REFUSED in str(error)


def joins_its_leaves(physical: PhysicalPlan) -> bool:
    """Whether a physical plan is a sort-merge or shuffled hash join directly over two leaves, without exchanges.

    Only such a join may have inputs with split subpartitions: it only joins the rows of a task with each other.
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
    """Return the topmost node that is none of some operators."""
    while class_name(plan) in names:
        plan = plan.child()
    return plan
