"""A job as its events tell it: the one source of what the API, the page, the terminal and notebooks show."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.events import ExecutionState

Event = dict[str, Any]
"""One line of a job's log; ``type`` says what it is, ``at`` when it happened in seconds since the epoch."""

ENDED = frozenset({"FINISHED", "FAILED", "CANCELED", "INTERRUPTED"})


def known(figure: int) -> int | None:
    """Return a figure of a record; what is not known is -1 there, as in Flink's REST API."""
    return None if figure < 0 else figure


def run_times(vertex: dict[str, Any]) -> tuple[float | None, float | None]:
    """Return when a vertex of a record began to run, and when it ended; None for what has not happened."""
    reached = {ExecutionState(state): at for state, at in vertex["timestamps"].items()}
    ends = [at for state, at in reached.items() if state.is_terminal]
    return reached.get(ExecutionState.RUNNING), ends[0] if ends else None


@dataclass
class JobRecord:
    """What is known of a job; grows by `apply`.

    Attributes
    ----------
    nodes, edges
        The stream graph as it is now, by ids as text.
    vertices
        The job vertices made so far, in order.
    decisions
        All decisions, in order.
    changes
        What the optimizer changed: before, after and why, as a sentence; `decision` is the number of the decision that
        changed it.
    refused
        What strategies asked for that could not be, and why not.
    query
        Where the query comes from: the SQL text that it was given as, the user's line, and, if Spark handed it over,
        Spark's own page of the execution that waits.
    application
        The Spark application, by its id and the address of its pages.
    tasks
        The tasks of each vertex that has ended.
    stages
        What all tasks of each stage of such a vertex did together.
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
    """Grows with every event."""
    _lock: threading.Lock = field(default_factory=threading.Lock, compare=False, repr=False)

    def apply_all(self, events: list[Event]) -> None:
        """Take events that belong together: who reads `frozen` records sees all of them or none."""
        with self._lock:
            for event in events:
                self.apply(event)

    def frozen(self) -> JobRecord:
        """Return a record that stays as it is while this one grows on another thread."""
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
        """Take an event; one of an unknown type, from a newer release, is passed over."""
        handler = getattr(self, f"_on_{event.get('type')}", None)
        if handler is not None:
            handler(event)
            self.changed = max(self.changed, float(event.get("at", 0.0)))
            self.version += 1

    def _on_job(self, event: Event) -> None:
        for key in ("id", "name", "started", "host", "pid", "spark", "config"):
            setattr(self, key, event[key])
        self.query, self.application = event.get("query"), event.get("application")  # older releases do not tell

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
        # Logs of older releases do not tell the rest, or tell reasons instead of a sentence.
        sentence = event.get("sentence") or "; ".join(event.get("reasons", ())) or None
        told = {"decision": event.get("decision"), "sentence": sentence, "shown": event.get("shown", True)}
        self.changes.append(change | told)

    def _on_refused(self, event: Event) -> None:
        self.refused.append({key: event[key] for key in ("at", "what", "because", "nodes")})

    def _on_vertex(self, event: Event) -> None:
        values = {key: value for key, value in event.items() if key not in {"type", "at"}}
        self.vertices.setdefault(values["id"], {}).update(values)

    def _on_tasks(self, event: Event) -> None:
        self.tasks[event["vertex"]] = event["tasks"]
        self.stages[event["vertex"]] = event.get("stages", [])  # logs of older releases do not tell

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
        """Whether nothing will happen to it any more."""
        return self.state in ENDED

    def vertex_of(self) -> dict[str, str]:
        """Return the vertex of every stream node that is part of one."""
        return {node: vertex["id"] for vertex in self.vertices.values() for node in vertex["nodes"]}

    def decisions_of(self, vertex: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the decisions about a vertex or an operator in it; logs of older releases tell only of the vertex."""
        own, name = set(vertex["nodes"]), f"{vertex['id']} "
        return [
            one
            for one in self.decisions
            if not own.isdisjoint(one.get("nodes", ())) or ("nodes" not in one and one["subject"].startswith(name))
        ]

    def status_counts(self) -> dict[str, int]:
        """Return how many vertices are in each state, and how many operators are pending."""
        counts = {state.value: 0 for state in ExecutionState}
        for vertex in self.vertices.values():
            counts[vertex["state"]] += 1
        return counts | {"pending-operators": self.pending}

    def seconds(self, now: float) -> float:
        """Return how long it has been running, or ran."""
        return max((self.ended if self.ended is not None else now) - self.started, 0.0)
