"""The measured pace of a stream's batches, and the record limit of the next batch. Pure arithmetic.

The duration of a batch has a fixed part (fetching offsets, planning, logs) and a part per record. Both are estimated
from two measured batches of different sizes.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING

from penstock.base.units import show_count, show_exact_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FIRST_RECORDS = 10_000
"""The records of a batch while the pace is unknown. Smaller batches mostly measure the fixed part."""
GROWTH = 4
"""The maximum size of the next batch relative to the largest measured batch; still larger batches may be slower."""
FILL = 0.9
"""The fraction of the interval that a batch may take; durations of equal batches differ by about a tenth."""
BLIND_GROWTH = 2
"""The growth limit after a batch for which the interval is the only upper bound of its duration."""
_PROBE = 1.1
"""The growth limit after a batch that ended in time, as predicted by the pace.

If the batch had more records than the pace predicts for the interval, the limit is multiplied by that ratio.
"""
_CLEARLY_LARGER = 1.3
"""The factor by which a faster batch must be larger than an older batch to make that obsolete."""
_FASTER = 0.9
"""The fraction of another batch's duration below which a batch is faster: durations differ by about a tenth."""
_FIXED_LIMIT = 0.8
"""The maximum fraction of a batch's duration that counts as fixed; more would leave no time for records."""
_LONG = 0.25
"""The fraction of the interval above which a small batch gives an estimate of the pace."""
_MAX_BATCHES = 8


@dataclass(frozen=True, slots=True)
class MeasuredBatch:
    """A finished batch.

    `records` is the number of offsets that it read; compacted topics have fewer records. `seconds` is its duration; if
    that is unknown, the time from its start to the start of the next batch. `waited` says whether `seconds` includes
    the wait for Spark's trigger, so that it is only an upper bound.
    """

    records: int
    seconds: float
    waited: bool = False


@dataclass(frozen=True, slots=True)
class Pace:
    """The cost model of a batch: the fixed seconds of every batch, and the records per second in the remaining time.

    `is_split` says whether the fixed part was measured; if not, `fixed` is 0.
    """

    fixed: float
    rate: float
    is_split: bool = False

    def __str__(self) -> str:
        each = f"{show_count(round(self.rate), 'record')} a second"
        return f"{self.fixed:.1f} s for each batch and {each}" if self.fixed >= 0.05 else each


@dataclass(frozen=True, slots=True)
class Limit:
    """The maximum records of the next batch, and the reason, a clause."""

    records: int
    reason: str


def remember(batches: Sequence[MeasuredBatch], new: MeasuredBatch) -> tuple[MeasuredBatch, ...]:
    """Return the batches to retain, the latest last: the latest of each size class (power of two).

    Otherwise many small batches would evict the large ones, which are needed after a sudden backlog. The two largest
    are always retained. Of consecutive batches that waited, only the largest is. Batches that the new batch
    makes obsolete are dropped: the stream has become faster.
    """
    retained = [batch for batch in batches if not batch.waited and not _makes_obsolete(new, batch)]
    retained = [batch for batch in retained if new.waited or batch.records.bit_length() != new.records.bit_length()]
    if len(retained) == _MAX_BATCHES:
        largest = sorted(retained, key=lambda batch: batch.records)[-2:]  # smaller ones are measured again sooner
        retained.remove(next(batch for batch in retained if batch not in largest))
    waited = [batch for batch in batches if batch.waited and new.waited]
    return (*retained, max([*waited, new], key=lambda batch: batch.records))


def _makes_obsolete(new: MeasuredBatch, old: MeasuredBatch) -> bool:
    """Return whether the new batch had clearly more records and took less time.

    A larger batch of equal duration, or a smaller batch of longer duration, is no contradiction: the fixed part may
    dominate.
    """
    within = old.seconds if new.waited else _FASTER * old.seconds  # the duration of a batch that waited is a bound
    return new.records >= _CLEARLY_LARGER * old.records and new.seconds <= within


def pace_of(batches: Sequence[MeasuredBatch], interval: float) -> Pace | None:
    """Return the pace estimated from measured batches, None if they do not suffice.

    A small batch that took long may have spent its time on its records or on the fixed part. The pace is not split
    until a batch of another size was measured. If the fixed part dominates, small batches give no rate of records.
    """
    exact = [batch for batch in batches if not batch.waited and batch.records and batch.seconds > 0]
    if not exact:
        return None
    conclusive = [batch for batch in exact if batch.records >= FIRST_RECORDS or batch.seconds > interval]
    latest = (conclusive or exact)[-1]
    # While batches shrink, all others are larger. A batch that was larger and faster is out of date.
    different = [
        batch
        for batch in exact
        if min(batch.records, latest.records) * 2 <= max(batch.records, latest.records)
        and not (batch.records > latest.records and batch.seconds <= _FASTER * latest.seconds)
    ]
    if not different:
        return Pace(0.0, latest.records / latest.seconds) if conclusive or latest.seconds >= _LONG * interval else None
    other = different[-1]
    intercept = (other.seconds * latest.records - latest.seconds * other.records) / (latest.records - other.records)
    fixed = min(max(intercept, 0.0), _FIXED_LIMIT * latest.seconds)
    larger = max(latest, other, key=lambda batch: batch.records)
    if larger.records < FIRST_RECORDS and fixed > latest.seconds / 2:
        return None
    return Pace(fixed, larger.records / (larger.seconds - fixed), is_split=True)


