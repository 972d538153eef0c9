"""Converts typed job events into lines of the event log, which are plain values for JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
    OutputCompared,
    VertexChanged,
    VerticesCreated,
)
from penstock.graph import AggregateOperator, JoinOperator, ScanOperator
from penstock.graph.labels import column_names, edge_label, node_name, tables_of, vertex_name, with_column_names
from penstock.history.record import encode_figure

if TYPE_CHECKING:
    from penstock.decisions.log import Decision
    from penstock.events import JobStatusEvent, VertexSnapshot
    from penstock.graph import GraphChange, JobVertex, JoinStrategy, RefusedChange, StreamGraph
    from penstock.graph.stream_graph import StreamEdge, StreamNode
    from penstock.history.record import Event

_MAX_NAME_CHARACTERS = 300
"""Maximum length of a name or of an operator's description in the log."""
_MAX_SUBPARTITION_SIZES = 400
"""Maximum number of logged subpartition sizes; if there are more, the largest of each group of neighbours is logged."""
_MAX_MESSAGE_CHARACTERS = 4000


class EventLines:
    """The converter of a job's events into log lines, in the order of the events."""

    def __init__(self) -> None:
        self._column_names: dict[str, str] = {}
        self._graph: StreamGraph | None = None
        self._job_state = ExecutionState.CREATED
        self._pending_operators = 0
        self._vertex_states: dict[str, ExecutionState] = {}
        self._vertex_count_by_state = dict.fromkeys(ExecutionState, 0)

    def lines_of(self, event: JobStatusEvent) -> Iterator[Event]:
        """Yield the lines of an event."""
        for values in self._convert(event):
            yield {"type": values["type"], "at": event.at, **values}  # `type` and `at` are first in a line

    def _convert(self, event: JobStatusEvent) -> Iterator[dict[str, Any]]:
        match event:
            case GraphPlanned(graph):
                self._column_names = column_names(graph)
                self._graph = graph
                yield self._nodes_line(graph)
                yield self._edges_line(graph.edges)
            case GraphChanged(change):
                yield from self._change_lines(change)
            case ChangeRefused(refused):
                yield self._refusal_line(refused)
            case VerticesCreated(vertices, pending):
                self._pending_operators = pending
                for vertex in vertices:
                    self._count_state(vertex)
                    yield {"type": "vertex", **self._vertex_values(vertex.vertex), **_progress_values(vertex)}
                yield self._state_line()
            case VertexChanged(vertex):
                self._count_state(vertex)
                yield {"type": "vertex", "id": vertex.vertex.id, **_progress_values(vertex)}
            case DecisionRecorded(decision) | DecisionSettled(decision):
                yield _decision_line(decision)
            case ErrorOccurred() | OutputCompared():
                yield _error_line(event) if isinstance(event, ErrorOccurred) else _comparison_line(event)
            case JobStateChanged(state, pending):
                self._job_state, self._pending_operators = state, pending
                yield self._state_line()

    def _count_state(self, vertex: VertexSnapshot) -> None:
        previous_state = self._vertex_states.get(vertex.vertex.id)
        if previous_state is not None:
            self._vertex_count_by_state[previous_state] -= 1
        self._vertex_states[vertex.vertex.id] = vertex.state
        self._vertex_count_by_state[vertex.state] += 1

    def _state_line(self) -> dict[str, Any]:
        counts = {state.value: count for state, count in self._vertex_count_by_state.items()}
        return {
            "type": "state",
            "state": self._job_state.value,
            "pending": self._pending_operators,
            "counts": counts | {"pending-operators": self._pending_operators},
        }

    def _change_lines(self, change: GraphChange) -> Iterator[dict[str, Any]]:
        if change.nodes:
            yield self._nodes_line(node for _, node in change.nodes)
        if change.edges:
            yield self._edges_line(edge for _, edge in change.edges)
        decision = change.decision
        cause = {
            "decision": None if decision is None else decision.id,
            "sentence": None if decision is None else mask(decision.displayed.sentence),
            "shown": decision is not None and decision.displayed.is_shown,
        }
        for edges in change.edges:
            old_edge, new_edge = edges
            if old_edge.partitioner != new_edge.partitioner:
                before, after = (with_column_names(str(edge.partitioner), self._column_names) for edge in edges)
                yield _change_line(self._edge_name(new_edge), before, after, new_edge.target_id) | cause
        for old_node, node in change.nodes:
            for before, after in _node_changes(old_node, node):
                yield _change_line(node.name, before, after, node.id) | cause

    def _refusal_line(self, refused: RefusedChange) -> dict[str, Any]:
        choice = refused.choice
        subject = "a change" if choice is None else choice.displayed.sentence
        return {
            "type": "refused",
            "what": _mask_and_shorten(subject),
            "because": _mask_and_shorten(refused.reason),
            "nodes": [] if choice is None else [str(node) for node in choice.subject.node_ids],
        }

    def _edge_name(self, edge: StreamEdge) -> str:
        assert self._graph is not None  # GraphPlanned precedes all changes
        return f"edge from {self._graph.node(edge.source_id).name} to {self._graph.node(edge.target_id).name}"

    def _nodes_line(self, nodes: Iterable[StreamNode]) -> dict[str, Any]:
        return {"type": "nodes", "nodes": [self._node_values(node) for node in nodes]}

    def _node_values(self, node: StreamNode) -> dict[str, Any]:
        operator, graph = node.operator, self._graph
        tables: tuple[str, ...] = ()
        if isinstance(operator, JoinOperator):
            tables = tables_of(operator)
        elif isinstance(operator, ScanOperator):
            tables = (operator.table,) if operator.table else ()
        return {
            "id": str(node.id),
            "kind": node.kind.value,
            "name": _mask_and_shorten(node.name),
            "label": "" if graph is None else _mask_and_shorten(node_name(graph, node, self._column_names)),
            "tables": [mask(table) for table in tables],
            "keys": list(operator.left.keys) if isinstance(operator, JoinOperator) else [],
            "description": _mask_and_shorten(node.description),
            "parallelism": encode_figure(node.parallelism),
            "max_parallelism": encode_figure(node.max_parallelism),
            "location": str(node.location or ""),
        }

    def _vertex_values(self, vertex: JobVertex) -> dict[str, Any]:
        graph = self._graph
        return {
            "id": vertex.id,
            "name": _mask_and_shorten(vertex.name),
            "label": "" if graph is None else _mask_and_shorten(vertex_name(graph, vertex, self._column_names)),
            "nodes": [str(node) for node in vertex.node_ids],
            "max_parallelism": encode_figure(vertex.max_parallelism),
            "inputs": [{"vertex": edge.source_vertex_id, "edge": edge.stream_edge.id} for edge in vertex.inputs],
        }

    def _edges_line(self, edges: Iterable[StreamEdge]) -> dict[str, Any]:
        return {"type": "edges", "edges": [self._edge_values(edge) for edge in edges]}

    def _edge_values(self, edge: StreamEdge) -> dict[str, Any]:
        return {
            "id": edge.id,
            "source": str(edge.source_id),
            "target": str(edge.target_id),
            "input": edge.type_number,
            "partitioner": _mask_and_shorten(with_column_names(str(edge.partitioner), self._column_names)),
            "words": _mask_and_shorten(edge_label(edge.partitioner, self._column_names)),
            "exchange": edge.exchange,
        }


