"""The responses of the REST API, built from job records, with the field names of Apache Flink's API."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from penstock.history.record import EdgeRecord, JobRecord, NodeRecord, VertexRecord, encode_figure

if TYPE_CHECKING:
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
                "duration": _ms(job.seconds(now)),
                "last-modification": _ms(job.changed),
                "tasks": _counts(job.counts),
                "pending-operators": job.pending,
            }
            for job in summaries
        ]
    }


def _counts(counts: dict[str, int]) -> dict[str, int]:
    vertex_counts = {key.lower(): count for key, count in counts.items() if key != "pending-operators"}
    return {"total": sum(vertex_counts.values()), **vertex_counts}


def overview(summaries: Iterable[Summary], versions: dict[str, str], slots: int) -> dict[str, Any]:
    """Return the response of ``/overview``."""
    states = [job.state for job in summaries]
    job_counts = {
        f"jobs-{name}": sum(state in counted_states for state in states)
        for name, counted_states in (
            ("running", {"CREATED", "RUNNING"}),
            ("finished", {"FINISHED"}),
            ("cancelled", {"CANCELED"}),
            ("failed", {"FAILED", "INTERRUPTED"}),
        )
    }
    return {"slots-total": slots, **job_counts, **versions}


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


def _vertex(vertex: VertexRecord, now: float) -> dict[str, Any]:
    return {
        "id": vertex.id,
        "name": vertex.name,
        "maxParallelism": encode_figure(vertex.max_parallelism),
        "parallelism": encode_figure(vertex.parallelism),
        "status": vertex.state,
        "start-time": _ms(vertex.started),
        "end-time": _ms(vertex.ended),
        "duration": _ms((vertex.ended or now) - vertex.started) if vertex.started else -1,
        "tasks": {vertex.state: vertex.tasks or 0},
        "metrics": {
            "read-bytes": encode_figure(vertex.bytes_in),
            "write-bytes": encode_figure(vertex.bytes_out),
            "write-records": encode_figure(vertex.rows_out),
        },
        "reason": vertex.reason,
    }


def plan(record: JobRecord) -> dict[str, Any]:
    """Return the vertices created so far, and the edges between them."""
    return _job_fields(record) | {
        "nodes": [
            {
                "id": vertex.id,
                "parallelism": encode_figure(vertex.parallelism),
                "operator": "",
                "description": vertex.name,
                "inputs": [
                    _input(number, edge.vertex, record.edges[edge.edge].partitioner, record.edges[edge.edge])
                    for number, edge in enumerate(vertex.inputs)
                ],
            }
            for vertex in record.vertices.values()
        ],
    }


def stream_graph_plan(record: JobRecord) -> dict[str, Any]:
    """Return the current stream graph with the field names of FLIP-469; pending nodes have no vertex id."""
    nodes = [
        {
            "id": node.id,
            "parallelism": _parallelism(node, vertex),
            "maxParallelism": encode_figure(node.max_parallelism),
            "operator-name": node.name,
            "operator-description": node.description,
            **({} if vertex is None else {"jobvertex-id": vertex.id}),
            "input-edges": [
                {
                    "type-num": "0" if len({edge.input for edge in edges}) == 1 else str(edge.input),
                    "partitioner": _partitioner(edge),
                    "exchange": edge.exchange.lower(),
                    "source-id": edge.source,
                    "target-id": edge.target,
                }
                for edge in edges
            ],
        }
        for node, vertex, edges in _operators(record)
    ]
    return _job_fields(record) | {"nodes": nodes}


def stream_graph(record: JobRecord) -> dict[str, Any]:
    """Return the current stream graph with the field names of Flink's releases; pending nodes have a null vertex id."""
    return {
        "nodes": [
            {
                "id": node.id,
                "parallelism": _parallelism(node, vertex),
                "operator": node.name,
                "description": node.description,
                "job_vertex_id": None if vertex is None else vertex.id,
                "inputs": [_input(number, edge.source, _partitioner(edge), edge) for number, edge in enumerate(edges)],
            }
            for node, vertex, edges in _operators(record)
        ]
    }


