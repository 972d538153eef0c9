"""The measured pace of a stream's batches, and the record limit of the next batch. Pure arithmetic.

The duration of a batch has a fixed part (fetching offsets, planning, logs) and a part per record. Both are estimated
from two measured batches of different sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter

from penstock.base.units import show_count, show_exact_seconds

FIRST_RECORDS = 10_000
"""The records of a batch while the pace is unknown. Smaller batches mostly measure the fixed part."""
GROWTH = 4
"""The maximum size of the next batch relative to the largest measured batch: the pace of larger batches is unknown."""
FILL = 0.9
"""The fraction of the interval that a batch may take; durations of equal batches differ by about a tenth."""
_SAFE_GROWTH = 1.1
"""The factor of the next batch's size after a batch that waited for the trigger, and so had time to spare.

The factor is multiplied by that batch's ratio to the pace's limit if above 1, and limits growth after small batches.
"""
BLIND_GROWTH = 2
"""The maximum factor after a batch that waited; also the factor after such a batch while the pace is unknown."""
_CLEARLY_LARGER = 1.3
"""The factor by which a faster batch must be larger than an older batch to make the older batch obsolete."""
_FASTER = 0.9
"""A batch is faster if it takes at most this fraction of the other batch's time: durations vary by about a tenth."""
_FIXED_LIMIT = 0.8
"""The maximum fraction of a batch's duration that counts as fixed cost; the rest is the time of its records."""
_LONG = 0.25
"""The minimum fraction of the interval that a small batch must take to allow an estimate of the pace."""
_MAX_BATCHES = 8  # the maximum that `remember` retains


@dataclass(frozen=True, slots=True)
class MeasuredBatch:
    """A finished batch.

    `records` is the number of offsets that the batch has read; compacted topics have fewer records. `seconds` is the
    duration of the batch; if it is unknown, the time from its start to the start of the next batch. `waited` says
    whether `seconds` includes the wait for Spark's trigger, so that it is only an upper bound of the duration.
    """

    records: int
    seconds: float
    waited: bool = False


@dataclass(frozen=True, slots=True)
class Pace:
    """The cost model of a batch: the fixed seconds of every batch, and the records per second in the remaining time.

    `has_fixed_part` says whether the fixed seconds were measured separately; if not, `fixed` is 0.
    """

    fixed: float
    rate: float
    has_fixed_part: bool = False

    def __str__(self) -> str:
        rate = f"{show_count(round(self.rate), 'record')} a second"
        return f"{self.fixed:.1f} s for each batch and {rate}" if self.fixed >= 0.05 else rate


@dataclass(frozen=True, slots=True)
class Limit:
    """The maximum records of the next batch, and the reason, a clause."""

    records: int
    reason: str


def remember(batches: Sequence[MeasuredBatch], new_batch: MeasuredBatch) -> tuple[MeasuredBatch, ...]:
    """Return the batches to retain, the latest last: the latest batch of each size class (power of two).

    With size classes, small batches do not evict the large batches, which are needed after a sudden backlog. If there
    are too many batches, the oldest is dropped that is not among the two largest. Of consecutive batches that waited,
    only the largest is retained, until a batch does not wait. Batches that the new batch makes obsolete are dropped.
    """
    retained = [batch for batch in batches if not batch.waited and not _makes_obsolete(new_batch, batch)]
    size_class = new_batch.records.bit_length()
    retained = [batch for batch in retained if new_batch.waited or batch.records.bit_length() != size_class]
    if len(retained) == _MAX_BATCHES:
        largest = sorted(retained, key=lambda batch: batch.records)[-2:]  # smaller batches are measured again sooner
        retained.remove(next(batch for batch in retained if batch not in largest))
    waited = [batch for batch in batches if batch.waited and new_batch.waited]
    return (*retained, max([*waited, new_batch], key=lambda batch: batch.records))


def _makes_obsolete(new_batch: MeasuredBatch, old_batch: MeasuredBatch) -> bool:
    """Whether the new batch had clearly more records and took less time, so that the stream has become faster.

    A larger batch of equal duration does not make the old batch obsolete: the fixed part may dominate. If the new batch
    waited, its real duration is shorter than its `seconds`.
    """
    max_seconds = old_batch.seconds if new_batch.waited else _FASTER * old_batch.seconds
    return new_batch.records >= _CLEARLY_LARGER * old_batch.records and new_batch.seconds <= max_seconds


def estimate_pace(batches: Sequence[MeasuredBatch], interval: float) -> Pace | None:
    """Return the pace estimated from measured batches, None if they do not suffice.

    A small batch that took long may have spent its time on records or on the fixed part. So the fixed part is 0 until a
    batch of another size was measured. If it dominates, small batches do not suffice for the rate.
    """
    measured = [batch for batch in batches if not batch.waited and batch.records and batch.seconds > 0]
    if not measured:
        return None
    conclusive = [batch for batch in measured if batch.records >= FIRST_RECORDS or batch.seconds > interval]
    latest = (conclusive or measured)[-1]
    # Batches at least twice or at most half as large as the latest. A larger batch that took less time is out of date:
    # the stream has become slower since, so the larger batch is left out.
    of_other_size = [
        batch
        for batch in measured
        if min(batch.records, latest.records) * 2 <= max(batch.records, latest.records)
        and not (batch.records > latest.records and batch.seconds <= _FASTER * latest.seconds)
    ]
    if not of_other_size:
        return Pace(0.0, latest.records / latest.seconds) if conclusive or latest.seconds >= _LONG * interval else None
    other = of_other_size[-1]
    intercept = (other.seconds * latest.records - latest.seconds * other.records) / (latest.records - other.records)
    fixed = min(max(intercept, 0.0), _FIXED_LIMIT * latest.seconds)
    larger = max(latest, other, key=lambda batch: batch.records)
    if larger.records < FIRST_RECORDS and fixed > latest.seconds / 2:  # the time of the records is too uncertain
        return None
    return Pace(fixed, larger.records / (larger.seconds - fixed), has_fixed_part=True)


