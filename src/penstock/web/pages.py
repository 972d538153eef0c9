"""The HTML pages, rendered on the server from job records; the templates escape all texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, select_autoescape
from markupsafe import Markup

import penstock
from penstock.base.units import show_bytes, show_count
from penstock.decisions.plain_spark import SHUFFLED_FIGURE, spark_alternative
from penstock.decisions.record import DecisionRecord, displayed_decisions
from penstock.optimizer.dynamic_filtering import JOIN_FIGURE, SIDE_FIGURE, SKIPS_FIGURE
from penstock.web import formatting
from penstock.web.causes import reasons_of_time
from penstock.web.charts import bars
from penstock.web.charts.graph import draw_graph
from penstock.web.charts.step import Lanes, subpartition_bars
from penstock.web.comparison import Comparison
from penstock.web.findings import findings
from penstock.web.gains import gains
from penstock.web.listing import STATES, JobList, JobListQuery, JobPageQuery, sorted_steps
from penstock.web.steps import Step, Timing, longest_step, steps_of

if TYPE_CHECKING:
    from penstock.history.record import JobRecord, VertexRecord
    from penstock.history.summaries import Summary
    from penstock.web.dashboard import Dashboard
    from penstock.web.store import Stream

_MAX_INLINE_BOXES = 600
"""The most steps and pending operators of a graph that is inlined in the page, with links and tooltips."""
_MAX_TIMELINE_STEPS = 600
"""The most steps that a timeline shows, besides the longest step."""
_MAX_BUSY_INTERVALS = 60
"""The most busy intervals of a step that its bar shows; the bar of a step with more shows none."""

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
    "step_number": formatting.step_number,
}
_templates.globals |= {"version": penstock.__version__}


def jobs(
    summaries: Sequence[Summary], query: JobListQuery, now: float, *, unreadable: int = 0, has_streams: bool = False
) -> str:
    """Return the page with the list of jobs; `unreadable` is the number of event logs that cannot be read."""
    return _render(
        "jobs.html",
        job_list=JobList.of(summaries, query, now),
        query=query,
        now=now,
        states=STATES,
        unreadable=unreadable,
        has_streams=has_streams,
    )


def streams(sections: Sequence[Stream]) -> str:
    """Return the page of all streams."""
    return _render("streams.html", streams=sections)


def dashboard(figures: Dashboard) -> str:
    """Return the page with the figures over all jobs."""
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
    compared: JobRecord | None = None,
) -> str:
    """Return the page of a job; `is_local` says whether this process runs or ran the job, so Spark's pages show it.

    `last` is the latest earlier run that finished, None without it, and `earlier` are earlier runs, the latest first.
    `compared` is the latest run whose queries plain Spark ran as well, None without one.
    """
    steps, decisions = steps_of(record, now), record.decisions
    timing = Timing.of(steps, record.seconds_without_comparison(now))
    comparison = None if last is None else Comparison.of(last, record, now)
    comparison_page = "" if last is None else f"/ui/jobs/{record.id}/compare/{last.id}"
    displayed = displayed_decisions(decisions)
    is_inline = len(steps) + (record.pending if query.pending else 0) <= _MAX_INLINE_BOXES
    graph = draw_graph(record, steps, timing.critical_path, pending=query.pending) if is_inline else None
    return _render(
        "job.html",
        job=record,
        now=now,
        query=query,
        may_cancel=may_cancel,
        spark_pages=(record.application or {}).get("page") if is_local else None,
        summary=record.summary(),
        gains=list(gains(record, now, last, compared, comparison_page)),
        findings=findings(steps, timing, decisions, comparison, record.id, comparison_page),
        graph=None if graph is None else Markup(graph),  # noqa: S704 - escaped by draw_graph
        longest=longest_step(steps),
        timing=timing,
        axis=Markup(bars.axis(timing.total_seconds)),  # noqa: S704 - numbers only
        lines=_timeline(steps, timing),
        steps=sorted_steps(steps, query.sort),
        finished=sum(step.state == "finished" for step in steps),
        kinds=sorted(Counter(decision.kind for decision in displayed).items()),
        decisions=[
            (decision, spark_alternative(decision, record.spark_settings))
            for decision in displayed
            if query.kind in {"", decision.kind}
        ],
        hidden=[
            (decision, spark_alternative(decision, record.spark_settings))
            for decision in decisions
            if not decision.is_shown
        ],
        earlier=earlier,
    )


def _timeline(steps: Sequence[Step], timing: Timing) -> list[tuple[Step, bool, Markup]]:
    """Return the started steps in order: each step, whether it is on the critical path, and its bar as SVG."""
    started = sorted((step for step in steps if step.span is not None), key=lambda step: step.start or 0.0)
    longest = longest_step(steps)
    rows = []
    for step in [step for index, step in enumerate(started) if index < _MAX_TIMELINE_STEPS or step is longest]:
        is_critical = step.id in timing.critical_path
        parts = [("idle", gap) for gap in timing.idle_intervals]
        if step.span is not None:
            parts.append((f"run {step.state}" + (" critical" if is_critical else ""), step.span))
        parts += [("busy", times) for times in (step.busy if len(step.busy) <= _MAX_BUSY_INTERVALS else ())]
        rows.append((step, is_critical, Markup(bars.time_line(timing.total_seconds, parts))))  # noqa: S704 - numbers only
    return rows


def compare(before: JobRecord, after: JobRecord, now: float, earlier: Sequence[Summary]) -> str:
    """Return the page that compares two runs."""
    total = max(record.seconds_without_comparison(now) for record in (before, after))
    timelines = []  # both with the same length in seconds, and without idle intervals
    for record in (before, after):
        steps = steps_of(record, now)
        timelines.append(_timeline(steps, Timing(total, Timing.of(steps, total).critical_path, ())))
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


def vertex(record: JobRecord, vertex_record: VertexRecord, now: float, *, is_local: bool = False) -> str:
    """Return the page of a step."""
    steps = steps_of(record, now)
    step = next(step for step in steps if step.id == vertex_record.id)
    nodes = set(vertex_record.nodes)
    vertex_ids = list(record.vertices)
    index = vertex_ids.index(step.id)
    return _render(
        "vertex.html",
        job=record,
        vertex=vertex_record,
        step=step,
        reasons=list(reasons_of_time(step, steps)),
        is_critical=step.id in Timing.of(steps, record.seconds(now)).critical_path,
        spark_pages=(record.application or {}).get("page") if is_local else None,
        bars=subpartition_bars(vertex_record),
        lanes=Lanes.of(step, record.tasks.get(step.id, [])),
        operators=record.nodes_of(vertex_record),
        decisions=[
            (decision, spark_alternative(decision, record.spark_settings))
            for decision in displayed_decisions(
                decision for decision in record.decisions if not nodes.isdisjoint(decision.nodes)
            )
        ],
        figures=[pair for decision in record.decisions_of(vertex_record) if (pair := _visible_figures(decision))[1]],
        inputs=[(vertex_input.vertex, record.edges[vertex_input.edge]) for vertex_input in vertex_record.inputs],
        readers=[reader.id for reader in steps if step.id in reader.inputs],
        previous=vertex_ids[index - 1] if index else None,
        following=vertex_ids[index + 1] if index + 1 < len(vertex_ids) else None,
    )


def _visible_figures(decision: DecisionRecord) -> tuple[str, dict[str, Any]]:
    """Return the sentence of a decision, and the figures and outcome that users see, by name."""
    hidden = {JOIN_FIGURE, SIDE_FIGURE, SKIPS_FIGURE, SHUFFLED_FIGURE}
    figures = {name: value for name, value in decision.values["figures"].items() if name not in hidden}
    outcome = {f"outcome: {name}": value for name, value in decision.values["outcome"].items()}
    return decision.sentence, figures | outcome


def _render(template: str, **values: Any) -> str:
    return _templates.get_template(template).render(**values)