def _job_fields(record: JobRecord) -> dict[str, Any]:
    return {"jid": record.id, "name": record.name, "type": "BATCH"}


def _operators(record: JobRecord) -> Iterator[tuple[NodeRecord, VertexRecord | None, list[EdgeRecord]]]:
    """Yield each node with its vertex, None while it is pending, and its input edges."""
    vertex_ids = record.vertex_ids_by_node()
    inputs: dict[str, list[EdgeRecord]] = {node: [] for node in record.nodes}
    for edge in record.edges.values():
        inputs[edge.target].append(edge)
    for node in record.nodes.values():
        yield node, record.vertices.get(vertex_ids.get(node.id, "")), inputs[node.id]


def _parallelism(node: NodeRecord, vertex: VertexRecord | None) -> int:
    """Return the parallelism of a node: that of its vertex, or of the node itself while it is pending."""
    return encode_figure(node.parallelism if vertex is None else vertex.parallelism)


def _input(number: int, source: str, partitioner: str, edge: EdgeRecord) -> dict[str, Any]:
    return {"num": number, "id": source, "ship_strategy": partitioner, "exchange": edge.exchange}


def _partitioner(edge: EdgeRecord) -> str:
    """Return the name of an edge's partitioner, without its keys."""
    return edge.partitioner.partition("(")[0]


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
    root = record.exceptions[0] if record.exceptions else None
    return {
        "root-exception": root and root.message,
        "timestamp": root and _ms(root.at),
        "all-exceptions": [
            {
                "exception": error.message,
                "stacktrace": error.trace,
                "task": error.vertex,
                "timestamp": _ms(error.at),
            }
            for error in record.exceptions
        ],
        "truncated": False,
    }


def job_decisions(record: JobRecord) -> dict[str, Any]:
    """Return the response of ``/jobs/:jobid/decisions``: decisions, changes of the graph, and rejected changes."""
    return {
        "jid": record.id,
        "decisions": [decision.values for decision in record.decisions],
        "changes": [asdict(change) for change in record.changes],
        "refused": [asdict(refused) for refused in record.refused],
    }


def vertex_details(record: JobRecord, vertex: VertexRecord, now: float) -> dict[str, Any]:
    """Return the response of ``/jobs/:jobid/vertices/:vertexid``."""
    return {
        **_vertex(vertex, now),
        "now": _ms(now),
        "operators": [node.values for node in record.nodes_of(vertex)],
        "subpartitions": {"count": vertex.subpartition_count, "bytes": list(vertex.subpartitions)},
        "subtasks": [
            {
                "subtask": number,
                "stage": task.stage,
                "attempt": task.attempt,
                "status": task.state,
                "host": task.host,
                "start-time": _ms(task.started),
                "duration": _ms(task.seconds),
                "metrics": {
                    "read-bytes": task.bytes_in,
                    "write-bytes": task.bytes_out,
                    "read-records": task.rows_in,
                    "write-records": task.rows_out,
                },
            }
            for number, task in enumerate(record.tasks.get(vertex.id, ()))
        ],
        "decisions": [decision.values for decision in record.decisions_of(vertex)],
    }


def subtask_times(record: JobRecord, vertex: VertexRecord, now: float) -> dict[str, Any]:
    """Return the response of ``/jobs/:jobid/vertices/:vertexid/subtasktimes``."""
    return {
        "id": vertex.id,
        "name": vertex.name,
        "now": _ms(now),
        "subtasks": [
            {
                "subtask": number,
                "host": task.host,
                "duration": _ms(task.seconds),
                "timestamps": {"RUNNING": _ms(task.started), "FINISHED": _ms(task.started) + _ms(task.seconds)},
            }
            for number, task in enumerate(record.tasks.get(vertex.id, ()))
        ],
    }