def fit_pace(batches: Sequence[MeasuredBatch]) -> Pace | None:
    """Return the least-squares fit to batches with exact durations; None without records or durations.

    If all batches have about the same size, the fixed part cannot be determined, and is 0.
    """
    records, seconds = sum(batch.records for batch in batches), sum(batch.seconds for batch in batches)
    if not records or seconds <= 0:
        return None
    sizes = [batch.records for batch in batches]
    mean, mean_seconds = records / len(batches), seconds / len(batches)
    spread = sum((size - mean) ** 2 for size in sizes)
    if 2 * min(sizes) <= max(sizes):  # the sizes differ enough for a slope
        slope = sum((batch.records - mean) * (batch.seconds - mean_seconds) for batch in batches) / spread
        fixed = mean_seconds - slope * mean
        if slope > 0 and fixed >= 0:
            return Pace(fixed, 1 / slope, has_fixed_part=True)
    return Pace(0.0, records / seconds)


def record_limit(batches: Sequence[MeasuredBatch], interval: float) -> Limit:
    """Return the record limit of the next batch for an interval in seconds; `batches` are those of `remember`."""
    pace = estimate_pace(batches, interval)
    limit, reason = (FIRST_RECORDS, "the pace is still unknown") if pace is None else _capacity(pace, interval)
    if not batches:
        return Limit(FIRST_RECORDS, reason)
    last = batches[-1]
    for records, growth_reason in _limits_after(last, pace, limit, interval):
        if records > limit:
            limit, reason = records, growth_reason
    if pace is not None and not pace.has_fixed_part and not last.waited and last.records < FIRST_RECORDS:
        limit, reason = _limit_of_other_size(last, limit, reason, interval)
    max_records = GROWTH * max(batch.records for batch in batches)
    if pace is None:
        max_records = max(max_records, FIRST_RECORDS)
    if limit > max_records:
        limit, reason = max_records, f"at most {GROWTH} times as many as were measured"
    return Limit(max(1, int(limit)), reason)


def _capacity(pace: Pace, interval: float) -> tuple[float, str]:
    """Return how many records fit in an interval, or at least in a duration like the fixed part; and why, a clause."""
    duration = show_exact_seconds(interval)
    if FILL * interval - pace.fixed >= pace.fixed:
        return (FILL * interval - pace.fixed) * pace.rate, f"as many as fit in {duration} at {pace}"
    # Smaller batches would spend most of their time on the fixed part, and the backlog could grow.
    reason = f"as many as fit in {pace.fixed:.1f} s (the fixed cost of a batch) at {Pace(0.0, pace.rate)}"
    return pace.fixed * pace.rate, f"{reason}, because {FILL:.0%} of {duration} leaves less time for them"


def _limit_of_other_size(last: MeasuredBatch, limit: float, reason: str, interval: float) -> tuple[float, str]:
    """Return a limit, with its reason, that differs from the last batch's size: then the fixed part can be measured."""
    comparison = f"the {show_count(last.records, 'record')} before, to measure the fixed cost of a batch separately"
    if last.seconds <= FILL * interval or last.records == 1:
        return max((limit, reason), (2.0 * last.records, f"twice {comparison}"), key=itemgetter(0))
    return min((limit, reason), (last.records // 2, f"half of {comparison}"), key=itemgetter(0))


def _limits_after(
    last: MeasuredBatch, pace: Pace | None, pace_limit: float, interval: float
) -> Iterator[tuple[float, str]]:
    """Yield lower bounds of the limit, with reasons: the stream is at least as fast as its last batch."""
    if last.records < FIRST_RECORDS and (last.waited or last.seconds <= interval):
        # At least a record more: fractions are cut off, so tiny batches, as after a stall, would never grow otherwise.
        yield last.records + 1, f"one more than the {last.records:,} that ended in time"
        if not last.waited and last.seconds > 0:
            times = min(interval / last.seconds, _SAFE_GROWTH)  # safe even if the batch had no fixed part
            yield times * last.records, f"{times:.2f} times the {last.records:,} that ended in time"
    if last.waited:
        times = BLIND_GROWTH if pace is None else min(_SAFE_GROWTH * max(1.0, last.records / pace_limit), BLIND_GROWTH)
        yield times * last.records, f"{times:.1f} times the {last.records:,} that ended in time"
    elif 0 < last.seconds <= FILL * interval:
        rate = last.records / last.seconds
        yield FILL * interval * rate, f"as many as fit in {show_exact_seconds(interval)} at {Pace(0.0, rate)}"
