"""Execution of a vertex: decides it, runs it, and records its outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.events import ExecutionState
from penstock.execution.reads import VertexSetup
from penstock.scheduler.comparisons import compare_run
from penstock.scheduler.outcomes import record_run
from penstock.threads import track_work

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.connectors.base import KeyFilter
    from penstock.events import JobEventBus
    from penstock.execution.context import JobContext
    from penstock.execution.vertex_runner import VertexRunner
    from penstock.graph import JobVertex
    from penstock.scheduler.deciders.vertex import VertexDecider
    from penstock.scheduler.execution_graph import ExecutionJobVertex


class VertexExecution:
    """Runs the vertices of a job; every call is on a worker thread."""

    def __init__(
        self, context: JobContext, decider: VertexDecider, runner: VertexRunner, job_name: str, account: JobEventBus
    ) -> None:
        self._context = context
        self._decider = decider
        self._runner = runner
        self._job_name = job_name
        self._account = account

    def execute(self, execution: ExecutionJobVertex, inferred: Mapping[int, int]) -> None:
        """Decide a vertex, run it, and record its outcome; its result is registered then.

        Parameters
        ----------
        inferred
            The parallelism that its sources inferred, by node.
        """
        vertex = execution.vertex
        with track_work(f"running {vertex.id} {vertex.name}"):
            setup = self._decide(execution, inferred)
            execution.move(ExecutionState.RUNNING)
            self._account.deliver()
            run = self._runner.run(vertex, setup, self._description(vertex))
        record_run(self._context, execution, run, self._runner.results, self._runner.channel_reports(vertex))
        compare_run(self._context, vertex, run, self._runner.results)
        self._decider.compare(vertex)
        execution.move(ExecutionState.FINISHED)

    def _decide(self, execution: ExecutionJobVertex, inferred: Mapping[int, int]) -> VertexSetup:
        vertex = execution.vertex
        if vertex.tail_id in self._context.plan.stages or self._runner.sinks.skip_report(vertex) is not None:
            return VertexSetup()  # the vertex reads no rows
        decided = self._decider.decide(execution.vertex, inferred)
        execution.record_decision(decided.parallelism, decided.reason, decided.bytes_in)
        return decided.setup

    def fetch_filters(self, vertex: JobVertex) -> dict[int, KeyFilter]:
        """Fetch the keys that filter a vertex, and apply them to its sources; return the filters by node."""
        with track_work(f"fetching the filters of {vertex.id} {vertex.name}"):
            filters = self._runner.fetch_filters(vertex, self._description(vertex))
        sources = self._context.plan.sources
        for node_id in filters.keys() & sources.keys():
            sources[node_id] = sources[node_id].with_filters(self._runner.filtered_scan(node_id))
        return filters

    def _description(self, vertex: JobVertex) -> str:
        return f"{self._job_name}: {vertex.id} {vertex.name}"
