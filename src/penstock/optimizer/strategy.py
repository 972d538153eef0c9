"""What a strategy is given, and what it may do (FLIP-469)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.decisions import Decision, DecisionKind, DecisionLog
from penstock.graph import StreamGraphContext, StreamNode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np

    from penstock.config import Configuration
    from penstock.graph.context import PendingGraph


@dataclass(frozen=True, slots=True)
class ResultInfo:
    """What a finished vertex has written.

    Parameters
    ----------
    subpartitions
        Bytes per subpartition as written (compressed), shape (subpartitions,).
    rows
        Rows, or None if they were not counted.
    memory
        Bytes of the rows in memory, or None.
    mappers
        Returns the bytes that each upstream task wrote for some subpartitions, shape (tasks, len(indices)); asked
        of Spark on demand, as there are many.
    scanned
        Rows that were read from each source in the vertex, by node id.
    """

    subpartitions: np.ndarray
    rows: int | None = None
    memory: int | None = None
    mappers: Callable[[Sequence[int]], np.ndarray] | None = field(default=None, compare=False, repr=False)
    scanned: Mapping[int, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """All bytes as written."""
        return int(self.subpartitions.sum())


@dataclass(frozen=True, slots=True)
class OperatorsFinished:
    """Operators that have finished.

    Parameters
    ----------
    ids
        Their nodes.
    results
        What was written, by the node that wrote it.
    """

    ids: tuple[int, ...]
    results: Mapping[int, ResultInfo]


@dataclass(frozen=True, slots=True)
class Resources:
    """What the cluster and the session offer, in bytes.

    Parameters
    ----------
    broadcast_threshold
        Below it a join side may be broadcast, -1 never.
    broadcast_memory
        The most a broadcast table may take in memory.
    task_memory
        The most a hash table within one task may take.
    volume_per_task
        What a task should read.
    cores
        How many tasks run at a time.
    """

    broadcast_threshold: int
    broadcast_memory: int
    task_memory: int
    volume_per_task: int
    cores: int


class StrategyContext(StreamGraphContext):
    """The stream graph with the job's options, and the place for decisions.

    Parameters
    ----------
    owner
        Who has the graph.
    config
        The job's options.
    resources
        What there is to use.
    decisions
        Takes the decisions.
    """

    def __init__(
        self, owner: PendingGraph, config: Configuration, resources: Resources, decisions: DecisionLog
    ) -> None:
        super().__init__(owner)
        self.config = config
        self.resources = resources
        self._decisions = decisions
        self._results: dict[int, ResultInfo] = {}
        self._scanned: dict[int, int] = {}

    def add_results(self, results: Mapping[int, ResultInfo]) -> None:
        """Add what finished vertices have written, by the node that wrote it."""
        self._results.update(results)
        for result in results.values():
            self._scanned.update(result.scanned)

    def result(self, node_id: int) -> ResultInfo | None:
        """Return what a node has written, or None before its vertex has finished."""
        return self._results.get(node_id)

    def rows_scanned(self, source_id: int) -> int | None:
        """Return how many rows were read from a source, or None if that was not measured yet."""
        return self._scanned.get(source_id)

    def decide(
        self, kind: DecisionKind, about: StreamNode | str, chosen: int | str, reason: str, **figures: Any
    ) -> None:
        """Record a decision: what about, what was chosen, why, and from which figures.

        One about a node is shown with its vertex, and gets what came of that; so does one about a name that only one
        node has.
        """
        named = {name.replace("_", " "): value for name, value in figures.items()}
        nodes = [about] if isinstance(about, StreamNode) else [n for n in self.stream_graph if n.name == about]
        subject = f"{about.id} {about.name}" if isinstance(about, StreamNode) else about
        ids = (nodes[0].id,) if len(nodes) == 1 else ()
        self._decisions.record(Decision(kind, subject, chosen, reason, named, nodes=ids))


class StreamGraphOptimizationStrategy(ABC):
    """Changes what is still pending of a running job, from what has finished.

    One that is given as a class is made anew for each job; an object serves all jobs. A job calls it from one thread.
    """

    @property
    def name(self) -> str:
        """The name under which it is recorded."""
        return type(self).__name__

    def initialize(self, context: StrategyContext) -> None:  # noqa: B027 - most need nothing
        """Look at the graph before anything runs; `context.hold` lets one part wait for another."""

    @abstractmethod
    def on_operators_finished(self, finished: OperatorsFinished, context: StrategyContext) -> bool:
        """Change the pending graph through the context; return whether anything was changed.

        Called again until no strategy changes anything more.
        """
