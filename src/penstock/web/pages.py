"""The HTML pages, rendered on the server from job records; the templates escape all texts."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, select_autoescape
from markupsafe import Markup

import penstock
from penstock.base.units import show_bytes, show_count
from penstock.decisions.record import DecisionRecord, displayed_decisions
from penstock.optimizer.dynamic_filtering import JOIN, SIDE, SKIPS
from penstock.web import formatting
from penstock.web.charts import bars
from penstock.web.charts.graph import draw_graph
from penstock.web.charts.step import Lanes, subpartition_bars
from penstock.web.comparison import Comparison
from penstock.web.findings import findings, reasons_of_time
from penstock.web.listing import STATES, JobList, JobListQuery, JobPageQuery, sorted_steps
from penstock.web.steps import Step, Timing, steps_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.history.record import JobRecord, VertexRecord
    from penstock.history.summaries import Summary
    from penstock.web.dashboard import Dashboard
    from penstock.web.store import Stream

_INLINE = 600
"""The most steps and pending operators with which the graph is inlined in the page, with links and tooltips."""
_LINES = 600
"""The most steps that a timeline shows."""
_BUSY = 60
"""The most busy intervals that the bar of a step shows."""

_templates = Environment(
    loader=PackageLoader("penstock.web"), autoescape=select_autoescape(), trim_blocks=True, lstrip_blocks=True
)
_templates.filters |= {
    "seconds": formatting.seconds,
    "clock": formatting.clock,
    "bytes": show_bytes,
    "size": formatting.size,
    "count": show_count,
    "number": formatting.count,
    "rows": formatting.rows,
    "setting": formatting.setting,
    "step_number": formatting.number_of,
}
_templates.globals |= {"version": penstock.__version__}


def jobs(
    summaries: Sequence[Summary], query: JobListQuery, now: float, *, unread: int = 0, has_streams: bool = False
) -> str:
    """Return the list of jobs; `unread` is the number of event logs that cannot be read."""
    return _render(
        "jobs.html",
        job_list=JobList.of(summaries, query, now),
        query=query,
        now=now,
        states=STATES,
        unread=unread,
        has_streams=has_streams,
    )


def streams(sections: Sequence[Stream]) -> str:
    """Return the page of all streams."""
    return _render("streams.html", streams=sections)


def dashboard(figures: Dashboard) -> str:
    """Return the page of the figures over all jobs."""
    charts = [Markup(bars.columns(days)) for days in (figures.days, figures.not_shuffled_days)]  # noqa: S704 - escaped there
    return _render("dashboard.html", dashboard=figures, days=charts[0], not_shuffled_days=charts[1])


def problem(title: str, detail: str) -> str:
    """Return an error page."""
    return _render("problem.html", title=title, detail=detail)


def job(
    record: JobRecord,
    now: float,
    query: JobPageQuery,
    *,
    may_cancel: bool = False,
    is_local: bool = False,
    last: JobRecord | None = None,
    earlier: Sequence[Summary] = (),
) -> str:
    """Return the page of a job; `is_local` says whether it belongs to this process, so that Spark has pages for it.

    `last` is the previous run, and `earlier` all earlier jobs of the same name, the latest first.
    """
    steps, decisions = steps_of(record, now), record.decisions
    timing = Timing.of(steps, record.seconds(now))
    comparison = None if last is None else Comparison.of(last, record, now)
    comparison_page = "" if last is None else f"/ui/jobs/{record.id}/compare/{last.id}"
    displayed = displayed_decisions(decisions)
    boxes = len(steps) + (record.pending if query.pending else 0)
    graph = draw_graph(record, steps, timing.critical, pending=query.pending) if boxes <= _INLINE else None
    return _render(
        "job.html",
        job=record,
        now=now,
        query=query,
        may_cancel=may_cancel,
        spark=(record.application or {}).get("page") if is_local else None,
        summary=record.summary(None if last is None else last.seconds(now)),
        findings=findings(steps, timing, decisions, comparison, record.id, comparison_page),
        graph=None if graph is None else Markup(graph),  # noqa: S704 - escaped by draw_graph
        timing=timing,
        axis=Markup(bars.axis(timing.total)),  # noqa: S704 - numbers only
        lines=_timeline(steps, timing),
        steps=sorted_steps(steps, query.sort),
        finished=sum(step.state == "finished" for step in steps),
        kinds=sorted(Counter(decision.kind for decision in displayed).items()),
        decisions=[decision for decision in displayed if query.kind in {"", decision.kind}],
        hidden=[decision for decision in decisions if not decision.is_shown],
        earlier=earlier,
    )


def _timeline(steps: Sequence[Step], timing: Timing) -> list[tuple[Step, bool, Markup]]:
    """Return the started steps in order, each with whether it is on the critical path, and its bar as SVG."""
    started = sorted((step for step in steps if step.ran is not None), key=lambda step: step.start or 0.0)
    rows = []
    for step in started[:_LINES]:
        is_critical = step.id in timing.critical
        parts = [("idle", gap) for gap in timing.idle]
        if step.ran is not None:
            parts.append((f"run {step.state}" + (" critical" if is_critical else ""), step.ran))
        parts += [("busy", times) for times in (step.busy if len(step.busy) <= _BUSY else ())]
        rows.append((step, is_critical, Markup(bars.time_line(timing.total, parts))))  # noqa: S704 - numbers only
    return rows


def compare(before: JobRecord, after: JobRecord, now: float, earlier: Sequence[Summary]) -> str:
    """Return the page that compares two runs."""
    total = max(before.seconds(now), after.seconds(now))
    timelines = []
    for record in (before, after):
        steps = steps_of(record, now)
        timelines.append(_timeline(steps, Timing(total, Timing.of(steps, record.seconds(now)).critical, ())))
    return _render(
        "compare.html",
        before=before,
        after=after,
        comparison=Comparison.of(before, after, now),
        axis=Markup(bars.axis(total)),  # noqa: S704 - numbers only
        timelines=timelines,
        earlier=earlier,
        now=now,
    )


def vertex(record: JobRecord, recorded: VertexRecord, now: float, *, is_local: bool = False) -> str:
    """Return the page of a step."""
    steps = steps_of(record, now)
    step = next(step for step in steps if step.id == recorded.id)
    nodes = set(recorded.nodes)
    numbers = list(record.vertices)
    index = numbers.index(step.id)
    return _render(
        "vertex.html",
        job=record,
        vertex=recorded,
        step=step,
        reasons=list(reasons_of_time(step, steps)),
        is_critical=step.id in Timing.of(steps, record.seconds(now)).critical,
        spark=(record.application or {}).get("page") if is_local else None,
        bars=subpartition_bars(recorded),
        lanes=Lanes.of(step, record.tasks.get(step.id, [])),
        operators=record.nodes_of(recorded),
        decisions=displayed_decisions(
            decision for decision in record.decisions if not nodes.isdisjoint(decision.nodes)
        ),
        figures=[pair for decision in record.decisions_of(recorded) if (pair := _figures(decision))[1]],
        inputs=[(edge.vertex, record.edges[edge.edge]) for edge in recorded.inputs],
        readers=[other.id for other in steps if step.id in other.inputs],
        previous=numbers[index - 1] if index else None,
        following=numbers[index + 1] if index + 1 < len(numbers) else None,
    )


def _figures(decision: DecisionRecord) -> tuple[str, dict[str, Any]]:
    """Return the sentence of a decision, and its figures and outcome by name, without the numbers of operators."""
    figures = {name: value for name, value in decision.values["figures"].items() if name not in {JOIN, SIDE, SKIPS}}
    outcome = {f"outcome: {name}": value for name, value in decision.values["outcome"].items()}
    return decision.sentence, figures | outcome


def _render(template: str, **values: Any) -> str:
    return _templates.get_template(template).render(**values)
