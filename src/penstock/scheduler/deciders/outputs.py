"""Decides how many subpartitions a vertex writes, and over how many slots it spreads the rows of a key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.connectors.file_scan import FileScan
from penstock.decisions import Choice, DecisionKind, DecisionLog, Told, VertexRef
from penstock.estimates import Estimate, Unit
from penstock.graph import AggregateOperator, SinkOperator
from penstock.graph.context import forward_group
from penstock.graph.naming import column_names
from penstock.graph.partitioner import BroadcastPartitioner, GlobalPartitioner, PulledRebalancePartitioner
from penstock.graph.wording import listed, node_name
from penstock.scheduler.deciders.known_bytes import Known, KnownBytes, total
from penstock.sizing.file_sizes import slot_count
from penstock.sizing.parallelism import subpartition_count
from penstock.sizing.pieces import piece_count
from penstock.units import show_bytes, show_count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.execution.context import GraphOwner
    from penstock.graph import JobVertex, StreamEdge, StreamGraph, StreamNode
    from penstock.planner.plan import JobPlan
    from penstock.scheduler.deciders.python_steps import PythonSteps
    from penstock.scheduler.deciders.settings import ParallelismSettings

_FOR_A_TASK = 4
"""Subpartitions for each task, so that they can be packed evenly."""
_FOR_FILES = 256
"""Subpartitions before a sink whose files have a wanted size, at least: few partitions should meet in one."""
_FOR_MEASURED = 128
"""Subpartitions before a sink whose first rows tell how many tasks it gets, at least: it can get as many."""
_MOST_WITH_SLOTS = 2000
"""The most of them, each slot counted: of more, Spark knows only the average (``HighlyCompressedMapStatus``)."""
_ROW_GROUP = 128 << 20
"""No file of columns has fewer places to cut than one for each so many bytes."""


def file_size(graph: StreamGraph, edge: StreamEdge) -> int | None:
    """Return the bytes that a file should have of the sink that an edge leads to; None if that is not asked for."""
    operator = graph.node(edge.target_id).operator
    return operator.file_size if isinstance(operator, SinkOperator) else None


def measures_tasks(graph: StreamGraph, edge: StreamEdge) -> bool:
    """Whether an edge leads to a sink whose number of tasks is decided from what its first rows take."""
    operator = graph.node(edge.target_id).operator
    return isinstance(operator, SinkOperator) and operator.measures_tasks


class OutputDecider:
    """Decides what vertices write.

    Parameters
    ----------
    plan, settings, owner
        The job's plan, what its options say, and who has its graph.
    known
        The bytes that are known.
    python
        Knows the Python functions.
    log
        Takes the decisions.
    """

    def __init__(
        self,
        plan: JobPlan,
        settings: ParallelismSettings,
        owner: GraphOwner,
        known: KnownBytes,
        python: PythonSteps,
        log: DecisionLog,
    ) -> None:
        self._plan = plan
        self._settings = settings
        self._owner = owner
        self._known = known
        self._python = python
        self._log = log
        self._widths: dict[int, int] = {}
        self._foreseen: dict[int, tuple[int, tuple[str, ...]]] = {}
        self._columns: Mapping[str, str] = {}
        self._slots: dict[int, int] = {}

    def slots_of(self, edge: StreamEdge) -> int:
        """Return over how many slots the rows of a key were spread before an edge was read."""
        return self._slots.get(self._plan.groups[edge.id], 1)

    def slots(self, vertex: JobVertex, parallelism: int | None) -> int:
        """Return over how many slots a vertex spreads the rows of a key, for a sink whose files are cut to a size.

        Parameters
        ----------
        vertex, parallelism
            The vertex, and its number of tasks if that is decided.
        """
        graph = self._owner.graph
        outgoing = graph.out_edges(vertex.tail_id)
        if len(outgoing) != 1 or not self._plan.edges[outgoing[0].id].spread_by:
            return 1
        group = self._plan.groups[outgoing[0].id]
        if group not in self._slots:
            target = file_size(graph, outgoing[0])
            assert target is not None  # rows are spread over slots for nothing else
            scans = [self._plan.sources[n].scan for n in vertex.node_ids if n in self._plan.sources]
            files = [size for scan in scans if isinstance(scan, FileScan) for size in scan.listing().sizes]
            places = [-(-size // _ROW_GROUP) for size in files]
            writers = min([parallelism or 1, *([sum(places)] if places else [])])
            self._slots[group] = slot_count(self._known.before(vertex.tail_id).bytes, target, writers)
        return self._slots[group]

    def subpartitions(self, vertex: JobVertex, slots: int) -> int:
        """Return how many subpartitions a vertex writes; as many as all that are written or cut together with it."""
        graph, bounds = self._owner.graph, self._settings.bounds
        outgoing = graph.out_edges(vertex.tail_id)
        upper = max(bounds.maximum, self._settings.fixed or 1)
        if not outgoing or isinstance(outgoing[0].partitioner, (GlobalPartitioner, BroadcastPartitioner)):
            # Nothing is written in parts; exchanges that Spark plans inside the vertex get this many.
            return subpartition_count(self._known.before(vertex.tail_id).bytes, bounds.volume_per_task, upper)
        group = self._plan.groups[outgoing[0].id]
        fixed = self._plan.width(group)
        if fixed is not None:
            return fixed
        family = self._plan.family(group)
        if family not in self._widths:
            edges = self._edges(family)
            known = sum((self._known.before(source) for source in {edge.source_id for edge in edges}), Known())
            number = subpartition_count(known.bytes, bounds.volume_per_task, upper)
            why = f"four subpartitions for each {show_bytes(bounds.volume_per_task)} (Penstock's default)"
            consumers = max(map(self._consumers, edges), default=0)
            if consumers:
                number, why = piece_count(consumers), f"pieces that {consumers} consumers take whenever they are free"
            python = min(max(self._for_python(edge, known) for edge in edges), upper)
            if python > number:
                number, why = python, f"{_FOR_A_TASK} for each task that its Python functions are worth"
            if any(file_size(graph, edge) is not None for edge in edges):
                number = min(max(number, _FOR_FILES), _MOST_WITH_SLOTS // slots)
            if any(measures_tasks(graph, edge) for edge in edges):
                number, why = min(max(number, _FOR_MEASURED), upper), "the sink's number of tasks will be measured"
            self._widths[family] = number
            limit = f", at most {upper} ({bounds.maximum_from})" if number == upper else ""
            figures = {"known bytes": known.bytes} if known.is_all or known.bytes else {}
            names = " and ".join(sorted({graph.node(edge.target_id).name for edge in edges}))
            decision = self._log.record(
                Choice(
                    DecisionKind.SUBPARTITIONS,
                    VertexRef(vertex.id, vertex.name, vertex.node_ids),
                    number,
                    f"{known} to {names}, {why}{limit}",
                    figures | {"maximum": upper},
                    self._told(edges, number, known),
                )
            )
            self._foreseen[family] = decision.id, tuple(edge.id for edge in edges)
        return self._widths[family]

    def compare(self, vertex: JobVertex) -> None:
        """Compare what was foreseen of the exchange behind a vertex with what has been written, once that is all."""
        graph = self._owner.graph
        groups = (self._plan.groups.get(edge.id) for edge in graph.out_edges(vertex.tail_id))
        for family in {self._plan.family(group) for group in groups if group is not None}:
            decision_id, edge_ids = self._foreseen.get(family, (None, ()))
            writers = {edge.source_id for edge in map(graph.edge, edge_ids) if not edge.is_forward}
            written = total(map(self._known.written, writers))
            if decision_id is not None and written is not None and self._foreseen.pop(family, None) is not None:
                self._log.compare(decision_id, written)

    def _consumers(self, edge: StreamEdge) -> int:
        """Return how many tasks will take the rows of an edge in pieces; 0 where they are read otherwise."""
        if not isinstance(edge.partitioner, PulledRebalancePartitioner):
            return 0
        nodes = [self._owner.graph.node(node_id) for node_id in forward_group(self._owner.graph, edge.target_id)]
        given = max((node.parallelism for node in nodes if node.parallelism is not None), default=None)
        most = min((node.max_parallelism for node in nodes if node.max_parallelism is not None), default=None)
        return edge.partitioner.consumers(given or self._settings.fixed, most)

    def _edges(self, family: int) -> list[StreamEdge]:
        """Return the edges of exchanges that have equally many subpartitions."""
        groups = self._plan.groups
        return [
            edge
            for edge in self._owner.graph.edges
            if edge.id in groups and self._plan.family(groups[edge.id]) == family
        ]

    def _told(self, edges: Sequence[StreamEdge], number: int, known: Known) -> Told:
        """Return how people are told into how many partitions rows are shuffled, if they are: a broadcast may come."""
        graph = self._owner.graph
        readers = list(dict.fromkeys(self._called(graph.node(edge.target_id)) for edge in edges))
        what = listed(readers, "steps")
        estimate = None
        if known.bytes:
            # What partial aggregates leave is not foreseen at all: it is as much as they read, or less.
            is_most = all(isinstance(graph.node(edge.target_id).operator, AggregateOperator) for edge in edges)
            estimate = Estimate(f"bytes that come to {what}", Unit.BYTES, known.bytes, is_most=is_most)
        sentence = f"{show_count(number, 'partition')} if rows are shuffled for {what}, as they would come from {known}"
        return Told(sentence, None, estimate, is_shown=False)

    def _called(self, node: StreamNode) -> str:
        if not self._columns:
            self._columns = column_names(self._plan.graph)
        return node_name(self._owner.graph, node, self._columns) or "the next step"

    def _for_python(self, edge: StreamEdge, known: Known) -> int:
        """Return how many subpartitions let the Python functions behind an edge have the tasks they are worth."""
        need = self._python.need(forward_group(self._owner.graph, edge.target_id), known.bytes)
        return 0 if need is None else _FOR_A_TASK * need.tasks
