"""Records of jobs and of their operators, vertices and tasks, built from event logs for the web page and terminal."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from penstock.decisions.plain_spark import SparkSettings
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

Event = dict[str, Any]
"""A line of a job's event log; ``type`` is the kind of event, ``at`` its time in seconds since the epoch."""
RecordType = TypeVar("RecordType")

INTERRUPTED = "INTERRUPTED"
"""The state of a job whose driver died before the job ended."""
END_STATES = frozenset({"FINISHED", "FAILED", "CANCELED", INTERRUPTED})
# Partitioners without arguments, by their names in logs of older releases.
_PARTITIONERS = {partitioner.name: partitioner for partitioner in (BROADCAST, GLOBAL, REBALANCE, RESCALE)}


def encode_figure(figure: int | None) -> int:
    """Return a figure for logs and the REST API, in which -1 means unknown, as in Flink's REST API."""
    return -1 if figure is None else figure


def _decode_figure(figure: int) -> int | None:
    return None if figure < 0 else figure


def _load(record_type: type[RecordType], values: Mapping[str, Any], /, **overrides: Any) -> RecordType:
    """Return a record with `overrides` and the `values` of its fields; logs of newer releases may have more values."""
    fields: Mapping[str, Any] = record_type.__dataclass_fields__  # type: ignore[attr-defined]
    return record_type(**{name: value for name, value in values.items() if name in fields} | overrides)


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """An operator of the stream graph; `location` is the user's line or empty, `values` the JSON object in the log."""

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
        figures = {name: _decode_figure(values[name]) for name in ("parallelism", "max_parallelism")}
        return _load(cls, values, values=values, **figures)

    @property
    def display_name(self) -> str:
        """The name that users see."""
        return self.label or self.name


@dataclass(frozen=True, slots=True)
class EdgeRecord:
    """An edge from node `source` to `target`; `words` says how rows are distributed (empty: rows stay in the task)."""

    id: str
    source: str
    target: str
    input: int  # the number of the target's input
    partitioner: str
    exchange: str  # PIPELINED or BLOCKING, see `StreamEdge.exchange`
    words: str

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> EdgeRecord:
        """Load an edge; logs of older releases lack `words`, which is then derived from the partitioner."""
        words = values.get("words")
        return _load(cls, values, words=edge_label(_partitioner(values["partitioner"]), {}) if words is None else words)

    @property
    def distribution(self) -> str:
        """Text for users that says how the rows are distributed."""
        return self.words or "in the same task"


@dataclass(frozen=True, slots=True)
class VertexInput:
    """An input of a vertex: the id of the upstream vertex, and the id of the edge from there."""

    vertex: str
    edge: str


