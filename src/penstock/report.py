"""What a job did, as plain values; and what one of the past did, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.history.record import known, run_times
from penstock.history.told import told
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


def _vertex_as_dict(one: VertexSnapshot) -> dict[str, Any]:
    return {
        "id": one.vertex.id,
        "name": one.vertex.name,
        "state": one.state.value,
        "parallelism": one.parallelism,
        "reason": one.reason,
        "tasks": one.tasks,
        "bytes-in": one.bytes_in,
        "bytes-out": one.bytes_out,
        "rows-out": one.rows_out,
        "seconds": round(one.seconds, 3),
    }


def record_table(record: JobRecord) -> Table:
    """Return a table of the vertices of a job of the past, as `Job.table` does of one that is at hand."""
    rows = (
        VertexRow(
            vertex["id"],
            vertex.get("label") or vertex["name"],  # logs of older releases have no label
            known(vertex["bytes_in"]),
            known(vertex["parallelism"]),
            vertex["reason"],
            _seconds(vertex),
            known(vertex["rows_out"]),
            known(vertex["bytes_out"]),
        )
        for vertex in record.vertices.values()
    )
    notes = (decision.text for decision in told(record))
    return vertices_table(f"{record.name}: {record.state.lower()}", rows, notes)


def _seconds(vertex: dict[str, Any]) -> float:
    started, ended = run_times(vertex)
    return 0.0 if started is None or ended is None else ended - started
