"""Decides a vertex before it runs: tasks per input, split sizes of sources, subpartitions to write."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.config.options import (
    AUTO_PARALLELISM_ENABLED,
    DATA_VOLUME_PER_TASK,
    DEFAULT_SOURCE_PARALLELISM,
    MAX_PARALLELISM,
    MIN_PARALLELISM,
    PARALLELISM_DEFAULT,
    SKEWED_FACTOR,
    SKEWED_THRESHOLD,
)
from penstock.connectors.base import ParallelismInferenceContext
from penstock.connectors.coordinator import NO_ANSWER
from penstock.connectors.scan_parallelism import SourceBounds, choose_scan_parallelism, is_asked
from penstock.connectors.splits import OPEN_COST, count_splits, split_size_for
from penstock.decisions import Decision, DecisionKind, DecisionLog
from penstock.execution.reads import CoalescedRead, EdgeRead, ScanRead, SlicedRead, VertexSetup
from penstock.graph import UNDECIDED, SinkOperator
from penstock.graph.partitioner import RESCALE, BroadcastPartitioner, GlobalPartitioner
from penstock.optimizer.skew import LARGEST, skew_threshold, split_along_mappers, split_target
from penstock.planner.plan import WriteKind
from penstock.sizing.file_sizes import cut_for_files, slot_count
from penstock.sizing.parallelism import (
    Bounds,
    decide_vertex,
    global_maximum,
    subpartition_count,
    vertex_bounds,
)
from penstock.sizing.rescaling import rescaled
from penstock.sizing.skew_cut import Slice, cut_skewed
from penstock.spark.catalyst import grouping_keys
from penstock.spark.exchange import StagedResult
from penstock.units import show_bytes, show_count

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Executor

    import numpy as np

    from penstock.config import Configuration
    from penstock.connectors.base import KeyFilter
    from penstock.execution.context import GraphOwner
    from penstock.execution.results import Results
    from penstock.execution.sink_writer import FileRatios
    from penstock.graph import JobVertex, StreamEdge, StreamGraph
    from penstock.planner.plan import JobPlan, SourcePlan
    from penstock.sizing.packing import Range


@dataclass(frozen=True, slots=True)
class DecidedVertex:
    """What was decided for a vertex.

    Parameters
    ----------
    setup
        What its runner needs.
    parallelism
        The number of tasks, `UNDECIDED` where Spark's own plan has the say.
    reason
        One sentence.
    bytes_in
        Bytes it reads.
    """

    setup: VertexSetup
    parallelism: int
    reason: str
    bytes_in: int


_FOR_FILES = 256
"""Subpartitions before a sink whose files have a wanted size, at least: few partitions should meet in one."""
_MOST_WITH_SLOTS = 2000
"""The most of them, each slot counted: of more, Spark knows only the average (``HighlyCompressedMapStatus``)."""
_ROW_GROUP = 128 << 20
"""No file of columns has fewer places to cut than one for each so many bytes."""


@dataclass(frozen=True, slots=True)
class _GroupCut:
    """What was decided for inputs that are cut alike; see `VertexSetup` and `DecidedVertex`."""

    parallelism: int
    reason: str
    bytes_in: int
    reads: dict[str, EdgeRead] = field(default_factory=dict)


class VertexDecider:
    """Decides vertices of one job.

    Parameters
    ----------
    plan
        The job's plan.
    config
        The options.
    cores
        How many tasks the cluster runs at a time.
    owner
        Has the stream graph.
    results
        What finished vertices have written.
    sinks
        Tells how many bytes a sink makes on disk of each that is exchanged before it.
    log
        Takes the decisions.
    """

    def __init__(
        self,
        plan: JobPlan,
        config: Configuration,
        cores: int,
        owner: GraphOwner,
        results: Results,
        sinks: FileRatios,
        log: DecisionLog,
    ) -> None:
        self._plan = plan
        self._config = config
        self._owner = owner
        self._results = results
        self._sinks = sinks
        self._log = log
        self._default = config.maybe_integer(PARALLELISM_DEFAULT)
        maximum = global_maximum(config.maybe_integer(MAX_PARALLELISM), self._default, cores)
        minimum = config.integer(MIN_PARALLELISM)
        self.bounds = Bounds(minimum, max(minimum, maximum), config.integer(DATA_VOLUME_PER_TASK))
        self._widths: dict[int, int] = {}
        self._slots: dict[int, int] = {}

    def ask(self, vertex: JobVertex, node_id: int, askers: Executor, keys: KeyFilter | None = None) -> Future[int]:
        """Ask a source of a vertex for its parallelism, unless that is not left to it.

        Parameters
        ----------
        vertex, node_id
            The vertex, and the source in it.
        askers
            Where it is asked.
        keys
            The keys by which its rows are filtered, if they are.
        """
        source = self._said(vertex, node_id)
        if not is_asked(source.options, source.static):
            answer: Future[int] = Future()
            answer.set_result(NO_ANSWER)
            return answer
        bound = self._source_bounds(vertex).asked(source.options)
        context = ParallelismInferenceContext(bound, self.bounds.volume_per_task, keys)
        return source.coordinator.infer_parallelism(context, askers)

    def decide(self, vertex: JobVertex, inferred: Mapping[int, int]) -> DecidedVertex:
        """Decide a vertex whose upstream has finished.

        Parameters
        ----------
        vertex
            The vertex.
        inferred
            The answers of its sources, by node.
        """
        graph = self._owner.graph
        numbers: list[int] = []
        reasons: list[str] = []
        bytes_in = 0
        reads: dict[str, EdgeRead] = {}
        scans: dict[int, ScanRead] = {}
        groups = self._groups(vertex)
        sources = [node_id for node_id in vertex.node_ids if node_id in self._plan.sources]
        given = self._given(vertex)
        for node_id in sources:
            source = self._said(vertex, node_id)
            number, why, split = self._cut_source(source, *self._source(source, vertex, inferred[node_id]))
            if split is not None:
                scans[node_id] = ScanRead(split_bytes=split)
            elif not source.is_files and source.splits is None and number > 0:
                scans[node_id] = ScanRead(at_most=number)
            numbers.append(number)
            reasons.append(f"{source.coordinator.name}: {why}" if len(sources) > 1 else why)
            bytes_in += source.bytes_read
            source.coordinator.initialize(number)
        for edges in groups.values():
            wanted = given if given != UNDECIDED else self._fixed()
            cut = self._cut_group(edges, vertex, wanted)
            numbers.append(cut.parallelism)
            reasons.append(cut.reason)
            bytes_in += cut.bytes_in
            reads |= cut.reads
        parallelism = sum(numbers) if numbers and min(numbers) > 0 else UNDECIDED
        reason = "; ".join(dict.fromkeys(reasons)) or "nothing to read"
        kind = DecisionKind.SOURCE_PARALLELISM if sources and not groups else DecisionKind.VERTEX_PARALLELISM
        chosen = parallelism if parallelism != UNDECIDED else "left to Spark"
        figures = {
            "bytes in": bytes_in,
            "volume per task": self.bounds.volume_per_task,
            "minimum": self.bounds.minimum,
            "maximum": self.bounds.maximum,
        }
        self._log.record(Decision(kind, f"{vertex.id} {vertex.name}", chosen, reason, figures, nodes=vertex.node_ids))
        slots = self._slots_written(vertex, graph, parallelism)
        setup = VertexSetup(reads, scans, self._subpartitions(vertex, graph), slots)
        return DecidedVertex(setup, parallelism, reason, bytes_in)

    # -- sources -------------------------------------------------------------------------------------------------

    def _given(self, vertex: JobVertex) -> int:
        """Return the number of tasks that was asked for of all that a vertex reads, `UNDECIDED` if there is none."""
        inputs = len(self._groups(vertex)) + sum(node_id in self._plan.sources for node_id in vertex.node_ids)
        return vertex.parallelism if inputs == 1 else UNDECIDED

    def _said(self, vertex: JobVertex, node_id: int) -> SourcePlan:
        """Return a source with what was said of the vertex it is in."""
        source, given = self._plan.sources[node_id], self._given(vertex)
        if given == UNDECIDED or source.options.parallelism is not None:
            return source
        return replace(source, options=replace(source.options, parallelism=given))

    def _source_bounds(self, vertex: JobVertex) -> SourceBounds:
        own = None if vertex.max_parallelism == UNDECIDED else vertex.max_parallelism
        said = [bound for bound in (own, self._config.maybe_integer(MAX_PARALLELISM)) if bound is not None]
        default = self._config.maybe_integer(DEFAULT_SOURCE_PARALLELISM)
        return SourceBounds(self.bounds.maximum, default, min(said, default=None), self._default)

    def _source(self, source: SourcePlan, vertex: JobVertex, inferred: int) -> tuple[int, str]:
        """Return the number of tasks a source should have, and the reason."""
        coordinator = source.coordinator
        asked = is_asked(source.options, source.static)
        if not source.is_files and asked and inferred == NO_ANSWER and coordinator.source is None:
            return UNDECIDED, "Spark cuts this source itself"
        bounds = self._source_bounds(vertex)
        number, why = choose_scan_parallelism(source.options, source.static, inferred, bounds)
        if asked and inferred == NO_ANSWER and coordinator.problem:
            why += f": {coordinator.problem}"
        return number, why

    def _cut_source(self, source: SourcePlan, number: int, why: str) -> tuple[int, str, int | None]:
        """Return the number of tasks that a source can give, the reason, and of files the split size for it."""
        if source.is_files:
            return self._cut_files(source, number, why)
        if source.splits is None:
            return number, why, None
        possible = source.splits.cut(number)
        why = f"{why}: {source.splits.reason}" if source.splits.reason else why
        return possible, why if possible == number else f"{why}; it can be cut into {possible}", None

    def _cut_files(self, source: SourcePlan, number: int, why: str) -> tuple[int, str, int | None]:
        """Return the number of tasks the files can give, the reason, and the split size for it."""
        assert source.listing is not None
        listing = source.listing()
        if not sum(listing.sizes):
            return UNDECIDED, f"{why}, but there is nothing to read", None
        split = split_size_for(listing.sizes, listing.splittable, number, OPEN_COST)
        possible = count_splits(listing.sizes, listing.splittable, split, OPEN_COST)
        found = f"{show_count(len(listing.sizes), 'file')} of {show_bytes(sum(listing.sizes))}"
        if listing.fraction < 1:
            found += f", {listing.fraction:.0%} of each row read"
        if possible != number:
            return possible, f"{why}, but {found} can be cut into {possible} at most", split
        return number, f"{found}: {why}", split

    # -- exchanges -----------------------------------------------------------------------------------------------

    def _cut_group(self, edges: list[StreamEdge], vertex: JobVertex, wanted: int) -> _GroupCut:
        """Decide what tasks read of inputs that are cut alike."""
        infos = self._input_infos(edges)
        if infos is None:
            known = sum(self._bytes_of(edge.source_id) for edge in edges)
            return _GroupCut(UNDECIDED, "Spark needed no exchange there, so its own plan decides", known)
        known = sum(int(info.sum()) for info in infos)
        target = _file_size(self._owner.graph, edges[0])
        if target is not None:
            tasks, why = self._cut_for_files(edges[0], target)
            return _GroupCut(len(tasks), why, known, {edges[0].id: SlicedRead(tasks)})
        if not all(edge.intra_input_correlated for edge in edges):
            cut = self._cut(edges, infos, vertex, wanted)
            self._settle_split(edges[0].target_id, cut)
            why = "skewed subpartitions are split along the tasks that wrote them"
            why = why if wanted == UNDECIDED else f"asked for {wanted}, {why} as far as there are tasks"
            split: dict[str, EdgeRead] = {edge_id: SlicedRead(read) for edge_id, read in cut.items()}
            return _GroupCut(len(cut[edges[0].id]), why, known, split)
        decision = decide_vertex(infos, vertex_bounds(self.bounds, maximum=vertex.max_parallelism), wanted)
        if edges[0].partitioner == RESCALE and self._plan.edges[edges[0].id].write is WriteKind.ROWS:
            result = self._results.staged(edges[0].source_id)
            neighbours = rescaled(result.tasks, result.subpartitions, decision.parallelism)
            why = f"{decision.reason}, each reads what its neighbours of {show_count(result.tasks, 'task')} wrote"
            return _GroupCut(len(neighbours), why, known, {edges[0].id: SlicedRead(neighbours)})
        reads: dict[str, EdgeRead] = {edge.id: CoalescedRead(decision.ranges) for edge in edges}
        return _GroupCut(decision.parallelism, decision.reason, known, reads)

    def _fixed(self) -> int:
        if self._config.flag(AUTO_PARALLELISM_ENABLED):
            return UNDECIDED
        return self._default or self.bounds.maximum

    def _groups(self, vertex: JobVertex) -> dict[int, list[StreamEdge]]:
        found: dict[int, list[StreamEdge]] = {}
        for edge in (job_edge.stream_edge for job_edge in vertex.inputs):
            if not isinstance(edge.partitioner, BroadcastPartitioner):
                found.setdefault(self._plan.groups[edge.id], []).append(edge)
        return found

    def _input_infos(self, edges: list[StreamEdge]) -> list[np.ndarray] | None:
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

    def _cut(
        self, edges: list[StreamEdge], infos: list[np.ndarray], vertex: JobVertex, wanted: int
    ) -> dict[str, list[tuple[Slice, ...]]]:
        """Return what the tasks of a vertex read of inputs of which some have skewed subpartitions to split."""
        factor = self._config.get(SKEWED_FACTOR)
        assert isinstance(factor, float)
        everything = max(sum(int(info.sum()) for info in infos), 1)
        slices: list[dict[int, list[Range]]] = []
        for edge, info in zip(edges, infos, strict=True):
            sizes = info.tolist()
            limit = skew_threshold(sizes, factor, self._config.integer(SKEWED_THRESHOLD))
            result = self._results.staged(edge.source_id)
            skewed = [i for i, size in enumerate(sizes) if size > limit and not edge.intra_input_correlated]
            assert result.mapper_bytes is not None
            target = split_target(sizes, limit, max(self.bounds.volume_per_task * sum(sizes) // everything, 1))
            by_mapper = result.mapper_bytes(skewed) if skewed else None
            slices.append(
                {}
                if by_mapper is None
                else {
                    index: split_along_mappers(by_mapper[:, place].tolist(), target)
                    for place, index in enumerate(skewed)
                }
            )
        bounds = vertex_bounds(self.bounds, maximum=vertex.max_parallelism)
        tasks = cut_skewed(infos, slices, bounds, wanted)
        return {edge.id: [(task[place],) for task in tasks] for place, edge in enumerate(edges)}

    def _settle_split(self, node_id: int, cut: Mapping[str, list[tuple[Slice, ...]]]) -> None:
        """Say of a decision to split what became of it: there may be too few tasks for all that is skewed."""
        read = [one for pieces in cut.values() for task in pieces for one in task]
        split = len({one.subpartitions for one in read if one.mappers is not None})
        tasks = show_count(len(next(iter(cut.values()))), "task")
        outcome: dict[str, int | str] = {"split": split}
        if not split:
            outcome |= {"instead": "its subpartitions stay whole", "because": f"there are {tasks} for them"}
        for decision in self._log.of((node_id,), DecisionKind.SKEW):
            if LARGEST in decision.figures:
                self._log.settle(decision, **outcome)

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

        why = f"about {show_bytes(round(sum(sizes)))} on disk, {ratio:.2f} times what was exchanged"
        slots = self._slots.get(self._plan.groups[edge.id], 1)
        return cut_for_files(sizes, by_mapper, target, slots), f"{why}, in files of {show_bytes(target)}"

    def _subpartitions(self, vertex: JobVertex, graph: StreamGraph) -> int:
        outgoing = graph.out_edges(vertex.tail_id)
        upper = max(self.bounds.maximum, self._fixed())
        if not outgoing or isinstance(outgoing[0].partitioner, (GlobalPartitioner, BroadcastPartitioner)):
            # Nothing is written in parts; exchanges that Spark plans inside the vertex get this many.
            return subpartition_count(self._known_bytes(vertex.tail_id, graph), self.bounds.volume_per_task, upper)
        group = self._plan.groups[outgoing[0].id]
        fixed = self._plan.width(group)
        if fixed != UNDECIDED:
            return fixed
        family = self._plan.family(group)
        if family not in self._widths:
            groups = self._plan.groups
            edges = [edge for edge in graph.edges if edge.id in groups and self._plan.family(groups[edge.id]) == family]
            known = sum(self._known_bytes(edge.source_id, graph) for edge in {e.source_id: e for e in edges}.values())
            number = subpartition_count(known, self.bounds.volume_per_task, upper)
            if any(_file_size(graph, edge) is not None for edge in edges):
                number = min(max(number, _FOR_FILES), _MOST_WITH_SLOTS // self._slots.get(group, 1))
            self._widths[family] = number
            volume = show_bytes(self.bounds.volume_per_task)
            names = " and ".join(sorted({graph.node(edge.target_id).name for edge in edges}))
            self._log.record(
                Decision(
                    DecisionKind.SUBPARTITIONS,
                    f"{vertex.id} {vertex.name}",
                    number,
                    f"{show_bytes(known)} lie before {names}, and each {volume} make four",
                    {"known bytes": known, "maximum": upper},
                    nodes=vertex.node_ids,
                )
            )
        return self._widths[family]

    def _slots_written(self, vertex: JobVertex, graph: StreamGraph, parallelism: int) -> int:
        """Return over how many slots a vertex spreads the rows of a key, for a sink whose files are cut to a size."""
        outgoing = graph.out_edges(vertex.tail_id)
        if len(outgoing) != 1 or not self._plan.edges[outgoing[0].id].spread_by:
            return 1
        group = self._plan.groups[outgoing[0].id]
        if group not in self._slots:
            target = _file_size(graph, outgoing[0])
            assert target is not None  # rows are spread over slots for nothing else
            files = [self._plan.sources[n] for n in vertex.node_ids if n in self._plan.sources]
            places = [
                -(-size // _ROW_GROUP) for one in files if one.listing is not None for size in one.listing().sizes
            ]
            writers = min([parallelism, *([sum(places)] if places else [])])
            self._slots[group] = slot_count(self._known_bytes(vertex.tail_id, graph), target, writers)
        return self._slots[group]

    def _bytes_of(self, node_id: int) -> int:
        result = self._results.get(node_id)
        return int(result.sizes.sum()) if isinstance(result, StagedResult) else 0

    def _known_bytes(self, node_id: int, graph: StreamGraph) -> int:
        """Return the bytes known to flow into a node: measured ones where they are, else what its sources hold."""
        total, todo, seen = 0, [node_id], {node_id}
        while todo:
            current = todo.pop()
            result = self._results.get(current)
            if isinstance(result, StagedResult) and result.stages:
                total += int(result.sizes.sum())
                continue
            if current in self._plan.sources:
                total += self._plan.sources[current].bytes_read
            for edge in graph.in_edges(current):
                if edge.source_id not in seen and not isinstance(edge.partitioner, BroadcastPartitioner):
                    seen.add(edge.source_id)
                    todo.append(edge.source_id)
        return total


def _file_size(graph: StreamGraph, edge: StreamEdge) -> int | None:
    """Return the bytes that a file should have of the sink that an edge leads to; None if that is not asked for."""
    operator = graph.node(edge.target_id).operator
    return operator.file_size if isinstance(operator, SinkOperator) else None
