"""What an event log says about an application, as small typed records."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

_NUMBERED_COLUMN = re.compile(r"#\d+L?")
_CALL_SITE = re.compile(r"(?P<action>\S+) at (?P<file>.+):(?P<line>\d+)")
_JVM_FILES = ("NativeMethodAccessorImpl.java", "DirectMethodHandleAccessor.java", "<unknown>")
"""Files of call sites that only say that Python called Java."""
_PYTHON_NODE = re.compile(r"Pandas|Python|InArrow|PythonUDTF")
MAX_TEXT = 2000
"""The most characters of a text of the log that are retained."""
STRUCTURAL_NODES = ("WholeStageCodegen", "InputAdapter", "AdaptiveSparkPlan", "AQEShuffleRead", "ColumnarToRow")
"""Nodes that compute nothing of the query: they wrap other nodes, or convert rows."""


class TaskRow(NamedTuple):
    """The figures of a task attempt: times in seconds since the epoch, durations in seconds, sizes in bytes."""

    launch: float = 0.0
    finish: float = 0.0
    run: float = 0.0  # in the executor, without the time to send and deserialize the task
    gc: float = 0.0
    input_bytes: float = 0.0  # read from files or caches
    shuffle_bytes: float = 0.0  # read from exchanges
    rows: float = 0.0
    spilled: float = 0.0  # to disk, compressed
    spilled_memory: float = 0.0  # the same rows in memory
    result_bytes: float = 0.0
    failed: float = 0.0
    killed: float = 0.0  # no failure: its stage was cancelled, or another attempt was faster
    partition: float = 0.0


class Tasks:
    """The task attempts of a stage, a numpy array per figure of `TaskRow`, in the order in which they ended."""

    def __init__(self, rows: Sequence[TaskRow] | array[float] = ()) -> None:
        self._values = rows if isinstance(rows, array) else array("d", [value for row in rows for value in row])

    def add(self, row: TaskRow) -> None:
        """Add a task attempt."""
        self._values.extend(row)

    def __len__(self) -> int:
        return len(self._values) // len(TaskRow._fields)

    def column(self, name: str) -> np.ndarray:
        """Return a figure of all attempts."""
        return np.frombuffer(self._values).reshape(-1, len(TaskRow._fields))[:, TaskRow._fields.index(name)]

    @cached_property
    def succeeded(self) -> np.ndarray:
        """Which attempts succeeded."""
        succeeded: np.ndarray = (self.column("failed") == 0) & (self.column("killed") == 0)
        return succeeded

    def ok(self, name: str) -> np.ndarray:
        """Return a figure of the successful attempts."""
        values: np.ndarray = self.column(name)[self.succeeded]
        return values

    @cached_property
    def seconds(self) -> np.ndarray:
        """The durations of the successful attempts, in seconds."""
        seconds: np.ndarray = self.ok("finish") - self.ok("launch")
        return seconds

    @cached_property
    def bytes(self) -> np.ndarray:
        """The bytes that each successful attempt read from files, caches and exchanges."""
        read: np.ndarray = self.ok("input_bytes") + self.ok("shuffle_bytes")
        return read

    @cached_property
    def concurrency(self) -> float:
        """The mean number of successful attempts that ran at a time while at least one did; at least 1."""
        order = np.argsort(self.ok("launch"))
        starts, ends = (
            self.ok("launch")[order],
            np.maximum.accumulate(self.ok("finish")[order]) if len(order) else order,
        )
        if not len(order):
            return 1.0
        gaps = np.maximum(starts[1:] - ends[:-1], 0).sum()
        busy = float(ends[-1] - starts[0] - gaps)
        return max(1.0, float(self.seconds.sum()) / busy) if busy > 0 else 1.0


@dataclass(slots=True)
class PlanNode:
    """A node of the physical plan of an SQL execution, `query`.

    `metrics` are the accumulator ids of its SQL metrics, by name. An execution of the same plan has the same ids.
    """

    name: str
    text: str
    children: list[PlanNode] = field(default_factory=list)
    metrics: dict[str, int] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    query: int = 0

    def walk(self, *, caches: bool = True) -> Iterator[PlanNode]:
        """Yield the node and the executed nodes below it, each once.

        The plan below a reused exchange ran elsewhere. A plan that is read several times has the same metrics each
        time. Without `caches`, plans of cached tables are omitted, too: their rows may come from another query.
        """
        stack, seen = [self], set()
        while stack:
            node = stack.pop()
            identity = node.name, frozenset(node.metrics.values())
            if node.metrics and identity in seen:
                continue
            seen.add(identity)
            yield node
            if node.name != "ReusedExchange" and (caches or not node.name.startswith("InMemoryTableScan")):
                stack += reversed(node.children)

    @property
    def is_python(self) -> bool:
        """Whether the node runs Python functions."""
        return _PYTHON_NODE.search(self.name) is not None

    @property
    def is_structural(self) -> bool:
        """Whether the node computes nothing."""
        return self.name.startswith(STRUCTURAL_NODES) or self.name.endswith("QueryStage")

    @property
    def is_exchange(self) -> bool:
        """Whether rows leave their stage at this node."""
        return self.name.endswith("Exchange")

    @property
    def plain_text(self) -> str:
        """The text without the numbers of columns."""
        return _NUMBERED_COLUMN.sub("", self.text)


@dataclass(slots=True)
class Stage:
    """An attempt of a stage; times in seconds since the epoch. `query` is the id of its SQL execution."""

    id: int
    attempt: int
    name: str
    task_count: int = 0
    started: float = 0.0
    ended: float = 0.0
    failure: str = ""
    query: int | None = None
    tasks: Tasks = field(default_factory=Tasks)
    nodes: list[PlanNode] = field(default_factory=list)
    failed_reason: str = ""
    running: list[float] = field(default_factory=list)  # launches of tasks without an end, if the log has no end
    file_bytes: float = 0.0  # of the files that its scans read

    @property
    def bytes_in(self) -> int:
        """The bytes that its tasks read from files, caches and exchanges; 0 if unknown.

        Spark measures no bytes for some file systems. Then the sizes of the files count.
        """
        shuffled = float(self.tasks.ok("shuffle_bytes").sum())
        return int(shuffled + max(float(self.tasks.ok("input_bytes").sum()), self.file_bytes))

    @property
    def seconds(self) -> float:
        """The time from the first launch to the last end of a task."""
        if not len(self.tasks):
            return 0.0
        return float(self.tasks.column("finish").max() - self.tasks.column("launch").min())

    @property
    def is_python(self) -> bool:
        """Whether Python functions of a query run in the stage."""
        return any(node.is_python for node in self.nodes)

    @property
    def operators(self) -> str:
        """The names of the operators that say most about the stage, empty if they are unknown."""
        names = [node.name.strip() for node in self.nodes if not node.is_structural]
        distinct = [name for name in dict.fromkeys(names) if name not in _MINOR_NODES]
        return ", ".join(distinct[:4])


_MINOR_NODES = {"Project", "Exchange", "Filter", "InMemoryTableScan"}


@dataclass(slots=True)
class Query:
    """An SQL execution: its description, its latest plan, and its times in seconds since the epoch."""

    id: int
    description: str = ""
    started: float = 0.0
    ended: float | None = None
    plan: PlanNode | None = None
    root: int | None = None
    error: str = ""
    settings: dict[str, str] = field(default_factory=dict)  # that differ from those of the application

    @property
    def nodes(self) -> list[PlanNode]:
        """The nodes of the plan."""
        return [] if self.plan is None else list(self.plan.walk())


@dataclass(slots=True)
class Application:
    """A Spark application.

    `cores` has changes of the number of cores: the time, and the difference. `values` has the values of SQL metrics by
    the ids of the query and of the accumulator.
    """

    name: str = ""
    id: str = ""
    spark_version: str = ""
    started: float = 0.0
    ended: float | None = None
    last_event: float = 0.0
    cores: list[tuple[float, int]] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    stages: list[Stage] = field(default_factory=list)
    queries: dict[int, Query] = field(default_factory=dict)
    values: dict[int, dict[int, float]] = field(default_factory=dict)
    dropped_plans: int = 0
    stages_by_node: dict[int, list[Stage]] = field(default_factory=dict, repr=False)  # by the id of the object

    @property
    def seconds(self) -> float:
        """The duration of the application, up to the last event if it has not ended."""
        return max((self.ended or self.last_event) - self.started, 0.0)

    def value(self, node: PlanNode, *metrics: str) -> float:
        """Return the sum of the values of some SQL metrics of a node; a metric that the node does not have counts 0."""
        values = self.values.get(node.query, {})
        return sum(values.get(node.metrics[name], 0.0) for name in metrics if name in node.metrics)

    def has_value(self, node: PlanNode, metric: str) -> bool:
        """Return whether an SQL metric of a node has a value."""
        return node.metrics.get(metric) in self.values.get(node.query, {})

    def root(self, query: int | None) -> Query | None:
        """Return the query that the user's program started: a command may run other queries."""
        execution = None if query is None else self.queries.get(query)
        if execution is None or execution.root is None:
            return execution
        return self.queries.get(execution.root, execution)

    def interval(self, query: Query) -> tuple[float, float]:
        """Return the start and the end of a query, so far if it has not ended."""
        return query.started, self.last_event if query.ended is None else query.ended

    def separate_queries(self) -> Iterator[tuple[Query, float, float]]:
        """Yield the queries of the user's program with intervals that do not overlap, in order.

        The interval of a query is the part of its duration in which no earlier query was active.
        """
        roots = [query for query in self.queries.values() if self.root(query.id) is query]
        covered = float("-inf")
        for query in sorted(roots, key=lambda query: query.started):
            start, end = self.interval(query)
            if end > covered:
                yield query, max(start, covered), end
                covered = end

    def stages_of(self, nodes: Iterable[PlanNode]) -> list[Stage]:
        """Return the stages in which at least one of some nodes ran."""
        if not self.stages_by_node:
            for stage in self.stages:
                for node in stage.nodes:
                    self.stages_by_node.setdefault(id(node), []).append(stage)
        stages = {id(stage): stage for node in nodes for stage in self.stages_by_node.get(id(node), ())}
        return sorted(stages.values(), key=lambda stage: (stage.id, stage.attempt))

    def where(self, query: int | None, name: str = "") -> str:
        """Return where the user's program starts a query or a stage, such as ``collect at job.py:12``."""
        execution = self.root(query)
        texts = [execution.description if execution else "", name]
        for text in texts:
            match = _CALL_SITE.fullmatch(text)
            if match and match["file"] not in _JVM_FILES:
                file_name = match["file"].replace("\\", "/").rpartition("/")[2]
                return f"{match['action']} at {file_name}:{match['line']}"
            if text and not match:
                return text[:100]
        action = texts[0] or name
        return f"query {query} ({action.partition(' at ')[0]})" if query is not None else action
