"""How fast a stream's batches ran, and how many records the next one may have. Pure arithmetic.

A batch takes some seconds whatever it holds (asking for offsets, planning, logs), and then some for each record. Both
are taken from two measured batches of different sizes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.units import show_count, show_exact_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FIRST_RECORDS = 10_000
"""The records of a batch while nothing tells the pace. Batches of fewer mostly measure what every batch costs."""
GROWTH = 4
"""How many times larger than any measured batch the next one may be: what was not measured may be slower."""
FILL = 0.9
"""The part of the interval that a batch may fill; times of equal batches differ by about a tenth."""
BLIND_GROWTH = 2
"""The same where it is only known that a batch ended in time: the next one may take so many times the interval."""
_PROBE = 1.1
"""How much larger the next batch may be after one that ended in time, as the pace foretold.

If it had already more records than were foretold, by so many times more.
"""
_CLEARLY = 1.3
"""If a batch with so many times the records of an older one was faster, the older one is no longer true."""
_FASTER = 0.9
"""The part of the other's seconds within which a batch was faster; times of equal batches differ by about a tenth."""
_FIXED_AT_MOST = 0.8
"""The part of a batch's seconds that may count as its fixed cost; more would make the records cost nothing."""
_LONG = 0.25
"""The part of the interval that a small batch must take before it matters what took the time."""
_REMEMBERED = 8


@dataclass(frozen=True, slots=True)
class RanBatch:
    """A batch that has run.

    Parameters
    ----------
    records
        The offsets it read; fewer records, where some were compacted away.
    seconds
        What it took; from its start to the start of the next one, if nobody told what it took alone.
    waited
        Whether this includes that Spark waited for its trigger, so that the batch itself took less.
    """

    records: int
    seconds: float
    waited: bool = False


@dataclass(frozen=True, slots=True)
class Pace:
    """What a batch costs.

    Parameters
    ----------
    fixed
        Seconds that a batch takes whatever it holds.
    rate
        Records per second after that.
    is_split
        Whether two batches told the fixed part from the rest; if not, `fixed` is 0.
    """

    fixed: float
    rate: float
    is_split: bool = False

    def __str__(self) -> str:
        each = f"{show_count(round(self.rate), 'record')} a second"
        return f"{self.fixed:.1f} s for each batch and {each}" if self.fixed >= 0.05 else each


@dataclass(frozen=True, slots=True)
class Limit:
    """The most records of the next batch, and why, half a sentence."""

    records: int
    reason: str


def remember(ran: Sequence[RanBatch], new: RanBatch) -> tuple[RanBatch, ...]:
    """Return the batches to remember, the latest last: the latest of each order of size.

    Many small batches in a row would otherwise push out the large ones, which a sudden backlog needs; the two largest
    always stay. Of batches in a row that waited only the largest counts. What the new one contradicts is forgotten: the
    stream has become faster.
    """
    kept = [one for one in ran if not one.waited and not _contradicts(new, one)]
    kept = [one for one in kept if new.waited or one.records.bit_length() != new.records.bit_length()]
    if len(kept) == _REMEMBERED:
        largest = sorted(kept, key=lambda one: one.records)[-2:]  # a smaller one is measured again sooner
        kept.remove(next(one for one in kept if one not in largest))
    waited = [one for one in ran if one.waited and new.waited]
    return (*kept, max([*waited, new], key=lambda one: one.records))


def _contradicts(new: RanBatch, old: RanBatch) -> bool:
    """Whether more records took clearly less time.

    If they took about as long, or fewer took longer, nothing is contradicted: it may not be the records that take the
    time.
    """
    within = old.seconds if new.waited else _FASTER * old.seconds  # one that waited took less than it says
    return new.records >= _CLEARLY * old.records and new.seconds <= within


def pace_of(ran: Sequence[RanBatch], interval: float) -> Pace | None:
    """Return the pace that measured batches tell, None if none of them tells it.

    A small batch that took long may have taken its time for its records, or for what every batch costs. Until another
    size tells that, the pace is not split. If it is what every batch costs, small batches tell nothing of records.
    """
    exact = [one for one in ran if not one.waited and one.records and one.seconds > 0]
    if not exact:
        return None
    telling = [one for one in exact if one.records >= FIRST_RECORDS or one.seconds > interval]
    latest = (telling or exact)[-1]
    # While batches shrink, all others are larger. One that was larger and faster is of a time that is over.
    different = [
        one
        for one in exact
        if min(one.records, latest.records) * 2 <= max(one.records, latest.records)
        and not (one.records > latest.records and one.seconds <= _FASTER * latest.seconds)
    ]
    if not different:
        return Pace(0.0, latest.records / latest.seconds) if telling or latest.seconds >= _LONG * interval else None
    other = different[-1]
    crossing = (other.seconds * latest.records - latest.seconds * other.records) / (latest.records - other.records)
    fixed = min(max(crossing, 0.0), _FIXED_AT_MOST * latest.seconds)
    larger = max(latest, other, key=lambda one: one.records)
    if larger.records < FIRST_RECORDS and fixed > latest.seconds / 2:
        return None
    return Pace(fixed, larger.records / (larger.seconds - fixed), is_split=True)


