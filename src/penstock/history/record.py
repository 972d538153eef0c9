"""Job records, built from events: the common source of the API, the page, the terminal and notebooks."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.events import ExecutionState

Event = dict[str, Any]
"""A line of a job's event log; ``type`` is the kind of event, ``at`` its time in seconds since the epoch."""

ENDED = frozenset({"FINISHED", "FAILED", "CANCELED", "INTERRUPTED"})


def figure_or_none(figure: int) -> int | None:
    """Return a figure of a record, or None for -1, which stands for unknown as in Flink's REST API."""
    return None if figure < 0 else figure


def run_times(vertex: dict[str, Any]) -> tuple[float | None, float | None]:
    """Return the start and end times of a recorded vertex; None for a state that it has not reached."""
    reached = {ExecutionState(state): at for state, at in vertex["timestamps"].items()}
    ends = [at for state, at in reached.items() if state.is_terminal]
    return reached.get(ExecutionState.RUNNING), ends[0] if ends else None


@dataclass
class JobRecord:
    """The state of a job, updated by `apply`.

    Attributes
    ----------
    nodes, edges
        The current stream graph, by ids as text.
    vertices
        The job vertices created so far, in order.
    decisions
        All decisions, in order.
    changes
        The changes of the stream graph by the optimizer: before, after and the reason as a sentence; `decision` is the
        id of the decision that caused the change.
    refused
        The changes of strategies that were rejected, with reasons.
    query
        The origin of the query: its SQL text, the user's line, and, if Spark delegated it, the address of Spark's own
        page of the waiting execution.
    application
        The Spark application, by its id and the address of its pages.
    tasks
        The tasks of each vertex that has ended.
    stages
        The totals over all tasks of each stage of these vertices.
    """

    id: str = "?"
    name: str = ""
    state: str = "CREATED"
    started: float = 0.0
    ended: float | None = None
    changed: float = 0.0
    host: str = ""
    pid: int = 0
    pending: int = 0
    spark: str = ""
    config: dict[str, dict[str, str]] = field(default_factory=dict)
    query: dict[str, Any] | None = None
    application: dict[str, Any] | None = None
    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    edges: dict[str, dict[str, Any]] = field(default_factory=dict)
    vertices: dict[str, dict[str, Any]] = field(default_factory=dict)
    tasks: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    stages: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    decisions: list[dict[str, Any]] = field(default_factory=list)
    changes: list[dict[str, Any]] = field(default_factory=list)
    refused: list[dict[str, Any]] = field(default_factory=list)
    exceptions: list[dict[str, Any]] = field(default_factory=list)
    timestamps: dict[str, float] = field(default_factory=dict)
    version: int = 0
    """Increases with every event."""
    _lock: threading.Lock = field(default_factory=threading.Lock, compare=False, repr=False)

    def apply_all(self, events: list[Event]) -> None:
        """Apply events atomically: a `frozen` record contains all of them or none."""
        with self._lock:
            for event in events:
                self.apply(event)

    def frozen(self) -> JobRecord:
        """Return a snapshot that does not change while events are applied on another thread."""
        if self.is_ended:
            return self
        with self._lock:
            return replace(
                self,
                nodes=dict(self.nodes),
                edges=dict(self.edges),
                tasks=dict(self.tasks),
                stages=dict(self.stages),
                vertices={key: dict(vertex) for key, vertex in self.vertices.items()},
                decisions=list(self.decisions),
                changes=list(self.changes),
                refused=list(self.refused),
                exceptions=list(self.exceptions),
                timestamps=dict(self.timestamps),
                _lock=threading.Lock(),
            )

    def apply(self, event: Event) -> None:
        """Apply an event; unknown types, from newer releases, are ignored."""
        handler = getattr(self, f"_on_{event.get('type')}", None)
        if handler is not None:
            handler(event)
            self.changed = max(self.changed, float(event.get("at", 0.0)))
            self.version += 1

    def _on_job(self, event: Event) -> None:
        for key in ("id", "name", "started", "host", "pid", "spark", "config"):
            setattr(self, key, event[key])
        self.query, self.application = event.get("query"), event.get("application")  # absent in logs of older releases

    def _on_state(self, event: Event) -> None:
        self.state, self.pending = event["state"], event["pending"]
        self.timestamps.setdefault(self.state, event["at"])
        if self.state in ENDED:
            self.ended = event["at"]

    def _on_nodes(self, event: Event) -> None:
        self.nodes |= {node["id"]: node for node in event["nodes"]}

    def _on_edges(self, event: Event) -> None:
        self.edges |= {edge["id"]: edge for edge in event["edges"]}

    def _on_change(self, event: Event) -> None:
        change = {key: event[key] for key in ("at", "what", "before", "after", "node")}
        # Logs of older releases lack these fields, or have reasons instead of a sentence.
        sentence = event.get("sentence") or "; ".join(event.get("reasons", ())) or None
        cause = {"decision": event.get("decision"), "sentence": sentence, "shown": event.get("shown", True)}
        self.changes.append(change | cause)

    def _on_refused(self, event: Event) -> None:
        self.refused.append({key: event[key] for key in ("at", "what", "because", "nodes")})

    def _on_vertex(self, event: Event) -> None:
        values = {key: value for key, value in event.items() if key not in {"type", "at"}}
        self.vertices.setdefault(values["id"], {}).update(values)

    def _on_tasks(self, event: Event) -> None:
        self.tasks[event["vertex"]] = event["tasks"]
        self.stages[event["vertex"]] = event.get("stages", [])  # absent in logs of older releases

    def _on_decision(self, event: Event) -> None:
        index = event["index"]
        decision = {key: value for key, value in event.items() if key not in {"type", "index"}}
        if index < len(self.decisions):
            self.decisions[index] = decision
        else:
            self.decisions.append(decision)

    def _on_exception(self, event: Event) -> None:
        self.exceptions.append({key: event[key] for key in ("at", "message", "trace", "vertex")})

    @property
    def is_ended(self) -> bool:
        """Whether the job has ended."""
        return self.state in ENDED

    def vertex_of(self) -> dict[str, str]:
        """Return the vertex id of every stream node that is part of a vertex."""
        return {node: vertex["id"] for vertex in self.vertices.values() for node in vertex["nodes"]}

    def decisions_of(self, vertex: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the decisions about a vertex or its operators; logs of older releases name only the vertex."""
        own, name = set(vertex["nodes"]), f"{vertex['id']} "
        return [
            decision
            for decision in self.decisions
            if not own.isdisjoint(decision.get("nodes", ()))
            or ("nodes" not in decision and decision["subject"].startswith(name))
        ]

    def status_counts(self) -> dict[str, int]:
        """Return the number of vertices in each state, and the number of pending operators."""
        counts = {state.value: 0 for state in ExecutionState}
        for vertex in self.vertices.values():
            counts[vertex["state"]] += 1
        return counts | {"pending-operators": self.pending}

    def seconds(self, now: float) -> float:
        """Return its duration so far."""
        return max((self.ended if self.ended is not None else now) - self.started, 0.0)
