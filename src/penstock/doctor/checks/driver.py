"""Time within queries in which no task ran: planning, listing files, collecting rows, committing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.base.units import show_bytes
from penstock.doctor.finding import Finding, Kind, unfinished_tasks

if TYPE_CHECKING:
    from penstock.doctor.records import Application, Query, Stage
    from penstock.doctor.timeline import Timeline

_MIN_GAP = 5.0
"""Shorter gaps are usual: planning and code generation of a large query takes seconds."""
_MANY_BYTES = 32 << 20
"""From this number of bytes on, results of tasks are mentioned."""


def check(application: Application, timeline: Timeline) -> Iterator[Finding]:
    """Yield a finding per query in which all cores waited for the driver.

    Lost seconds: the gaps of at least `_MIN_GAP` seconds without a running task, between the start and the end of the
    query. The time before the first task of the application does not count, as the JVM starts. The time to build and
    send broadcast tables does not count either: `checks.broadcast` reports it. A gap of several queries that run at a
    time counts for the first. Queries that a command runs belong to the command.
    """
    stages: defaultdict[int, list[Stage]] = defaultdict(list)
    broadcasts: defaultdict[int, float] = defaultdict(float)
    for stage in application.stages:
        root = application.root(stage.query)
        if root is not None:
            stages[root.id].append(stage)
    for query in application.queries.values():
        root = application.root(query.id)
        assert root is not None
        broadcasts[root.id] += _broadcast_seconds(application, query)
    for query, start, end in application.separate_queries():
        gaps = [gap for gap in timeline.gaps(max(start, timeline.first_task), end) if gap[1] - gap[0] >= _MIN_GAP]
        if gaps:
            yield _finding(application, query, gaps, stages[query.id], broadcasts[query.id])


def _broadcast_seconds(application: Application, query: Query) -> float:
    """Return the time in which the driver built and sent broadcast tables of a query. It collects rows by tasks."""
    names = ("time to build", "time to broadcast")
    return sum(application.value(node, *names) for node in query.nodes if node.name == "BroadcastExchange") / 1e3


def _finding(
    application: Application, query: Query, gaps: list[tuple[float, float]], stages: list[Stage], broadcasts: float
) -> Finding:
    lost = max(sum(end - start for start, end in gaps) - broadcasts, 0.0)
    longest = max(gaps, key=lambda gap: gap[1] - gap[0])
    starts = [float(stage.tasks.column("launch").min()) for stage in stages if len(stage.tasks)]
    ends = [float(stage.tasks.column("finish").max()) for stage in stages if len(stage.tasks)]
    result = sum(float(stage.tasks.ok("result_bytes").sum()) for stage in stages)
    if not starts or longest[1] <= min(starts):
        when = "before its first task: the driver planned the query, or listed files"
        remedy = "Read fewer files or partitions, use a catalog instead of listing folders, or divide the plan."
    elif longest[0] >= max(ends):
        when = "after its last task: the driver committed files, or collected rows"
        remedy = "Write fewer files, and collect fewer rows: aggregate or write them instead."
    else:
        when = "between its tasks: the driver planned the next stages, or built a broadcast table"
        remedy = "Broadcast smaller tables, and write or collect fewer rows at a time."
    collected = f" The tasks returned {show_bytes(result)} to the driver." if result >= _MANY_BYTES else ""
    collected += unfinished_tasks(application, stages)
    return Finding(
        Kind.DRIVER,
        lost,
        application.where(query.id),
        f"query {query.id}",
        f"No task ran for {lost:.1f} s of the query, most of it {when}.{collected}",
        "Penstock decides no work of the driver, so it would not have changed this.",
        remedy,
        {"gap_seconds": lost, "longest_gap_seconds": longest[1] - longest[0], "result_bytes": result},
        queries=(query.id,),
    )
