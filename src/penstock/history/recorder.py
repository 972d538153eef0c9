"""Turns what a running job shows of itself into events."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any

from penstock.decisions import DecisionKind
from penstock.graph.naming import column_names, readable
from penstock.history.changes import node_changes
from penstock.history.record import JobRecord
from penstock.masking import mask, mask_value
from penstock.spark.jobs import tasks_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.config import Configuration
    from penstock.decisions import Decision
    from penstock.graph import JobVertex, StreamGraph
    from penstock.graph.stream_graph import StreamEdge, StreamNode
    from penstock.history.record import Event
    from penstock.scheduler.execution_graph import ExecutionJobVertex
    from penstock.scheduler.job import Job
    from penstock.spark.jvm import Bridge

log = logging.getLogger("penstock.history")

_TEXT = 300
"""Characters kept of an operator's description."""
_BARS = 400
"""Subpartitions kept one by one; of more, neighbours are put together by their largest."""
_TASKS = 200
"""Tasks kept of a vertex."""
_REASONS = {
    DecisionKind.BROADCAST,
    DecisionKind.BUILD_SIDE_FIRST,
    DecisionKind.DYNAMIC_FILTER,
    DecisionKind.JOIN_ALGORITHM,
    DecisionKind.JOIN_ORDER,
    DecisionKind.EARLY_AGGREGATION,
    DecisionKind.SKEW,
    DecisionKind.STRATEGY,
}
_CLIP = 4000


class JobRecorder:
    """Watches one job; its record is complete after every change, and each event goes to `write` as well.

    Parameters
    ----------
    job
        The job.
    config
        The options it runs with.
    write
        Takes events as they come, such as `EventLog.write`.
    bridge
        Where tasks are asked for; none are recorded without.
    """

    def __init__(
        self,
        job: Job,
        config: Configuration | None = None,
        write: Callable[[list[Event]], None] = lambda _: None,
        bridge: Bridge | None = None,
    ) -> None:
        self.record = JobRecord()
        self._job = job
        self._write = write
        self._bridge = bridge
        self._lock = threading.RLock()
        self._listeners: list[Callable[[JobRecord], None]] = []
        self._graph: StreamGraph | None = None
        self._names: dict[str, str] = {}
        self._seen: dict[str, tuple[Any, ...]] = {}
        self._active: list[ExecutionJobVertex] = []
        self._vertices = 0
        self._decisions: list[Decision] = []
        self._state: tuple[str, int] | None = None
        self._broken = False
        self._emit(
            [
                {
                    "type": "job",
                    "at": job.started,
                    "id": job.id,
                    "name": mask(job.name),
                    "started": job.started,
                    "host": socket.gethostname(),
                    "pid": os.getpid(),
                    "spark": bridge.spark.version if bridge is not None else "",
                    "config": _options(config),
                }
            ]
        )

    def write_to(self, write: Callable[[list[Event]], None]) -> None:
        """Give events to another taker from now on."""
        self._write = write

    def listen(self, listener: Callable[[JobRecord], None]) -> None:
        """Call a listener after every change, on the thread that made it."""
        self._listeners.append(listener)

    def on_job_changed(self) -> None:
        """Look at the job and emit what is new; a failure to do so never harms the job."""
        if self._broken:
            return
        try:
            with self._lock:
                events = [
                    *self._graph_events(),
                    *self._vertex_events(),
                    *self._decision_events(),
                    *self._state_events(),
                ]
                if events:
                    self._emit(events)
        except Exception:
            self._broken = True
            log.warning("job %s is not recorded any further", self._job.id, exc_info=True)

    def _emit(self, events: list[Event]) -> None:
        self.record.apply_all(events)
        self._write(events)
        for listener in self._listeners:
            listener(self.record)

    def _graph_events(self) -> Iterable[Event]:
        graphs = self._job.graphs
        if graphs is None:
            return
        if self._graph is None:
            self._graph = graphs.planned
            yield _nodes(self._graph)
            self._names = column_names(self._graph)
            yield self._edges(self._graph.edges)
        now = graphs.manager.graph
        if now is not self._graph:
            before, self._graph = self._graph, now
            yield from self._changes(before, now)

    def _changes(self, earlier: StreamGraph, now: StreamGraph) -> Iterable[Event]:
        known = len(self._decisions)
        reasons = [mask(str(decision)) for decision in list(self._job.decisions)[known:] if decision.kind in _REASONS]
        old_nodes = {node.id: node for node in earlier}
        old_edges = {edge.id: edge for edge in earlier.edges}
        edges = [edge for edge in now.edges if old_edges.get(edge.id) != edge]
        nodes = [node for node in now if old_nodes.get(node.id) != node]
        if nodes:
            yield _nodes(nodes)
        if edges:
            yield self._edges(edges)
        for edge in edges:
            old = old_edges.get(edge.id)
            if old is not None and (old.partitioner != edge.partitioner or old.source_id != edge.source_id):
                target = now.node(edge.target_id)
                what = f"edge from {now.node(edge.source_id).name} to {target.name}"
                before, after = (readable(str(one.partitioner), self._names) for one in (old, edge))
                yield _change(what, before, after, reasons, target.id)
        for node in nodes:
            old_node = old_nodes.get(node.id)
            for before, after in [] if old_node is None else node_changes(old_node, node):
                yield _change(node.name, before, after, reasons, node.id)

    def _edges(self, edges: Iterable[StreamEdge]) -> Event:
        return {
            "type": "edges",
            "at": time.time(),
            "edges": [
                {
                    "id": edge.id,
                    "source": str(edge.source_id),
                    "target": str(edge.target_id),
                    "input": edge.type_number,
                    "partitioner": mask(readable(str(edge.partitioner), self._names))[:_TEXT],
                    "exchange": edge.exchange,
                }
                for edge in edges
            ],
        }

    def _vertex_events(self) -> Iterable[Event]:
        graphs = self._job.graphs
        if graphs is None:
            return
        if len(graphs.execution) > self._vertices:
            made = list(graphs.execution)[self._vertices :]
            self._vertices += len(made)
            self._active += made
            for execution in made:
                yield {"type": "vertex", "at": time.time(), **_vertex(execution.vertex)}
        for execution in list(self._active):
            values = _progress(execution)
            key = tuple(map(str, values.values()))
            if self._seen.get(execution.vertex.id) != key:
                self._seen[execution.vertex.id] = key
                yield {"type": "vertex", "at": time.time(), "id": execution.vertex.id, **values}
            if execution.state.is_terminal:
                self._active.remove(execution)
                yield from self._task_events(execution.vertex)

    def _task_events(self, vertex: JobVertex) -> Iterable[Event]:
        if self._bridge is None or self._job.graphs is None:
            return
        try:
            found = tasks_of(self._bridge, self._job.graphs.group_of(vertex), _TASKS)
        except Exception:
            log.debug("the tasks of %s are not known", vertex.id, exc_info=True)
            return
        tasks = [{name: getattr(task, name) for name in task.__slots__} for task in found]
        yield {"type": "tasks", "at": time.time(), "vertex": vertex.id, "tasks": tasks}

    def _decision_events(self) -> Iterable[Event]:
        now = list(self._job.decisions)
        for index in range(len(now)):
            if index >= len(self._decisions) or now[index] is not self._decisions[index]:
                decision = now[index]
                yield {
                    "type": "decision",
                    "index": index,
                    "at": decision.at,
                    "kind": str(decision.kind),
                    "subject": mask(decision.subject),
                    "nodes": [str(node) for node in decision.nodes],
                    "chosen": _clean(decision.chosen),
                    "reason": mask(decision.reason),
                    "figures": {k: _clean(v) for k, v in decision.figures.items()},
                    "outcome": {k: _clean(v) for k, v in decision.outcome.items()},
                }
        self._decisions = now

    def _state_events(self) -> Iterable[Event]:
        job = self._job
        if job.ended is not None and job.error is not None and not self.record.exceptions:
            trace = "".join(traceback.format_exception(job.error))[-_CLIP:]
            failed = [v["id"] for v in self.record.vertices.values() if v["state"] == "FAILED"]
            yield {
                "type": "exception",
                "at": job.ended,
                "message": mask(str(job.error))[:_CLIP],
                "trace": mask(trace),
                "vertex": failed[0] if failed else None,
            }
        # A job is over when it says when it ended; before that its sinks are still being put in place.
        state = job.state.value if job.ended is not None or not job.state.is_terminal else "RUNNING"
        if self._state != (state, job.pending_operators):
            self._state = (state, job.pending_operators)
            yield {
                "type": "state",
                "at": job.ended or time.time(),
                "state": state,
                "pending": job.pending_operators,
                "counts": self.record.status_counts() | {"pending-operators": job.pending_operators},
            }