@dataclass(frozen=True, slots=True)
class VertexRecord:
    """A job vertex, see `penstock.events.VertexSnapshot`.

    `subpartitions` has the bytes of each of the `subpartition_count` subpartitions of the output. If there are many,
    it has only the bytes of the largest subpartition in each group of neighbours.
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
    python_functions: tuple[str, ...] = ()

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> VertexRecord:
        """Load a vertex; logs of older releases have no label."""
        return _load(cls, cls._decode(values))

    def updated(self, values: Mapping[str, Any]) -> VertexRecord:
        """Return the vertex with the values of a later line, which lacks constant values such as the name."""
        fields = VertexRecord.__dataclass_fields__
        return replace(self, **{name: value for name, value in self._decode(values).items() if name in fields})

    @staticmethod
    def _decode(values: Mapping[str, Any]) -> dict[str, Any]:
        decoded = dict(values)
        for name in ("max_parallelism", "parallelism", "tasks", "bytes_in", "bytes_out", "rows_out"):
            if name in decoded:
                decoded[name] = _decode_figure(decoded[name])
        for name in ("nodes", "subpartitions", "python_functions"):
            if name in decoded:
                decoded[name] = tuple(decoded[name])
        if "inputs" in decoded:
            decoded["inputs"] = tuple(_load(VertexInput, edge) for edge in decoded["inputs"])
        return decoded

    @property
    def display_name(self) -> str:
        """The name that users see."""
        return self.label or self.name

    @property
    def started(self) -> float | None:
        """The time when the vertex started to run, in seconds since the epoch; None before that."""
        return self.timestamps.get("RUNNING")

    @property
    def ended(self) -> float | None:
        """The time when the vertex ended, in seconds since the epoch; None if unfinished, also after a driver crash."""
        return next((at for state, at in self.timestamps.items() if state in END_STATES), None)


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """A task attempt of an ended vertex, see `penstock.spark.run.jobs.TaskRun`; older logs lack the stage `attempt`."""

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
    """The totals of the last attempt of a stage, see `penstock.spark.run.jobs.StageFigures`."""

    id: int
    tasks: int
    seconds: float  # run time of all tasks together
    rows_in: int
    spilled: int  # bytes on disk
    cpu_seconds: float | None = None
    gc_seconds: float | None = None
    fetch_seconds: float | None = None
    """CPU time, garbage collection, and waits for shuffled data; None in logs of older releases."""


@dataclass(frozen=True, slots=True)
class ComparedRecord:
    """The comparison of an output with plain Spark, see `penstock.events.OutputCompared`."""

    output: str
    verdict: str
    seconds: float | None
    spark_seconds: float | None


@dataclass(frozen=True, slots=True)
class ChangeRecord:
    """A change of a node or edge; `sentence` explains the decision with the id `decision`; users see it if `shown`."""

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
    """A change that a strategy requested and that was refused; `because` is the reason."""

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
    """The state of a job, updated by `apply`. Times are in seconds since the epoch; the last event was at `changed`.

    `query` is the origin of the query: its SQL text, the user's line, whether Spark delegated it to Penstock
    (``of_spark``), and the address in Spark's UI of the SQL execution that waits for the job. `application` is the id
    of the Spark application and the address of its UI. `nodes` and `edges` are the current stream graph, by id;
    `vertices` are the created job vertices, in order. `tasks` and `stages` are those of ended vertices, by vertex id.
    `host` and `pid` identify the driver, `spark` is Spark's version, `pending` counts the operators without a vertex.
    `compared` has the comparisons with plain Spark, and `spark_settings` Spark's settings, None if not recorded.
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
    spark_settings: SparkSettings | None = None
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
    compared: list[ComparedRecord] = field(default_factory=list)
    timestamps: dict[str, float] = field(default_factory=dict)
    version: int = 0
    """Increases with every applied event."""
    _lock: threading.Lock = field(default_factory=threading.Lock, compare=False, repr=False)

    def apply_all(self, events: list[Event]) -> None:
        """Apply events atomically: a `snapshot` contains all of them or none."""
        with self._lock:
            for event in events:
                self.apply(event)

    def snapshot(self) -> JobRecord:
        """Return a snapshot that does not change while events are applied on another thread."""
        if self.is_ended:
            return self  # no event follows
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
        """Mark the job as interrupted at the time of the last event, and its unfinished vertices as canceled."""
        self.state, self.ended = INTERRUPTED, self.changed
        for vertex_id, vertex in self.vertices.items():
            if vertex.state not in END_STATES:
                self.vertices[vertex_id] = replace(vertex, state="CANCELED")

    def _on_job(self, event: Event) -> None:
        for key in ("id", "name", "started", "host", "pid", "spark", "config"):
            setattr(self, key, event[key])
        # Logs of older releases lack the following values.
        self.query, self.application = event.get("query"), event.get("application")
        if settings := event.get("spark_settings"):
            self.spark_settings = SparkSettings(settings, event["cores"])

    def _on_state(self, event: Event) -> None:
        self.state, self.pending = event["state"], event["pending"]
        self.timestamps.setdefault(self.state, event["at"])
        if self.state in END_STATES:
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
        vertex = self.vertices.get(event["id"])
        self.vertices[event["id"]] = VertexRecord.of(event) if vertex is None else vertex.updated(event)

    def _on_tasks(self, event: Event) -> None:
        self.tasks[event["vertex"]] = [_load(TaskRecord, task) for task in event["tasks"]]
        # Logs of older releases have no stages.
        self.stages[event["vertex"]] = [_load(StageRecord, stage) for stage in event.get("stages", ())]

    def _on_decision(self, event: Event) -> None:
        # A later line of a decision replaces the earlier line. In an incomplete log, the index may be too large.
        index = min(event["index"], len(self.decisions))
        values = {key: value for key, value in event.items() if key not in {"type", "index"}}
        self.decisions[index : index + 1] = [DecisionRecord.from_dict(index, values)]

    def _on_exception(self, event: Event) -> None:
        self.exceptions.append(_load(ErrorRecord, event))

    def _on_compared(self, event: Event) -> None:
        self.compared.append(_load(ComparedRecord, event))

    @property
    def is_ended(self) -> bool:
        """Whether the job has ended."""
        return self.state in END_STATES

    def vertex_ids_by_node(self) -> dict[str, str]:
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
        """Return the seconds from the start of the job to its end, or to the time `now` if it has not ended."""
        return max((self.ended if self.ended is not None else now) - self.started, 0.0)

    def seconds_without_comparison(self, now: float) -> float:
        """Return `seconds` without the time in which plain Spark ran the queries as well, to compare the rows."""
        return next((output.seconds for output in self.compared if output.seconds is not None), self.seconds(now))

    @property
    def spark_seconds(self) -> float | None:
        """The seconds that plain Spark took for all outputs of the job; None if it did not run all of them."""
        seconds = [output.spark_seconds for output in self.compared if output.spark_seconds is not None]
        return sum(seconds) if seconds and len(seconds) == len(self.compared) else None

    def summary(self) -> JobSummary:
        """Return the summary of the job, without the duration of its previous run."""
        tasks = sum(vertex.tasks or 0 for vertex in self.vertices.values())
        return JobSummary.of(self.decisions, tasks, self.seconds(time.time()))


def _partitioner(text: str) -> Partitioner:
    """Parse the text that older releases wrote for a partitioner."""
    name, _, arguments = text.partition("(")
    keys = _split_keys(arguments.removesuffix(")"))
    if name.startswith(FORWARD.name):
        return FORWARD
    if name == HashPartitioner.name and keys:
        return HashPartitioner(keys)
    if name == RangePartitioner.name:
        return RangePartitioner(keys)
    # Of the others, only adaptive partitioners have an argument: how many tasks they compare. Labels omit it: pass 0.
    return AdaptiveRebalancePartitioner(0) if arguments else _PARTITIONERS.get(name, RESCALE)


def _split_keys(text: str) -> tuple[str, ...]:
    """Split keys at commas, but not at commas within parentheses."""
    keys, depth, start = [], 0, 0
    for position, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and not depth:
            keys.append(text[start:position])
            start = position + 1
    return tuple(filter(None, map(str.strip, (*keys, text[start:]))))
