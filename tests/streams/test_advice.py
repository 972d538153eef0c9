"""Recommendations for a stream, as tables of its past batches."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.connectors.kafka.streams.micro_batches import BatchDecision
from penstock.streams.advice import Advice, advise
from penstock.streams.progress import BatchProgress, OperatorState

MIB = 1 << 20


def simulated_batches(
    arrival: int, rate: int, *, fixed: float = 1.0, interval: float = 10, tasks: int | None = 4, cores: int | None = 4
) -> list[BatchProgress]:
    """Return batches that read all arriving records, with alternating intervals of `interval` and twice that."""
    batches = []
    began = 1000.0
    ends = 0
    for number in range(6):
        seconds_apart = interval * (1 + number % 2)
        rows = int(arrival * seconds_apart)
        decision = None if tasks is None else BatchDecision(rows, rows, tasks, "")
        batches.append(BatchProgress("orders", number, began, fixed + rows / rate, rows, ends, 7, decision, cores, ()))
        began += seconds_apart
        ends += rows
    return batches


def advice_on(batches: list[BatchProgress], cores: int | None = None) -> Advice:
    advice = advise(batches, cores)
    assert advice is not None
    return advice


def test_figures() -> None:
    advice = advice_on(simulated_batches(1_000, 5_000))
    assert (advice.query, advice.batches, advice.seconds, advice.lag) == ("orders", 6, 70, 7)
    assert advice.arrival == pytest.approx(1_000)
    assert (advice.pace.fixed, advice.pace.rate) == (pytest.approx(1.0), pytest.approx(5_000))
    assert advice.load == pytest.approx(0.2)


BUSY = "arriving records keep the query busy for 100% of its time; at most 70% is recommended"
PARALLELISM: dict[str, tuple[list[BatchProgress], int | None, str | None, str, str]] = {
    "enough": (
        simulated_batches(1_000, 5_000),
        None,
        "4",
        "4",
        "arriving records keep the query busy for 20% of its time; at most 70% is recommended; 2 would suffice",
    ),
    "too few": (
        simulated_batches(1_000, 1_000),
        None,
        "4",
        "6",
        f"{BUSY}; this assumes that each task stays as fast; there are 4 cores now",
    ),
    "fewer tasks than cores": (
        simulated_batches(1_000, 1_000, cores=16),
        None,
        "4",
        "6",
        f"{BUSY}; this assumes that each task stays as fast",
    ),
    "fewer cores than tasks": (
        simulated_batches(1_000, 5_000, tasks=40),
        None,
        "4",
        "4",
        "arriving records keep the query busy for 20% of its time; at most 70% is recommended; 2 would suffice",
    ),
    "the user sets the cores": (
        simulated_batches(1_000, 5_000, tasks=None, cores=None),
        8,
        "8",
        "8",
        "arriving records keep the query busy for 20% of its time; at most 70% is recommended; 3 would suffice",
    ),
    "the user's cores override the recorded ones": (
        simulated_batches(1_000, 1_000, tasks=16, cores=4),
        8,
        "8",
        "12",
        f"{BUSY}; this assumes that each task stays as fast; there are 8 cores now",
    ),
    "unknown cores": (
        simulated_batches(1_000, 1_000, tasks=None, cores=None),
        None,
        None,
        "1.4 times as many",
        f"{BUSY}; pass --cores for the current number",
    ),
}


@pytest.mark.parametrize("case", PARALLELISM)
def test_parallelism(case: str) -> None:
    batches, cores, now, needed, reason = PARALLELISM[case]
    advised = advice_on(batches, cores).settings[0]
    assert (advised.setting, advised.now, advised.needed, advised.reason) == ("parallelism", now, needed, reason)


TRIGGERS: dict[str, tuple[list[BatchProgress], str, str, str]] = {
    "longer than needed": (
        simulated_batches(1_000, 5_000, interval=60),
        "60 s",
        "2 s",
        "2,000 records arrive in this interval and take 1.4 s (70% of it) at 1.0 s for each batch and 5,000 records a second",
    ),
    "shorter than needed": (
        simulated_batches(1_000, 2_000, interval=2),
        "none: one batch after the other",
        "5 s",
        "5,000 records arrive in this interval and take 3.5 s (70% of it) at 1.0 s for each batch and 2,000 records a second",
    ),
    "with the recommended parallelism": (
        simulated_batches(1_000, 1_000, interval=30),
        "none: one batch after the other",
        "10 s",
        "10,000 records arrive in this interval and take 7.7 s (77% of it) at 1.0 s for each batch and 1,500 records a second",
    ),
}


@pytest.mark.parametrize("case", TRIGGERS)
def test_triggers(case: str) -> None:
    batches, now, needed, reason = TRIGGERS[case]
    advised = advice_on(batches).settings[1]
    assert (advised.setting, advised.now, advised.needed, advised.reason) == ("trigger", now, needed, reason)


def test_state_partitions_depend_on_the_largest_state() -> None:
    batches = simulated_batches(1_000, 5_000)
    states = (OperatorState("stateStoreSave", 8, MIB), OperatorState("dedupe", 16, 8192 * MIB))
    batches[-1] = replace(batches[-1], state=states)
    (advised,) = advice_on(batches).settings[2:]
    assert (advised.setting, advised.now, advised.needed) == ("state partitions", "16", "64")
    assert "8.0 GiB of state" in advised.reason


def test_without_the_ends_of_topics_the_records_read_count_as_arrived() -> None:
    batches = [replace(batch, end_offset_sum=None, lag=None) for batch in simulated_batches(1_000, 5_000)]
    advice = advice_on(batches)
    assert advice.lag is None
    assert advice.arrival == pytest.approx(sum(batch.rows for batch in batches[1:]) / 70)


def test_no_advice_with_fewer_than_two_batches() -> None:
    batches = simulated_batches(1_000, 5_000)
    assert advise([]) is None
    assert advise(batches[:1]) is None
    assert advise([batches[0], replace(batches[1], rows=0)]) is None


def test_advice_as_json_object() -> None:
    values = advice_on(simulated_batches(1_000, 5_000)).as_dict()
    assert values["settings"][0]["needed"] == "4"
    assert values["pace"]["fixed"] == pytest.approx(1.0)
