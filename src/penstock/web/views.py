"""What the REST API answers, made from records; the names of fields are those of Apache Flink's API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.history.record import run_times

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.history.record import JobRecord
    from penstock.history.summaries import Summary

_SCHEDULER = "AdaptiveBatch"


def _ms(seconds: float | None) -> int:
    return -1 if seconds is None else round(seconds * 1000)


def jobs_overview(summaries: Iterable[Summary], now: float) -> dict[str, Any]:
    """Return the answer of ``/jobs/overview``."""
    return {
        "jobs": [
            {
                "jid": job.id,
                "name": job.name,
                "state": job.state,
                "start-time": _ms(job.started),
                "end-time": _ms(job.ended),
                "duration": _ms((job.ended if job.ended is not None else now) - job.started),
                "last-modification": _ms(job.changed),
                "tasks": _counts(job.counts),
                "pending-operators": job.counts.get("pending-operators", 0),
            }
            for job in summaries
        ]
    }


def _counts(counts: dict[str, int]) -> dict[str, int]:
    found = {key.lower(): count for key, count in counts.items() if key != "pending-operators"}
    return {"total": sum(found.values()), **found}


def overview(summaries: Iterable[Summary], versions: dict[str, str], slots: int) -> dict[str, Any]:
    """Return the answer of ``/overview``."""
    states = [job.state for job in summaries]
    counted = {
        f"jobs-{name}": sum(state in of for state in states)
        for name, of in (
            ("running", {"CREATED", "RUNNING"}),
            ("finished", {"FINISHED"}),
            ("cancelled", {"CANCELED"}),
            ("failed", {"FAILED", "INTERRUPTED"}),
        )
    }
    return {"slots-total": slots, **counted, **versions}


def job_details(record: JobRecord, now: float) -> dict[str, Any]:
    """Return the answer of ``/jobs/:jobid``."""
    return {
        "jid": record.id,
        "name": record.name,
        "state": record.state,
        "job-type": "BATCH",
        "schedulerType": _SCHEDULER,
        "query": record.query,
        "start-time": _ms(record.started),
        "end-time": _ms(record.ended),
        "duration": _ms(record.seconds(now)),
        "now": _ms(now),
        "timestamps": {state: _ms(at) for state, at in record.timestamps.items()},
        "vertices": [_vertex(vertex, now) for vertex in record.vertices.values()],
        "status-counts": record.status_counts(),
        "pending-operators": record.pending,
        "plan": plan(record),
        "stream-graph-plan": stream_graph_plan(record),
        "stream-graph": stream_graph(record),
    }


def _vertex(vertex: dict[str, Any], now: float) -> dict[str, Any]:
    started, ended = run_times(vertex)
    return {
        "id": vertex["id"],
        "name": vertex["name"],
        "maxParallelism": vertex["max_parallelism"],
        "parallelism": vertex["parallelism"],
        "status": vertex["state"],
        "start-time": _ms(started),
        "end-time": _ms(ended),
        "duration": _ms((ended or now) - started) if started else -1,
        "tasks": {vertex["state"]: max(vertex["tasks"], 0)},
        "metrics": {
            "read-bytes": vertex["bytes_in"],
            "write-bytes": vertex["bytes_out"],
            "write-records": vertex["rows_out"],
        },
        "reason": vertex["reason"],
    }


def plan(record: JobRecord) -> dict[str, Any]:
    """Return the vertices made so far, and the edges between them."""
    return {
        "jid": record.id,
        "name": record.name,
        "type": "BATCH",
        "nodes": [
            {
                "id": vertex["id"],
                "parallelism": vertex["parallelism"],
                "operator": "",
                "description": vertex["name"],
                "inputs": [
                    {
                        "num": number,
                        "id": edge["vertex"],
                        "ship_strategy": record.edges[edge["edge"]]["partitioner"],
                        "exchange": record.edges[edge["edge"]]["exchange"],
                    }
                    for number, edge in enumerate(vertex["inputs"])
                ],
            }
            for vertex in record.vertices.values()
        ],
    }


def stream_graph_plan(record: JobRecord) -> dict[str, Any]:
    """Return the stream graph as it is now, as FLIP-469 spells it; nodes that are part of a vertex name it."""
    of, inputs = record.vertex_of(), _inputs(record)
    nodes = []
    for node in record.nodes.values():
        vertex = of.get(node["id"])
        edges = inputs[node["id"]]
        has_one_input = len({edge["input"] for edge in edges}) == 1
        nodes.append(
            {
                "id": node["id"],
                "parallelism": _parallelism(record, node, vertex),
                "maxParallelism": node["max_parallelism"],
                "operator-name": node["name"],
                "operator-description": node["description"],
                **({"jobvertex-id": vertex} if vertex else {}),
                "input-edges": [
                    {
                        "type-num": "0" if has_one_input else str(edge["input"]),
                        "partitioner": _partitioner(edge),
                        "exchange": edge["exchange"].lower(),
                        "source-id": edge["source"],
                        "target-id": edge["target"],
                    }
                    for edge in edges
                ],
            }
        )
    return {"jid": record.id, "name": record.name, "type": "BATCH", "nodes": nodes}


def stream_graph(record: JobRecord) -> dict[str, Any]:
    """Return the same graph as Flink releases spell it: every node names its vertex, null while it is pending."""
    of, inputs = record.vertex_of(), _inputs(record)
    return {
        "nodes": [
            {
                "id": node["id"],
                "parallelism": _parallelism(record, node, of.get(node["id"])),
                "operator": node["name"],
                "description": node["description"],
                "job_vertex_id": of.get(node["id"]),
                "inputs": [
                    {
                        "num": number,
                        "id": edge["source"],
                        "ship_strategy": _partitioner(edge),
                        "exchange": edge["exchange"],
                    }
                    for number, edge in enumerate(inputs[node["id"]])
                ],
            }
            for node in record.nodes.values()
        ]
    }


def _inputs(record: JobRecord) -> dict[str, list[dict[str, Any]]]:
    """Return the edges that come to each node."""
    found: dict[str, list[dict[str, Any]]] = {node: [] for node in record.nodes}
    for edge in record.edges.values():
        found[edge["target"]].append(edge)
    return found


def _parallelism(record: JobRecord, node: dict[str, Any], vertex: str | None) -> int:
    """Return the number of tasks of a node: what was decided for its vertex, else what is said of the node."""
    decided: int = record.vertices[vertex]["parallelism"] if vertex else node["parallelism"]
    return decided


def _partitioner(edge: dict[str, Any]) -> str:
    """Return the name of an edge's partitioner, without its keys."""
    name: str = edge["partitioner"]
    return name.partition("(")[0]


