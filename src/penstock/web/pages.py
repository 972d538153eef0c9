"""The pages, made on the server; what is shown comes from records only, and is escaped by the templates."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, select_autoescape
from markupsafe import Markup

import penstock
from penstock.history.summary import summary_of
from penstock.history.told import told
from penstock.optimizer.dynamic_filtering import JOIN, SIDE, SKIPS
from penstock.told import ToldDecision, together
from penstock.units import show_bytes, show_count
from penstock.web import words
from penstock.web.charts import bars
from penstock.web.charts.graph import draw_graph
from penstock.web.comparison import Comparison
from penstock.web.edges import distribution
from penstock.web.findings import Links, findings
from penstock.web.lanes import Lanes
from penstock.web.listing import STATES, JobList, JobWish, Wish, sorted_steps, steps_made
from penstock.web.pieces import bars_of
from penstock.web.reasons import reasons_of_time
from penstock.web.steps import steps_of
from penstock.web.timing import Timing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.history.record import JobRecord
    from penstock.history.summaries import Summary
    from penstock.web.dashboard import Dashboard
    from penstock.web.steps import Step
    from penstock.web.streams import Stream

_INLINE = 600
"""Steps and pending operators up to which the graph is a part of the page, with links and tips."""
_LINES = 600
"""Steps that a timeline shows."""
_BUSY = 60
"""Times in which tasks ran that a line shows."""

_templates = Environment(
    loader=PackageLoader("penstock.web"), autoescape=select_autoescape(), trim_blocks=True, lstrip_blocks=True
)
_templates.filters |= {
    "seconds": words.seconds,
    "clock": words.clock,
    "bytes": show_bytes,
    "size": words.size,
    "count": show_count,
    "number": words.count,
    "short": words.short_count,
    "rows": words.rows,
    "distribution": distribution,
    "setting": words.setting,
    "step_number": words.number_of,
}
_templates.globals |= {"version": penstock.__version__}


def jobs(summaries: Sequence[Summary], wish: Wish, now: float, *, unread: int = 0, has_streams: bool = False) -> str:
    """Return the list of jobs; `unread` is how many event logs cannot be read."""
    return _render(
        "jobs.html",
        found=JobList.of(summaries, wish, now),
        wish=wish,
        now=now,
        states=STATES,
        steps_made=steps_made,
        unread=unread,
        has_streams=has_streams,
    )


def streams(found: Sequence[Stream]) -> str:
    """Return the page of all streams."""
    return _render("streams.html", found=found)


def dashboard(found: Dashboard) -> str:
    """Return the page of all jobs together."""
    charts = [Markup(bars.columns(days)) for days in (found.days, found.not_shuffled_days)]  # noqa: S704 - escaped there
    return _render("dashboard.html", found=found, days=charts[0], not_shuffled_days=charts[1])


def problem(title: str, detail: str) -> str:
    """Return the page of what cannot be shown."""
    return _render("problem.html", title=title, detail=detail)


def job(
    record: JobRecord,
    now: float,
    wish: JobWish,
    *,
    may_cancel: bool = False,
    is_here: bool = False,
    last: JobRecord | None = None,
    earlier: Sequence[Summary] = (),
) -> str:
    """Return the page of a job.

    Parameters
    ----------
    record
        The job.
    now
        Seconds since the epoch.
    wish
        What the reader wishes to see of it.
    may_cancel
        Whether the reader may cancel it.
    is_here
        Whether Spark's own pages of it are there.
    last
        The run before, if there was one.
    earlier
        Earlier jobs of the same name, the latest first.
    """
    steps, decisions = steps_of(record, now), told(record)
    timing = Timing.of(steps, record.seconds(now))
    comparison = None if last is None else Comparison.of(last, record, now)
    links = Links(record.id, None if last is None else f"/ui/jobs/{record.id}/compare/{last.id}")
    shown = together(decisions)
    boxes = len(steps) + (record.pending if wish.pending else 0)
    graph = draw_graph(record, steps, timing.critical, pending=wish.pending) if boxes <= _INLINE else None
    return _render(
        "job.html",
        job=record,
        now=now,
        wish=wish,
        may_cancel=may_cancel,
        spark=(record.application or {}).get("page") if is_here else None,
        summary=summary_of(record, None if last is None else last.seconds(now)),
        findings=findings(steps, timing, decisions, comparison, links),
        graph=None if graph is None else Markup(graph),  # noqa: S704 - escaped where it is made
        timing=timing,
        axis=Markup(bars.axis(timing.total)),  # noqa: S704 - numbers only
        lines=_timeline(steps, timing),
        steps=sorted_steps(steps, wish.sort),
        finished=sum(step.state == "finished" for step in steps),
        kinds=sorted(Counter(one.kind for one in shown).items()),
        decisions=[one for one in shown if wish.kind in {"", one.kind}],
        hidden=[one for one in decisions if not one.is_shown],
        earlier=earlier,
    )


def _timeline(steps: Sequence[Step], timing: Timing) -> list[tuple[Step, bool, Markup]]:
    """Return the steps that have begun, in order: each with whether the end waited for it, and its line."""
    ran = sorted((step for step in steps if step.ran is not None), key=lambda step: step.start or 0.0)
    found = []
    for step in ran[:_LINES]:
        is_critical = step.id in timing.critical
        parts = [("idle", gap) for gap in timing.idle]
        if step.ran is not None:
            parts.append((f"run {step.state}" + (" critical" if is_critical else ""), step.ran))
        parts += [("busy", times) for times in (step.busy if len(step.busy) <= _BUSY else ())]
        found.append((step, is_critical, Markup(bars.time_line(timing.total, parts))))  # noqa: S704 - numbers only
    return found


def compare(before: JobRecord, after: JobRecord, now: float, earlier: Sequence[Summary]) -> str:
    """Return two runs side by side."""
    total = max(before.seconds(now), after.seconds(now))
    lines = []
    for record in (before, after):
        steps = steps_of(record, now)
        lines.append(_timeline(steps, Timing(total, Timing.of(steps, record.seconds(now)).critical, ())))
    return _render(
        "compare.html",
        before=before,
        after=after,
        comparison=Comparison.of(before, after, now),
        axis=Markup(bars.axis(total)),  # noqa: S704 - numbers only
        timelines=lines,
        earlier=earlier,
        now=now,
    )


def vertex(record: JobRecord, one: dict[str, Any], now: float, *, is_here: bool = False) -> str:
    """Return the page of a step."""
    steps = steps_of(record, now)
    step = next(step for step in steps if step.id == one["id"])
    nodes = set(one["nodes"])
    numbers = list(record.vertices)
    at = numbers.index(step.id)
    return _render(
        "vertex.html",
        job=record,
        vertex=one,
        step=step,
        reasons=list(reasons_of_time(step, steps)),
        is_critical=step.id in Timing.of(steps, record.seconds(now)).critical,
        spark=(record.application or {}).get("page") if is_here else None,
        bars=bars_of(one["subpartitions"], one["subpartition_count"]),
        lanes=Lanes.of(step, record.tasks.get(step.id, [])),
        operators=[record.nodes[node] for node in one["nodes"] if node in record.nodes],
        decisions=together(decision for decision in told(record) if not nodes.isdisjoint(decision.nodes)),
        figures=[made for decision in record.decisions_of(one) if (made := _figures(decision))[1]],
        inputs=[(edge["vertex"], record.edges[edge["edge"]]) for edge in one["inputs"]],
        readers=[other.id for other in steps if step.id in other.inputs],
        previous=numbers[at - 1] if at else None,
        following=numbers[at + 1] if at + 1 < len(numbers) else None,
    )


def _figures(decision: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return a decision as a sentence, and its figures by their names; numbers of nodes are none."""
    figures = {name: value for name, value in decision["figures"].items() if name not in {JOIN, SIDE, SKIPS}}
    came = {f"came out: {name}": value for name, value in decision["outcome"].items()}
    return ToldDecision.of(0, decision).sentence, figures | came


def _render(template: str, **values: Any) -> str:
    return _templates.get_template(template).render(**values)
