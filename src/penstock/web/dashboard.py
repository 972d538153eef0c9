"""All jobs together: how many a day, what they did not shuffle, what was decided, what was foreseen, what was read."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.history.told import told
from penstock.told import together
from penstock.units import show_bytes, show_count
from penstock.web.charts.bars import Column
from penstock.web.sources import GREW, Growth, rows_of_sources
from penstock.web.steps import steps_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.history.record import JobRecord
    from penstock.history.summaries import Summary
    from penstock.told import ToldEstimate

_DAYS = 30
_MOST = 15


@dataclass(frozen=True, slots=True)
class Miss:
    """An estimate that missed, and the job."""

    estimate: ToldEstimate
    job: str
    name: str


@dataclass(frozen=True, slots=True)
class Digest:
    """What the dashboard needs of one job.

    Parameters
    ----------
    id, name, started
        The job.
    not_shuffled
        Bytes that were not shuffled.
    kinds
        How many decisions there were of each kind.
    misses
        The estimates that missed.
    rows
        The rows that were read of each table; none of a job that did not finish, which may have read but a part.
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
        decisions = told(record)
        misses = [
            Miss(one.estimate, record.id, record.name)
            for one in decisions
            if one.estimate is not None and one.is_missed
        ]
        rows = rows_of_sources(steps_of(record, record.changed)) if record.state == "FINISHED" else {}
        kinds = Counter(one.kind for one in together(decisions))
        not_shuffled = sum(one.not_shuffled or 0 for one in decisions)
        return cls(record.id, record.name, record.started, not_shuffled, kinds, tuple(misses), rows)


@dataclass(frozen=True, slots=True)
class Grown:
    """A source of which the newest run of a job read more rows than the oldest."""

    growth: Growth
    job: str
    name: str


@dataclass(frozen=True, slots=True)
class Dashboard:
    """All jobs together; `looked` is how many of the `jobs` were looked into."""

    jobs: int
    looked: int
    states: tuple[tuple[str, int], ...]
    days: tuple[Column, ...]
    not_shuffled: int
    not_shuffled_days: tuple[Column, ...]
    kinds: tuple[tuple[str, int], ...]
    misses: tuple[Miss, ...]
    grown: tuple[Grown, ...]

    @classmethod
    def of(cls, summaries: Sequence[Summary], digests: Sequence[Digest], now: float) -> Dashboard:
        """Add jobs up.

        Parameters
        ----------
        summaries
            All jobs.
        digests
            Those that were looked into.
        now
            The last day, seconds since the epoch.
        """
        days = _days([job.started for job in summaries], now)
        jobs = Counter(_day(job.started) for job in summaries)
        saved: Counter[dt.date] = Counter()
        kinds: Counter[str] = Counter()
        for digest in digests:
            saved[_day(digest.started)] += digest.not_shuffled
            kinds += digest.kinds
        # Of the runs of one job that missed alike, the latest stands for all: digests come newest first.
        latest = {(miss.name, str(miss.estimate)): miss for digest in reversed(digests) for miss in digest.misses}
        misses = sorted(latest.values(), key=lambda miss: miss.estimate.miss, reverse=True)
        return cls(
            len(summaries),
            len(digests),
            tuple(Counter(job.state.lower() for job in summaries).most_common()),
            tuple(Column(f"{day:%-d %b}", jobs[day], show_count(jobs[day], "job")) for day in days),
            sum(saved.values()),
            tuple(Column(f"{day:%-d %b}", saved[day], show_bytes(saved[day])) for day in days),
            tuple(kinds.most_common()),
            tuple(misses[:_MOST]),
            tuple(_grown(digests)[:_MOST]),
        )


def _day(at: float) -> dt.date:
    return dt.datetime.fromtimestamp(at).astimezone().date()


def _days(starts: Sequence[float], now: float) -> list[dt.date]:
    """Return the days to show: up to today, as far back as there are jobs, a week at least and a month at most."""
    today = _day(now)
    oldest = min((_day(at) for at in starts), default=today)
    count = min(max((today - oldest).days + 1, 7), _DAYS)
    return [today - dt.timedelta(days=back) for back in reversed(range(count))]


def _grown(digests: Sequence[Digest]) -> list[Grown]:
    runs: dict[tuple[str, str], list[Digest]] = {}
    for digest in sorted(digests, key=lambda one: one.started):
        for label in digest.rows:
            runs.setdefault((digest.name, label), []).append(digest)
    found = []
    for (name, label), of in runs.items():
        growth = Growth(label, of[0].rows[label], of[-1].rows[label])
        if growth.factor >= GREW:
            found.append(Grown(growth, of[-1].id, name))
    return sorted(found, key=lambda one: -one.growth.factor)
