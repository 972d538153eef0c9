"""The interface of strategies: what they receive and what they can change (FLIP-469)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from penstock.config.options import BROADCAST_THRESHOLD
from penstock.decisions.log import Choice, Decision, DecisionKind, DecisionLog, Explanation, NameRef, NodeRef, Subject
from penstock.graph import GraphChange, JoinOperator, RefusedChange, Side, StreamGraphContext, StreamNode
from penstock.graph.labels import column_names, node_name, side_name

if TYPE_CHECKING:
    import numpy as np

    from penstock.config import Configuration
    from penstock.graph import AdaptiveGraphManager, Operator
    from penstock.graph.changes import UpdateRequest

ESTIMATE_MARGIN = 2
"""An extrapolated output counts as too large only if it exceeds the bound by this factor.

The first tasks may have written more than the others, and running tasks have written a part of the measured output.
"""
_MIN_FRACTION = 0.25
"""The minimum fraction of the tasks that must have ended before the output is estimated."""
_MIN_TASKS = 4
"""The minimum number of tasks that must have ended before the output is estimated."""


@dataclass(frozen=True, slots=True)
class PartialResult:
    """The output of a running step so far: ended tasks, all tasks, compressed bytes, and rows (None if not counted)."""

    done: int
    tasks: int
    size: int
    rows: int | None

    @property
    def estimated_size(self) -> int | None:
        """The estimated bytes of the complete output, or None if too few tasks have ended."""
        return self._extrapolate(self.size)

    def exceeds(self, size: int) -> bool:
        """Whether the complete output will exceed a size: it already does, or the estimate is far above it."""
        return self._exceeds(self.size, size)

    def exceeds_rows(self, rows: int) -> bool:
        """Whether the complete output will exceed a row count: it already does, or the estimate is far above it."""
        return self.rows is not None and self._exceeds(self.rows, rows)

    def _exceeds(self, current: int, bound: int) -> bool:
        estimate = self._extrapolate(current)
        return current > bound or (estimate is not None and estimate > ESTIMATE_MARGIN * bound)

    def _extrapolate(self, current: int) -> int | None:
        if self.done < max(_MIN_TASKS, _MIN_FRACTION * self.tasks):
            return None
        return round(current * self.tasks / self.done)


@dataclass(frozen=True, slots=True)
class ResultInfo:
    """The output of a finished vertex.

    `subpartitions` are the bytes per subpartition as written (compressed), shape (subpartitions,). `rows` and `memory`,
    the bytes of the rows in memory, are None if they were not measured. `mappers` returns the bytes that each task of
    the vertex wrote for the subpartitions with some indices, shape (tasks, len(indices)); it is None if unknown, and
    reads from Spark on demand, because there are many values. `scanned` is the number of rows read from each source in
    the vertex, by node id.
    """

    subpartitions: np.ndarray
    rows: int | None = None
    memory: int | None = None
    mappers: Callable[[Sequence[int]], np.ndarray] | None = field(default=None, compare=False, repr=False)
    scanned: Mapping[int, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """The bytes of all subpartitions as written."""
        return int(self.subpartitions.sum())


@dataclass(frozen=True, slots=True)
class OperatorsFinished:
    """Operators that have finished: their node ids, and their outputs by the id of the node that wrote them."""

    ids: tuple[int, ...]
    results: Mapping[int, ResultInfo]


@dataclass(frozen=True, slots=True)
class OperatorsRunning:
    """Running operators that others wait for: their node ids, and their outputs so far by id of the writing node."""

    ids: tuple[int, ...]
    results: Mapping[int, PartialResult]


@dataclass(frozen=True, slots=True)
class Resources:
    """The resources of the cluster and the session, in bytes except for the cores.

    A join side with fewer bytes than `broadcast_threshold` may be broadcast; -1 disables broadcasts. `broadcast_option`
    is the key of the option, Penstock's or Spark's, that sets this threshold. `broadcast_memory` and `task_memory` are
    the maximum memory of a broadcast hash table, and of the hash table of a task. A task should read `volume_per_task`.
    `cores` is the number of tasks that run at the same time.
    """

    broadcast_threshold: int
    broadcast_memory: int
    task_memory: int
    volume_per_task: int
    cores: int
    broadcast_option: str = BROADCAST_THRESHOLD.key


class StrategyContext(StreamGraphContext):
    """The stream graph as a strategy sees it, with the job's options, resources, results and decisions."""

    def __init__(
        self, owner: AdaptiveGraphManager, config: Configuration, resources: Resources, decisions: DecisionLog
    ) -> None:
        super().__init__(owner)
        self.config = config
        self.resources = resources
        self._decisions = decisions
        self._graph_before_call = owner.graph
        self._decisions_of_call: list[Decision] = []
        self._strategy = ""
        self._refusals_graph = owner.graph
        self._refusals: list[tuple[str, tuple[UpdateRequest, ...], str]] = []
        self._results: dict[int, ResultInfo] = {}
        self._scanned: dict[int, int] = {}
        self._columns: Mapping[str, str] | None = None

    def add_results(self, results: Mapping[int, ResultInfo]) -> None:
        """Add the outputs of finished vertices, by the id of the node that wrote them."""
        self._results.update(results)
        for result in results.values():
            self._scanned.update(result.scanned)

    def result(self, node_id: int) -> ResultInfo | None:
        """Return the output that a node wrote, or None before its vertex has finished."""
        return self._results.get(node_id)

    def rows_scanned(self, source_id: int) -> int | None:
        """Return the number of rows read from a source, or None if it was not measured (yet)."""
        return self._scanned.get(source_id)

    def display_name(self, node: StreamNode) -> str:
        """Return the name of an operator in explanations, with its tables and keys if it has any."""
        if self._columns is None:
            self._columns = column_names(self.stream_graph)
        return node_name(self.stream_graph, node, self._columns) or node.name

    def decide(
        self,
        kind: DecisionKind,
        about: StreamNode | str,
        chosen: int | str,
        reason: str,
        explanation: Explanation | None = None,
        **figures: Any,
    ) -> None:
        """Record a decision that does not change the graph.

        A decision about a node, or about the unique name of a node, is shown with the vertex of the node and gets the
        outcome of the vertex. An explanation of None is derived from `chosen` and `reason`. `figures` are its numbers.
        """
        self._decisions.record(self._choice(kind, about, chosen, reason, explanation, figures))

    def change(
        self,
        requests: Sequence[UpdateRequest],
        kind: DecisionKind,
        about: StreamNode | str,
        chosen: int | str,
        reason: str,
        explanation: Explanation | None = None,
        **figures: Any,
    ) -> bool:
        """Change edges and nodes atomically, and record the decision; return whether the graph changed.

        `requests` are as in `modify_stream_edge` and `modify_stream_node`, and the other arguments as in `decide`. If
        the requests change nothing, no decision is recorded.
        """
        choice = self._choice(kind, about, chosen, reason, explanation, figures)
        change_or_refusal = self._plan(requests)
        if isinstance(change_or_refusal, RefusedChange):
            return self._apply_or_refuse(replace(change_or_refusal, choice=choice))
        if change_or_refusal.is_empty:
            return False
        decision = self._decisions.record(choice)
        self._decisions_of_call.append(decision)
        return self._apply_or_refuse(replace(change_or_refusal, decision=decision))

    def begin(self, strategy: str) -> None:
        """Set the strategy of the next requests, and the graph that `undo` restores. Called by the optimizer."""
        self._strategy = strategy
        self._graph_before_call, self._decisions_of_call = self.stream_graph, []

    def _apply_or_refuse(self, change_or_refusal: GraphChange | RefusedChange) -> bool:
        """Apply a change, or report its refusal once per graph; return whether the graph changed.

        Strategies are called until none changes anything, and repeat their requests each time.
        """
        if isinstance(change_or_refusal, RefusedChange):
            if self._refusals_graph is not self.stream_graph:
                self._refusals_graph, self._refusals = self.stream_graph, []
            refusal = self._strategy, change_or_refusal.requests, change_or_refusal.reason
            if refusal in self._refusals:
                return False
            self._refusals.append(refusal)
        return super()._apply_or_refuse(change_or_refusal)

    def undo(self, strategy: str, reason: str) -> None:
        """Undo the changes since `begin`, and settle their decisions as undone. Called by the optimizer."""
        choice = self._choice(DecisionKind.STRATEGY, strategy, "skipped", reason, None, {})
        skipped = self._decisions.record(choice)
        for decision in self._decisions_of_call:
            self._decisions.settle(decision.id, instead="undone", because=f"{strategy} was skipped: {reason}")
        changed = self.stream_graph
        if changed is not self._graph_before_call:
            nodes, edges = [node.id for node in changed], [edge.id for edge in changed.edges]
            rollback = GraphChange.between(changed, self._graph_before_call, nodes, edges)
            self._apply_or_refuse(replace(rollback, decision=skipped))

    def _choice(
        self,
        kind: DecisionKind,
        about: StreamNode | str,
        chosen: int | str,
        reason: str,
        explanation: Explanation | None,
        figures: Mapping[str, Any],
    ) -> Choice:
        named_figures = {name.replace("_", " "): value for name, value in figures.items()}
        if explanation is None and isinstance(about, StreamNode):
            outcome = _describe_choice(about.operator, kind, chosen)
            explanation = Explanation(f"{self.display_name(about)}: {outcome}, as {reason}")
        return Choice(kind, self._subject(about), chosen, reason, named_figures, explanation)

    def _subject(self, about: StreamNode | str) -> Subject:
        if isinstance(about, StreamNode):
            return NodeRef(about.id, about.name)
        namesakes = [node.id for node in self.stream_graph if node.name == about]
        return NameRef(about, tuple(namesakes) if len(namesakes) == 1 else ())


