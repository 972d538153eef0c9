"""Too many tasks with little work each, or too few tasks for the cores."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from penstock.base.units import show_bytes, show_count
from penstock.doctor.checks.skew import slow_tasks
from penstock.doctor.finding import Finding, Kind, decide_tasks, queries_of, run_stages, stage_subject, tasks_with_rows

if TYPE_CHECKING:
    from penstock.doctor.records import Application, Stage
    from penstock.doctor.timeline import Timeline

_MANY_TASKS_PER_CORE = 8
"""With fewer tasks per core, the fixed costs of tasks hardly matter."""
_MAX_TINY_BYTES = 1 << 20
_MAX_TINY_SECONDS = 0.2
"""Tasks are tiny if the median reads and runs less; Spark's guide to tuning gives 200 ms as the least useful length."""
_MAX_TASK_SECONDS = 10.0
"""A stage with longer tasks could be divided, whatever it reads."""


def check(application: Application, timeline: Timeline) -> Iterator[Finding]:
    """Yield a finding per stage with too many or too few tasks; `checks.single_task` reports a single task."""
    for stage in run_stages(application):
        if finding := _too_many(application, stage, timeline) or _too_few(application, stage, timeline):
            yield finding


def _too_many(application: Application, stage: Stage, timeline: Timeline) -> Finding | None:
    """Report tiny tasks.

    Lost seconds: the fixed costs of a task, times the tasks beyond those that Penstock decides, divided by the number
    of tasks that ran at a time. The fixed costs are the median time to send, deserialize and end a task, and the run
    time that 95 % of the tasks exceed.
    """
    tasks, count = stage.tasks, len(stage.tasks.seconds)
    median_bytes, median_seconds = float(np.median(tasks.bytes)), float(np.median(tasks.seconds))
    if count <= _MANY_TASKS_PER_CORE * timeline.cores or not stage.bytes_in:
        return None
    if median_bytes > _MAX_TINY_BYTES or median_seconds > _MAX_TINY_SECONDS:
        return None
    decision = decide_tasks(stage, timeline.cores)
    needed = 1 if decision is None else decision.parallelism
    fixed = float(np.median(tasks.seconds - tasks.ok("run"))) + float(np.percentile(tasks.ok("run"), 5))
    problem = (
        f"{count:,} tasks read {show_bytes(stage.bytes_in)} in total. The median task took "
        f"{1000 * median_seconds:.0f} ms, and about {1000 * fixed:.0f} ms of each are fixed costs."
    )
    reason = "" if decision is None else f" ({decision.reason})"
    return Finding(
        Kind.PARALLELISM,
        max(count - needed, 0) * fixed / tasks.concurrency,
        application.where(stage.query, stage.name),
        stage_subject(stage),
        problem,
        f"Penstock would have used {show_count(needed, 'task')}{reason}.",
        "Lower spark.sql.shuffle.partitions or the number in repartition(), or let adaptive execution merge tasks.",
        {"tasks": count, "decided_tasks": needed, "median_task_seconds": median_seconds, "bytes": stage.bytes_in},
        queries=queries_of(stage),
    )


def _too_few(application: Application, stage: Stage, timeline: Timeline) -> Finding | None:
    if not 1 < np.count_nonzero(tasks_with_rows(stage)) < timeline.cores:
        return None
    if slow_tasks(application, stage, timeline) is not None:
        return None  # `checks.skew` reports the idle cores
    return too_few_tasks(application, stage, timeline, Kind.PARALLELISM)


def too_few_tasks(application: Application, stage: Stage, timeline: Timeline, kind: Kind) -> Finding | None:
    """Report a stage with fewer tasks than cores if its work could be divided further.

    Lost seconds: the duration of the stage, less the seconds of all its tasks divided by the tasks that could run at a
    time; not more than the integral of the idle fraction of all cores meanwhile. The tasks that could run are those
    that Penstock decides from the bytes, or one per 10 seconds of work if that is more. All cores could, if only the
    number of rows is known.
    """
    with_rows = tasks_with_rows(stage)
    work, count = float(stage.tasks.seconds.sum()), int(np.count_nonzero(with_rows))
    decision = decide_tasks(stage, timeline.cores)
    by_bytes = decision.parallelism if decision else timeline.cores if stage.tasks.ok("rows").any() else 1
    possible = min(timeline.cores, max(by_bytes, math.ceil(work / _MAX_TASK_SECONDS)))
    rows = float(stage.tasks.ok("rows").sum())
    if possible <= count or 0 < rows < possible:
        return None
    start, end = float(stage.tasks.ok("launch").min()), float(stage.tasks.ok("finish").max())
    lost = min(end - start - work / possible, timeline.idle_seconds(start, end))
    size = stage.bytes_in
    amount = show_bytes(size) if size else f"{rows:,.0f} rows" if rows else "an unknown number of bytes"
    problem = (
        f"{show_count(count, 'task')} processed {amount} in {end - start:.1f} s, and {timeline.cores} cores exist."
    )
    if decision is None:
        sentence = "Penstock decides tasks from the bytes that they read, and this stage reports none."
    elif decision.parallelism > count:
        sentence = f"Penstock would have used {show_count(decision.parallelism, 'task')} ({decision.reason})."
    else:
        sentence = f"For {show_bytes(size)}, Penstock would have used {show_count(decision.parallelism, 'task')}, too."
    decided = 0 if decision is None else decision.parallelism
    return Finding(
        kind,
        lost,
        application.where(stage.query, stage.name),
        stage_subject(stage),
        problem,
        sentence,
        _remedy(stage),
        {"tasks": count, "cores": timeline.cores, "decided_tasks": decided, "bytes": size, "rows": rows},
        queries=queries_of(stage),
    )


def _remedy(stage: Stage) -> str:
    names = {node.name for node in stage.nodes}
    if "Window" in names:
        return "Add a PARTITION BY to the window, so that its rows are divided among tasks, also with Penstock."
    if "Coalesce" in names:
        return "coalesce() also reduces the tasks of the steps before it: use repartition(), or coalesce later."
    if any(name.startswith(("FlatMap", "Aggregate")) and "Pandas" in name for name in names):
        return "A group is a single call of the function: group by a finer key, or use mapInPandas."
    return "Use repartition() with more tasks before this step, or files that Spark can split."
