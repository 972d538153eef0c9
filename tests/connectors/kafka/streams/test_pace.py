"""How many records fit in an interval: examples of measured batches, and simulated streams."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.connectors.kafka.streams.pace import (
    GROWTH,
    MeasuredBatch,
    estimate_pace,
    fit_pace,
    record_limit,
    remember,
)

BIG = MeasuredBatch(200_000, 10.5)
LIMITS: dict[str, tuple[list[MeasuredBatch], float, int, str]] = {
    "no measured batch": ([], 10, 10_000, "the pace is still unknown"),
    "a batch with few records": ([MeasuredBatch(5, 1.0)], 10, 10_000, "the pace is still unknown"),
    "a batch with few records that waited": ([MeasuredBatch(5, 10.0, True)], 10, 10_000, "the pace is still unknown"),
    "few records with an exact duration": (
        [MeasuredBatch(4_000, 0.5)],
        10,
        16_000,
        "at most 4 times as many as were measured",
    ),
    "a small batch takes long": (
        [MeasuredBatch(20, 3.0)],
        5,
        40,
        "twice the 20 records before, to measure the fixed cost of a batch separately",
    ),
    "a small batch takes longer than the interval": (
        [MeasuredBatch(67, 10.3)],
        10,
        33,
        "half of the 67 records before, to measure the fixed cost of a batch separately",
    ),
    "a single record takes longer than the interval": (
        [MeasuredBatch(1, 12.0)],
        10,
        2,
        "twice the 1 record before, to measure the fixed cost of a batch separately",
    ),
    "much too long": ([MeasuredBatch(500, 100.0)], 10, 45, "as many as fit in 10 s at 5 records a second"),
    "fixed costs are not a pace": (
        [MeasuredBatch(50, 2.6), MeasuredBatch(110, 2.8)],
        5,
        10_000,
        "the pace is still unknown",
    ),
    "a large batch outweighs a later small batch": (
        [MeasuredBatch(150_000, 19.5), MeasuredBatch(1, 12.0)],
        10,
        145_454,
        "as many as fit in 9.6 s (the fixed cost of a batch) at 15,152 records a second, because 90% of 10 s leaves less time for them",
    ),
    "small batches with slow records": (
        [MeasuredBatch(200, 2.0), MeasuredBatch(500, 5.0)],
        10,
        900,
        "as many as fit in 10 s at 100 records a second",
    ),
    "a clock that was set back": ([MeasuredBatch(4_000, 0.0)], 10, 10_000, "the pace is still unknown"),
    "a batch that waited": ([MeasuredBatch(40_000, 10.0, True)], 10, 80_000, "2.0 times the 40,000 that ended in time"),
    "too long": ([MeasuredBatch(10_000, 100.0)], 10, 900, "as many as fit in 10 s at 100 records a second"),
    "short": ([MeasuredBatch(10_000, 1.0)], 10, 40_000, "at most 4 times as many as were measured"),
    "two sizes": (
        [MeasuredBatch(10_000, 1.0), BIG],
        10,
        170_000,
        "as many as fit in 10 s at 0.5 s for each batch and 20,000 records a second",
    ),
    "a jump after a trickle": (
        [MeasuredBatch(10_000, 1.0), BIG, MeasuredBatch(5, 0.5)],
        10,
        170_000,
        "as many as fit in 10 s at 0.5 s for each batch and 20,000 records a second",
    ),
    "the stream has become slower": (
        [MeasuredBatch(10_000, 1.0), BIG, MeasuredBatch(170_000, 42.5)],
        10,
        36_000,
        "as many as fit in 10 s at 4,000 records a second",
    ),
    "the stream has become faster": (
        [MeasuredBatch(10_000, 10.0), MeasuredBatch(9_000, 1.5)],
        10,
        40_000,
        "at most 4 times as many as were measured",
    ),
    "the stream has become much slower since a larger batch": (
        [MeasuredBatch(100_000, 8.0), MeasuredBatch(20_000, 12.9)],
        10,
        13_953,
        "as many as fit in 10 s at 1,550 records a second",
    ),
    "a tenth more": (
        [BIG, MeasuredBatch(171_000, 10, True)],
        10,
        188_100,
        "1.1 times the 171,000 that ended in time",
    ),
    "more than a tenth more": (
        [MeasuredBatch(10_000, 9.0), MeasuredBatch(12_000, 10, True)],
        10,
        15_840,
        "1.3 times the 12,000 that ended in time",
    ),
    "the interval is too short for any batch": (
        [MeasuredBatch(1_000, 0.95), MeasuredBatch(20_000, 1.9)],
        1,
        18_000,
        "as many as fit in 0.9 s (the fixed cost of a batch) at 20,000 records a second, because 90% of 1 s leaves less time for them",
    ),
    "a larger batch gives the fixed costs": (
        [MeasuredBatch(10_000, 6.1), MeasuredBatch(1_475, 1.8375)],
        1,
        2_200,
        "as many as fit in 1.1 s (the fixed cost of a batch) at 2,000 records a second, because 90% of 1 s leaves less time for them",
    ),
    "the duration does not depend on the records": (
        [MeasuredBatch(20_000, 12.5), MeasuredBatch(9_000, 12.5)],
        10,
        80_000,
        "as many as fit in 10.0 s (the fixed cost of a batch) at 8,000 records a second, because 90% of 10 s leaves less time for them",
    ),
}


@pytest.mark.parametrize("case", LIMITS)
def test_the_limit_follows_from_the_measured_batches(case: str) -> None:
    history, interval, records, reason = LIMITS[case]
    limit = record_limit(history, interval)
    assert (limit.records, limit.reason) == (records, reason)


def test_large_batches_are_remembered() -> None:
    """Small batches do not displace large batches, and only the largest of the batches that waited is remembered."""
    history: tuple[MeasuredBatch, ...] = ()
    small = [MeasuredBatch(5, 0.1 * i) for i in range(1, 20)]
    for batch in [BIG, *small, MeasuredBatch(6, 2.0, True), MeasuredBatch(5, 2.0, True)]:
        history = remember(history, batch)
    assert history == (BIG, MeasuredBatch(5, 0.1 * 19), MeasuredBatch(6, 2.0, True))
    largest = (MeasuredBatch(20_000, 2.0), MeasuredBatch(200_000, 10.5))
    history = largest
    for power in range(14):
        history = remember(history, MeasuredBatch(1 << power, 0.5))
        assert history[:2] == largest
    assert [batch.records for batch in history[2:]] == [1 << power for power in range(8, 14)]


@pytest.mark.parametrize(
    ("old", "new", "is_remembered"),
    [
        (MeasuredBatch(1_000, 5.0), MeasuredBatch(2_000, 6.0), True),
        (MeasuredBatch(1_000, 5.0), MeasuredBatch(2_000, 4.0), False),
        (MeasuredBatch(1_000, 5.0), MeasuredBatch(2_000, 4.8), True),
        (MeasuredBatch(1_000, 5.0), MeasuredBatch(1_100, 4.0), True),
        (MeasuredBatch(1_000, 5.0), MeasuredBatch(2_000, 5.0, True), False),
        (MeasuredBatch(1_000, 5.0), MeasuredBatch(500, 6.0), True),
        (MeasuredBatch(1_000, 5.0), MeasuredBatch(500, 6.0, True), True),
        (MeasuredBatch(1_100, 5.0), MeasuredBatch(1_000, 6.0), True),
    ],
)
def test_batches_that_a_new_batch_contradicts_are_forgotten(
    old: MeasuredBatch, new: MeasuredBatch, is_remembered: bool
) -> None:
    assert remember([old], new) == ((old, new) if is_remembered else (new,))


@pytest.mark.parametrize(
    ("history", "fixed", "rate"),
    [
        ([MeasuredBatch(1_000, 2.0), MeasuredBatch(2_000, 3.0), MeasuredBatch(3_000, 4.0)], 1.0, 1_000),
        ([MeasuredBatch(1_000, 2.0), MeasuredBatch(1_100, 2.1)], 0.0, 2_100 / 4.1),
        ([MeasuredBatch(1_000, 3.0), MeasuredBatch(2_000, 3.0)], 0.0, 500),
        ([MeasuredBatch(1_000, 1.0), MeasuredBatch(2_000, 4.0)], 0.0, 600),
        ([MeasuredBatch(1_000, 2.0)], 0.0, 500),
    ],
)
def test_the_pace_is_a_least_squares_fit(history: list[MeasuredBatch], fixed: float, rate: float) -> None:
    pace = fit_pace(history)
    assert pace is not None
    assert (pace.fixed, pace.rate) == (pytest.approx(fixed), pytest.approx(rate))


def test_no_pace_without_records() -> None:
    assert fit_pace([]) is None
    assert fit_pace([MeasuredBatch(0, 1.0)]) is None


def simulate(
    fixed: float, rate: float, interval: float, *, waits: bool = False, noise: Sequence[float] = (1.0,)
) -> list[tuple[int, float]]:
    """Return the records and actual seconds of 30 batches of an endless backlog."""
    history: tuple[MeasuredBatch, ...] = ()
    simulated = []
    for number in range(30):
        records = record_limit(history, interval).records
        seconds = (fixed + records / rate) * noise[number % len(noise)]
        waited = waits and seconds < interval
        history = remember(history, MeasuredBatch(records, interval if waited else seconds, waited))
        simulated.append((records, seconds))
    return simulated


@given(st.floats(0, 3), st.floats(2_000, 1e6), st.floats(10, 120))
def test_batches_fill_the_interval_without_exceeding_it(fixed: float, rate: float, interval: float) -> None:
    batches = simulate(fixed, rate, interval)
    assert all(seconds <= interval for _, seconds in batches)
    assert all(0.7 * interval <= seconds for _, seconds in batches[15:])


@given(st.floats(0, 3), st.floats(20_000, 1e6), st.floats(10, 120), st.floats(2, 10))
def test_a_stream_that_becomes_slower_gets_smaller_batches(
    fixed: float, rate: float, interval: float, slowdown: float
) -> None:
    history: tuple[MeasuredBatch, ...] = ()
    for number in range(30):
        current_rate = rate if number < 15 else rate / slowdown
        records = record_limit(history, interval).records
        seconds = fixed + records / current_rate
        assert number == 15 or seconds <= 1.2 * interval, "only the first slow batch takes much longer"
        history = remember(history, MeasuredBatch(records, seconds))


@given(st.floats(0, 3), st.floats(2_000, 1e6), st.floats(10, 120))
def test_batches_with_waits_exceed_the_interval_only_slightly(fixed: float, rate: float, interval: float) -> None:
    batches = simulate(fixed, rate, interval, waits=True)
    assert all(seconds <= 2 * interval for _, seconds in batches)
    assert all(0.6 * interval <= seconds <= 1.25 * interval for _, seconds in batches[20:])


@given(
    st.floats(0, 3),
    st.floats(500, 1e6),
    st.floats(1, 60),
    st.booleans(),
    st.lists(st.floats(0.95, 1.05), min_size=1, max_size=30),
)
def test_the_backlog_shrinks_whatever_the_fixed_costs(
    intervals: float, rate: float, interval: float, waits: bool, noise: list[float]
) -> None:
    """Batches never shrink to a few records, even if their fixed costs exceed the interval."""
    fixed = intervals * interval
    batches = simulate(fixed, rate, interval, waits=waits, noise=noise)
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
def test_small_batches_do_not_slow_down_a_later_backlog(
    part: float, rate: float, interval: float, trickle: list[int]
) -> None:
    """At most one batch counts its fixed costs as costs of its records."""
    fixed = part * interval
    history: tuple[MeasuredBatch, ...] = ()
    for records in trickle:
        history = remember(history, MeasuredBatch(records, fixed + records / rate))
    first = record_limit(history, interval).records
    history = remember(history, MeasuredBatch(first, fixed + first / rate))
    assert max(first, record_limit(history, interval).records) >= 10_000


@given(
    st.floats(0.5, 50),
    st.floats(0.02, 0.9),
    st.floats(1.1, 30),
    st.booleans(),
    st.lists(st.floats(0.95, 1.05), min_size=1, max_size=30),
)
@example(26.0, 0.8984375, 4.0, True, [1.0])  # the fixed part nearly fills the interval
def test_a_stall_does_not_slow_down_a_stream_of_few_records(
    load: float, part: float, stall: float, is_reported: bool, noise: list[float]
) -> None:
    """A batch takes much longer than the interval once. The backlog of this time is read soon."""
    interval, rate, fixed = 10.0, 20_000.0, 10.0 * part
    history: tuple[MeasuredBatch, ...] = ()
    arrived, read = load * interval, 0
    for number in range(200):
        records = min(int(arrived) - read, record_limit(history, interval).records)
        if records:
            seconds = stall * interval if number == 10 else (fixed + records / rate) * noise[number % len(noise)]
            waited = not is_reported and seconds < interval
            history = remember(history, MeasuredBatch(records, interval if waited else seconds, waited))
            arrived += load * max(seconds, interval)
        else:
            arrived += load * interval
        read += records
    assert arrived - read <= 3 * load * interval + 1


@given(st.floats(10, 900), st.floats(1, 60), st.integers(2, 100))
def test_slow_records_are_detected_in_small_batches(rate: float, interval: float, part: int) -> None:
    """A steady load of slow records, then a backlog: no batch takes more than twice the interval."""
    history: tuple[MeasuredBatch, ...] = ()
    for size in (1.0, 0.6, 1.3, 0.8):
        records = max(1, int(size * rate * interval * part / 130))
        if records / rate >= interval / 4:
            history = remember(history, MeasuredBatch(records, records / rate))
    if history:
        limit = record_limit(history, interval).records
        assert limit <= 2 or limit / rate <= 2 * interval


@given(
    st.lists(st.tuples(st.integers(1, 10**7), st.floats(0.001, 1e4), st.booleans()), max_size=20), st.floats(0.1, 600)
)
def test_any_measured_batches_give_a_valid_limit(measured: list[tuple[int, float, bool]], interval: float) -> None:
    history: tuple[MeasuredBatch, ...] = ()
    for batch in measured:
        history = remember(history, MeasuredBatch(*batch))
    records = record_limit(history, interval).records
    assert 1 <= records <= max(10_000, GROWTH * max((batch.records for batch in history), default=0))
    pace = estimate_pace(history, interval)
    assert pace is None or (pace.rate > 0 and pace.fixed >= 0)
