"""Decides how many subpartitions a vertex writes, and over how many slots it spreads the rows of each key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.connectors.file_scan import FileScan
from penstock.decisions import Choice, DecisionKind, DecisionLog, Explanation, VertexRef
from penstock.estimates import Estimate, Unit
from penstock.graph import AggregateOperator, SinkOperator
from penstock.graph.column_names import column_names
from penstock.graph.context import forward_group
from penstock.graph.labels import listed, node_name
from penstock.graph.partitioner import BroadcastPartitioner, GlobalPartitioner, PulledRebalancePartitioner
from penstock.scheduler.deciders.input_estimates import InputEstimate, InputEstimates, total
from penstock.sizing.chunks import chunk_count
from penstock.sizing.file_sizes import slot_count
from penstock.sizing.parallelism import subpartition_count
from penstock.units import show_bytes, show_count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.execution.context import GraphOwner
    from penstock.graph import JobVertex, StreamEdge, StreamGraph, StreamNode
    from penstock.planner.plan import JobPlan
    from penstock.scheduler.deciders.python_steps import PythonSteps
    from penstock.scheduler.deciders.settings import ParallelismSettings

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


class OutputDecider:
    """Decides what vertices write."""

    def __init__(
        self,
        plan: JobPlan,
        settings: ParallelismSettings,
        owner: GraphOwner,
        estimates: InputEstimates,
        python: PythonSteps,
        log: DecisionLog,
    ) -> None:
        self._plan = plan
        self._settings = settings
        self._owner = owner
        self._estimates = estimates
        self._python = python
        self._log = log
        self._widths: dict[int, int] = {}
        self._estimated: dict[int, tuple[int, tuple[str, ...]]] = {}
        self._columns: Mapping[str, str] = {}
        self._slots: dict[int, int] = {}

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
        fixed = self._plan.width(group)
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
                number, reason = (
                    min(max(number, _LEAST_FOR_TRIAL), upper),
                    "the sink's number of tasks will be measured",
                )
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
