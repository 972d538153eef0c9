"""Records of jobs and their parts, loaded from event logs: the common source of the API, the page and the terminal."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.decisions.record import DecisionRecord, JobSummary
from penstock.events import ExecutionState
from penstock.graph.labels import edge_label
from penstock.graph.partitioner import (
    BROADCAST,
    FORWARD,
    GLOBAL,
    REBALANCE,
    RESCALE,
    AdaptiveRebalancePartitioner,
    HashPartitioner,
    Partitioner,
    RangePartitioner,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

Event = dict[str, Any]
"""A line of a job's event log; ``type`` is the kind of event, ``at`` its time in seconds since the epoch."""
Row = TypeVar("Row")

INTERRUPTED = "INTERRUPTED"
"""The state of a job whose driver died before the job ended."""
ENDED = frozenset({"FINISHED", "FAILED", "CANCELED", INTERRUPTED})
_NAMED = {partitioner.name: partitioner for partitioner in (BROADCAST, GLOBAL, REBALANCE, RESCALE)}


def encoded_figure(figure: int | None) -> int:
    """Return a figure as logs and the API contain it: -1 for unknown, as in Flink's REST API."""
    return -1 if figure is None else figure


def _decoded_figure(figure: int) -> int | None:
    return None if figure < 0 else figure


def _load(row_type: type[Row], values: Mapping[str, Any], /, **more: Any) -> Row:
    """Return a record of the values that it has fields for; logs of newer releases contain more."""
    names: Mapping[str, Any] = row_type.__dataclass_fields__  # type: ignore[attr-defined]
    return row_type(**{name: value for name, value in values.items() if name in names} | more)


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """An operator of the stream graph; `values` are its plain values, as the log contains them."""

    id: str
    kind: str
    name: str
    description: str
    parallelism: int | None
    max_parallelism: int | None
    values: Mapping[str, Any]
    label: str = ""
    location: str = ""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> NodeRecord:
        """Load a node; logs of older releases have neither labels nor locations."""
        figures = {name: _decoded_figure(values[name]) for name in ("parallelism", "max_parallelism")}
        return _load(cls, values, values=values, **figures)

    @property
    def display_name(self) -> str:
        """The name that users see."""
        return self.label or self.name


@dataclass(frozen=True, slots=True)
class EdgeRecord:
    """An edge of the stream graph; `words` say how its rows are distributed, empty if they stay in their task."""

    id: str
    source: str
    target: str
    input: int
    partitioner: str
    exchange: str
    words: str

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> EdgeRecord:
        """Load an edge; logs of older releases have no words."""
        words = values.get("words")
        return _load(cls, values, words=edge_label(_partitioner(values["partitioner"]), {}) if words is None else words)

    @property
    def distribution(self) -> str:
        """How its rows are distributed, for users."""
        return self.words or "in the same task"


@dataclass(frozen=True, slots=True)
class VertexInput:
    """An input of a vertex: the ids of the vertex that it reads and of the edge between them."""

    vertex: str
    edge: str


