"""Decides how many subpartitions a vertex writes, how many tasks read them, and which part each task reads.

A vertex may also spread the rows of each key over several slots.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.base.units import show_bytes, show_count
from penstock.connectors.files.file_scan import FileScan
from penstock.decisions.estimates import Estimate, Unit
from penstock.decisions.log import Choice, DecisionKind, DecisionLog, Explanation, VertexRef
from penstock.execution.context import CoalescedRead, EdgeRead, GraphOwner, PulledRead, SlicedRead
from penstock.graph import AggregateOperator, JobVertex, SinkOperator, StreamEdge, StreamGraph, StreamNode
from penstock.graph.context import forward_group
from penstock.graph.labels import column_names, listed, node_name
from penstock.graph.partitioner import RESCALE, BroadcastPartitioner, GlobalPartitioner, PulledRebalancePartitioner
from penstock.optimizer import skewed_aggregation
from penstock.optimizer.skew import settle_split, skew_threshold, split_along_mappers, split_target
from penstock.planner.plan import JobPlan, WriteKind
from penstock.scheduler.deciders.input_estimates import InputEstimate, InputEstimates, PythonSteps, total
from penstock.sizing.file_sizes import cut_for_files, slot_count
from penstock.sizing.parallelism import chunk_count, decide_vertex, subpartition_count, vertex_bounds
from penstock.sizing.skew_cut import Slice, cut_skewed, rescaled
from penstock.spark.plans.catalyst import grouping_keys
from penstock.spark.run.exchange import StagedResult

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from penstock.execution.results import Results
    from penstock.execution.sink_writer import SinkTrials
    from penstock.scheduler.resources import ParallelismSettings
    from penstock.sizing.packing import Range

_SUBPARTITIONS_PER_TASK = 4
"""Subpartitions for each task, so that tasks can be packed evenly."""
_LEAST_FOR_FILES = 256
"""Minimum number of subpartitions before a sink with a target file size: few partitions should share a subpartition."""
_LEAST_FOR_TRIAL = 128
"""Minimum number of subpartitions before a sink whose tasks are decided by a trial write; it limits the tasks."""
_MOST_WITH_SLOTS = 2000
"""Maximum number of subpartitions times slots: beyond, Spark keeps only averages (``HighlyCompressedMapStatus``)."""
_ROW_GROUP = 128 << 20
"""Bytes; a columnar file can be split at least once per this many bytes."""


def file_size(graph: StreamGraph, edge: StreamEdge) -> int | None:
    """Return the target file size in bytes of the sink that an edge leads to; None if there is none."""
    operator = graph.node(edge.target_id).operator
    return operator.file_size if isinstance(operator, SinkOperator) else None


def measures_tasks(graph: StreamGraph, edge: StreamEdge) -> bool:
    """Whether an edge leads to a sink whose number of tasks is decided by a trial write of its first rows."""
    operator = graph.node(edge.target_id).operator
    return isinstance(operator, SinkOperator) and operator.measures_tasks


@dataclass(eq=False)
class OutputDecider:
    """Decides what vertices write."""

    _plan: JobPlan
    _settings: ParallelismSettings
    _owner: GraphOwner
    _estimates: InputEstimates
    _python: PythonSteps
    _log: DecisionLog
    _widths: dict[int, int] = field(default_factory=dict, init=False)
    _estimated: dict[int, tuple[int, tuple[str, ...]]] = field(default_factory=dict, init=False)
    _columns: Mapping[str, str] = field(default_factory=dict, init=False)
    _slots: dict[int, int] = field(default_factory=dict, init=False)

    def slots_of(self, edge: StreamEdge) -> int:
        """Return the number of slots over which the rows of a key were spread before an edge is read."""
        return self._slots.get(self._plan.groups[edge.id], 1)

    def slots(self, vertex: JobVertex, parallelism: int | None) -> int:
        """Return the number of slots for the rows of a key, before a sink whose files are cut to a target size."""
        graph = self._owner.graph
        outgoing = graph.out_edges(vertex.tail_id)
        if len(outgoing) != 1 or not self._plan.edges[outgoing[0].id].spread_by:
            return 1
        group = self._plan.groups[outgoing[0].id]
        if group not in self._slots:
            target = file_size(graph, outgoing[0])
            assert target is not None  # slots exist only for target file sizes
            scans = [self._plan.sources[n].scan for n in vertex.node_ids if n in self._plan.sources]
            file_sizes = [size for scan in scans if isinstance(scan, FileScan) for size in scan.listing().sizes]
            row_groups = [-(-size // _ROW_GROUP) for size in file_sizes]
            writers = min([parallelism or 1, *([sum(row_groups)] if row_groups else [])])
            self._slots[group] = slot_count(self._estimates.before(vertex.tail_id).bytes, target, writers)
        return self._slots[group]

    def subpartitions(self, vertex: JobVertex, slots: int) -> int:
        """Return how many subpartitions a vertex writes: the same number for all edges of its exchange family."""
        graph, bounds = self._owner.graph, self._settings.bounds
        outgoing = graph.out_edges(vertex.tail_id)
        upper = max(bounds.maximum, self._settings.fixed or 1)
        if not outgoing or isinstance(outgoing[0].partitioner, (GlobalPartitioner, BroadcastPartitioner)):
            # The output has no subpartitions; exchanges that Spark plans inside the vertex get this number.
            return subpartition_count(self._estimates.before(vertex.tail_id).bytes, bounds.volume_per_task, upper)
        group = self._plan.groups[outgoing[0].id]
        fixed = self._plan.widths.get(group)
        if fixed is not None:
            return fixed
        family = self._plan.family(group)
        if family not in self._widths:
            edges = self._edges(family)
            sources = {edge.source_id for edge in edges}
            estimate = sum(map(self._estimates.before, sources), InputEstimate())
            number = subpartition_count(estimate.bytes, bounds.volume_per_task, upper)
            reason = f"four subpartitions for each {show_bytes(bounds.volume_per_task)} (Penstock's default)"
            consumers = max(map(self._consumers, edges), default=0)
            if consumers:
                number, reason = chunk_count(consumers), f"chunks that {consumers} consumers take when they are free"
            python = min(max(self._for_python(edge, estimate) for edge in edges), upper)
            if python > number:
                number, reason = python, f"{_SUBPARTITIONS_PER_TASK} for each task that its Python functions need"
            if any(file_size(graph, edge) is not None for edge in edges):
                number = min(max(number, _LEAST_FOR_FILES), _MOST_WITH_SLOTS // slots)
            if any(measures_tasks(graph, edge) for edge in edges):
                number = min(max(number, _LEAST_FOR_TRIAL), upper)
                reason = "the sink's number of tasks will be measured"
            self._widths[family] = number
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
        return self._widths[family]

    def compare(self, vertex: JobVertex) -> None:
        """Compare the estimate for the exchange behind a vertex with the bytes written, once all writers are done."""
        graph = self._owner.graph
        groups = (self._plan.groups.get(edge.id) for edge in graph.out_edges(vertex.tail_id))
        for family in {self._plan.family(group) for group in groups if group is not None}:
            decision_id, edge_ids = self._estimated.get(family, (None, ()))
            writers = {edge.source_id for edge in map(graph.edge, edge_ids) if not edge.is_forward}
            written = total(map(self._estimates.written, writers))
            if decision_id is not None and written is not None and self._estimated.pop(family, None) is not None:
                self._log.compare(decision_id, written)

    def _consumers(self, edge: StreamEdge) -> int:
        """Return how many tasks pull the rows of an edge in chunks; 0 if they are read otherwise."""
        if not isinstance(edge.partitioner, PulledRebalancePartitioner):
            return 0
        nodes = [self._owner.graph.node(node_id) for node_id in forward_group(self._owner.graph, edge.target_id)]
        requested = max((node.parallelism for node in nodes if node.parallelism is not None), default=None)
        most = min((node.max_parallelism for node in nodes if node.max_parallelism is not None), default=None)
        return edge.partitioner.consumers(requested or self._settings.fixed, most)

    def _edges(self, family: int) -> list[StreamEdge]:
        """Return the edges of an exchange family, which all have the same number of subpartitions."""
        groups = self._plan.groups
        return [
            edge
            for edge in self._owner.graph.edges
            if edge.id in groups and self._plan.family(groups[edge.id]) == family
        ]

    def _explanation(self, edges: Sequence[StreamEdge], number: int, estimate: InputEstimate) -> Explanation:
        """Explain the number of shuffle partitions; conditional, because the rows may be broadcast instead."""
        graph = self._owner.graph
        steps = listed(list(dict.fromkeys(self._step_name(graph.node(edge.target_id)) for edge in edges)), "steps")
        shuffled = None
        if estimate.bytes:
            # Partial aggregates write at most as much as they read, so the estimate is an upper bound.
            is_most = all(isinstance(graph.node(edge.target_id).operator, AggregateOperator) for edge in edges)
            shuffled = Estimate(f"bytes shuffled for {steps}", Unit.BYTES, estimate.bytes, is_most=is_most)
        sentence = f"{show_count(number, 'partition')} if rows are shuffled for {steps}, to divide {estimate}"
        return Explanation(sentence, None, shuffled, is_shown=False)

    def _step_name(self, node: StreamNode) -> str:
        if not self._columns:
            self._columns = column_names(self._plan.graph)
        return node_name(self._owner.graph, node, self._columns) or "the next step"

    def _for_python(self, edge: StreamEdge, estimate: InputEstimate) -> int:
        """Return how many subpartitions give the Python functions behind an edge enough tasks; 0 without such."""
        need = self._python.need(forward_group(self._owner.graph, edge.target_id), estimate.bytes)
        return 0 if need is None else _SUBPARTITIONS_PER_TASK * need.tasks


SPARK_SETS_TASKS = ", so Spark's plan sets the number of tasks"
"""The end of a reason where Spark, not Penstock, sets the number of tasks."""


@dataclass(frozen=True, slots=True)
class DecidedExchange:
    """The decision for inputs that are divided by the same ranges of subpartitions.

    `parallelism` is None if Spark's plan sets it, and `bytes_in` if it was not measured. `reads` says how each edge is
    read, by its id; other edges are read whole.
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
            by_mapper = result.mapper_bytes(skewed).T.tolist() if skewed else []
            written = zip(skewed, by_mapper, strict=True)
            ranges.append({index: split_along_mappers(by_task, target) for index, by_task in written})
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
        ranges = {}
        for index, written in zip(skewed, result.mapper_bytes(skewed).T.tolist(), strict=True):
            count = skewed_aggregation.chunk_count(sum(size > 0 for size in written), min(self._settings.cores, most))
            if count > 1:
                ranges[index] = skewed_aggregation.split_evenly(written, count)
        if not ranges:
            self._settle_unmerged([edge], "each task may process so many bytes that no tasks are left to pre-merge")
        return ranges

    def _settle_unmerged(self, edges: list[StreamEdge], reason: str) -> None:
        """Record that partial results of hot groups are not pre-merged in several tasks."""
        for edge in edges:
            if not edge.intra_input_correlated and self._is_aggregated(edge):
                instead = "its partial results are merged in one task"
                settle_split(self._log, edge.target_id, instead=instead, because=reason)

    def _settle_unsplit(self, edges: list[StreamEdge], reason: str) -> None:
        """Record that skewed partitions are not split."""
        for edge in filter(self._is_splittable, edges):
            settle_split(self._log, edge.target_id, split=0, instead="its partitions are not split", because=reason)

    def _settle_split(self, edges: list[StreamEdge], slices: Mapping[str, list[tuple[Slice, ...]]]) -> None:
        """Record how many skewed partitions are split: there may be too few tasks for all of them."""
        read = [piece for tasks in slices.values() for task in tasks for piece in task]
        split = len({piece.subpartitions for piece in read if piece.mappers is not None})
        if split:
            settle_split(self._log, edges[0].target_id, split=split)
        else:
            self._settle_unsplit(edges, f"there are only {show_count(len(slices[edges[0].id]), 'task')}")

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