def _mask_and_shorten(text: str) -> str:
    """Return a text with secrets masked, cut with an ellipsis if it is long."""
    masked = mask(text)
    return masked if len(masked) <= _MAX_NAME_CHARACTERS else f"{masked[: _MAX_NAME_CHARACTERS - 1].rstrip()}…"


def _change_line(subject: str, before: str, after: str, node: int) -> dict[str, Any]:
    texts = {"what": _mask_and_shorten(subject), "before": _mask_and_shorten(before), "after": _mask_and_shorten(after)}
    return {"type": "change", **texts, "node": str(node)}


def _error_line(event: ErrorOccurred) -> dict[str, Any]:
    message = mask(str(event.error))[:_MAX_MESSAGE_CHARACTERS]  # masked before the cut, which may halve a secret
    trace = mask(event.trace)[-_MAX_MESSAGE_CHARACTERS:]
    return {"type": "exception", "message": message, "trace": trace, "vertex": event.vertex_id}


def _comparison_line(event: OutputCompared) -> dict[str, Any]:
    values = {"output": mask(event.output), "verdict": event.verdict}
    return {"type": "compared", **values, "seconds": event.seconds, "spark_seconds": event.spark_seconds}


def _decision_line(decision: Decision) -> dict[str, Any]:
    values = {name: _mask_texts(value) for name, value in decision.as_dict().items()}
    return {"type": "decision", "index": decision.id, **values, "nodes": [str(node) for node in decision.nodes]}


