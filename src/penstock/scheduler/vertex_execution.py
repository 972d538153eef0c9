"""The way of one vertex: from the answers of its sources to its registered result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.events import ExecutionState
from penstock.execution.reads import VertexSetup
from penstock.scheduler.comparisons import compare_run
from penstock.scheduler.outcomes import record_run
from penstock.threads import doing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.connectors.base import KeyFilter
    from penstock.events import JobAccount
    from penstock.execution.context import JobContext
    from penstock.execution.vertex_runner import VertexRunner
    from penstock.graph import JobVertex
    from penstock.scheduler.deciders.vertex import VertexDecider
    from penstock.scheduler.execution_graph import ExecutionJobVertex


class VertexExecution:
    """Runs the vertices of one job; every call on a worker's thread.

    Parameters
    ----------
    context
        The job.
    decider, runner
        Decide a vertex, and run it.
    job_name
        The job's name for people.
    account
        Takes what happens to the vertices.
    """

    def __init__(
        self, context: JobContext, decider: VertexDecider, runner: VertexRunner, job_name: str, account: JobAccount
    ) -> None:
        self._context = context
        self._decider = decider
        self._runner = runner
        self._job_name = job_name
        self._account = account

    def execute(self, execution: ExecutionJobVertex, inferred: Mapping[int, int]) -> None:
        """Decide a vertex, run it, and record what came of it; its result is registered then.

        Parameters
        ----------
        inferred
            What its sources answered, by node.
        """
        vertex = execution.vertex
        with doing(f"running {vertex.id} {vertex.name}"):
            setup = self._decide(execution, inferred)
            execution.move(ExecutionState.RUNNING)
            self._account.deliver()
            run = self._runner.run(vertex, setup, self._description(vertex))
        record_run(self._context, execution, run, self._runner.results, self._runner.channels(vertex))
        compare_run(self._context, vertex, run, self._runner.results)
        self._decider.compare(vertex)
        execution.move(ExecutionState.FINISHED)

    def _decide(self, execution: ExecutionJobVertex, inferred: Mapping[int, int]) -> VertexSetup:
        vertex = execution.vertex
        if vertex.tail_id in self._context.plan.stages or self._runner.sinks.skipped(vertex) is not None:
            return VertexSetup()  # it reads nothing
        decided = self._decider.decide(execution.vertex, inferred)
        execution.decided(decided.parallelism, decided.reason, decided.bytes_in)
        return decided.setup

    def fetch_filters(self, vertex: JobVertex) -> dict[int, KeyFilter]:
        """Fetch the keys that filter a vertex, and let its sources know; return what they may know of them."""
        with doing(f"fetching the filters of {vertex.id} {vertex.name}"):
            filters = self._runner.fetch_filters(vertex, self._description(vertex))
        sources = self._context.plan.sources
        for node_id in filters.keys() & sources.keys():
            sources[node_id] = sources[node_id].with_filters(self._runner.filtered_scan(node_id))
        return filters

    def _description(self, vertex: JobVertex) -> str:
        return f"{self._job_name}: {vertex.id} {vertex.name}"
