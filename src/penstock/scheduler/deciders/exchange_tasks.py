"""Decides how many tasks read exchanged inputs, and which part each task reads."""

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
from penstock.scheduler.deciders.input_estimates import total
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
    from penstock.scheduler.deciders.input_estimates import InputEstimates
    from penstock.scheduler.deciders.outputs import OutputDecider
    from penstock.scheduler.deciders.python_steps import PythonSteps
    from penstock.scheduler.deciders.settings import ParallelismSettings
    from penstock.sizing.packing import Range

SPARK_SETS_TASKS = ", so Spark's plan sets the number of tasks"
"""The end of a reason where Spark, not Penstock, sets the number of tasks."""


@dataclass(frozen=True, slots=True)
class DecidedExchange:
    """The decision for inputs that are divided by the same ranges of subpartitions.

    Parameters
    ----------
    parallelism
        The number of tasks, None if Spark's plan sets it.
    bytes_in
        The size of the inputs in bytes, None if it was not measured.
    reads
        How each edge is read, by its id; other edges are read whole.
    """

    parallelism: int | None
    reason: str
    bytes_in: int | None
    reads: dict[str, EdgeRead] = field(default_factory=dict)


class ExchangeDecider:
    """Decides how the exchanged inputs of vertices are read."""

    def __init__(
        self,
        plan: JobPlan,
        settings: ParallelismSettings,
        owner: GraphOwner,
        results: Results,
        estimates: InputEstimates,
        sinks: SinkTrials,
        outputs: OutputDecider,
        python: PythonSteps,
        log: DecisionLog,
    ) -> None:
        self._plan = plan
        self._settings = settings
        self._owner = owner
        self._results = results
        self._estimates = estimates
        self._sinks = sinks
        self._outputs = outputs
        self._python = python
        self._log = log

    def decide(self, edges: list[StreamEdge], vertex: JobVertex, requested: int | None) -> DecidedExchange:
        """Decide how tasks read inputs that are divided by the same ranges of subpartitions."""
        sizes = self._sizes(edges)
        if sizes is None:
            reason = "its input is not divided by size"
            self._settle_unmerged(edges, reason)
            self._settle_unsplit(edges, reason)
            bytes_in = total(self._estimates.written(edge.source_id) for edge in edges)
            return DecidedExchange(None, f"{reason}{SPARK_SETS_TASKS}", bytes_in)
        volume = sum(int(edge_sizes.sum()) for edge_sizes in sizes)
        decided = self._by_partitioner(edges, vertex, requested, volume) or self._by_sink(
            edges[0], sizes, vertex, requested
        )
        if decided is not None:
            return decided
        if len({edge.target_id for edge in edges}) > 1:  # a split would make the other operator read its input twice
            self._settle_unsplit(edges, "its step reads another input with the same partitions")
        elif any(map(self._is_splittable, edges)):
            slices = self._split(edges, sizes, vertex, requested)
            self._settle_split(edges, slices)
            reason = "the rows of skewed keys are split among several tasks"
            if requested is not None:
                reason = f"parallelism is set to {requested}, and {reason} as far as the number of tasks allows"
            split: dict[str, EdgeRead] = {edge_id: SlicedRead(tasks) for edge_id, tasks in slices.items()}
            return DecidedExchange(len(slices[edges[0].id]), reason, volume, split)
        bounds = vertex_bounds(self._settings.bounds, maximum=vertex.max_parallelism)
        decision = decide_vertex(sizes, bounds, requested, self._python.need(vertex.node_ids, volume))
        if edges[0].partitioner == RESCALE and self._plan.edges[edges[0].id].write is WriteKind.ROWS:
            result = self._results.staged(edges[0].source_id)
            assert result.tasks is not None  # divisible results were written by tasks
            neighbours = rescaled(result.tasks, result.subpartitions, decision.parallelism)
            reason = f"{decision.reason}; each task reads the output of some of the {result.tasks} upstream tasks"
            return DecidedExchange(len(neighbours), reason, volume, {edges[0].id: SlicedRead(neighbours)})
        most = 1 if decision.parallelism == 1 else min(requested or bounds.maximum, bounds.maximum)
        reads: dict[str, EdgeRead] = {
            edge.id: CoalescedRead(decision.ranges, self._merge_ranges(edge, most)) for edge in edges
        }
        return DecidedExchange(decision.parallelism, decision.reason, volume, reads)

    def _by_sink(
        self, edge: StreamEdge, sizes: list[np.ndarray], vertex: JobVertex, requested: int | None
    ) -> DecidedExchange | None:
        """Decide the input of a sink by its file size or by a trial write of its first rows; None for other edges."""
        graph, volume = self._owner.graph, sum(int(edge_sizes.sum()) for edge_sizes in sizes)
        target = file_size(graph, edge)
        if target is not None:
            slices, reason = self._cut_for_files(edge, target)
            return DecidedExchange(len(slices), reason, volume, {edge.id: SlicedRead(slices)})
        is_trial = requested is None and measures_tasks(graph, edge)
        worth = self._sinks.write_first(vertex, edge) if is_trial else None
        if worth is None:
            return None
        bounds = vertex_bounds(self._settings.bounds, maximum=vertex.max_parallelism)
        tasks = min(max(worth.tasks, bounds.minimum), bounds.maximum, len(sizes[0]))
        reason = worth.reason
        if tasks < worth.tasks:
            reason = f"{reason}; {worth.tasks} would pay off, but at most {tasks} are possible ({bounds.maximum_from})"
        elif tasks > worth.tasks:
            reason = f"{reason}; the minimum is {tasks}"
        decision = decide_vertex(sizes, bounds, tasks)
        return DecidedExchange(decision.parallelism, reason, volume, {edge.id: CoalescedRead(decision.ranges)})

    def _by_partitioner(
        self, edges: list[StreamEdge], vertex: JobVertex, requested: int | None, volume: int
    ) -> DecidedExchange | None:
        """Decide inputs whose partitioner determines the ranges; return None for others."""
        match edges[0].partitioner:
            case GlobalPartitioner():  # Spark can only read it whole
                whole: dict[str, EdgeRead] = {edge.id: CoalescedRead([(0, 1)]) for edge in edges}
                return DecidedExchange(1, "all its rows go to one task", volume, whole)
            case PulledRebalancePartitioner() as pulled:
                tasks = pulled.consumers(requested, vertex.max_parallelism)
                reason = (
                    f"parallelism is set to {tasks}"
                    if requested
                    else f"{show_count(pulled.slots, 'task')} can run at a time"
                )
                if not requested and tasks < pulled.slots:
                    reason += f", and this step's maximum is {tasks}"
                reason += "; each task takes the next chunk of rows when it is free"
                return DecidedExchange(tasks, reason, volume, {edges[0].id: PulledRead(tasks)})
            case _:
                return None

    def _sizes(self, edges: list[StreamEdge]) -> list[np.ndarray] | None:
        """Return the subpartition sizes of each input; None if the inputs cannot be divided by the same ranges."""
        sizes = []
        for edge in edges:
            result = self._results.get(edge.source_id)
            if not isinstance(result, StagedResult) or not result.has_readable_ranges:
                return None
            plan = self._plan.edges[edge.id]
            if plan.write is not WriteKind.OPERATOR and not result.is_plain_exchange:
                return None
            if len(edges) > 1 and plan.operator is not None and not result.is_hashed_by(grouping_keys(plan.operator)):
                return None
            sizes.append(result.sizes[0])
        return sizes if len({len(edge_sizes) for edge_sizes in sizes}) == 1 else None

    def _is_aggregated(self, edge: StreamEdge) -> bool:
        """Whether an edge carries partial results to an aggregate, which needs each group in a single task."""
        return isinstance(self._owner.graph.node(edge.target_id).operator, AggregateOperator)

    def _is_splittable(self, edge: StreamEdge) -> bool:
        """Whether several tasks may read parts of a subpartition of an input."""
        return not edge.intra_input_correlated and not self._is_aggregated(edge)

    def _split(
        self, edges: list[StreamEdge], sizes: list[np.ndarray], vertex: JobVertex, requested: int | None
    ) -> dict[str, list[tuple[Slice, ...]]]:
        """Return the slices that each task reads of inputs with skewed subpartitions, by edge."""
        settings = self._settings
        volume = max(sum(int(edge_sizes.sum()) for edge_sizes in sizes), 1)
        ranges: list[dict[int, list[Range]]] = []
        for edge, edge_sizes in zip(edges, sizes, strict=True):
            bytes_of = edge_sizes.tolist()
            limit = skew_threshold(bytes_of, settings.skew_factor, settings.skew_threshold)
            result = self._results.staged(edge.source_id)
            skewed = [i for i, size in enumerate(bytes_of) if size > limit and self._is_splittable(edge)]
            assert result.mapper_bytes is not None
            target = split_target(bytes_of, limit, max(settings.bounds.volume_per_task * sum(bytes_of) // volume, 1))
            by_mapper = result.mapper_bytes(skewed) if skewed else None
            ranges.append(
                {}
                if by_mapper is None
                else {
                    index: split_along_mappers(by_mapper[:, column].tolist(), target)
                    for column, index in enumerate(skewed)
                }
            )
        bounds = vertex_bounds(settings.bounds, maximum=vertex.max_parallelism)
        tasks = cut_skewed(sizes, ranges, bounds, requested)
        return {edge.id: [(task[position],) for task in tasks] for position, edge in enumerate(edges)}

    def _merge_ranges(self, edge: StreamEdge, most: int) -> dict[int, list[Range]]:
        """Return the mapper ranges by which partial results of hot subpartitions are pre-merged, by subpartition."""
        if edge.intra_input_correlated or not self._is_aggregated(edge):
            return {}
        result = self._results.staged(edge.source_id)
        assert result.mapper_bytes is not None
        sizes = result.sizes[0].tolist()
        limit = skew_threshold(sizes, self._settings.skew_factor, self._settings.skew_threshold)
        skewed = [i for i, size in enumerate(sizes) if size > limit]
        by_mapper = result.mapper_bytes(skewed)
        ranges = {}
        for column, index in enumerate(skewed):
            written = by_mapper[:, column].tolist()
            count = merging.chunk_count(sum(size > 0 for size in written), min(self._settings.cores, most))
            if count > 1:
                ranges[index] = merging.split_evenly(written, count)
        if not ranges:
            self._settle_unmerged([edge], "each task may process so many bytes that no tasks are left to pre-merge")
        return ranges

    def _settle_unmerged(self, edges: list[StreamEdge], reason: str) -> None:
        """Record that partial results of hot groups are not pre-merged in several tasks."""
        merged = [edge for edge in edges if not edge.intra_input_correlated and self._is_aggregated(edge)]
        self._settle(merged, {"instead": "its partial results are merged in one task", "because": reason})

    def _settle_unsplit(self, edges: list[StreamEdge], reason: str) -> None:
        """Record that skewed partitions are not split."""
        split = [edge for edge in edges if self._is_splittable(edge)]
        self._settle(split, {"split": 0, "instead": "its partitions are not split", "because": reason})

    def _settle_split(self, edges: list[StreamEdge], slices: Mapping[str, list[tuple[Slice, ...]]]) -> None:
        """Record how many skewed partitions are split: there may be too few tasks for all of them."""
        read = [piece for tasks in slices.values() for task in tasks for piece in task]
        split = len({piece.subpartitions for piece in read if piece.mappers is not None})
        if split:
            self._settle(edges[:1], {"split": split})
        else:
            self._settle_unsplit(edges, f"there are only {show_count(len(slices[edges[0].id]), 'task')}")

    def _settle(self, edges: list[StreamEdge], outcome: Mapping[str, int | str]) -> None:
        """Record the outcome of decisions about hot subpartitions of inputs."""
        for edge in edges:
            for decision in self._log.of((edge.target_id,), DecisionKind.SKEW):
                if LARGEST in decision.figures:
                    self._log.settle(decision.id, **outcome)

    def _cut_for_files(self, edge: StreamEdge, target: int) -> tuple[list[tuple[Slice, ...]], str]:
        """Return the slices that each task of a sink reads to write files of the target size, and the reason."""
        result = self._results.staged(edge.source_id)
        assert result.mapper_bytes is not None
        read_mappers = result.mapper_bytes
        ratio = self._sinks.file_ratio(edge)
        sizes = [size * ratio for size in result.sizes[0].tolist()]

        def by_mapper(index: int) -> list[float]:
            sizes_on_disk: list[float] = (read_mappers([index])[:, 0] * ratio).tolist()
            return sizes_on_disk

        reason = f"about {show_bytes(round(sum(sizes)))} on disk ({ratio:.2f} times the shuffled bytes)"
        slots = self._outputs.slots_of(edge)
        return cut_for_files(sizes, by_mapper, target, slots), f"{reason}, in files of {show_bytes(target)}"
