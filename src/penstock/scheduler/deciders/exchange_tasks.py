"""Decides how many subpartitions a vertex writes, how many tasks read them, and which part each task reads.

Before a sink with a target file size, subpartitions consist of slots: several tasks can read the rows of a key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.base.units import show_bytes, show_count
from penstock.connectors.files.file_scan import FileScan
from penstock.decisions.estimates import Estimate, Unit
from penstock.decisions.log import Choice, DecisionKind, DecisionLog, Explanation, VertexRef
from penstock.execution.context import CoalescedRead, EdgeRead, GraphOwner, PulledRead, SlicedRead
from penstock.graph import AggregateOperator, JobVertex, SinkOperator, StreamEdge, StreamGraph
from penstock.graph.context import chained_nodes
from penstock.graph.labels import listed, node_name
from penstock.graph.partitioner import RESCALE, BroadcastPartitioner, GlobalPartitioner, PulledRebalancePartitioner
from penstock.optimizer import skewed_aggregation
from penstock.optimizer.skew import settle_split_decisions, skew_threshold, split_along_mappers, split_target
from penstock.planner.plan import JobPlan, WriteKind
from penstock.scheduler.deciders.input_estimates import InputEstimate, InputEstimates, PythonSteps, sum_or_none
from penstock.sizing.file_sizes import cut_for_files, slot_count
from penstock.sizing.parallelism import chunk_count, decide_vertex, subpartition_count, vertex_bounds
from penstock.sizing.skew_cut import Slice, cut_skewed, rescaled
from penstock.spark.plans.catalyst import grouping_keys
from penstock.spark.run.exchange import StagedResult

if TYPE_CHECKING:
    import numpy as np

    from penstock.execution.results import Results
    from penstock.execution.sink_writer import SinkTrials
    from penstock.scheduler.resources import ParallelismSettings
    from penstock.sizing.packing import Range

_SUBPARTITIONS_PER_TASK = 4
"""Subpartitions per task, so that tasks can read about equal sizes."""
_MIN_FOR_FILES = 256
"""The minimum subpartitions before a sink with a target file size; fewer would be shared by more table partitions."""
_MIN_FOR_TRIAL = 128
"""The minimum subpartitions before a sink with a trial write: the trial can choose at most as many tasks."""
_MAX_WITH_SLOTS = 2000
"""The maximum of subpartitions times slots; above it, Spark has only average sizes (``HighlyCompressedMapStatus``)."""
_ROW_GROUP_BYTES = 128 << 20
"""The assumed maximum bytes of a row group; tasks can read the row groups of a columnar file separately."""


def target_file_size(graph: StreamGraph, edge: StreamEdge) -> int | None:
    """Return the target file size in bytes of the sink that an edge leads to; None if it has none."""
    operator = graph.node(edge.target_id).operator
    return operator.file_size if isinstance(operator, SinkOperator) else None


def has_trial_write(graph: StreamGraph, edge: StreamEdge) -> bool:
    """Whether an edge leads to a sink whose number of tasks is decided by a trial write of its first rows."""
    operator = graph.node(edge.target_id).operator
    return isinstance(operator, SinkOperator) and operator.measures_tasks


@dataclass(eq=False)
class OutputDecider:
    """Decides how many subpartitions and slots vertices write; `columns` are the readable names of columns."""

    _plan: JobPlan
    _settings: ParallelismSettings
    _owner: GraphOwner
    _estimates: InputEstimates
    _python: PythonSteps
    _log: DecisionLog
    _columns: Mapping[str, str]
    _subpartition_counts: dict[int, int] = field(default_factory=dict, init=False)  # by family, see `JobPlan`
    # By family: the id of the decision that has the estimate, and the ids of the family's edges.
    _estimated: dict[int, tuple[int, tuple[str, ...]]] = field(default_factory=dict, init=False)
    _slots: dict[int, int] = field(default_factory=dict, init=False)  # by exchange group

    def slots_of(self, edge: StreamEdge) -> int:
        """Return the number of slots over which the rows of a key were distributed when an edge was written."""
        return self._slots.get(self._plan.groups[edge.id], 1)

    def slots(self, vertex: JobVertex, parallelism: int | None) -> int:
        """Return the number of slots for the rows of a key; more than 1 only before a sink with a target file size."""
        graph = self._owner.graph
        outgoing = graph.out_edges(vertex.tail_id)
        if len(outgoing) != 1 or not self._plan.edges[outgoing[0].id].spread_by:
            return 1
        group = self._plan.groups[outgoing[0].id]
        if group not in self._slots:
            target = target_file_size(graph, outgoing[0])
            assert target is not None  # slots exist only for target file sizes
            scans = [self._plan.sources[node].scan for node in vertex.node_ids if node in self._plan.sources]
            file_sizes = [size for scan in scans if isinstance(scan, FileScan) for size in scan.listing().sizes]
            row_groups = [-(-size // _ROW_GROUP_BYTES) for size in file_sizes]
            writer_count = min([parallelism or 1, *([sum(row_groups)] if row_groups else [])])
            self._slots[group] = slot_count(self._estimates.size_before(vertex.tail_id).bytes, target, writer_count)
        return self._slots[group]

    def subpartitions(self, vertex: JobVertex, slots: int) -> int:
        """Return how many subpartitions a vertex writes, equal for all edges that are written together (a family)."""
        graph, bounds = self._owner.graph, self._settings.bounds
        outgoing = graph.out_edges(vertex.tail_id)
        upper = max(bounds.maximum, self._settings.fixed or 1)
        if not outgoing or isinstance(outgoing[0].partitioner, (GlobalPartitioner, BroadcastPartitioner)):
            # The output has no subpartitions; exchanges that Spark plans inside the vertex get this number.
            return subpartition_count(self._estimates.size_before(vertex.tail_id).bytes, bounds.volume_per_task, upper)
        group = self._plan.groups[outgoing[0].id]
        fixed = self._plan.user_subpartitions.get(group)
        if fixed is not None:
            return fixed
        family = self._plan.family(group)
        if family not in self._subpartition_counts:
            edges = self._edges(family)
            writers = {edge.source_id for edge in edges}
            estimate = sum(map(self._estimates.size_before, writers), InputEstimate())
            number = subpartition_count(estimate.bytes, bounds.volume_per_task, upper)
            reason = f"four subpartitions for each {show_bytes(bounds.volume_per_task)} (Penstock's default)"
            consumers = max(map(self._consumers, edges), default=0)
            if consumers:
                number, reason = chunk_count(consumers), f"chunks that {consumers} consumers take when they are free"
            minimum = min(max(self._subpartitions_for_python(edge, estimate) for edge in edges), upper)
            if minimum > number:
                number, reason = minimum, f"{_SUBPARTITIONS_PER_TASK} for each task that its Python functions need"
            if any(target_file_size(graph, edge) is not None for edge in edges):
                number = min(max(number, _MIN_FOR_FILES), _MAX_WITH_SLOTS // slots)
            if any(has_trial_write(graph, edge) for edge in edges):
                number = min(max(number, _MIN_FOR_TRIAL), upper)
                reason = "the sink's number of tasks will be measured"
            self._subpartition_counts[family] = number
            limit = f", at most {upper} ({bounds.maximum_from})" if number == upper else ""
            figures = {"known bytes": estimate.bytes} if estimate.is_complete or estimate.bytes else {}
            names = " and ".join(sorted({graph.node(edge.target_id).name for edge in edges}))
            decision = self._log.record(
                Choice(
                    DecisionKind.SUBPARTITIONS,
                    VertexRef(vertex.id, vertex.name, vertex.node_ids),
                    number,
                    f"{estimate} to {names}, {reason}{limit}",
                    figures | {"maximum": upper},
                    self._explanation(edges, number, estimate),
                )
            )
            self._estimated[family] = decision.id, tuple(edge.id for edge in edges)
        return self._subpartition_counts[family]

    def compare(self, vertex: JobVertex) -> None:
        """Compare the estimated and the written bytes of a vertex's exchange, once all its writers have finished."""
        graph = self._owner.graph
        groups = (self._plan.groups.get(edge.id) for edge in graph.out_edges(vertex.tail_id))
        for family in {self._plan.family(group) for group in groups if group is not None}:
            decision_id, edge_ids = self._estimated.get(family, (None, ()))
            writers = {edge.source_id for edge in map(graph.edge, edge_ids) if not edge.is_forward}
            written = sum_or_none(map(self._estimates.written_bytes, writers))
            if decision_id is not None and written is not None and self._estimated.pop(family, None) is not None:
                self._log.compare(decision_id, written)

    def _consumers(self, edge: StreamEdge) -> int:
        """Return how many tasks pull the rows of an edge in chunks; 0 if the rows are not pulled."""
        if not isinstance(edge.partitioner, PulledRebalancePartitioner):
            return 0
        nodes = [self._owner.graph.node(node_id) for node_id in chained_nodes(self._owner.graph, edge.target_id)]
        requested = max((node.parallelism for node in nodes if node.parallelism is not None), default=None)
        max_tasks = min((node.max_parallelism for node in nodes if node.max_parallelism is not None), default=None)
        return edge.partitioner.consumers(requested or self._settings.fixed, max_tasks)

    def _edges(self, family: int) -> list[StreamEdge]:
        groups = self._plan.groups
        return [
            edge
            for edge in self._owner.graph.edges
            if edge.id in groups and self._plan.family(groups[edge.id]) == family
        ]

    def _explanation(self, edges: Sequence[StreamEdge], number: int, estimate: InputEstimate) -> Explanation:
        """Explain the number of shuffle partitions, which applies only if the rows are not broadcast instead."""
        graph = self._owner.graph
        names = (node_name(graph, graph.node(edge.target_id), self._columns) or "the next step" for edge in edges)
        steps = listed(list(dict.fromkeys(names)), "steps")
        shuffled = None
        if estimate.bytes:
            # Partial aggregates write at most as much as they read, so the estimate is an upper bound.
            is_most = all(isinstance(graph.node(edge.target_id).operator, AggregateOperator) for edge in edges)
            shuffled = Estimate(f"bytes shuffled for {steps}", Unit.BYTES, estimate.bytes, is_most=is_most)
        sentence = (
            f"{show_count(number, 'partition')} if rows are shuffled for {steps}, to divide {estimate}; "
            "tasks read several partitions if these are small"
        )
        return Explanation(sentence, None, shuffled, is_shown=False)

    def _subpartitions_for_python(self, edge: StreamEdge, estimate: InputEstimate) -> int:
        """Return how many subpartitions give Python functions that read an edge enough tasks; 0 without functions."""
        need = self._python.tasks_needed(chained_nodes(self._owner.graph, edge.target_id), estimate.bytes)
        return 0 if need is None else _SUBPARTITIONS_PER_TASK * need.tasks


