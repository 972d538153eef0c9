"""Estimates the input size of a node before its vertex runs, and how many tasks its Python functions need."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.base.units import show_bytes
from penstock.events import ExecutionState, VertexSnapshot
from penstock.graph import OperatorKind
from penstock.graph.partitioner import FORWARD, BroadcastPartitioner
from penstock.sizing.parallelism import PythonRun, PythonTasks, seconds_per_mib, tasks_for_python
from penstock.spark.run.exchange import StagedResult

if TYPE_CHECKING:
    from penstock.execution.context import GraphOwner
    from penstock.execution.results import Results
    from penstock.planner.plan import JobPlan


def sum_or_none(sizes: Iterable[int | None]) -> int | None:
    """Return the sum of sizes, or None if any of them is unknown."""
    sizes = list(sizes)
    return None if None in sizes else sum(filter(None, sizes))


@dataclass(frozen=True, slots=True)
class InputEstimate:
    """The estimated bytes that flow into a node: a lower bound unless `is_complete` (every source reports its size)."""

    bytes: int = 0
    is_complete: bool = True

    def __add__(self, other: InputEstimate) -> InputEstimate:
        return InputEstimate(self.bytes + other.bytes, self.is_complete and other.is_complete)

    def __str__(self) -> str:
        if self.is_complete:
            return f"{show_bytes(self.bytes)} of input"
        return f"at least {show_bytes(self.bytes)} of input" if self.bytes else "input of unknown size"


@dataclass(eq=False)
class InputEstimates:
    """Estimates input sizes from the results of finished vertices, and from the sizes of sources."""

    _plan: JobPlan
    _owner: GraphOwner
    _results: Results

    def written_bytes(self, node_id: int) -> int | None:
        """Return the bytes that a finished node has written, or None if nothing was written or measured."""
        result = self._results.get(node_id)
        return int(result.sizes.sum()) if isinstance(result, StagedResult) and result.stages else None

    def size_before(self, node_id: int) -> InputEstimate:
        """Return the bytes that flow into a node, without broadcasts: written by finished nodes, or source sizes."""
        graph = self._owner.graph
        estimate, todo, seen = InputEstimate(), [node_id], {node_id}
        while todo:
            current = todo.pop()
            written = self.written_bytes(current)
            if written is not None:
                estimate += InputEstimate(written)
                continue
            if current in self._plan.sources:
                size = self._plan.sources[current].scan.size_in_bytes
                estimate += InputEstimate(is_complete=False) if size is None else InputEstimate(size)
            for edge in graph.in_edges(current):
                if edge.source_id not in seen and not isinstance(edge.partitioner, BroadcastPartitioner):
                    seen.add(edge.source_id)
                    todo.append(edge.source_id)
        return estimate


_KINDS_WITH_REMOVABLE_EXCHANGE = frozenset({OperatorKind.AGGREGATE, OperatorKind.WINDOW, OperatorKind.SORT})


@dataclass(eq=False)
class PythonSteps:
    """The steps of a job with Python functions; `vertices` returns snapshots of the vertices created so far."""

    _plan: JobPlan
    _owner: GraphOwner
    _cores: int
    _vertices: Callable[[], Iterable[VertexSnapshot]]
    _functions: dict[int, frozenset[str]] = field(default_factory=dict, init=False)

    def tasks_needed(self, node_ids: Iterable[int], bytes_in: int | None) -> PythonTasks | None:
        """Return how many tasks the Python functions in nodes need.

        None if the nodes have no Python functions, if `bytes_in` is unknown, or if a single task must read all rows.
        """
        nodes = frozenset(node_ids)
        functions = self.functions_in(nodes)
        if not functions or bytes_in is None or self._requires_single_task(nodes):
            return None
        runs = [
            PythonRun(snapshot.bytes_in, snapshot.seconds, snapshot.tasks)
            for snapshot in self._vertices()
            if snapshot.state is ExecutionState.FINISHED
            and snapshot.bytes_in is not None
            and snapshot.tasks is not None
            and self.functions_in(snapshot.vertex.node_ids) == functions
        ]
        return tasks_for_python(bytes_in, seconds_per_mib(runs, self._cores), self._cores)

    def _requires_single_task(self, nodes: frozenset[int]) -> bool:
        """Whether a strategy removed an exchange within a vertex because a single task reads all rows."""
        graph = self._owner.graph
        return any(
            edge.id in self._plan.groups and edge.partitioner == FORWARD and edge.source_id in nodes
            for node_id in nodes
            if graph.node(node_id).kind in _KINDS_WITH_REMOVABLE_EXCHANGE
            for edge in graph.in_edges(node_id)
        )

    def functions_in(self, node_ids: Iterable[int]) -> frozenset[str]:
        """Return the names of the Python functions in nodes, except those of consumers of an adaptive exchange."""
        functions: frozenset[str] = frozenset()
        for node_id in node_ids:
            if node_id not in self._functions:
                parts = () if node_id in self._plan.consumer_stages else self._plan.operators(node_id)
                self._functions[node_id] = frozenset().union(*(part.python_functions for part in parts))
            functions |= self._functions[node_id]
        return functions
