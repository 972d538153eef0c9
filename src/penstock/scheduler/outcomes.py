"""Records what came of a vertex that has run, and of what was decided about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.decisions import Decision, DecisionKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.execution.context import JobContext
    from penstock.execution.results import ResultStore
    from penstock.execution.vertex_runner import VertexRun
    from penstock.graph import JobVertex
    from penstock.scheduler.execution_graph import ExecutionJobVertex


def record_run(
    context: JobContext,
    execution: ExecutionJobVertex,
    run: VertexRun,
    results: ResultStore,
    channels: Iterable[dict[str, Any]],
) -> None:
    """Give a vertex its measured figures, and settle all decisions about its operators with them.

    Parameters
    ----------
    channels
        What the tasks of an adaptive exchange in it tell.
    """
    vertex, decisions = execution.vertex, context.decisions
    execution.tasks = run.tasks
    if run.report is not None:
        execution.reason = f"{run.report.chosen}: {run.report.reason}"
        said = run.report.chosen, run.report.reason
        decisions.record(Decision(DecisionKind.SINK_STAGE, f"{vertex.id} {vertex.name}", *said, nodes=vertex.node_ids))
    if run.result is not None:
        execution.rows_out, execution.bytes_out = run.result.rows, run.result.size_in_bytes
    execution.subpartitions = results.subpartitions(vertex)
    execution.parallelism = execution.parallelism or run.tasks
    for decision in decisions.of(vertex.node_ids):
        decisions.settle(decision, tasks=run.tasks, rows=execution.rows_out, bytes=execution.bytes_out)
    for report in channels:
        decisions.record(_channel(vertex, report))


def _channel(vertex: JobVertex, report: dict[str, Any]) -> Decision:
    """Return what each consumer of an adaptive exchange took of one task."""
    rows = {f"rows to {one['reader']}": one["rows"] for one in report["channels"]}
    paces = {f"rows a second of {one['reader']}": one["pace"] for one in report["channels"]}
    own = {name: report[name] for name in ("rows", "bytes", "largest_queue", "waited", "blocked")}
    return Decision(
        DecisionKind.REBALANCE,
        f"{vertex.id} {vertex.name}, task {report['index']}",
        f"{report['rows']} rows",
        f"it waited {report['waited']:.1f} s for rows to read, and {report['blocked']:.1f} s for others to accept rows",
        own | rows | paces,
        nodes=vertex.node_ids,
    )
