"""The responses of the REST API, built from job records, in the field names of Apache Flink's API."""

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
    """Return the response of ``/jobs/overview``."""
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
    tasks = {key.lower(): count for key, count in counts.items() if key != "pending-operators"}
    return {"total": sum(tasks.values()), **tasks}


def overview(summaries: Iterable[Summary], versions: dict[str, str], slots: int) -> dict[str, Any]:
    """Return the response of ``/overview``."""
    states = [job.state for job in summaries]
    counted = {
        f"jobs-{name}": sum(state in members for state in states)
        for name, members in (
            ("running", {"CREATED", "RUNNING"}),
            ("finished", {"FINISHED"}),
            ("cancelled", {"CANCELED"}),
            ("failed", {"FAILED", "INTERRUPTED"}),
        )
    }
    return {"slots-total": slots, **counted, **versions}


def job_details(record: JobRecord, now: float) -> dict[str, Any]:
    """Return the response of ``/jobs/:jobid``."""
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
    """Return the vertices created so far, and the edges between them."""
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
    """Return the current stream graph in the field names of FLIP-469; pending nodes have no vertex id."""
    vertex_of, inputs = record.vertex_of(), _inputs(record)
    nodes = []
    for node in record.nodes.values():
        vertex = vertex_of.get(node["id"])
        edges = inputs[node["id"]]
        is_single_input = len({edge["input"] for edge in edges}) == 1
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
                        "type-num": "0" if is_single_input else str(edge["input"]),
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
    """Return the current stream graph in the field names of Flink's releases; pending nodes have a null vertex id."""
    vertex_of, inputs = record.vertex_of(), _inputs(record)
    return {
        "nodes": [
            {
                "id": node["id"],
                "parallelism": _parallelism(record, node, vertex_of.get(node["id"])),
                "operator": node["name"],
                "description": node["description"],
                "job_vertex_id": vertex_of.get(node["id"]),
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
    """Return the input edges of each node."""
    inputs: dict[str, list[dict[str, Any]]] = {node: [] for node in record.nodes}
    for edge in record.edges.values():
        inputs[edge["target"]].append(edge)
    return inputs


def _parallelism(record: JobRecord, node: dict[str, Any], vertex: str | None) -> int:
    """Return the parallelism of a node: that of its vertex, or of the node itself while it is pending."""
    decided: int = record.vertices[vertex]["parallelism"] if vertex else node["parallelism"]
    return decided


def _partitioner(edge: dict[str, Any]) -> str:
    """Return the name of an edge's partitioner, without its keys."""
    name: str = edge["partitioner"]
    return name.partition("(")[0]


def job_config(record: JobRecord) -> dict[str, Any]:
    """Return the response of ``/jobs/:jobid/config``, without options at their defaults."""
    options = {key: option["value"] for key, option in record.config.items()}
    return {
        "jid": record.id,
        "name": record.name,
        "execution-config": {"execution-mode": "BATCH", "user-config": options},
    }


def job_exceptions(record: JobRecord) -> dict[str, Any]:
    """Return the response of ``/jobs/:jobid/exceptions``."""
    first = record.exceptions[0] if record.exceptions else None
    return {
        "root-exception": first["message"] if first else None,
        "timestamp": _ms(first["at"]) if first else None,
        "all-exceptions": [
            {
                "exception": error["message"],
                "stacktrace": error["trace"],
                "task": error["vertex"],
                "timestamp": _ms(error["at"]),
            }
            for error in record.exceptions
        ],
        "truncated": False,
    }


def job_decisions(record: JobRecord) -> dict[str, Any]:
    """Return the response of ``/jobs/:jobid/decisions``: decisions, changes of the graph, and rejected changes."""
    return {
        "jid": record.id,
        "decisions": record.decisions,
        "changes": record.changes,
        "refused": record.refused,
    }


def vertex_details(record: JobRecord, vertex: dict[str, Any], now: float) -> dict[str, Any]:
    """Return the response of ``/jobs/:jobid/vertices/:vertexid``."""
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
    """Return the response of ``/jobs/:jobid/vertices/:vertexid/subtasktimes``."""
    return {
        "id": vertex["id"],
        "name": vertex["name"],
        "now": _ms(now),
        "subtasks": [
            {
                "subtask": task["subtask"],
                "host": task["host"],
                "duration": task["duration"],
                "timestamps": {"RUNNING": task["start-time"], "FINISHED": task["start-time"] + task["duration"]},
            }
            for task in _subtasks(record, vertex["id"])
        ],
    }