def fitted(batches: Sequence[MeasuredBatch]) -> Pace | None:
    """Return the least-squares fit to batches with exact durations; None if they have no records.

    If all batches have about the same size, the fixed part cannot be determined, and is 0.
    """
    records, seconds = sum(batch.records for batch in batches), sum(batch.seconds for batch in batches)
    if not records or seconds <= 0:
        return None
    sizes = [batch.records for batch in batches]
    mean, mean_seconds = records / len(batches), seconds / len(batches)
    spread = sum((size - mean) ** 2 for size in sizes)
    if 2 * min(sizes) <= max(sizes):
        slope = sum((batch.records - mean) * (batch.seconds - mean_seconds) for batch in batches) / spread
        fixed = mean_seconds - slope * mean
        if slope > 0 and fixed >= 0:
            return Pace(fixed, 1 / slope, is_split=True)
    return Pace(0.0, records / seconds)


def limit_of(batches: Sequence[MeasuredBatch], interval: float) -> Limit:
    """Return the number of records that fit in an interval, by measured batches, the latest last (see `remember`)."""
    pace = pace_of(batches, interval)
    limit, reason = (FIRST_RECORDS, "the pace is still unknown") if pace is None else _capacity(pace, interval)
    if not batches:
        return Limit(FIRST_RECORDS, reason)
    last = batches[-1]
    for records, why in _growth_after(last, pace, limit, interval):
        if records > limit:
            limit, reason = records, why
    if pace is not None and not pace.is_split and not last.waited and last.records < FIRST_RECORDS:
        limit, reason = _different_size(last, limit, reason, interval)
    most = GROWTH * max(batch.records for batch in batches)
    if pace is None:
        most = max(most, FIRST_RECORDS)
    if limit > most:
        limit, reason = most, f"at most {GROWTH} times as many as were measured"
    return Limit(max(1, int(limit)), reason)


def _capacity(pace: Pace, interval: float) -> tuple[float, str]:
    """Return the number of records that fit in an interval at a pace, and the reason, a clause."""
    within = show_exact_seconds(interval)
    if FILL * interval - pace.fixed >= pace.fixed:
        return (FILL * interval - pace.fixed) * pace.rate, f"as many as fit in {within} at {pace}"
    # Even a smaller batch would not end in time, and the backlog would grow.
    return pace.fixed * pace.rate, f"{within} is too short at {pace}, so the records take as long as the rest"


def _different_size(last: MeasuredBatch, limit: float, reason: str, interval: float) -> tuple[float, str]:
    """Return a size other than the last, so that the fixed part can be measured."""
    they = f"the {show_count(last.records, 'record')} before, to measure the fixed cost of a batch separately"
    if last.seconds <= FILL * interval or last.records == 1:
        return max((limit, reason), (2.0 * last.records, f"twice {they}"), key=itemgetter(0))
    return min((limit, reason), (last.records // 2, f"half of {they}"), key=itemgetter(0))


def _growth_after(
    last: MeasuredBatch, pace: Pace | None, predicted: float, interval: float
) -> Iterator[tuple[float, str]]:
    """Yield limits that follow from the last batch alone, which is a lower bound of the stream's speed."""
    if last.records < FIRST_RECORDS and (last.waited or last.seconds <= interval):
        # After a stall, the measured pace could keep batches small for ever. Growth below a record is rounded down.
        yield last.records + 1, f"one more than the {last.records:,} that ended in time"
        if not last.waited and last.seconds > 0:
            times = min(interval / last.seconds, _PROBE)  # safe even if the records took all of the time
            yield times * last.records, f"{times:.2f} times the {last.records:,} that ended in time"
    if last.waited:
        times = BLIND_GROWTH if pace is None else min(_PROBE * max(1.0, last.records / predicted), BLIND_GROWTH)
        yield times * last.records, f"{times:.1f} times the {last.records:,} that ended in time"
    elif 0 < last.seconds <= FILL * interval:
        rate = last.records / last.seconds
        yield FILL * interval * rate, f"as many as fit in {show_exact_seconds(interval)} at {Pace(0.0, rate)}"
