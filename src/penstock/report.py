"""Reports of jobs: a job as plain values, and a recorded job as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.history.decisions import recorded_decisions
from penstock.history.record import figure_or_none, run_times
from penstock.tables import VertexRow, vertices_table

if TYPE_CHECKING:
    from rich.table import Table

    from penstock.events import VertexSnapshot
    from penstock.history.record import JobRecord
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
        "vertices": [_vertex_as_dict(vertex) for vertex in job.vertices],
        "decisions": [decision.as_dict() for decision in job.decisions],
    }


def _vertex_as_dict(snapshot: VertexSnapshot) -> dict[str, Any]:
    return {
        "id": snapshot.vertex.id,
        "name": snapshot.vertex.name,
        "state": snapshot.state.value,
        "parallelism": snapshot.parallelism,
        "reason": snapshot.reason,
        "tasks": snapshot.tasks,
        "bytes-in": snapshot.bytes_in,
        "bytes-out": snapshot.bytes_out,
        "rows-out": snapshot.rows_out,
        "seconds": round(snapshot.seconds, 3),
    }


def record_table(record: JobRecord) -> Table:
    """Return a table of the vertices of a recorded job, like `Job.table`."""
    rows = (
        VertexRow(
            vertex["id"],
            vertex.get("label") or vertex["name"],  # logs of older releases have no label
            figure_or_none(vertex["bytes_in"]),
            figure_or_none(vertex["parallelism"]),
            vertex["reason"],
            _seconds(vertex),
            figure_or_none(vertex["rows_out"]),
            figure_or_none(vertex["bytes_out"]),
        )
        for vertex in record.vertices.values()
    )
    notes = (decision.text for decision in recorded_decisions(record))
    return vertices_table(f"{record.name}: {record.state.lower()}", rows, notes)


def _seconds(vertex: dict[str, Any]) -> float:
    started, ended = run_times(vertex)
    return 0.0 if started is None or ended is None else ended - started