@dataclass(frozen=True, slots=True)
class VertexRecord:
    """A job vertex, see `penstock.events.VertexSnapshot`.

    `subpartitions` has the bytes of each of `subpartition_count` subpartitions; if there are many, the largest of each
    group of neighbours.
    """

    id: str
    name: str
    nodes: tuple[str, ...]
    inputs: tuple[VertexInput, ...]
    max_parallelism: int | None
    label: str = ""
    state: str = "CREATED"
    parallelism: int | None = None
    reason: str = ""
    tasks: int | None = None
    bytes_in: int | None = None
    bytes_out: int | None = None
    rows_out: int | None = None
    timestamps: Mapping[str, float] = field(default_factory=dict)
    subpartitions: tuple[int, ...] = ()
    subpartition_count: int = 0

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> VertexRecord:
        """Load a vertex; logs of older releases have no label."""
        return _load(cls, cls._typed(values))

    def updated(self, values: Mapping[str, Any]) -> VertexRecord:
        """Return the vertex with the values of a later line, which has only those that change."""
        names = VertexRecord.__dataclass_fields__
        return replace(self, **{name: value for name, value in self._typed(values).items() if name in names})

    @staticmethod
    def _typed(values: Mapping[str, Any]) -> dict[str, Any]:
        typed = dict(values)
        for name in ("max_parallelism", "parallelism", "tasks", "bytes_in", "bytes_out", "rows_out"):
            if name in typed:
                typed[name] = _decoded_figure(typed[name])
        for name in ("nodes", "subpartitions"):
            if name in typed:
                typed[name] = tuple(typed[name])
        if "inputs" in typed:
            typed["inputs"] = tuple(_load(VertexInput, edge) for edge in typed["inputs"])
        return typed

    @property
    def display_name(self) -> str:
        """The name that users see."""
        return self.label or self.name

    @property
    def started(self) -> float | None:
        """When it started to run, None before that."""
        return self.timestamps.get("RUNNING")

    @property
    def ended(self) -> float | None:
        """When it ended, None before that."""
        return next((at for state, at in self.timestamps.items() if state in ENDED), None)


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """A task that has ended, see `penstock.spark.run.jobs.TaskRun`; logs of older releases have no attempts."""

    stage: int
    index: int
    state: str
    host: str
    started: float
    seconds: float
    bytes_in: int
    bytes_out: int
    rows_in: int
    rows_out: int
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class StageRecord:
    """The totals over all tasks of a stage, see `penstock.spark.run.jobs.StageFigures`."""

    id: int
    tasks: int
    seconds: float
    rows_in: int
    spilled: int


@dataclass(frozen=True, slots=True)
class ChangeRecord:
    """A change of the stream graph by the optimizer, with the reason as a sentence, and the id of its decision."""

    at: float
    what: str
    before: str
    after: str
    node: str
    decision: int | None
    sentence: str | None
    shown: bool

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> ChangeRecord:
        """Load a change; logs of older releases lack its cause, or have reasons instead of a sentence."""
        sentence = values.get("sentence") or "; ".join(values.get("reasons", ())) or None
        cause = {"decision": values.get("decision"), "sentence": sentence, "shown": values.get("shown", True)}
        return _load(cls, values, **cause)


@dataclass(frozen=True, slots=True)
class RefusedRecord:
    """A change of a strategy that was rejected, with the reason."""

    at: float
    what: str
    because: str
    nodes: list[str]


@dataclass(frozen=True, slots=True)
class ErrorRecord:
    """An error of a job; `vertex` is the id of the vertex that failed, None for other errors."""

    at: float
    message: str
    trace: str
    vertex: str | None


