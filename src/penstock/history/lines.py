"""Conversion of job events into lines of the event log: typed events in, plain values for JSON out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.base.masking import mask
from penstock.events import (
    ChangeRefused,
    DecisionRecorded,
    DecisionSettled,
    ErrorOccurred,
    ExecutionState,
    GraphChanged,
    GraphPlanned,
    JobStateChanged,
    VertexChanged,
    VerticesCreated,
)
from penstock.graph import AggregateOperator, JoinOperator, ScanOperator
from penstock.graph.labels import column_names, edge_label, node_name, readable, tables_of, vertex_name
from penstock.history.record import encoded_figure

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.decisions.log import Decision
    from penstock.events import JobStatusEvent, VertexSnapshot
    from penstock.graph import GraphChange, JobVertex, JoinStrategy, RefusedChange, StreamGraph
    from penstock.graph.stream_graph import StreamEdge, StreamNode
    from penstock.history.record import Event

_MAX_NAME = 300
"""The most characters of a name or of an operator's description in the log."""
_MAX_SIZES = 400
"""The most subpartition sizes in the log; of more, the largest of each group of neighbours is written."""
_MAX_MESSAGE = 4000


class EventLines:
    """The converter of a job's events into log lines, in the order of the events."""

    def __init__(self) -> None:
        self._columns: dict[str, str] = {}
        self._graph: StreamGraph | None = None
        self._state = ExecutionState.CREATED
        self._pending = 0
        self._vertices: dict[str, ExecutionState] = {}
        self._counts = dict.fromkeys(ExecutionState, 0)

    def of(self, event: JobStatusEvent) -> Iterator[Event]:
        """Yield the lines of an event."""
        for values in self._values(event):
            yield {"type": values["type"], "at": event.at, **values}

    def _values(self, event: JobStatusEvent) -> Iterator[dict[str, Any]]:
        match event:
            case GraphPlanned(graph):
                self._columns = column_names(graph)
                self._graph = graph
                yield self._nodes(graph)
                yield self._edges(graph.edges)
            case GraphChanged(change):
                yield from self._changed(change)
            case ChangeRefused(refused):
                yield self._refused(refused)
            case VerticesCreated(vertices, pending):
                self._pending = pending
                for vertex in vertices:
                    self._count(vertex)
                    yield {"type": "vertex", **self._vertex(vertex.vertex), **_progress(vertex)}
                yield self._job()
            case VertexChanged(vertex):
                self._count(vertex)
                yield {"type": "vertex", "id": vertex.vertex.id, **_progress(vertex)}
            case DecisionRecorded(decision) | DecisionSettled(decision):
                yield _decision(decision)
            case ErrorOccurred(error, trace, vertex_id):
                # Masking long texts is slow, so cut them first, at twice the length so that no secret is cut in half.
                message = mask(str(error)[: 2 * _MAX_MESSAGE])[:_MAX_MESSAGE]
                trace = mask(trace[-2 * _MAX_MESSAGE :])[-_MAX_MESSAGE:]
                yield {"type": "exception", "message": message, "trace": trace, "vertex": vertex_id}
            case JobStateChanged(state, pending):
                self._state, self._pending = state, pending
                yield self._job()

    def _count(self, vertex: VertexSnapshot) -> None:
        before = self._vertices.get(vertex.vertex.id)
        if before is not None:
            self._counts[before] -= 1
        self._vertices[vertex.vertex.id] = vertex.state
        self._counts[vertex.state] += 1

    def _job(self) -> dict[str, Any]:
        counts = {state.value: count for state, count in self._counts.items()}
        return {
            "type": "state",
            "state": self._state.value,
            "pending": self._pending,
            "counts": counts | {"pending-operators": self._pending},
        }

    def _changed(self, change: GraphChange) -> Iterator[dict[str, Any]]:
        if change.nodes:
            yield self._nodes(node for _, node in change.nodes)
        if change.edges:
            yield self._edges(edge for _, edge in change.edges)
        decision = change.decision
        cause = {
            "decision": None if decision is None else decision.id,
            "sentence": None if decision is None else mask(decision.displayed.sentence),
            "shown": decision is not None and decision.displayed.is_shown,
        }
        for old, new in change.edges:
            if old.partitioner != new.partitioner:
                before, after = (readable(str(edge.partitioner), self._columns) for edge in (old, new))
                yield _change(self._edge_name(new), before, after, new.target_id) | cause
        for old_node, node in change.nodes:
            for before, after in _node_changes(old_node, node):
                yield _change(node.name, before, after, node.id) | cause

    def _refused(self, refused: RefusedChange) -> dict[str, Any]:
        choice = refused.choice
        subject = "a change" if choice is None else choice.displayed.sentence
        return {
            "type": "refused",
            "what": _shortened(subject),
            "because": _shortened(refused.reason),
            "nodes": [] if choice is None else [str(node) for node in choice.subject.node_ids],
        }

    def _edge_name(self, edge: StreamEdge) -> str:
        assert self._graph is not None  # GraphPlanned precedes all changes
        return f"edge from {self._graph.node(edge.source_id).name} to {self._graph.node(edge.target_id).name}"

    def _nodes(self, nodes: Iterable[StreamNode]) -> dict[str, Any]:
        return {"type": "nodes", "nodes": [self._node(node) for node in nodes]}

    def _node(self, node: StreamNode) -> dict[str, Any]:
        operator, graph = node.operator, self._graph
        tables: tuple[str, ...] = ()
        if isinstance(operator, JoinOperator):
            tables = tables_of(operator)
        elif isinstance(operator, ScanOperator):
            tables = (operator.table,) if operator.table else ()
        return {
            "id": str(node.id),
            "kind": node.kind.value,
            "name": _shortened(node.name),
            "label": "" if graph is None else _shortened(node_name(graph, node, self._columns)),
            "tables": [mask(table) for table in tables],
            "keys": list(operator.left.keys) if isinstance(operator, JoinOperator) else [],
            "description": _shortened(node.description),
            "parallelism": encoded_figure(node.parallelism),
            "max_parallelism": encoded_figure(node.max_parallelism),
            "location": str(node.location or ""),
        }

    def _vertex(self, vertex: JobVertex) -> dict[str, Any]:
        graph = self._graph
        return {
            "id": vertex.id,
            "name": _shortened(vertex.name),
            "label": "" if graph is None else _shortened(vertex_name(graph, vertex, self._columns)),
            "nodes": [str(node) for node in vertex.node_ids],
            "max_parallelism": encoded_figure(vertex.max_parallelism),
            "inputs": [{"vertex": edge.source_vertex_id, "edge": edge.stream_edge.id} for edge in vertex.inputs],
        }

    def _edges(self, edges: Iterable[StreamEdge]) -> dict[str, Any]:
        return {"type": "edges", "edges": [self._edge(edge) for edge in edges]}

    def _edge(self, edge: StreamEdge) -> dict[str, Any]:
        return {
            "id": edge.id,
            "source": str(edge.source_id),
            "target": str(edge.target_id),
            "input": edge.type_number,
            "partitioner": _shortened(readable(str(edge.partitioner), self._columns)),
            "words": _shortened(edge_label(edge.partitioner, self._columns)),
            "exchange": edge.exchange,
        }


