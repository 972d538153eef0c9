"""Finds steps with Python functions, and how many tasks these need according to measurements of the same job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.events import ExecutionState
from penstock.graph import OperatorKind
from penstock.graph.partitioner import FORWARD
from penstock.sizing.cpu import CpuNeed, PythonRun, seconds_per_mib, tasks_for_python

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.events import VertexSnapshot
    from penstock.execution.context import GraphOwner
    from penstock.planner.plan import JobPlan

_COLLAPSIBLE = frozenset({OperatorKind.AGGREGATE, OperatorKind.WINDOW, OperatorKind.SORT})


class PythonSteps:
    """The Python functions of a job.

    Parameters
    ----------
    vertices
        Returns the current snapshots of the vertices created so far.
    """

    def __init__(
        self, plan: JobPlan, owner: GraphOwner, cores: int, vertices: Callable[[], Iterable[VertexSnapshot]]
    ) -> None:
        self._plan = plan
        self._owner = owner
        self._cores = cores
        self._vertices = vertices
        self._functions: dict[int, frozenset[str]] = {}

    def need(self, node_ids: Iterable[int], bytes_in: int | None) -> CpuNeed | None:
        """Return how many tasks the Python functions in nodes of a vertex need; None if there are none.

        Parameters
        ----------
        bytes_in
            The size of what they read; if None, nothing can be decided.
        """
        nodes = frozenset(node_ids)
        functions = self._functions_in(nodes)
        if not functions or bytes_in is None or self._requires_single_task(nodes):
            return None
        runs = [
            PythonRun(snapshot.bytes_in, snapshot.seconds, snapshot.tasks)
            for snapshot in self._vertices()
            if snapshot.state is ExecutionState.FINISHED
            and snapshot.bytes_in is not None
            and snapshot.tasks is not None
            and self._functions_in(snapshot.vertex.node_ids) == functions
        ]
        return tasks_for_python(bytes_in, seconds_per_mib(runs, self._cores), self._cores)

    def _requires_single_task(self, nodes: frozenset[int]) -> bool:
        """Whether a strategy removed an exchange within a vertex because a single task reads all rows."""
        graph = self._owner.graph
        return any(
            edge.id in self._plan.groups and edge.partitioner == FORWARD and edge.source_id in nodes
            for node_id in nodes
            if graph.node(node_id).kind in _COLLAPSIBLE
            for edge in graph.in_edges(node_id)
        )

    def _functions_in(self, node_ids: Iterable[int]) -> frozenset[str]:
        """Return the names of the Python functions in nodes, except consumers of an adaptive exchange."""
        functions: frozenset[str] = frozenset()
        for node_id in node_ids:
            if node_id not in self._functions:
                self._functions[node_id] = self._in_node(node_id)
            functions |= self._functions[node_id]
        return functions

    def _in_node(self, node_id: int) -> frozenset[str]:
        if node_id in self._plan.exchanges:
            return frozenset()
        return frozenset().union(*(part.python_functions for part in self._plan.operators(node_id)))