def fitted(ran: Sequence[RanBatch]) -> Pace | None:
    """Return the pace that fits best to many batches whose own times are known; None if there are no records.

    Least squares. If all batches are about as large, nothing tells the fixed part from the rest.
    """
    records, seconds = sum(one.records for one in ran), sum(one.seconds for one in ran)
    if not records or seconds <= 0:
        return None
    sizes = [one.records for one in ran]
    mean, mean_seconds = records / len(ran), seconds / len(ran)
    spread = sum((size - mean) ** 2 for size in sizes)
    if 2 * min(sizes) <= max(sizes):
        each = sum((one.records - mean) * (one.seconds - mean_seconds) for one in ran) / spread
        fixed = mean_seconds - each * mean
        if each > 0 and fixed >= 0:
            return Pace(fixed, 1 / each, is_split=True)
    return Pace(0.0, records / seconds)


def limit_of(ran: Sequence[RanBatch], interval: float) -> Limit:
    """Return how many records fit in an interval.

    Parameters
    ----------
    ran
        Measured batches, the latest last, see `remember`.
    interval
        The seconds that a batch may take.
    """
    pace = pace_of(ran, interval)
    wanted, reason = (FIRST_RECORDS, "no batch so far tells the pace") if pace is None else _room(pace, interval)
    if not ran:
        return Limit(FIRST_RECORDS, reason)
    last = ran[-1]
    for records, why in _after(last, pace, wanted, interval):
        if records > wanted:
            wanted, reason = records, why
    if pace is not None and not pace.is_split and not last.waited and last.records < FIRST_RECORDS:
        wanted, reason = _to_tell_apart(last, wanted, reason, interval)
    most = GROWTH * max(one.records for one in ran)
    if pace is None:
        most = max(most, FIRST_RECORDS)
    if wanted > most:
        wanted, reason = most, f"at most {GROWTH} times as many as were measured"
    return Limit(max(1, int(wanted)), reason)


def _room(pace: Pace, interval: float) -> tuple[float, str]:
    """Return what an interval holds at a pace, and why, half a sentence."""
    within = show_exact_seconds(interval)
    if FILL * interval - pace.fixed >= pace.fixed:
        return (FILL * interval - pace.fixed) * pace.rate, f"as many as fit in {within} at {pace}"
    # Fewer would not make the batch short enough, and the backlog would grow.
    return pace.fixed * pace.rate, f"{within} is too short at {pace}, so the records take as long as the rest"


def _to_tell_apart(last: RanBatch, wanted: float, reason: str, interval: float) -> tuple[float, str]:
    """Return another size than the last one: two tell what a batch costs from what its records cost."""
    they = f"the {show_count(last.records, 'record')} before, to tell what a batch costs from what its records cost"
    if last.seconds <= FILL * interval or last.records == 1:
        return max((wanted, reason), (2.0 * last.records, f"twice {they}"), key=lambda one: one[0])
    return min((wanted, reason), (last.records // 2, f"half of {they}"), key=lambda one: one[0])


def _after(last: RanBatch, pace: Pace | None, foretold: float, interval: float) -> Iterator[tuple[float, str]]:
    """Iterate over what the last batch alone allows the next one: it shows at least how fast the stream can be."""
    if last.records < FIRST_RECORDS and (last.waited or last.seconds <= interval):
        # After a stall, what is measured may keep small batches small for ever; and parts of a record are cut off.
        yield last.records + 1, f"one more than the {last.records:,} that ended in time"
        if not last.waited and last.seconds > 0:
            times = min(interval / last.seconds, _PROBE)  # even if the records took all of the time
            yield times * last.records, f"{times:.2f} times the {last.records:,} that ended in time"
    if last.waited:
        times = BLIND_GROWTH if pace is None else min(_PROBE * max(1.0, last.records / foretold), BLIND_GROWTH)
        yield times * last.records, f"{times:.1f} times the {last.records:,} that ended in time"
    elif 0 < last.seconds <= FILL * interval:
        rate = last.records / last.seconds
        yield FILL * interval * rate, f"as many as fit in {show_exact_seconds(interval)} at {Pace(0.0, rate)}"