def _shortened(text: str) -> str:
    """Return a text with secrets masked, cut with an ellipsis if it is long."""
    masked = mask(text)
    return masked if len(masked) <= _MAX_NAME else f"{masked[: _MAX_NAME - 1].rstrip()}…"


def _change(subject: str, before: str, after: str, node: int) -> dict[str, Any]:
    texts = {"what": _shortened(subject), "before": _shortened(before), "after": _shortened(after)}
    return {"type": "change", **texts, "node": str(node)}


def _decision(decision: Decision) -> dict[str, Any]:
    values = {name: _masked(value) for name, value in decision.as_dict().items()}
    return {"type": "decision", "index": decision.id, **values, "nodes": [str(node) for node in decision.nodes]}


def _masked(value: Any) -> Any:
    """Return a plain value with secrets in its texts masked."""
    match value:
        case str():
            return mask(value)
        case dict():
            return {name: _masked(item) for name, item in value.items()}
        case list():
            return [_masked(item) for item in value]
    return value


def _progress(vertex: VertexSnapshot) -> dict[str, Any]:
    return {
        "state": vertex.state.value,
        "parallelism": encoded_figure(vertex.parallelism),
        "reason": mask(vertex.reason),
        "tasks": encoded_figure(vertex.tasks),
        "bytes_in": encoded_figure(vertex.bytes_in),
        "bytes_out": encoded_figure(vertex.bytes_out),
        "rows_out": encoded_figure(vertex.rows_out),
        "timestamps": {state.value: at for state, at in vertex.timestamps.items()},
        "subpartitions": _grouped_sizes(list(vertex.subpartitions)),
        "subpartition_count": len(vertex.subpartitions),
    }


def _grouped_sizes(sizes: list[int]) -> list[int]:
    """Return at most `_MAX_SIZES` sizes: the largest of each group of neighbours."""
    width = subpartitions_per_bar(len(sizes))
    return [max(sizes[start : start + width]) for start in range(0, len(sizes), width)]


def subpartitions_per_bar(count: int) -> int:
    """Return the number of neighbouring subpartitions that share a bar, for a total count."""
    return -(-count // _MAX_SIZES) or 1


def _node_changes(before: StreamNode, after: StreamNode) -> Iterator[tuple[str, str]]:
    """Yield the descriptions of a node before and after each change; data that only supports decisions is left out."""
    if before.parallelism != after.parallelism:
        yield f"parallelism {before.parallelism}", f"parallelism {after.parallelism}"
    if before.max_parallelism != after.max_parallelism:
        yield f"maximum {before.max_parallelism}", f"maximum {after.max_parallelism}"
    if before.filters != after.filters:
        yield _filters(before), _filters(after)
    match before.operator, after.operator:
        case JoinOperator(strategy=old), JoinOperator(strategy=new):
            if old.algorithm != new.algorithm:
                yield _algorithm(old), _algorithm(new)
            if old.sequence != new.sequence:
                yield _order(old), _order(new)
        case AggregateOperator(aggregates_first=False), AggregateOperator(aggregates_first=True):
            yield "aggregates after rows are copied", "aggregates before rows are copied"


def _algorithm(strategy: JoinStrategy) -> str:
    if strategy.algorithm is None:
        return "join algorithm undecided"
    return f"{strategy.algorithm}" + ("" if strategy.build is None else f", builds {strategy.build}")


def _order(strategy: JoinStrategy) -> str:
    if strategy.sequence is None:
        return "joins in the order of the query"
    return "joins in the order " + ", ".join(map(str, strategy.sequence.joins))


def _filters(node: StreamNode) -> str:
    if not node.filters:
        return "no dynamic filter"
    return "filtered by keys of " + " and ".join(f"join {ref.join_id}" for ref in node.filters)