def _describe_choice(operator: Operator, kind: DecisionKind, chosen: int | str) -> int | str:
    """Return the choice, with the tables of a join side instead of left or right."""
    if not isinstance(operator, JoinOperator) or not isinstance(chosen, Side):
        return chosen
    side = side_name(operator, chosen)
    return f"{side} is broadcast" if kind is DecisionKind.BROADCAST else side


class StreamGraphOptimizationStrategy:
    """Changes the pending part of a running job, based on the measured outputs of the finished part.

    A class is instantiated for each job; an object is shared by all jobs. A job calls it from a single thread.
    """

    @property
    def name(self) -> str:
        """The name shown in decisions."""
        return type(self).__name__

    def initialize(self, context: StrategyContext) -> None:
        """Prepare before the job starts; `context.defer` makes a part of the job wait for another part."""

    def on_operators_running(self, running: OperatorsRunning, context: StrategyContext) -> None:
        """Inspect the partial output of running operators; `context.release` starts operators that wait for them.

        Called about once per second while other operators wait for running operators.
        """

    def on_operators_finished(self, finished: OperatorsFinished, context: StrategyContext) -> bool:
        """Change the pending graph through the context; return whether it changed.

        Called again until no strategy changes the graph.
        """
        return self.maybe_optimize_stream_graph(finished, context)

    def maybe_optimize_stream_graph(self, finished: OperatorsFinished, context: StrategyContext) -> bool:
        """Do the same: the name of `on_operators_finished` in FLIP-469. A subclass defines one of the two methods."""
        raise NotImplementedError(
            f"{type(self).__name__} defines neither on_operators_finished nor maybe_optimize_stream_graph"
        )
