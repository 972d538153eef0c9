"""Which steps run Python functions, and how many tasks these are worth by what was measured in the job so far."""

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

_COLLAPSED = frozenset({OperatorKind.AGGREGATE, OperatorKind.WINDOW, OperatorKind.SORT})


class PythonSteps:
    """Knows the Python functions of one job.

    Parameters
    ----------
    plan, owner
        The job's plan, and who has its graph.
    cores
        How many tasks run at a time.
    made
        Returns the vertices made so far, as they are now.
    """

    def __init__(
        self, plan: JobPlan, owner: GraphOwner, cores: int, made: Callable[[], Iterable[VertexSnapshot]]
    ) -> None:
        self._plan = plan
        self._owner = owner
        self._cores = cores
        self._made = made
        self._functions: dict[int, frozenset[str]] = {}

    def need(self, node_ids: Iterable[int], bytes_in: int | None) -> CpuNeed | None:
        """Return how many tasks the Python functions of nodes of one vertex are worth; None if they have none.

        Parameters
        ----------
        node_ids
            The nodes.
        bytes_in
            What they read, None if that is not known: then there is nothing to decide from.
        """
        nodes = frozenset(node_ids)
        functions = self._of(nodes)
        if not functions or bytes_in is None or self._relies_on_one_task(nodes):
            return None
        runs = [
            PythonRun(one.bytes_in, one.seconds, one.tasks)
            for one in self._made()
            if one.state is ExecutionState.FINISHED
            and one.bytes_in is not None
            and one.tasks is not None
            and self._of(one.vertex.node_ids) == functions
        ]
        return tasks_for_python(bytes_in, seconds_per_mib(runs, self._cores), self._cores)

    def _relies_on_one_task(self, nodes: frozenset[int]) -> bool:
        """Whether a strategy took an exchange away within a vertex, as one task reads all of it."""
        graph = self._owner.graph
        return any(
            edge.id in self._plan.groups and edge.partitioner == FORWARD and edge.source_id in nodes
            for node_id in nodes
            if graph.node(node_id).kind in _COLLAPSED
            for edge in graph.in_edges(node_id)
        )

    def _of(self, node_ids: Iterable[int]) -> frozenset[str]:
        """Return the names of the Python functions in nodes; none of consumers of an adaptive exchange."""
        found: frozenset[str] = frozenset()
        for node_id in node_ids:
            if node_id not in self._functions:
                self._functions[node_id] = self._in_node(node_id)
            found |= self._functions[node_id]
        return found

    def _in_node(self, node_id: int) -> frozenset[str]:
        if node_id in self._plan.exchanges:
            return frozenset()
        return frozenset().union(*(part.python_functions for part in self._plan.operators(node_id)))