def _options(config: Configuration | None) -> dict[str, dict[str, str]]:
    if config is None:
        return {}
    return {
        option.key: {"value": mask_value(option.key, value), "origin": origin}
        for option, value, origin in config.items()
        if origin != "default"
    }


def _clean(value: float | str) -> float | str:
    return mask(value) if isinstance(value, str) else value


def _nodes(nodes: Iterable[StreamNode]) -> Event:
    return {
        "type": "nodes",
        "at": time.time(),
        "nodes": [
            {
                "id": str(node.id),
                "kind": node.kind.value,
                "name": mask(node.name)[:_TEXT],
                "description": mask(node.description)[:_TEXT],
                "parallelism": _figure(node.parallelism),
                "max_parallelism": _figure(node.max_parallelism),
                "location": str(node.location or ""),
            }
            for node in nodes
        ],
    }


def _change(what: str, before: str, after: str, reasons: list[str], node: int) -> Event:
    return {
        "type": "change",
        "at": time.time(),
        "what": mask(what)[:_TEXT],
        "before": mask(before)[:_TEXT],
        "after": mask(after)[:_TEXT],
        "reasons": reasons[-3:],
        "node": str(node),
    }


def _vertex(vertex: JobVertex) -> dict[str, Any]:
    return {
        "id": vertex.id,
        "name": mask(vertex.name)[:_TEXT],
        "nodes": [str(node) for node in vertex.node_ids],
        "max_parallelism": _figure(vertex.max_parallelism),
        "inputs": [{"vertex": edge.source_vertex_id, "edge": edge.stream_edge.id} for edge in vertex.inputs],
    }


def _progress(execution: ExecutionJobVertex) -> dict[str, Any]:
    return {
        "state": execution.state.value,
        "parallelism": _figure(execution.parallelism),
        "reason": mask(execution.reason),
        "tasks": _figure(execution.tasks),
        "bytes_in": _figure(execution.bytes_in),
        "bytes_out": _figure(execution.bytes_out),
        "rows_out": _figure(execution.rows_out),
        "timestamps": {state.value: at for state, at in execution.timestamps.items()},
        "subpartitions": _bars(list(execution.subpartitions)),
        "subpartition_count": len(execution.subpartitions),
    }


def _figure(known: int | None) -> int:
    """Return a figure as records have it: -1 where it is not known, as in Flink's REST API."""
    return -1 if known is None else known


def _bars(sizes: list[int]) -> list[int]:
    """Return at most some hundred sizes: the largest of each run of neighbours."""
    width = -(-len(sizes) // _BARS) or 1
    return [max(sizes[start : start + width]) for start in range(0, len(sizes), width)]
