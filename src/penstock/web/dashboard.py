"""Figures over all jobs: jobs a day, bytes not shuffled, kinds of decisions, wrong estimates, growing sources."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.base.units import show_bytes, show_count
from penstock.decisions.record import displayed_decisions
from penstock.web.charts.bars import Column
from penstock.web.comparison import GROWTH_FACTOR, Growth, rows_of_sources
from penstock.web.steps import steps_of

if TYPE_CHECKING:
    from penstock.decisions.estimates import EstimateRecord
    from penstock.history.record import JobRecord
    from penstock.history.summaries import Summary

_MAX_DAYS = 30
_MAX_ROWS = 15  # of a table


@dataclass(frozen=True, slots=True)
class Miss:
    """A wrong estimate, and the id and the name of its job."""

    estimate: EstimateRecord
    job: str
    name: str


@dataclass(frozen=True, slots=True)
class Digest:
    """The figures of a job that the dashboard aggregates.

    `not_shuffled` is the number of bytes that broadcast joins did not shuffle. `kinds` counts the decisions by kind.
    `rows` has the rows read per source; it is empty for an unfinished job, which may not have read all rows.
    """

    id: str
    name: str
    started: float
    not_shuffled: int
    kinds: Counter[str]
    misses: tuple[Miss, ...]
    rows: dict[str, int]

    @classmethod
    def of(cls, record: JobRecord) -> Digest:
        """Return the digest of a job."""
        misses = [
            Miss(decision.estimate, record.id, record.name)
            for decision in record.decisions
            if decision.estimate is not None and decision.is_missed
        ]
        rows = rows_of_sources(steps_of(record, record.changed)) if record.state == "FINISHED" else {}
        kinds = Counter(decision.kind for decision in displayed_decisions(record.decisions))
        not_shuffled = sum(decision.not_shuffled or 0 for decision in record.decisions)
        return cls(record.id, record.name, record.started, not_shuffled, kinds, tuple(misses), rows)


@dataclass(frozen=True, slots=True)
class GrowingSource:
    """A source from which the latest run of a job (with the id `job`) read more rows than the first analyzed run."""

    growth: Growth
    job: str
    name: str


@dataclass(frozen=True, slots=True)
class Dashboard:
    """Figures over all jobs; `jobs` is their number, `analyzed` the number of jobs whose records were read in full."""

    jobs: int
    analyzed: int
    states: tuple[tuple[str, int], ...]  # each state, and its number of jobs
    days: tuple[Column, ...]
    not_shuffled: int  # bytes; this and the following figures cover only the analyzed jobs
    not_shuffled_days: tuple[Column, ...]
    kinds: tuple[tuple[str, int], ...]  # each kind of decision, and its number of decisions
    misses: tuple[Miss, ...]
    growing_sources: tuple[GrowingSource, ...]

    @classmethod
    def of(cls, summaries: Sequence[Summary], digests: Sequence[Digest], now: float) -> Dashboard:
        """Aggregate all jobs, and the digests of the analyzed jobs, newest first; `now` is a time on the last day."""
        days = _days([job.started for job in summaries], now)
        jobs_by_day = Counter(_day(job.started) for job in summaries)
        bytes_by_day: Counter[dt.date] = Counter()  # not shuffled
        kinds: Counter[str] = Counter()
        for digest in digests:
            bytes_by_day[_day(digest.started)] += digest.not_shuffled
            kinds += digest.kinds
        # Report equal misses of several runs once, for the latest run: digests are sorted newest first.
        latest = {(miss.name, str(miss.estimate)): miss for digest in reversed(digests) for miss in digest.misses}
        misses = sorted(latest.values(), key=lambda miss: miss.estimate.severity, reverse=True)
        return cls(
            len(summaries),
            len(digests),
            tuple(Counter(job.state.lower() for job in summaries).most_common()),
            tuple(Column(f"{day:%-d %b}", jobs_by_day[day], show_count(jobs_by_day[day], "job")) for day in days),
            sum(bytes_by_day.values()),
            tuple(Column(f"{day:%-d %b}", bytes_by_day[day], show_bytes(bytes_by_day[day])) for day in days),
            tuple(kinds.most_common()),
            tuple(misses[:_MAX_ROWS]),
            tuple(_growing_sources(digests)[:_MAX_ROWS]),
        )


def _day(at: float) -> dt.date:
    return dt.datetime.fromtimestamp(at).astimezone().date()


def _days(starts: Sequence[float], now: float) -> list[dt.date]:
    """Return the days to show: from the oldest job to today, at least a week and at most a month."""
    today = _day(now)
    oldest = min((_day(at) for at in starts), default=today)
    count = min(max((today - oldest).days + 1, 7), _MAX_DAYS)
    return [today - dt.timedelta(days=age) for age in reversed(range(count))]


def _growing_sources(digests: Sequence[Digest]) -> list[GrowingSource]:
    runs: dict[tuple[str, str], list[Digest]] = {}  # by the name of the job, and the label of the source
    for digest in sorted(digests, key=lambda digest: digest.started):
        for label in digest.rows:
            runs.setdefault((digest.name, label), []).append(digest)
    sources = []
    for (name, label), job_runs in runs.items():
        growth = Growth(label, job_runs[0].rows[label], job_runs[-1].rows[label])
        if growth.factor >= GROWTH_FACTOR:
            sources.append(GrowingSource(growth, job_runs[-1].id, name))
    return sorted(sources, key=lambda source: -source.growth.factor)
