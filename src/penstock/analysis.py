"""A plan as it ran: each step with what was foreseen of it and what came."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.decisions import DecisionKind
from penstock.graph.naming import column_names
from penstock.graph.wording import edge_words
from penstock.report import job_as_dict
from penstock.tables import TextTable, html_of_table, html_of_text
from penstock.told import together
from penstock.units import show_bytes, show_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.scheduler.job import Job
    from penstock.told import ToldDecision, ToldEstimate

_READ = (DecisionKind.SOURCE_PARALLELISM, DecisionKind.VERTEX_PARALLELISM)
_WRITTEN = (DecisionKind.SUBPARTITIONS,)


@dataclass(frozen=True)
class Analysis:
    """What `Environment.explain` returns of a query that it ran; `str` makes a text of it, `as_dict` plain values.

    Parameters
    ----------
    job
        The job that ran; its rows were discarded.
    spark_plan
        Spark's own plan, of a query that was handed to Spark whole.
    """

    job: Job
    spark_plan: str | None = None

    def table(self) -> TextTable:
        """Return a table with a row per step; what was foreseen stands in brackets, with ``!`` where it was missed."""
        table = TextTable("Plan as it ran; (what was foreseen), ! where that was wrong")
        for name in ("", "step", "reads"):
            table.add_column(name, no_wrap=not name, ratio=3 if name == "step" else 2 if name else None)
        for name in ("tasks", "bytes in", "rows in", "rows out", "bytes out", "seconds"):
            table.add_column(name, justify="right", no_wrap=True)
        graphs = self.job.graphs
        columns = {} if graphs is None else column_names(graphs.planned)
        told = self.job.decisions.told
        for one in self.job.vertices:
            about = [
                decision for decision in told if not {str(n) for n in one.vertex.node_ids}.isdisjoint(decision.nodes)
            ]
            reads = (
                f"{edge.source_vertex_id.removeprefix('v')} {edge_words(edge.stream_edge.partitioner, columns)}"
                for edge in one.vertex.inputs
            )
            table.add_texts(
                one.vertex.id.removeprefix("v"),
                self.job.called(one.vertex),
                ", ".join(reads),
                "" if one.parallelism is None else f"{one.parallelism:,}",
                "" if one.bytes_in is None else show_bytes(one.bytes_in),
                _rows_in(_estimate(about, _READ)),
                "" if one.rows_out is None else f"{one.rows_out:,}",
                _compared(one.bytes_out, _estimate(about, _WRITTEN)),
                f"{one.seconds:.2f}",
            )
        return table

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return job_as_dict(self.job) | {"spark_plan": self.spark_plan}

    def __str__(self) -> str:
        parts = [str(self.job.summary)]
        parts.append(str(self.table()) if self.spark_plan is None else self.spark_plan.rstrip())
        return "\n".join([*parts, *self._told()])

    def _repr_html_(self) -> str:
        shown = html_of_table(self.table()) if self.spark_plan is None else html_of_text(self.spark_plan)
        return html_of_text(str(self.job.summary)) + shown + html_of_text("\n".join(self._told()))

    def _told(self) -> list[str]:
        """Return the estimates that were missed, the worst first, and the decisions."""
        told = self.job.decisions.told
        missed = [one.estimate for one in told if one.estimate is not None and one.estimate.missed_by is not None]
        missed.sort(key=lambda estimate: -(estimate.missed_by or 0))
        lines = [f"Missed {show_count(len(missed), 'estimate')}"] if missed else []
        lines += [f"- {estimate}" for estimate in missed]
        return [*lines, "Decisions", *(f"- {one.text}" for one in together(told, of_tasks=self.spark_plan is not None))]


def _estimate(decisions: Sequence[ToldDecision], kinds: Sequence[DecisionKind]) -> ToldEstimate | None:
    found = (one.estimate for one in decisions if one.kind in kinds and one.estimate is not None)
    return next(found, None)


def _rows_in(estimate: ToldEstimate | None) -> str:
    """Return the rows that were read from sources whose rows were known before."""
    if estimate is None:
        return ""
    came = "?" if estimate.came is None else f"{estimate.came:,.0f}"
    return f"{came} ({estimate.foreseen:,.0f})" + ("" if estimate.missed_by is None else " !")


def _compared(came: int | None, estimate: ToldEstimate | None) -> str:
    shown = "?" if came is None else show_bytes(came)
    if estimate is None:
        return "" if came is None else shown
    return f"{shown} ({show_bytes(estimate.foreseen)})" + ("" if estimate.missed_by is None else " !")
