"""How many records fit in an interval: a table of what was measured, and streams that are played through."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.connectors.pace import GROWTH, RanBatch, fitted, limit_of, pace_of, remember

if TYPE_CHECKING:
    from collections.abc import Sequence

BIG = RanBatch(200_000, 10.5)
LIMITS: dict[str, tuple[list[RanBatch], float, int, str]] = {
    "nothing is measured": ([], 10, 10_000, "no batch so far tells the pace"),
    "a trickle tells nothing": ([RanBatch(5, 1.0)], 10, 10_000, "no batch so far tells the pace"),
    "a trickle that waited neither": ([RanBatch(5, 10.0, True)], 10, 10_000, "no batch so far tells the pace"),
    "few records, and exactly what they took": (
        [RanBatch(4_000, 0.5)],
        10,
        16_000,
        "at most 4 times as many as were measured",
    ),
    "a small batch takes long, for whatever": (
        [RanBatch(20, 3.0)],
        5,
        40,
        "twice the 20 records before, to tell what a batch costs from what its records cost",
    ),
    "a small batch takes too long, for whatever": (
        [RanBatch(67, 10.3)],
        10,
        33,
        "half of the 67 records before, to tell what a batch costs from what its records cost",
    ),
    "one record takes too long": (
        [RanBatch(1, 12.0)],
        10,
        2,
        "twice the 1 record before, to tell what a batch costs from what its records cost",
    ),
    "much too long": ([RanBatch(500, 100.0)], 10, 45, "as many as fit in 10 s at 5 records a second"),
    "what every batch costs is no pace": (
        [RanBatch(50, 2.6), RanBatch(110, 2.8)],
        5,
        10_000,
        "no batch so far tells the pace",
    ),
    "a large batch tells more of records than a small one after it": (
        [RanBatch(150_000, 19.5), RanBatch(1, 12.0)],
        10,
        145_454,
        "10 s is too short at 9.6 s for each batch and 15,152 records a second, so the records take as long as the rest",
    ),
    "small batches that take their time for their records": (
        [RanBatch(200, 2.0), RanBatch(500, 5.0)],
        10,
        900,
        "as many as fit in 10 s at 100 records a second",
    ),
    "a clock that was set back": ([RanBatch(4_000, 0.0)], 10, 10_000, "no batch so far tells the pace"),
    "a batch that waited": ([RanBatch(40_000, 10.0, True)], 10, 80_000, "2.0 times the 40,000 that ended in time"),
    "too long": ([RanBatch(10_000, 100.0)], 10, 900, "as many as fit in 10 s at 100 records a second"),
    "short": ([RanBatch(10_000, 1.0)], 10, 40_000, "at most 4 times as many as were measured"),
    "two sizes": (
        [RanBatch(10_000, 1.0), BIG],
        10,
        170_000,
        "as many as fit in 10 s at 0.5 s for each batch and 20,000 records a second",
    ),
    "a jump after a trickle": (
        [RanBatch(10_000, 1.0), BIG, RanBatch(5, 0.5)],
        10,
        170_000,
        "as many as fit in 10 s at 0.5 s for each batch and 20,000 records a second",
    ),
    "it has become slower": (
        [RanBatch(10_000, 1.0), BIG, RanBatch(170_000, 42.5)],
        10,
        36_000,
        "as many as fit in 10 s at 4,000 records a second",
    ),
    "it has become faster": (
        [RanBatch(10_000, 10.0), RanBatch(9_000, 1.5)],
        10,
        40_000,
        "at most 4 times as many as were measured",
    ),
    "it has become much slower since a larger one": (
        [RanBatch(100_000, 8.0), RanBatch(20_000, 12.9)],
        10,
        13_953,
        "as many as fit in 10 s at 1,550 records a second",
    ),
    "a tenth more": (
        [BIG, RanBatch(171_000, 10, True)],
        10,
        188_100,
        "1.1 times the 171,000 that ended in time",
    ),
    "more than a tenth more": (
        [RanBatch(10_000, 9.0), RanBatch(12_000, 10, True)],
        10,
        15_840,
        "1.3 times the 12,000 that ended in time",
    ),
    "the interval is too short for any batch": (
        [RanBatch(1_000, 0.95), RanBatch(20_000, 1.9)],
        1,
        18_000,
        "1 s is too short at 0.9 s for each batch and 20,000 records a second, so the records take as long as the rest",
    ),
    "only a larger batch tells what every batch costs": (
        [RanBatch(10_000, 6.1), RanBatch(1_475, 1.8375)],
        1,
        2_200,
        "1 s is too short at 1.1 s for each batch and 2,000 records a second, so the records take as long as the rest",
    ),
    "it is not the records that take the time": (
        [RanBatch(20_000, 12.5), RanBatch(9_000, 12.5)],
        10,
        80_000,
        "10 s is too short at 10.0 s for each batch and 8,000 records a second, so the records take as long as the rest",
    ),
}


@pytest.mark.parametrize("case", LIMITS)
def test_limits(case: str) -> None:
    ran, interval, records, reason = LIMITS[case]
    found = limit_of(ran, interval)
    assert (found.records, found.reason) == (records, reason)


def test_what_is_remembered() -> None:
    """Small batches do not push out large ones; of those that waited the largest counts."""
    ran: tuple[RanBatch, ...] = ()
    for one in [BIG, *(RanBatch(5, 0.1 * i) for i in range(1, 20)), RanBatch(6, 2.0, True), RanBatch(5, 2.0, True)]:
        ran = remember(ran, one)
    assert ran == (BIG, RanBatch(5, 0.1 * 19), RanBatch(6, 2.0, True))
    largest = (RanBatch(20_000, 2.0), RanBatch(200_000, 10.5))
    ran = largest
    for power in range(14):
        ran = remember(ran, RanBatch(1 << power, 0.5))
        assert ran[:2] == largest
    assert [one.records for one in ran[2:]] == [1 << power for power in range(8, 14)]


@pytest.mark.parametrize(
    ("old", "new", "is_kept"),
    [
        (RanBatch(1_000, 5.0), RanBatch(2_000, 6.0), True),
        (RanBatch(1_000, 5.0), RanBatch(2_000, 4.0), False),
        (RanBatch(1_000, 5.0), RanBatch(2_000, 4.8), True),
        (RanBatch(1_000, 5.0), RanBatch(1_100, 4.0), True),
        (RanBatch(1_000, 5.0), RanBatch(2_000, 5.0, True), False),
        (RanBatch(1_000, 5.0), RanBatch(500, 6.0), True),
        (RanBatch(1_000, 5.0), RanBatch(500, 6.0, True), True),
        (RanBatch(1_100, 5.0), RanBatch(1_000, 6.0), True),
    ],
)
def test_what_a_batch_contradicts_is_forgotten(old: RanBatch, new: RanBatch, is_kept: bool) -> None:
    assert remember([old], new) == ((old, new) if is_kept else (new,))


@pytest.mark.parametrize(
    ("ran", "fixed", "rate"),
    [
        ([RanBatch(1_000, 2.0), RanBatch(2_000, 3.0), RanBatch(3_000, 4.0)], 1.0, 1_000),
        ([RanBatch(1_000, 2.0), RanBatch(1_100, 2.1)], 0.0, 2_100 / 4.1),
        ([RanBatch(1_000, 3.0), RanBatch(2_000, 3.0)], 0.0, 500),
        ([RanBatch(1_000, 1.0), RanBatch(2_000, 4.0)], 0.0, 600),
        ([RanBatch(1_000, 2.0)], 0.0, 500),
    ],
)
def test_the_pace_that_fits_best(ran: list[RanBatch], fixed: float, rate: float) -> None:
    found = fitted(ran)
    assert found is not None
    assert (found.fixed, found.rate) == (pytest.approx(fixed), pytest.approx(rate))


def test_no_pace_without_records() -> None:
    assert fitted([]) is None
    assert fitted([RanBatch(0, 1.0)]) is None


def played(
    fixed: float, rate: float, interval: float, *, waits: bool = False, noise: Sequence[float] = (1.0,)
) -> list[tuple[int, float]]:
    """Return the records and true seconds of the batches of an endless backlog."""
    ran: tuple[RanBatch, ...] = ()
    found = []
    for number in range(30):
        records = limit_of(ran, interval).records
        seconds = (fixed + records / rate) * noise[number % len(noise)]
        waited = waits and seconds < interval
        ran = remember(ran, RanBatch(records, interval if waited else seconds, waited))
        found.append((records, seconds))
    return found


@given(st.floats(0, 3), st.floats(2_000, 1e6), st.floats(10, 120))
def test_batches_come_to_fill_the_interval_and_do_not_exceed_it(fixed: float, rate: float, interval: float) -> None:
    batches = played(fixed, rate, interval)
    assert all(seconds <= interval for _, seconds in batches)
    assert all(0.7 * interval <= seconds for _, seconds in batches[15:])


@given(st.floats(0, 3), st.floats(20_000, 1e6), st.floats(10, 120), st.floats(2, 10))
def test_a_stream_that_becomes_slower_gets_smaller_batches(
    fixed: float, rate: float, interval: float, times: float
) -> None:
    ran: tuple[RanBatch, ...] = ()
    for number in range(30):
        now = rate if number < 15 else rate / times
        records = limit_of(ran, interval).records
        seconds = fixed + records / now
        assert number == 15 or seconds <= 1.2 * interval, "only the first slow batch takes much longer"
        ran = remember(ran, RanBatch(records, seconds))


@given(st.floats(0, 3), st.floats(2_000, 1e6), st.floats(10, 120))
def test_where_only_a_bound_is_known_they_exceed_it_little(fixed: float, rate: float, interval: float) -> None:
    batches = played(fixed, rate, interval, waits=True)
    assert all(seconds <= 2 * interval for _, seconds in batches)
    assert all(0.6 * interval <= seconds <= 1.25 * interval for _, seconds in batches[20:])


@given(
    st.floats(0, 3),
    st.floats(500, 1e6),
    st.floats(1, 60),
    st.booleans(),
    st.lists(st.floats(0.95, 1.05), min_size=1, max_size=30),
)
def test_however_much_every_batch_costs_the_backlog_shrinks(
    intervals: float, rate: float, interval: float, waits: bool, noise: list[float]
) -> None:
    """Batches never shrink to a few records. Where the rest takes longer than the interval, records get their part."""
    fixed = intervals * interval
    batches = played(fixed, rate, interval, waits=waits, noise=noise)
    floor = min(1_000, 0.2 * interval * rate)
    assert all(records >= floor for records, _ in batches)
    if intervals >= 1.1:
        settled = batches[15:]
        assert sum(records for records, _ in settled) >= 0.25 * rate * sum(seconds for _, seconds in settled)


@given(
    st.floats(0.05, 1.5),
    st.floats(20_000, 1e6),
    st.floats(1, 60),
    st.lists(st.integers(1, 100), min_size=1, max_size=20),
)
def test_a_trickle_before_does_not_hold_up_a_backlog(
    part: float, rate: float, interval: float, trickle: list[int]
) -> None:
    """What every batch costs is taken for the pace of its records in one batch at most."""
    fixed = part * interval
    ran: tuple[RanBatch, ...] = ()
    for records in trickle:
        ran = remember(ran, RanBatch(records, fixed + records / rate))
    first = limit_of(ran, interval).records
    ran = remember(ran, RanBatch(first, fixed + first / rate))
    assert max(first, limit_of(ran, interval).records) >= 10_000


@given(
    st.floats(0.5, 50),
    st.floats(0.02, 0.9),
    st.floats(1.1, 30),
    st.booleans(),
    st.lists(st.floats(0.95, 1.05), min_size=1, max_size=30),
)
@example(26.0, 0.8984375, 4.0, True, [1.0])  # the fixed part nearly fills the interval
def test_a_stall_does_not_hold_up_a_stream_of_few_records(
    load: float, part: float, stall: float, is_told: bool, noise: list[float]
) -> None:
    """One batch takes much longer than the interval, once. All that waits since then is read soon."""
    interval, rate, fixed = 10.0, 20_000.0, 10.0 * part
    ran: tuple[RanBatch, ...] = ()
    arrived, read = load * interval, 0
    for number in range(200):
        records = min(int(arrived) - read, limit_of(ran, interval).records)
        if records:
            own = stall * interval if number == 10 else (fixed + records / rate) * noise[number % len(noise)]
            waited = not is_told and own < interval
            ran = remember(ran, RanBatch(records, interval if waited else own, waited))
            arrived += load * max(own, interval)
        else:
            arrived += load * interval
        read += records
    assert arrived - read <= 3 * load * interval + 1


@given(st.floats(10, 900), st.floats(1, 60), st.integers(2, 100))
def test_slow_records_are_known_from_small_batches(rate: float, interval: float, part: int) -> None:
    """A steady load of slow records, then a backlog: no batch takes more than twice the interval."""
    ran: tuple[RanBatch, ...] = ()
    for size in (1.0, 0.6, 1.3, 0.8):
        records = max(1, int(size * rate * interval * part / 130))
        if records / rate >= interval / 4:
            ran = remember(ran, RanBatch(records, records / rate))
    if ran:
        limit = limit_of(ran, interval).records
        assert limit <= 2 or limit / rate <= 2 * interval


@given(
    st.lists(st.tuples(st.integers(1, 10**7), st.floats(0.001, 1e4), st.booleans()), max_size=20), st.floats(0.1, 600)
)
def test_whatever_was_measured_there_is_a_limit(measured: list[tuple[int, float, bool]], interval: float) -> None:
    ran: tuple[RanBatch, ...] = ()
    for one in measured:
        ran = remember(ran, RanBatch(*one))
    records = limit_of(ran, interval).records
    assert 1 <= records <= max(10_000, GROWTH * max((one.records for one in ran), default=0))
    pace = pace_of(ran, interval)
    assert pace is None or (pace.rate > 0 and pace.fixed >= 0)
