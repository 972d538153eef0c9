"""The interface of strategies: what they receive and what they can change (FLIP-469)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from penstock.config.options import BROADCAST_THRESHOLD
from penstock.decisions import Choice, DecisionKind, DecisionLog, NameRef, NodeRef, Told
from penstock.graph import GraphChange, JoinOperator, RefusedChange, Side, StreamGraphContext, StreamNode
from penstock.graph.naming import column_names
from penstock.graph.wording import called, node_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np

    from penstock.config import Configuration
    from penstock.decisions import Decision, Subject
    from penstock.graph import Operator
    from penstock.graph.changes import UpdateRequest
    from penstock.graph.context import PendingGraph
    from penstock.optimizer.extrapolation import PartialResult


@dataclass(frozen=True, slots=True)
class ResultInfo:
    """The output of a finished vertex.

    Parameters
    ----------
    subpartitions
        Bytes per subpartition as written (compressed), shape (subpartitions,).
    rows
        The number of rows, or None if they were not counted.
    memory
        Bytes of the rows in memory, or None.
    mappers
        Returns the bytes that each upstream task wrote for some subpartitions, shape (tasks, len(indices)). Read from
        Spark on demand, because there are many.
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
        Their node ids.
    results
        The outputs, by the id of the node that wrote them.
    """

    ids: tuple[int, ...]
    results: Mapping[int, ResultInfo]


@dataclass(frozen=True, slots=True)
class OperatorsRunning:
    """Operators that run and have written a part of their output, which others wait for.

    Parameters
    ----------
    ids
        Their node ids.
    results
        What is written so far, by the id of the node that writes it.
    """

    ids: tuple[int, ...]
    results: Mapping[int, PartialResult]


@dataclass(frozen=True, slots=True)
class Resources:
    """The resources of the cluster and the session, in bytes except for the cores.

    Parameters
    ----------
    broadcast_threshold
        A join side below this size may be broadcast; -1 means never.
    broadcast_memory
        The most memory that a broadcast table may take.
    task_memory
        The most memory that a hash table of one task may take.
    volume_per_task
        The bytes a task should read.
    cores
        The number of tasks that run at the same time.
    broadcast_option
        The option that sets the broadcast threshold: Penstock's or Spark's.
    """

    broadcast_threshold: int
    broadcast_memory: int
    task_memory: int
    volume_per_task: int
    cores: int
    broadcast_option: str = BROADCAST_THRESHOLD.key


class StrategyContext(StreamGraphContext):
    """The stream graph as a strategy sees it, with the job's options, resources, results and decisions.

    Parameters
    ----------
    owner
        Owns the graph.
    config
        The job's options.
    resources
        The resources of the cluster and the session.
    decisions
        Records the decisions.
    """

    def __init__(
        self, owner: PendingGraph, config: Configuration, resources: Resources, decisions: DecisionLog
    ) -> None:
        super().__init__(owner)
        self.config = config
        self.resources = resources
        self._decisions = decisions
        self._begun = owner.graph
        self._changed_by: list[Decision] = []
        self._asking = ""
        self._refused_in = owner.graph
        self._refused: list[tuple[str, tuple[UpdateRequest, ...], str]] = []
        self._results: dict[int, ResultInfo] = {}
        self._scanned: dict[int, int] = {}
        self._columns: Mapping[str, str] | None = None

    def add_results(self, results: Mapping[int, ResultInfo]) -> None:
        """Add the outputs of finished vertices, by the id of the node that wrote them."""
        self._results.update(results)
        for result in results.values():
            self._scanned.update(result.scanned)

    def result(self, node_id: int) -> ResultInfo | None:
        """Return the output of a node, or None before its vertex has finished."""
        return self._results.get(node_id)

    def rows_scanned(self, source_id: int) -> int | None:
        """Return the number of rows read from a source, or None if it has not been measured yet."""
        return self._scanned.get(source_id)

    def called(self, node: StreamNode) -> str:
        """Return what people call an operator: by its tables and keys, if it has such."""
        if self._columns is None:
            self._columns = column_names(self.stream_graph)
        return node_name(self.stream_graph, node, self._columns) or node.name

    def decide(
        self,
        kind: DecisionKind,
        about: StreamNode | str,
        chosen: int | str,
        reason: str,
        told: Told | None = None,
        **figures: Any,
    ) -> None:
        """Record a decision that changes nothing: what about, what was chosen, why, and from which figures.

        One about a node is shown with its vertex, and gets what came of that; so does one about a name that only one
        node has. `told` is how people are told of it, if `chosen` and `reason` do not say it well enough.
        """
        self._decisions.record(self._choice(kind, about, chosen, reason, told, figures))

    def change(
        self,
        requests: Sequence[UpdateRequest],
        kind: DecisionKind,
        about: StreamNode | str,
        chosen: int | str,
        reason: str,
        told: Told | None = None,
        **figures: Any,
    ) -> bool:
        """Change edges and nodes, and record the decision to do so: all of it, or none.

        Parameters
        ----------
        requests
            What is asked for, see `modify_stream_edge` and `modify_stream_node`.
        kind, about, chosen, reason, told, figures
            The decision, see `decide`.

        Returns
        -------
        bool
            Whether all of it was done; False, and nothing is recorded, if nothing would change by it.
        """
        choice = self._choice(kind, about, chosen, reason, told, figures)
        planned = self._planned(requests)
        if isinstance(planned, RefusedChange):
            return self._carry_out(replace(planned, choice=choice))
        if planned.is_empty:
            return False
        decision = self._decisions.record(choice)
        self._changed_by.append(decision)
        return self._carry_out(replace(planned, decision=decision))

    def begin(self, strategy: str) -> None:
        """Note who asks from now on, and where `undo` goes back to; for the optimizer, before it calls a strategy."""
        self._asking = strategy
        self._begun, self._changed_by = self.stream_graph, []

    def _carry_out(self, planned: GraphChange | RefusedChange) -> bool:
        """Tell of a refusal once: strategies are called until none changes anything, and ask again each time."""
        if isinstance(planned, RefusedChange):
            if self._refused_in is not self.stream_graph:
                self._refused_in, self._refused = self.stream_graph, []
            refused = self._asking, planned.asked, planned.because
            if refused in self._refused:
                return False
            self._refused.append(refused)
        return super()._carry_out(planned)

    def undo(self, strategy: str, because: str) -> None:
        """Take back what was changed since `begin`, and say so of the decisions that changed it; for the optimizer.

        Parameters
        ----------
        strategy, because
            The name of the strategy that is not called again, and why not.
        """
        choice = self._choice(DecisionKind.STRATEGY, strategy, "skipped", because, None, {})
        skipped = self._decisions.record(choice)
        for decision in self._changed_by:
            self._decisions.settle(decision.id, instead="undone", because=f"{strategy} was skipped: {because}")
        now = self.stream_graph
        if now is not self._begun:
            nodes, edges = [node.id for node in now], [edge.id for edge in now.edges]
            self._carry_out(replace(GraphChange.between(now, self._begun, nodes, edges), decision=skipped))

    def _choice(
        self,
        kind: DecisionKind,
        about: StreamNode | str,
        chosen: int | str,
        reason: str,
        told: Told | None,
        figures: Mapping[str, Any],
    ) -> Choice:
        named = {name.replace("_", " "): value for name, value in figures.items()}
        if told is None and isinstance(about, StreamNode):
            what = _in_words(about.operator, kind, chosen)
            told = Told(f"{self.called(about)}: {what}, as {reason}")
        return Choice(kind, self._subject(about), chosen, reason, named, told)

    def _subject(self, about: StreamNode | str) -> Subject:
        if isinstance(about, StreamNode):
            return NodeRef(about.id, about.name)
        called_so = [node.id for node in self.stream_graph if node.name == about]
        return NameRef(about, tuple(called_so) if len(called_so) == 1 else ())


def _in_words(operator: Operator, kind: DecisionKind, chosen: int | str) -> int | str:
    """Return what was chosen, a side of a join by its tables."""
    if not isinstance(operator, JoinOperator) or not isinstance(chosen, Side):
        return chosen
    side = called(operator, chosen)
    return f"{side} is broadcast" if kind is DecisionKind.BROADCAST else side


class StreamGraphOptimizationStrategy(ABC):
    """Changes the pending part of a running job, from the measured outputs of the finished part.

    A class that is given is made anew for each job; an object serves all jobs. A job calls it from one thread.
    """

    @property
    def name(self) -> str:
        """The name that decisions show."""
        return type(self).__name__

    def initialize(self, context: StrategyContext) -> None:  # noqa: B027 - most need nothing
        """Prepare once before anything runs; `context.defer` lets one part of the job wait for another."""

    def on_operators_running(self, running: OperatorsRunning, context: StrategyContext) -> None:  # noqa: B027
        """Look at what running operators have written so far; `context.release` lets others wait for them no longer.

        Called about once in a second while operators run that others wait for.
        """

    @abstractmethod
    def on_operators_finished(self, finished: OperatorsFinished, context: StrategyContext) -> bool:
        """Change the pending graph through the context; return whether anything was changed.

        Called again until no strategy changes anything more.
        """
