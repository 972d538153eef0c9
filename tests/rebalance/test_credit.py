"""Credit in seconds: what is in flight in a channel follows the pace of its consumer."""

from __future__ import annotations

from typing import Any

from penstock.rebalance.channel_selector import MAX_ROWS, MIN_ROWS, ChannelCredit


def run(credit: Any, pace: Any, seconds: Any, row_bytes: float = 100.0, now: float = 0.0) -> Any:
    """Let a consumer work at a pace; a batch is sent whenever there is credit. Return the end time."""
    end = now + seconds
    in_flight = []
    free_at = now
    while now < end:
        while not credit.is_full:
            rows = credit.next_rows(row_bytes)
            credit.on_sent(rows, int(rows * row_bytes), now)
            free_at = max(free_at, now) + rows / pace
            in_flight.append(free_at)
        now = in_flight.pop(0)
        credit.on_ack(now)
    return now


def test_a_single_small_batch_before_the_first_acknowledgement() -> None:
    credit = ChannelCredit(1 << 20)
    assert not credit.is_full
    assert credit.next_rows(100) == MIN_ROWS
    credit.on_sent(MIN_ROWS, 3200, 0.0)
    assert credit.is_full
    credit.on_ack(1.0)
    assert not credit.is_full
    assert credit.pace == MIN_ROWS


def test_batches_of_a_fast_consumer_grow_to_a_slice_of_its_work() -> None:
    credit = ChannelCredit(1 << 30)
    run(credit, 40_000, 3)
    assert 1500 <= credit.next_rows(100) <= 2500  # 50 ms
    run(ChannelCredit(1 << 30), 40_000, 3)
    fast = ChannelCredit(1 << 30)
    run(fast, 10_000_000, 1)
    assert fast.next_rows(100) == MAX_ROWS


def test_a_slow_consumer_has_at_most_a_small_batch() -> None:
    credit = ChannelCredit(1 << 20)
    run(credit, 100, 5)
    assert credit.next_rows(100) == MIN_ROWS
    assert credit.batches_in_flight <= 1


def test_a_consumer_that_becomes_slow_is_noticed() -> None:
    credit = ChannelCredit(1 << 30)
    now = run(credit, 100_000, 2)
    while credit.batches_in_flight:
        credit.on_ack(now)
    before = credit.next_rows(100)
    run(credit, 1000, 30, now=now)
    assert credit.next_rows(100) < before / 20


def test_bytes_are_capped() -> None:
    credit = ChannelCredit(10_000)
    run(credit, 1_000_000, 1)
    assert credit.bytes_in_flight <= 10_000
    assert credit.next_rows(100) <= 100
    assert credit.next_rows(1_000_000) == 1  # a larger row is sent alone


def test_growth_is_bounded() -> None:
    credit = ChannelCredit(1 << 30)
    credit.on_sent(32, 3200, 0.0)
    credit.on_ack(0.00001)
    assert credit.next_rows(100) == 4 * MIN_ROWS