def _mask_texts(value: Any) -> Any:
    """Return a plain value with secrets in its texts masked."""
    match value:
        case str():
            return mask(value)
        case dict():
            return {name: _mask_texts(item) for name, item in value.items()}
        case list():
            return [_mask_texts(item) for item in value]
    return value


def _progress_values(vertex: VertexSnapshot) -> dict[str, Any]:
    return {
        "state": vertex.state.value,
        "parallelism": encode_figure(vertex.parallelism),
        "reason": mask(vertex.reason),
        "tasks": encode_figure(vertex.tasks),
        "bytes_in": encode_figure(vertex.bytes_in),
        "bytes_out": encode_figure(vertex.bytes_out),
        "rows_out": encode_figure(vertex.rows_out),
        "timestamps": {state.value: at for state, at in vertex.timestamps.items()},
        "subpartitions": _grouped_sizes(list(vertex.subpartitions)),
        "subpartition_count": len(vertex.subpartitions),
        **({"python_functions": list(vertex.python_functions)} if vertex.python_functions else {}),
    }


def _grouped_sizes(sizes: list[int]) -> list[int]:
    """Return at most `_MAX_SUBPARTITION_SIZES` sizes: the largest of each group of neighbours."""
    width = subpartitions_per_bar(len(sizes))
    return [max(sizes[start : start + width]) for start in range(0, len(sizes), width)]


def subpartitions_per_bar(count: int) -> int:
    """Return how many neighbouring subpartitions share a bar of the chart, if there are `count` subpartitions."""
    return -(-count // _MAX_SUBPARTITION_SIZES) or 1


def _node_changes(old_node: StreamNode, node: StreamNode) -> Iterator[tuple[str, str]]:
    """Yield, for each change of a node, texts before and after it; changes that only strategies read are omitted."""
    if old_node.parallelism != node.parallelism:
        yield f"parallelism {old_node.parallelism}", f"parallelism {node.parallelism}"
    if old_node.max_parallelism != node.max_parallelism:
        yield f"maximum {old_node.max_parallelism}", f"maximum {node.max_parallelism}"
    if old_node.filters != node.filters:
        yield _filters_text(old_node), _filters_text(node)
    match old_node.operator, node.operator:
        case JoinOperator(strategy=old_strategy), JoinOperator(strategy=strategy):
            if old_strategy.algorithm != strategy.algorithm:
                yield _algorithm_text(old_strategy), _algorithm_text(strategy)
            if old_strategy.sequence != strategy.sequence:
                yield _join_order_text(old_strategy), _join_order_text(strategy)
        case AggregateOperator(aggregates_first=False), AggregateOperator(aggregates_first=True):
            yield "aggregates after rows are copied", "aggregates before rows are copied"


def _algorithm_text(strategy: JoinStrategy) -> str:
    if strategy.algorithm is None:
        return "join algorithm undecided"
    return f"{strategy.algorithm}" + ("" if strategy.build is None else f", builds {strategy.build}")


def _join_order_text(strategy: JoinStrategy) -> str:
    if strategy.sequence is None:
        return "joins in the order of the query"
    return "joins in the order " + ", ".join(map(str, strategy.sequence.joins))


def _filters_text(node: StreamNode) -> str:
    if not node.filters:
        return "no dynamic filter"
    return "filtered by keys of " + " and ".join(f"join {ref.join_id}" for ref in node.filters)
