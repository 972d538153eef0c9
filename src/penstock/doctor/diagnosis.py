"""The diagnosis of an application: the findings that cost enough time, ranked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.base.units import show_count
from penstock.doctor.checks import CHECKS
from penstock.doctor.finding import unfinished_tasks
from penstock.doctor.log_files import LogFiles
from penstock.doctor.reader import read_application
from penstock.doctor.timeline import Timeline, union_seconds

if TYPE_CHECKING:
    from penstock.doctor.finding import Finding
    from penstock.doctor.records import Application

MIN_SECONDS = 1.0
"""The least lost seconds of a finding: less is within what two runs of a program differ."""
MIN_FRACTION = 0.05
"""The least lost time of a finding, as a fraction of the duration of the application."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What was read: durations in seconds, the largest number of cores at a time, and what the log lacks."""

    name: str
    id: str
    spark_version: str
    seconds: float
    task_seconds: float  # in which at least one task ran
    query_seconds: float  # in which a query was active, but no task ran
    cores: int
    tasks: int
    stages: int
    queries: int
    files: int
    bytes: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The findings of an application that lost at least `threshold` seconds each, most lost seconds first."""

    facts: Facts
    findings: tuple[Finding, ...]
    threshold: float

    def as_dict(self) -> dict[str, Any]:
        """Return all values for JSON."""
        findings = [
            asdict(finding) | {"kind": str(finding.kind), "seconds": round(finding.seconds, 3)}
            for finding in self.findings
        ]
        return {"application": asdict(self.facts), "threshold_seconds": self.threshold, "findings": findings}


def diagnose(
    path: str | Path, min_seconds: float = MIN_SECONDS, progress: Callable[[int], None] | None = None
) -> Diagnosis:
    """Read an event log and return its diagnosis; raise `DoctorError` if the log cannot be read."""
    files = LogFiles(path)
    application = read_application(files, progress)
    timeline = Timeline.of(application)
    threshold = max(min_seconds, MIN_FRACTION * application.seconds)
    causes = [finding for check in CHECKS for finding in check(application, timeline)]
    intervals = {query.id: application.interval(query) for query in application.queries.values()}
    return Diagnosis(_facts(application, timeline, files), ranked(causes, threshold, intervals), threshold)


def ranked(
    findings: Sequence[Finding], threshold: float, intervals: Mapping[int, tuple[float, float]] | None = None
) -> tuple[Finding, ...]:
    """Merge the findings of a kind that belong to one line, and return those above a threshold, worst first.

    A loop may run a query many times. The texts of a merged finding are those of its worst. It cannot have lost more
    seconds than its queries took; `intervals` has the start and the end of each query.
    """
    groups: defaultdict[tuple[str, str, str], list[Finding]] = defaultdict(list)
    for finding in findings:
        if finding.seconds > 0:
            is_line = ":" in finding.line
            groups[finding.kind, finding.line, "" if is_line else finding.subject].append(finding)
    merged = []
    for group in groups.values():
        worst = max(group, key=lambda finding: finding.seconds)
        seconds = sum(finding.seconds for finding in group)
        queries = tuple(sorted({query for finding in group for query in finding.queries}))
        if intervals and all(finding.queries for finding in group) and intervals.keys() >= set(queries):
            seconds = min(seconds, union_seconds(intervals[query] for query in queries))
        merged.append(replace(worst, seconds=seconds, repeats=len(group), queries=queries))
    return tuple(
        sorted((finding for finding in merged if finding.seconds >= threshold), key=lambda finding: -finding.seconds)
    )


def _facts(application: Application, timeline: Timeline, files: LogFiles) -> Facts:
    gaps = [
        gap
        for _, start, end in application.separate_queries()
        for gap in timeline.gaps(max(start, timeline.first_task), end)
    ]
    return Facts(
        name=application.name,
        id=application.id,
        spark_version=application.spark_version,
        seconds=application.seconds,
        task_seconds=timeline.task_seconds(),
        query_seconds=sum(end - start for start, end in gaps),
        cores=timeline.cores,
        tasks=sum(len(stage.tasks) for stage in application.stages),
        stages=sum(len(stage.tasks) > 0 for stage in application.stages),
        queries=len(application.queries),
        files=len(files.names),
        bytes=files.bytes,
        notes=tuple(_notes(application, files)),
    )


def _notes(application: Application, files: LogFiles) -> list[str]:
    notes = []
    failed = [query for query in application.queries.values() if query.error]
    if failed:
        first = f"{application.where(failed[0].id)}: {failed[0].error}"
        notes.append(f"{show_count(len(failed), 'query', 'queries')} failed, the first in {first}")
    if files.is_truncated or application.ended is None:
        running = unfinished_tasks(application, application.stages)
        notes.append(f"The log has no end: the application is still running, or its driver died.{running}")
    if files.is_incomplete:
        notes.append("The first files of the log are missing or compacted, so earlier queries are not diagnosed.")
    if files.damaged_lines:
        notes.append(f"{files.damaged_lines:,} lines of the log could not be read.")
    if application.dropped_plans:
        notes.append(f"The plans of the {application.dropped_plans:,} shortest queries are not diagnosed.")
    if any(node.name == "Penstock" for query in application.queries.values() for node in query.nodes):
        notes.append(
            "Penstock ran queries of this application. What it would have done applies to queries of Spark alone; "
            "`penstock history` shows what it decided for the others."
        )
    if not application.queries:
        notes.append("The application ran no query of Spark SQL, so only stages and tasks are diagnosed.")
    return notes
