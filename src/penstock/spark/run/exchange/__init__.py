"""The exchange between two vertices: Spark's own shuffle, run as separate stages whose results are measured.

The result of a plan includes the operators *above* its stages: if Spark has removed a requested exchange, the rows of
a stage are not yet the result. `penstock.spark.run.layouts` derives the layout of a result's rows.
"""

from penstock.spark.run.exchange.broadcasts import broadcast, broadcast_mode, broadcast_staged, run_for_broadcast
from penstock.spark.run.exchange.results import (
    BroadcastResult,
    StagedResult,
    executed_plans,
    read_ranges,
    read_slices,
)
from penstock.spark.run.exchange.writes import physical_plan, run_in_plain_spark, run_to_last_stage, write

__all__ = [
    "BroadcastResult",
    "StagedResult",
    "broadcast",
    "broadcast_mode",
    "broadcast_staged",
    "executed_plans",
    "physical_plan",
    "read_ranges",
    "read_slices",
    "run_for_broadcast",
    "run_in_plain_spark",
    "run_to_last_stage",
    "write",
]
