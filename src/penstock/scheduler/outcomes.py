"""Records the measured figures of a vertex that has run, as outcomes of its decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.decisions import Choice, DecisionKind, Explanation, VertexRef
from penstock.spark.exchange import BroadcastResult
from penstock.units import show_count

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.execution.context import JobContext
    from penstock.execution.results import Result, ResultStore
    from penstock.execution.vertex_runner import VertexRun
    from penstock.graph import JobVertex
    from penstock.scheduler.execution_graph import ExecutionJobVertex


_ABOUT_OUTPUT = {DecisionKind.SUBPARTITIONS, DecisionKind.SINK_PARALLELISM, DecisionKind.SINK_STAGE}
"""Decisions about the last stage of a vertex; all others are about the stage that reads its inputs."""


def record_run(
    context: JobContext,
    execution: ExecutionJobVertex,
    run: VertexRun,
    results: ResultStore,
    channels: Iterable[dict[str, Any]],
) -> None:
    """Record the measured figures of a vertex, and settle all decisions about its operators with them."""
    vertex, decisions = execution.vertex, context.decisions
    reason = None
    if run.report is not None:
        reason = f"{run.report.chosen}: {run.report.reason}"
        subject = VertexRef(vertex.id, vertex.name, vertex.node_ids)
        explanation = Explanation(f"{subject.display_name}: {reason}")
        decisions.record(
            Choice(DecisionKind.SINK_STAGE, subject, run.report.chosen, run.report.reason, explanation=explanation)
        )
    rows, size = (None, None) if run.result is None else (run.result.exact_rows, _bytes(run.result))
    execution.record_metrics(run.tasks, rows, size, results.subpartitions(vertex), reason)
    for decision in decisions.of(vertex.node_ids):
        tasks = run.tasks if decision.kind in _ABOUT_OUTPUT or run.input_tasks is None else run.input_tasks
        decisions.settle(decision.id, tasks=tasks, rows=rows, bytes=size)
    for report in channels:
        decisions.record(_channel_choice(vertex, report))


def _bytes(result: Result) -> int | None:
    """Return the bytes of a vertex's output: compressed for a shuffle, serialized for a broadcast."""
    return result.data_bytes if isinstance(result, BroadcastResult) else result.written_bytes


def _channel_choice(vertex: JobVertex, report: dict[str, Any]) -> Choice:
    """Return the rows that each consumer of an adaptive exchange received from a task."""
    rows = {f"rows to {channel['reader']}": channel["rows"] for channel in report["channels"]}
    paces = {f"rows a second of {channel['reader']}": channel["pace"] for channel in report["channels"]}
    own = {name: report[name] for name in ("rows", "bytes", "largest_queue", "waited", "blocked")}
    waited = f"waited {report['waited']:.1f} s for rows and {report['blocked']:.1f} s for consumers to accept them"
    subject = VertexRef(vertex.id, vertex.name, vertex.node_ids, task=report["index"])
    return Choice(
        DecisionKind.REBALANCE,
        subject,
        f"{report['rows']} rows",
        f"it waited {report['waited']:.1f} s for rows to read, and {report['blocked']:.1f} s for consumers to accept",
        own | rows | paces,
        Explanation(f"{subject.display_name}: took {show_count(report['rows'], 'row')}, {waited}", is_shown=False),
    )
