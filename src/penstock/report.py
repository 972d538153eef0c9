"""What a job did, as plain values and as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table

from penstock.graph import UNDECIDED
from penstock.units import show_bytes

if TYPE_CHECKING:
    from penstock.scheduler.execution_graph import ExecutionJobVertex
    from penstock.scheduler.job import Job


def job_as_dict(job: Job) -> dict[str, Any]:
    """Return a job as plain values for JSON."""
    return {
        "id": job.id,
        "name": job.name,
        "state": job.state.value,
        "started": job.started,
        "seconds": None if job.ended is None else round(job.ended - job.started, 3),
        "pending-operators": job.pending_operators,
        "status-counts": job.status_counts,
        "vertices": [_vertex_as_dict(execution) for execution in job.vertices],
        "decisions": [decision.as_dict() for decision in job.decisions],
    }


def _vertex_as_dict(execution: ExecutionJobVertex) -> dict[str, Any]:
    return {
        "id": execution.vertex.id,
        "name": execution.vertex.name,
        "state": execution.state.value,
        "parallelism": execution.parallelism,
        "reason": execution.reason,
        "tasks": execution.tasks,
        "bytes-in": execution.bytes_in,
        "bytes-out": execution.bytes_out,
        "rows-out": execution.rows_out,
        "seconds": round(execution.seconds, 3),
    }


def job_table(job: Job) -> Table:
    """Return a table with a row per vertex: what it does, how many tasks it got, and why."""
    table = Table(title=f"{job.name}: {job.state.value.lower()}", title_justify="left", expand=False)
    table.add_column("vertex", no_wrap=True)
    table.add_column("operators", ratio=3, overflow="fold")
    table.add_column("bytes in", justify="right", no_wrap=True)
    table.add_column("tasks", justify="right", no_wrap=True)
    table.add_column("why", ratio=3, overflow="fold")
    table.add_column("seconds", justify="right", no_wrap=True)
    for execution in job.vertices:
        tasks = "" if execution.parallelism == UNDECIDED else str(execution.parallelism)
        table.add_row(
            execution.vertex.id,
            execution.vertex.name,
            show_bytes(execution.bytes_in),
            tasks,
            execution.reason,
            f"{execution.seconds:.2f}",
        )
    if not job.vertices:
        for decision in job.decisions:
            table.add_row("", decision.chosen if isinstance(decision.chosen, str) else "", "", "", decision.reason, "")
    return table
