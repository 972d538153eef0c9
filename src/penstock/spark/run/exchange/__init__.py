"""The exchange between two vertices: Spark's own shuffle, run as separate stages whose results are measured.

Two rules keep results correct. The operators *above* the stages of a plan belong to the result of the plan: Spark may
have removed a requested exchange, so a stage alone is never taken for the result. And the layout of a result's rows is
never derived here; see `penstock.spark.run.layouts`.
"""

from penstock.spark.run.exchange.broadcasts import broadcast, broadcast_mode, broadcast_staged, run_all_but_last_stage
from penstock.spark.run.exchange.results import (
    BroadcastResult,
    StagedResult,
    count_rows,
    executed_plans,
    read_ranges,
    read_slices,
)
from penstock.spark.run.exchange.writes import physical_plan, run_to_rows, spark_rows, write

__all__ = [
    "BroadcastResult",
    "StagedResult",
    "broadcast",
    "broadcast_mode",
    "broadcast_staged",
    "count_rows",
    "executed_plans",
    "physical_plan",
    "read_ranges",
    "read_slices",
    "run_all_but_last_stage",
    "run_to_rows",
    "spark_rows",
    "write",
]