def job_config(record: JobRecord) -> dict[str, Any]:
    """Return the answer of ``/jobs/:jobid/config``; defaults are left out."""
    options = {key: option["value"] for key, option in record.config.items()}
    return {
        "jid": record.id,
        "name": record.name,
        "execution-config": {"execution-mode": "BATCH", "user-config": options},
    }


def job_exceptions(record: JobRecord) -> dict[str, Any]:
    """Return the answer of ``/jobs/:jobid/exceptions``."""
    first = record.exceptions[0] if record.exceptions else None
    return {
        "root-exception": first["message"] if first else None,
        "timestamp": _ms(first["at"]) if first else None,
        "all-exceptions": [
            {
                "exception": one["message"],
                "stacktrace": one["trace"],
                "task": one["vertex"],
                "timestamp": _ms(one["at"]),
            }
            for one in record.exceptions
        ],
        "truncated": False,
    }


def job_decisions(record: JobRecord) -> dict[str, Any]:
    """Return the answer of ``/jobs/:jobid/decisions``: what was chosen and changed, and why."""
    return {
        "jid": record.id,
        "decisions": record.decisions,
        "changes": record.changes,
        "refused": record.refused,
    }


def vertex_details(record: JobRecord, vertex: dict[str, Any], now: float) -> dict[str, Any]:
    """Return the answer of ``/jobs/:jobid/vertices/:vertexid``."""
    return {
        **_vertex(vertex, now),
        "now": _ms(now),
        "operators": [record.nodes[node] for node in vertex["nodes"] if node in record.nodes],
        "subpartitions": {"count": vertex["subpartition_count"], "bytes": vertex["subpartitions"]},
        "subtasks": _subtasks(record, vertex["id"]),
        "decisions": record.decisions_of(vertex),
    }


def _subtasks(record: JobRecord, vertex_id: str) -> list[dict[str, Any]]:
    return [
        {
            "subtask": number,
            "stage": task["stage"],
            "attempt": task.get("attempt", 0),
            "status": task["state"],
            "host": task["host"],
            "start-time": _ms(task["started"]),
            "duration": _ms(task["seconds"]),
            "metrics": {
                "read-bytes": task["bytes_in"],
                "write-bytes": task["bytes_out"],
                "read-records": task["rows_in"],
                "write-records": task["rows_out"],
            },
        }
        for number, task in enumerate(record.tasks.get(vertex_id, ()))
    ]


def subtask_times(record: JobRecord, vertex: dict[str, Any], now: float) -> dict[str, Any]:
    """Return the answer of ``/jobs/:jobid/vertices/:vertexid/subtasktimes``."""
    return {
        "id": vertex["id"],
        "name": vertex["name"],
        "now": _ms(now),
        "subtasks": [
            {
                "subtask": one["subtask"],
                "host": one["host"],
                "duration": one["duration"],
                "timestamps": {"RUNNING": one["start-time"], "FINISHED": one["start-time"] + one["duration"]},
            }
            for one in _subtasks(record, vertex["id"])
        ],
    }
