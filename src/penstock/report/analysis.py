"""A job as plain values, and `Analysis`: a plan with the estimates and actual values of each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.base.tables import TextTable, html_of_table, html_of_text
from penstock.base.units import show_bytes, show_count
from penstock.decisions.log import DecisionKind
from penstock.decisions.record import DecisionRecord, displayed_decisions
from penstock.graph.labels import column_names, edge_label

if TYPE_CHECKING:
    from penstock.decisions.estimates import EstimateRecord
    from penstock.events import VertexSnapshot
    from penstock.scheduler.job import Job

# The kinds of decisions that estimate the rows that a step reads from sources, and the bytes that it writes.
_INPUT_KINDS = (DecisionKind.SOURCE_PARALLELISM, DecisionKind.VERTEX_PARALLELISM)
_OUTPUT_KINDS = (DecisionKind.SUBPARTITIONS,)


def job_as_dict(job: Job) -> dict[str, Any]:
    """Return a job as plain values for JSON."""
    return {
        "id": job.id,
        "name": job.name,
        "state": job.state.value,
        "started": job.started,
        "seconds": None if job.ended is None else round(job.ended - job.started, 3),
        "pending-operators": job.pending_operators,
        "status-counts": job.status_counts,
        "vertices": [_vertex_as_dict(vertex) for vertex in job.vertices],
        "decisions": [decision.as_dict() for decision in job.decisions],
    }


def _vertex_as_dict(snapshot: VertexSnapshot) -> dict[str, Any]:
    return {
        "id": snapshot.vertex.id,
        "name": snapshot.vertex.name,
        "state": snapshot.state.value,
        "parallelism": snapshot.parallelism,
        "reason": snapshot.reason,
        "tasks": snapshot.tasks,
        "bytes-in": snapshot.bytes_in,
        "bytes-out": snapshot.bytes_out,
        "rows-out": snapshot.rows_out,
        "seconds": round(snapshot.seconds, 3),
    }


@dataclass(frozen=True)
class Analysis:
    """The result of `Environment.explain` with ``analyze=True``; `str` returns a text, `as_dict` plain values.

    `spark_plan` is Spark's plan of a query that Spark ran unchanged, else None.
    """

    job: Job
    spark_plan: str | None = None

    def table(self) -> TextTable:
        """Return a table with a row per step; estimates are in parentheses, misses are marked with ``!``."""
        table = TextTable("Plan as it ran; (estimate), ! missed estimate")
        for name in ("", "step", "reads"):
            table.add_column(name, no_wrap=not name, ratio=3 if name == "step" else 2 if name else None)
        for name in ("tasks", "bytes in", "rows in", "rows out", "bytes out", "seconds"):
            table.add_column(name, justify="right", no_wrap=True)
        graphs = self.job.graphs
        names_by_column = {} if graphs is None else column_names(graphs.initial)
        decisions = self.job.decisions.records
        for snapshot in self.job.vertices:
            nodes = {str(node_id) for node_id in snapshot.vertex.node_ids}
            step_decisions = [decision for decision in decisions if not nodes.isdisjoint(decision.nodes)]
            reads = (
                f"{edge.source_vertex_id.removeprefix('v')} {edge_label(edge.stream_edge.partitioner, names_by_column)}"
                for edge in snapshot.vertex.inputs
            )
            table.add_texts(
                snapshot.vertex.id.removeprefix("v"),
                self.job.display_name(snapshot.vertex),
                ", ".join(reads),
                "" if snapshot.parallelism is None else f"{snapshot.parallelism:,}",
                "" if snapshot.bytes_in is None else show_bytes(snapshot.bytes_in),
                _rows_in_text(_estimate(step_decisions, _INPUT_KINDS)),
                "" if snapshot.rows_out is None else f"{snapshot.rows_out:,}",
                _bytes_out_text(snapshot.bytes_out, _estimate(step_decisions, _OUTPUT_KINDS)),
                f"{snapshot.seconds:.2f}",
            )
        return table

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return job_as_dict(self.job) | {"spark_plan": self.spark_plan}

    def __str__(self) -> str:
        parts = [str(self.job.summary)]
        parts.append(str(self.table()) if self.spark_plan is None else self.spark_plan.rstrip())
        return "\n".join([*parts, *self._note_lines()])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        plan_html = html_of_table(self.table()) if self.spark_plan is None else html_of_text(self.spark_plan)
        return html_of_text(str(self.job.summary)) + plan_html + html_of_text("\n".join(self._note_lines()))

    def _note_lines(self) -> list[str]:
        """Return lines with the missed estimates, the largest factor first, and then with the decisions."""
        decisions = self.job.decisions.records
        missed = [decision.estimate for decision in decisions if decision.estimate is not None and decision.is_missed]
        missed.sort(key=lambda estimate: -(estimate.missed_by or 0))
        lines = [f"Missed {show_count(len(missed), 'estimate')}"] if missed else []
        lines += [f"- {estimate}" for estimate in missed]
        displayed = displayed_decisions(decisions, with_parallelism=self.spark_plan is not None)
        return [*lines, "Decisions", *(f"- {decision.text}" for decision in displayed)]


def _estimate(decisions: Sequence[DecisionRecord], kinds: Sequence[DecisionKind]) -> EstimateRecord | None:
    estimates = (decision.estimate for decision in decisions if decision.kind in kinds)
    return next((estimate for estimate in estimates if estimate is not None), None)


def _rows_in_text(estimate: EstimateRecord | None) -> str:
    """Return the actual and the estimated number of rows read from a source, as text; empty without an estimate."""
    if estimate is None:
        return ""
    actual = "?" if estimate.actual is None else f"{estimate.actual:,.0f}"
    return f"{actual} ({estimate.estimated:,.0f})" + ("" if estimate.missed_by is None else " !")


def _bytes_out_text(actual: int | None, estimate: EstimateRecord | None) -> str:
    text = "?" if actual is None else show_bytes(actual)
    if estimate is None:
        return "" if actual is None else text
    return f"{text} ({show_bytes(estimate.estimated)})" + ("" if estimate.missed_by is None else " !")
