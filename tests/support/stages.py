"""Finished stages, from Spark's status store instead of Penstock's records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SINGLE_DUCKDB_TASK = "DuckDB, in one task"
"""The choice that is recorded for a query that DuckDB computes completely or mostly."""


@dataclass(frozen=True)
class FinishedStage:
    """A finished stage: the numbers of its tasks and of records, in all and for each task."""

    tasks: int
    input_records: int
    shuffle_written: int
    shuffle_read: int
    shuffle_read_per_task: tuple[int, ...]
    input_per_task: tuple[int, ...] = ()


def computed_by_duckdb(job: Any) -> bool:
    """Whether DuckDB computed a part of a job without a fallback; False if `job` is None."""
    return job is not None and any(
        decision.kind == "native" and str(decision.chosen).startswith("DuckDB") and "instead" not in decision.outcome
        for decision in job.decisions
    )


def stages(spark: SparkSession, job: Any, name: str = "") -> Any:
    """Return the finished stages of the vertices whose names contain `name`, in the order of their ids."""
    finished = {}
    spark._jsc.sc().listenerBus().waitUntilEmpty()  # the store is filled asynchronously
    tracker = spark.sparkContext.statusTracker()
    store = spark._jsc.sc().statusStore()
    for execution in job.vertices:
        if name not in execution.vertex.name:
            continue
        for job_id in tracker.getJobIdsForGroup(f"penstock-{job.id}-{execution.vertex.id}"):
            for stage_id in tracker.getJobInfo(job_id).stageIds:
                info = tracker.getStageInfo(stage_id)
                if info is None or not info.numCompletedTasks:
                    continue
                data = store.lastStageAttempt(stage_id)
                tasks = store.taskList(stage_id, 0, 100_000)
                metrics = [tasks.apply(i).taskMetrics() for i in range(tasks.size())]
                shuffle_read = tuple(
                    int(m.get().shuffleReadMetrics().recordsRead()) if m.isDefined() else 0 for m in metrics
                )
                input_records = tuple(
                    int(m.get().inputMetrics().recordsRead()) if m.isDefined() else 0 for m in metrics
                )
                finished[stage_id] = FinishedStage(
                    int(data.numCompleteTasks()),
                    int(data.inputRecords()),
                    int(data.shuffleWriteRecords()),
                    int(data.shuffleReadRecords()),
                    shuffle_read,
                    input_records,
                )
    return [finished[stage_id] for stage_id in sorted(finished)]
