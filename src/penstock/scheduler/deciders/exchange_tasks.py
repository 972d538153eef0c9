"""Decides how many tasks read what was exchanged, and which part each of them reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.decisions import DecisionKind, DecisionLog
from penstock.execution.reads import CoalescedRead, EdgeRead, PulledRead, SlicedRead
from penstock.graph import AggregateOperator
from penstock.graph.partitioner import RESCALE, GlobalPartitioner, PulledRebalancePartitioner
from penstock.optimizer import merging
from penstock.optimizer.skew import LARGEST, skew_threshold, split_along_mappers, split_target
from penstock.planner.plan import WriteKind
from penstock.scheduler.deciders.known_bytes import total
from penstock.scheduler.deciders.outputs import file_size, measures_tasks
from penstock.sizing.file_sizes import cut_for_files
from penstock.sizing.parallelism import decide_vertex, vertex_bounds
from penstock.sizing.rescaling import rescaled
from penstock.sizing.skew_cut import Slice, cut_skewed
from penstock.spark.catalyst import grouping_keys
from penstock.spark.exchange import StagedResult
from penstock.units import show_bytes, show_count

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from penstock.execution.context import GraphOwner
    from penstock.execution.results import Results
    from penstock.execution.sink_writer import SinkTrials
    from penstock.graph import JobVertex, StreamEdge
    from penstock.planner.plan import JobPlan
    from penstock.scheduler.deciders.known_bytes import KnownBytes
    from penstock.scheduler.deciders.outputs import OutputDecider
    from penstock.scheduler.deciders.python_steps import PythonSteps
    from penstock.scheduler.deciders.settings import ParallelismSettings
    from penstock.sizing.packing import Range

LEFT_TO_SPARK = ", so Spark's plan sets the number of tasks"
"""What a reason ends with where Penstock decides no number."""


@dataclass(frozen=True, slots=True)
class DecidedExchange:
    """What was decided for inputs that are cut alike.

    Parameters
    ----------
    parallelism
        The number of tasks, None where Spark's own plan has the say.
    reason
        One sentence.
    bytes_in
        What they hold, None if that was not measured.
    reads
        How each of their edges is read; edges that are not in it are read whole.
    """

    parallelism: int | None
    reason: str
    bytes_in: int | None
    reads: dict[str, EdgeRead] = field(default_factory=dict)


class ExchangeDecider:
    """Decides the exchanged inputs of vertices.

    Parameters
    ----------
    plan, settings, owner
        The job's plan, what its options say, and who has its graph.
    results, known, sinks
        What was written, its bytes, and what sinks make of them on disk.
    outputs
        Knows over how many slots rows were spread.
    python
        Knows the Python functions.
    log
        Takes what came of decisions.
    """

    def __init__(
        self,
        plan: JobPlan,
        settings: ParallelismSettings,
        owner: GraphOwner,
        results: Results,
        known: KnownBytes,
        sinks: SinkTrials,
        outputs: OutputDecider,
        python: PythonSteps,
        log: DecisionLog,
    ) -> None:
        self._plan = plan
        self._settings = settings
        self._owner = owner
        self._results = results
        self._known = known
        self._sinks = sinks
        self._outputs = outputs
        self._python = python
        self._log = log

    def decide(self, edges: list[StreamEdge], vertex: JobVertex, wanted: int | None) -> DecidedExchange:
        """Decide what tasks read of inputs that are cut alike.

        Parameters
        ----------
        edges
            The inputs.
        vertex
            Who reads them.
        wanted
            The number of tasks that was asked for, or None.
        """
        infos = self._measured(edges)
        if infos is None:
            why = "its input is not divided by size"
            self._settle_unmerged(edges, why)
            self._settle_unsplit(edges, why)
            known = total(self._known.written(edge.source_id) for edge in edges)
            return DecidedExchange(None, f"{why}{LEFT_TO_SPARK}", known)
        known = sum(int(info.sum()) for info in infos)
        told = self._by_partitioner(edges, vertex, wanted, known) or self._by_sink(edges[0], infos, vertex, wanted)
        if told is not None:
            return told
        if len({edge.target_id for edge in edges}) > 1:  # another operator would read whole what is beside a part
            self._settle_unsplit(edges, "its step reads another input by the same partitions")
        elif any(map(self._is_split, edges)):
            cut = self._split(edges, infos, vertex, wanted)
            self._settle_split(edges, cut)
            why = "the rows of skewed keys are split among several tasks"
            why = why if wanted is None else f"parallelism is set to {wanted}, {why} as far as there are tasks"
            split: dict[str, EdgeRead] = {edge_id: SlicedRead(read) for edge_id, read in cut.items()}
            return DecidedExchange(len(cut[edges[0].id]), why, known, split)
        bounds = vertex_bounds(self._settings.bounds, maximum=vertex.max_parallelism)
        decision = decide_vertex(infos, bounds, wanted, self._python.need(vertex.node_ids, known))
        if edges[0].partitioner == RESCALE and self._plan.edges[edges[0].id].write is WriteKind.ROWS:
            result = self._results.staged(edges[0].source_id)
            assert result.tasks is not None  # what can be cut was written by tasks
            neighbours = rescaled(result.tasks, result.subpartitions, decision.parallelism)
            why = f"{decision.reason}; each task reads what some of the {result.tasks} tasks before it have written"
            return DecidedExchange(len(neighbours), why, known, {edges[0].id: SlicedRead(neighbours)})
        most = 1 if decision.parallelism == 1 else min(wanted or bounds.maximum, bounds.maximum)
        reads: dict[str, EdgeRead] = {
            edge.id: CoalescedRead(decision.ranges, self._merged(edge, most)) for edge in edges
        }
        return DecidedExchange(decision.parallelism, decision.reason, known, reads)

    def _by_sink(
        self, edge: StreamEdge, infos: list[np.ndarray], vertex: JobVertex, wanted: int | None
    ) -> DecidedExchange | None:
        """Decide the input of a sink whose files have a size, or whose first rows tell its tasks; None for others.

        The first rows are written now.
        """
        graph, known = self._owner.graph, sum(int(info.sum()) for info in infos)
        target = file_size(graph, edge)
        if target is not None:
            cut, why = self._cut_for_files(edge, target)
            return DecidedExchange(len(cut), why, known, {edge.id: SlicedRead(cut)})
        worth = self._sinks.write_first(vertex, edge) if wanted is None and measures_tasks(graph, edge) else None
        if worth is None:
            return None
        bounds = vertex_bounds(self._settings.bounds, maximum=vertex.max_parallelism)
        tasks = min(max(worth.tasks, bounds.minimum), bounds.maximum, len(infos[0]))
        why = worth.reason
        if tasks < worth.tasks:
            why = f"{why}; {worth.tasks} would be worth it, but at most {tasks} can be had ({bounds.maximum_from})"
        elif tasks > worth.tasks:
            why = f"{why}; at least {tasks} are asked for"
        decision = decide_vertex(infos, bounds, tasks)
        return DecidedExchange(decision.parallelism, why, known, {edge.id: CoalescedRead(decision.ranges)})

    def _by_partitioner(
        self, edges: list[StreamEdge], vertex: JobVertex, wanted: int | None, known: int
    ) -> DecidedExchange | None:
        """Decide inputs whose partitioner leaves no choice of ranges; return None for others."""
        match edges[0].partitioner:
            case GlobalPartitioner():  # Spark reads it whole and in no other way
                whole: dict[str, EdgeRead] = {edge.id: CoalescedRead([(0, 1)]) for edge in edges}
                return DecidedExchange(1, "all its rows go to one task", known, whole)
            case PulledRebalancePartitioner() as pulled:
                tasks = pulled.consumers(wanted, vertex.max_parallelism)
                why = (
                    f"parallelism is set to {tasks}"
                    if wanted
                    else f"{show_count(pulled.slots, 'task')} can run at a time"
                )
                if not wanted and tasks < pulled.slots:
                    why += f", and this step's maximum is {tasks}"
                why += "; each takes the next piece of the rows whenever it is free"
                return DecidedExchange(tasks, why, known, {edges[0].id: PulledRead(tasks)})
            case _:
                return None

    def _measured(self, edges: list[StreamEdge]) -> list[np.ndarray] | None:
        """Return what is measured of inputs that are cut alike, None if they cannot be."""
        infos = []
        for edge in edges:
            result = self._results.get(edge.source_id)
            if not isinstance(result, StagedResult) or not result.can_be_cut:
                return None
            plan = self._plan.edges[edge.id]
            if plan.write is not WriteKind.OPERATOR and not result.is_plain_exchange:
                return None
            if len(edges) > 1 and plan.operator is not None and not result.is_hashed_by(grouping_keys(plan.operator)):
                return None
            infos.append(result.sizes[0])
        return infos if len({len(info) for info in infos}) == 1 else None

    def _aggregates(self, edge: StreamEdge) -> bool:
        """Whether an edge brings partial results to an aggregate, which needs those of a group in one task."""
        return isinstance(self._owner.graph.node(edge.target_id).operator, AggregateOperator)

    def _is_split(self, edge: StreamEdge) -> bool:
        """Whether several tasks may read parts of a subpartition of an input."""
        return not edge.intra_input_correlated and not self._aggregates(edge)

    def _split(
        self, edges: list[StreamEdge], infos: list[np.ndarray], vertex: JobVertex, wanted: int | None
    ) -> dict[str, list[tuple[Slice, ...]]]:
        """Return what the tasks of a vertex read of inputs of which some have skewed subpartitions to split."""
        settings = self._settings
        everything = max(sum(int(info.sum()) for info in infos), 1)
        slices: list[dict[int, list[Range]]] = []
        for edge, info in zip(edges, infos, strict=True):
            sizes = info.tolist()
            limit = skew_threshold(sizes, settings.skew_factor, settings.skew_threshold)
            result = self._results.staged(edge.source_id)
            skewed = [i for i, size in enumerate(sizes) if size > limit and self._is_split(edge)]
            assert result.mapper_bytes is not None
            target = split_target(sizes, limit, max(settings.bounds.volume_per_task * sum(sizes) // everything, 1))
            by_mapper = result.mapper_bytes(skewed) if skewed else None
            slices.append(
                {}
                if by_mapper is None
                else {
                    index: split_along_mappers(by_mapper[:, place].tolist(), target)
                    for place, index in enumerate(skewed)
                }
            )
        bounds = vertex_bounds(settings.bounds, maximum=vertex.max_parallelism)
        tasks = cut_skewed(infos, slices, bounds, wanted)
        return {edge.id: [(task[place],) for task in tasks] for place, edge in enumerate(edges)}

    def _merged(self, edge: StreamEdge, most: int) -> dict[int, list[Range]]:
        """Return the pieces in which partial results of hot subpartitions are merged, where that was decided.

        Parameters
        ----------
        edge
            The input of an aggregate.
        most
            The most tasks.
        """
        if edge.intra_input_correlated or not self._aggregates(edge):
            return {}
        result = self._results.staged(edge.source_id)
        assert result.mapper_bytes is not None
        sizes = result.sizes[0].tolist()
        limit = skew_threshold(sizes, self._settings.skew_factor, self._settings.skew_threshold)
        skewed = [i for i, size in enumerate(sizes) if size > limit]
        by_mapper = result.mapper_bytes(skewed)
        found = {}
        for place, index in enumerate(skewed):
            written = by_mapper[:, place].tolist()
            pieces = merging.piece_count(sum(size > 0 for size in written), min(self._settings.cores, most))
            if pieces > 1:
                found[index] = merging.cut(written, pieces)
        if not found:
            self._settle_unmerged([edge], "its tasks may process so many bytes that there are none left for pieces")
        return found

    def _settle_unmerged(self, edges: list[StreamEdge], why: str) -> None:
        """Say of decisions to merge hot groups in pieces that it is not done."""
        merged = [edge for edge in edges if not edge.intra_input_correlated and self._aggregates(edge)]
        self._settle(merged, {"instead": "its partial results are merged in one task", "because": why})

    def _settle_unsplit(self, edges: list[StreamEdge], why: str) -> None:
        """Say of decisions to split that it is not done."""
        split = [edge for edge in edges if self._is_split(edge)]
        self._settle(split, {"split": 0, "instead": "its partitions are not split", "because": why})

    def _settle_split(self, edges: list[StreamEdge], cut: Mapping[str, list[tuple[Slice, ...]]]) -> None:
        """Say of a decision to split what became of it: there may be too few tasks for all that is skewed."""
        read = [one for pieces in cut.values() for task in pieces for one in task]
        split = len({one.subpartitions for one in read if one.mappers is not None})
        if split:
            self._settle(edges[:1], {"split": split})
        else:
            self._settle_unsplit(edges, f"there are only {show_count(len(cut[edges[0].id]), 'task')}")

    def _settle(self, edges: list[StreamEdge], outcome: Mapping[str, int | str]) -> None:
        """Say what became of decisions about hot subpartitions of inputs."""
        for edge in edges:
            for decision in self._log.of((edge.target_id,), DecisionKind.SKEW):
                if LARGEST in decision.figures:
                    self._log.settle(decision.id, **outcome)

    def _cut_for_files(self, edge: StreamEdge, target: int) -> tuple[list[tuple[Slice, ...]], str]:
        """Return what the tasks of a sink read, so that each writes a file of a size, and the reason."""
        result = self._results.staged(edge.source_id)
        assert result.mapper_bytes is not None
        read_mappers = result.mapper_bytes
        ratio = self._sinks.file_ratio(edge)
        sizes = [size * ratio for size in result.sizes[0].tolist()]

        def by_mapper(index: int) -> list[float]:
            found: list[float] = (read_mappers([index])[:, 0] * ratio).tolist()
            return found

        why = f"about {show_bytes(round(sum(sizes)))} on disk ({ratio:.2f} times the shuffled bytes)"
        slots = self._outputs.slots_of(edge)
        return cut_for_files(sizes, by_mapper, target, slots), f"{why}, in files of {show_bytes(target)}"
