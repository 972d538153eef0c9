"""The pages, made on the server; what is shown comes from records only, and is escaped by the templates."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, select_autoescape
from markupsafe import Markup

from penstock.history.record import run_times
from penstock.units import show_bytes, show_count
from penstock.web.drawing import draw

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.history.event_log import Summary
    from penstock.history.record import JobRecord

SKEWED = 4.0
"""A subpartition or task is marked where it is this many times the median."""
_INLINE = 600
"""Boxes up to which the drawing is a part of the page, with links and tips."""


def _seconds(value: float | None) -> str:
    if value is None:
        return "?"
    if value < 60:
        return f"{value:.1f} s"
    minutes, seconds = divmod(int(value), 60)
    return f"{minutes} min {seconds} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _clock(at: float | None) -> str:
    return "" if at is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


_templates = Environment(
    loader=PackageLoader("penstock.web"), autoescape=select_autoescape(), trim_blocks=True, lstrip_blocks=True
)
_templates.filters |= {"seconds": _seconds, "clock": _clock, "bytes": show_bytes, "count": show_count}


def jobs(summaries: list[Summary], now: float) -> str:
    """Return the lists of running and of ended jobs."""
    running = [job for job in summaries if job.state in {"CREATED", "RUNNING"}]
    ended = [job for job in summaries if job.state not in {"CREATED", "RUNNING"}]
    return _templates.get_template("jobs.html").render(
        running=running, ended=ended[:500], more=len(ended[500:]), now=now
    )


def job(record: JobRecord, now: float, *, pending: bool, may_cancel: bool) -> str:
    """Return the page of a job."""
    boxes = len(record.vertices) + (record.pending if pending else 0)
    drawing = Markup(draw(record, pending=pending)) if boxes <= _INLINE else None  # noqa: S704 - escaped where it is made
    return _templates.get_template("job.html").render(
        job=record, now=now, pending=pending, may_cancel=may_cancel, drawing=drawing, counts=record.status_counts()
    )


def vertex(record: JobRecord, one: dict[str, Any], now: float) -> str:
    """Return the page of a vertex."""
    tasks = record.tasks.get(one["id"], [])
    begin = min((task["started"] for task in tasks), default=0.0)
    span = max((task["started"] + task["seconds"] - begin for task in tasks), default=0.0) or 1.0
    typical = _median(task["seconds"] for task in tasks)
    lanes = [
        {
            "left": 100 * (task["started"] - begin) / span,
            "width": max(100 * task["seconds"] / span, 0.4),
            "task": task,
            "skewed": len(tasks) > 2 and task["seconds"] > SKEWED * typical,
        }
        for task in tasks
    ]
    started, ended = run_times(one)
    return _templates.get_template("vertex.html").render(
        job=record,
        vertex=one,
        bars=bars(one["subpartitions"]),
        lanes=lanes,
        span=span,
        seconds=None if started is None else (ended or now) - started,
        operators=[record.nodes[node] for node in one["nodes"] if node in record.nodes],
        decisions=record.decisions_of(one),
        inputs=[(edge["vertex"], record.edges[edge["edge"]]["partitioner"]) for edge in one["inputs"]],
    )


def bars(sizes: list[int]) -> list[dict[str, Any]]:
    """Return a bar for each subpartition: its height in percent of the largest, and whether it is skewed."""
    highest = max(sizes, default=0) or 1
    typical = _median(sizes)
    return [
        {"height": max(100 * size / highest, 0.5), "size": size, "skewed": len(sizes) > 2 and size > SKEWED * typical}
        for size in sizes
    ]


def _median(values: Iterable[float]) -> float:
    found = list(values)
    return statistics.median(found) if found else 0.0