SPARK_SETS_TASKS = ", so Spark's plan sets the number of tasks"
"""The end of a reason if Spark, not Penstock, sets the number of tasks."""


@dataclass(frozen=True, slots=True)
class DecidedExchange:
    """The decision for inputs that are divided by the same ranges of subpartitions.

    `parallelism` is None if Spark's plan sets it, and `bytes_in` is None if it was not measured. `reads` says how each
    edge is read, by its id; for other edges, Spark's plan determines what each task reads.
    """

    parallelism: int | None
    reason: str
    bytes_in: int | None
    reads: dict[str, EdgeRead] = field(default_factory=dict)


@dataclass(eq=False)
class ExchangeDecider:
    """Decides how the exchanged inputs of vertices are read."""

    _plan: JobPlan
    _settings: ParallelismSettings
    _owner: GraphOwner
    _results: Results
    _estimates: InputEstimates
    _sinks: SinkTrials
    _outputs: OutputDecider
    _python: PythonSteps
    _log: DecisionLog

    def decide(self, edges: list[StreamEdge], vertex: JobVertex, requested: int | None) -> DecidedExchange:
        """Decide how tasks read inputs that are divided by the same ranges of subpartitions."""
        sizes = self._sizes(edges)
        if sizes is None:
            reason = "its input is not divided by size"
            self._settle_unmerged(edges, reason)
            self._settle_unsplit(edges, reason)
            bytes_in = sum_or_none(self._estimates.written_bytes(edge.source_id) for edge in edges)
            return DecidedExchange(None, f"{reason}{SPARK_SETS_TASKS}", bytes_in)
        volume = sum(int(edge_sizes.sum()) for edge_sizes in sizes)
        decided = self._decide_by_partitioner(edges, vertex, requested, volume) or self._decide_by_sink(
            edges[0], sizes, vertex, requested
        )
        if decided is not None:
            return decided
        if len({edge.target_id for edge in edges}) > 1:  # a split would make the other operator read its input twice
            self._settle_unsplit(edges, "its step reads another input with the same partitions")
        elif any(map(self._is_splittable, edges)):
            slices = self._slice_skewed(edges, sizes, vertex, requested)
            self._settle_split(edges, slices)
            reason = "the rows of skewed keys are split among several tasks"
            if requested is not None:
                reason = f"parallelism is set to {requested}, and {reason} as far as the number of tasks allows"
            sliced: dict[str, EdgeRead] = {edge_id: SlicedRead(tasks) for edge_id, tasks in slices.items()}
            return DecidedExchange(len(slices[edges[0].id]), reason, volume, sliced)
        bounds = vertex_bounds(self._settings.bounds, maximum=vertex.max_parallelism)
        decision = decide_vertex(sizes, bounds, requested, self._python.tasks_needed(vertex.node_ids, volume))
        if edges[0].partitioner == RESCALE and self._plan.edges[edges[0].id].write is WriteKind.ROWS:
            result = self._results.staged(edges[0].source_id)
            assert result.tasks is not None  # results with subpartition sizes were written by tasks
            neighbours = rescaled(result.tasks, result.subpartitions, decision.parallelism)
            reason = f"{decision.reason}; each task reads the output of some of the {result.tasks} upstream tasks"
            return DecidedExchange(len(neighbours), reason, volume, {edges[0].id: SlicedRead(neighbours)})
        max_tasks = 1 if decision.parallelism == 1 else min(requested or bounds.maximum, bounds.maximum)
        reads: dict[str, EdgeRead] = {
            edge.id: CoalescedRead(decision.ranges, self._ranges_to_merge(edge, max_tasks)) for edge in edges
        }
        return DecidedExchange(decision.parallelism, decision.reason, volume, reads)

    def _decide_by_sink(
        self, edge: StreamEdge, sizes: list[np.ndarray], vertex: JobVertex, requested: int | None
    ) -> DecidedExchange | None:
        """Decide the input of a sink by its file size or by a trial write of its first rows; None for other edges."""
        graph, volume = self._owner.graph, sum(int(edge_sizes.sum()) for edge_sizes in sizes)
        target = target_file_size(graph, edge)
        if target is not None:
            slices, reason = self._cut_for_files(edge, target)
            return DecidedExchange(len(slices), reason, volume, {edge.id: SlicedRead(slices)})
        needs_trial = requested is None and has_trial_write(graph, edge)
        trial = self._sinks.write_first(vertex, edge) if needs_trial else None
        if trial is None:
            return None
        bounds = vertex_bounds(self._settings.bounds, maximum=vertex.max_parallelism)
        tasks = min(max(trial.tasks, bounds.minimum), bounds.maximum, len(sizes[0]))
        reason = trial.reason
        if tasks < trial.tasks:
            reason = f"{reason}; {trial.tasks} would pay off, but at most {tasks} are possible ({bounds.maximum_from})"
        elif tasks > trial.tasks:
            reason = f"{reason}; the minimum is {tasks}"
        decision = decide_vertex(sizes, bounds, tasks)
        return DecidedExchange(decision.parallelism, reason, volume, {edge.id: CoalescedRead(decision.ranges)})

    def _decide_by_partitioner(
        self, edges: list[StreamEdge], vertex: JobVertex, requested: int | None, volume: int
    ) -> DecidedExchange | None:
        """Decide inputs whose partitioner determines the ranges; return None for other inputs."""
        match edges[0].partitioner:
            case GlobalPartitioner():  # Spark can only read the whole input
                whole: dict[str, EdgeRead] = {edge.id: CoalescedRead([(0, 1)]) for edge in edges}
                return DecidedExchange(1, "all its rows go to one task", volume, whole)
            case PulledRebalancePartitioner() as pulled:
                tasks = pulled.consumers(requested, vertex.max_parallelism)
                reason = f"parallelism is set to {tasks}"
                if not requested:
                    reason = f"{show_count(pulled.slots, 'task')} can run at a time"
                    reason += f", and this step's maximum is {tasks}" if tasks < pulled.slots else ""
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
        """Whether an edge leads to an aggregate, which merges the partial results of each group in a single task."""
        return isinstance(self._owner.graph.node(edge.target_id).operator, AggregateOperator)

    def _is_splittable(self, edge: StreamEdge) -> bool:
        """Whether several tasks may read parts of a subpartition of an input."""
        return not edge.intra_input_correlated and not self._is_aggregated(edge)

    def _slice_skewed(
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
            target = split_target(bytes_of, limit, max(settings.bounds.volume_per_task * sum(bytes_of) // volume, 1))
            mapper_sizes = result.mapper_bytes(skewed).T.tolist() if skewed else []
            skewed_sizes = zip(skewed, mapper_sizes, strict=True)
            ranges.append({index: split_along_mappers(by_mapper, target) for index, by_mapper in skewed_sizes})
        bounds = vertex_bounds(settings.bounds, maximum=vertex.max_parallelism)
        tasks = cut_skewed(sizes, ranges, bounds, requested)
        return {edge.id: [(task[position],) for task in tasks] for position, edge in enumerate(edges)}

    def _ranges_to_merge(self, edge: StreamEdge, max_tasks: int) -> dict[int, list[Range]]:
        """Return the chunks (ranges of upstream tasks) to merge first, at most `max_tasks` per hot subpartition."""
        if edge.intra_input_correlated or not self._is_aggregated(edge):
            return {}
        result = self._results.staged(edge.source_id)
        sizes = result.sizes[0].tolist()
        limit = skew_threshold(sizes, self._settings.skew_factor, self._settings.skew_threshold)
        skewed = [i for i, size in enumerate(sizes) if size > limit]
        ranges = {}
        for index, by_mapper in zip(skewed, result.mapper_bytes(skewed).T.tolist(), strict=True):
            writers, cores = sum(size > 0 for size in by_mapper), min(self._settings.cores, max_tasks)
            count = skewed_aggregation.merge_chunk_count(writers, cores)
            if count > 1:
                ranges[index] = skewed_aggregation.split_evenly(by_mapper, count)
        if not ranges:
            self._settle_unmerged([edge], "there are too few tasks to merge them in chunks first")
        return ranges

    def _settle_unmerged(self, edges: list[StreamEdge], reason: str) -> None:
        """Record that the partial results of hot groups are not merged by several tasks before the final task."""
        for edge in edges:
            if not edge.intra_input_correlated and self._is_aggregated(edge):
                instead = "its partial results are merged in one task"
                settle_split_decisions(self._log, edge.target_id, instead=instead, because=reason)

    def _settle_unsplit(self, edges: list[StreamEdge], reason: str) -> None:
        instead = "its partitions are not split"
        for edge in filter(self._is_splittable, edges):
            settle_split_decisions(self._log, edge.target_id, split=0, instead=instead, because=reason)

    def _settle_split(self, edges: list[StreamEdge], slices: Mapping[str, list[tuple[Slice, ...]]]) -> None:
        """Record how many skewed partitions are split; there may be too few tasks to split all of them."""
        all_slices = [task_slice for tasks in slices.values() for task in tasks for task_slice in task]
        split_count = len({task_slice.subpartitions for task_slice in all_slices if task_slice.mappers is not None})
        if split_count:
            settle_split_decisions(self._log, edges[0].target_id, split=split_count)
        else:
            self._settle_unsplit(edges, f"there are only {show_count(len(slices[edges[0].id]), 'task')}")

    def _cut_for_files(self, edge: StreamEdge, target: int) -> tuple[list[tuple[Slice, ...]], str]:
        """Return the slices that each task of a sink reads to write files of the target size, and the reason."""
        result = self._results.staged(edge.source_id)
        ratio = self._sinks.file_ratio(edge)
        sizes = [size * ratio for size in result.sizes[0].tolist()]

        def by_mapper(index: int) -> list[float]:
            sizes_on_disk: list[float] = (result.mapper_bytes([index])[:, 0] * ratio).tolist()
            return sizes_on_disk

        reason = f"about {show_bytes(round(sum(sizes)))} on disk ({ratio:.2f} times the shuffled bytes)"
        slots = self._outputs.slots_of(edge)
        return cut_for_files(sizes, by_mapper, target, slots), f"{reason}, in files of {show_bytes(target)}"