@dataclass
class JobRecord:
    """The state of a job, updated by `apply`.

    `query` is the origin of the query: its SQL text, the user's line, and, if Spark delegated it, the address of
    Spark's own page of the waiting execution. `application` is the id of the Spark application and the address of its
    pages. `nodes` and `edges` are the current stream graph, by ids; `vertices` the job vertices created so far, in
    order. `tasks` are those of each vertex that has ended; `stages` the totals over all tasks of each of its stages.
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
    nodes: dict[str, NodeRecord] = field(default_factory=dict)
    edges: dict[str, EdgeRecord] = field(default_factory=dict)
    vertices: dict[str, VertexRecord] = field(default_factory=dict)
    tasks: dict[str, list[TaskRecord]] = field(default_factory=dict)
    stages: dict[str, list[StageRecord]] = field(default_factory=dict)
    decisions: list[DecisionRecord] = field(default_factory=list)
    changes: list[ChangeRecord] = field(default_factory=list)
    refused: list[RefusedRecord] = field(default_factory=list)
    exceptions: list[ErrorRecord] = field(default_factory=list)
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
            copies: dict[str, Any] = {
                name: value.copy() for name, value in vars(self).items() if isinstance(value, (dict, list))
            }
            return replace(self, **copies, _lock=threading.Lock())

    def apply(self, event: Event) -> None:
        """Apply an event; unknown types, from newer releases, are ignored."""
        handler = getattr(self, f"_on_{event.get('type')}", None)
        if handler is not None:
            handler(event)
            self.changed = max(self.changed, float(event.get("at", 0.0)))
            self.version += 1

    def interrupt(self) -> None:
        """Mark the job as interrupted at the end of its log."""
        self.state, self.ended = INTERRUPTED, self.changed
        for vertex_id, vertex in self.vertices.items():
            if vertex.state not in ENDED:
                self.vertices[vertex_id] = replace(vertex, state="CANCELED")

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
        self.nodes |= {node["id"]: NodeRecord.of(node) for node in event["nodes"]}

    def _on_edges(self, event: Event) -> None:
        self.edges |= {edge["id"]: EdgeRecord.of(edge) for edge in event["edges"]}

    def _on_change(self, event: Event) -> None:
        self.changes.append(ChangeRecord.of(event))

    def _on_refused(self, event: Event) -> None:
        self.refused.append(_load(RefusedRecord, event))

    def _on_vertex(self, event: Event) -> None:
        before = self.vertices.get(event["id"])
        self.vertices[event["id"]] = VertexRecord.of(event) if before is None else before.updated(event)

    def _on_tasks(self, event: Event) -> None:
        self.tasks[event["vertex"]] = [_load(TaskRecord, task) for task in event["tasks"]]
        # Logs of older releases have no stages.
        self.stages[event["vertex"]] = [_load(StageRecord, stage) for stage in event.get("stages", ())]

    def _on_decision(self, event: Event) -> None:
        index = min(event["index"], len(self.decisions))
        values = {key: value for key, value in event.items() if key not in {"type", "index"}}
        self.decisions[index : index + 1] = [DecisionRecord.from_dict(index, values)]

    def _on_exception(self, event: Event) -> None:
        self.exceptions.append(_load(ErrorRecord, event))

    @property
    def is_ended(self) -> bool:
        """Whether the job has ended."""
        return self.state in ENDED

    def vertex_of(self) -> dict[str, str]:
        """Return the vertex id of every stream node that is part of a vertex."""
        return {node: vertex.id for vertex in self.vertices.values() for node in vertex.nodes}

    def nodes_of(self, vertex: VertexRecord) -> list[NodeRecord]:
        """Return the operators of a vertex."""
        return [self.nodes[node] for node in vertex.nodes if node in self.nodes]

    def decisions_of(self, vertex: VertexRecord) -> list[DecisionRecord]:
        """Return the decisions about a vertex or its operators."""
        return [decision for decision in self.decisions if decision.concerns(vertex.id, vertex.nodes)]

    def status_counts(self) -> dict[str, int]:
        """Return the number of vertices in each state, and the number of pending operators."""
        counts = {state.value: 0 for state in ExecutionState}
        for vertex in self.vertices.values():
            counts[vertex.state] += 1
        return counts | {"pending-operators": self.pending}

    def seconds(self, now: float) -> float:
        """Return its duration so far."""
        return max((self.ended if self.ended is not None else now) - self.started, 0.0)

    def summary(self, last_seconds: float | None = None) -> JobSummary:
        """Return its summary; `last_seconds` is the duration of its previous run, None without one."""
        tasks = sum(vertex.tasks or 0 for vertex in self.vertices.values())
        return JobSummary.of(self.decisions, tasks, self.seconds(time.time()), last_seconds)


def _partitioner(text: str) -> Partitioner:
    """Parse the text that older releases wrote for a partitioner."""
    name, _, rest = text.partition("(")
    keys = _keys(rest.removesuffix(")"))
    if name.startswith(FORWARD.name):
        return FORWARD
    if name == HashPartitioner.name and keys:
        return HashPartitioner(keys)
    if name == RangePartitioner.name:
        return RangePartitioner(keys)
    return AdaptiveRebalancePartitioner(0) if rest else _NAMED.get(name, RESCALE)


def _keys(text: str) -> tuple[str, ...]:
    """Split keys at commas, but not at commas within parentheses."""
    keys, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and not depth:
            keys.append(text[start:at])
            start = at + 1
    return tuple(filter(None, map(str.strip, (*keys, text[start:]))))
