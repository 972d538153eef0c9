"""What a job did, as plain values and as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table

from penstock.graph import UNDECIDED
from penstock.units import show_bytes

if TYPE_CHECKING:
    from penstock.history.record import JobRecord
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
    rows = [
        (execution.vertex.id, execution.vertex.name, execution.bytes_in, execution.parallelism, execution.reason,
         execution.seconds)
        for execution in job.vertices
    ]  # fmt: skip
    notes = [(str(decision.chosen), decision.reason) for decision in job.decisions]
    return _table(f"{job.name}: {job.state.value.lower()}", rows, notes)


def record_table(record: JobRecord) -> Table:
    """Return the same table of a job of the past."""
    rows = [
        (vertex["id"], vertex["name"], vertex["bytes_in"], vertex["parallelism"], vertex["reason"],
         _seconds(vertex["timestamps"]))
        for vertex in record.vertices.values()
    ]  # fmt: skip
    notes = [(str(decision["chosen"]), decision["reason"]) for decision in record.decisions]
    return _table(f"{record.name}: {record.state.lower()}", rows, notes)


def _seconds(timestamps: dict[str, float]) -> float:
    ends = [at for state, at in timestamps.items() if state in {"FINISHED", "FAILED", "CANCELED"}]
    return ends[0] - timestamps["RUNNING"] if ends and "RUNNING" in timestamps else 0.0


def _table(title: str, rows: list[tuple[str, str, int, int, str, float]], notes: list[tuple[str, str]]) -> Table:
    table = Table(title=title, title_justify="left", expand=False)
    table.add_column("vertex", no_wrap=True)
    table.add_column("operators", ratio=3, overflow="fold")
    table.add_column("bytes in", justify="right", no_wrap=True)
    table.add_column("tasks", justify="right", no_wrap=True)
    table.add_column("why", ratio=3, overflow="fold")
    table.add_column("seconds", justify="right", no_wrap=True)
    for vertex, name, bytes_in, parallelism, reason, seconds in rows:
        tasks = "" if parallelism == UNDECIDED else str(parallelism)
        table.add_row(vertex, name, show_bytes(bytes_in), tasks, reason, f"{seconds:.2f}")
    if not rows:
        for chosen, reason in notes:
            table.add_row("", chosen, "", "", reason, "")
    return table
