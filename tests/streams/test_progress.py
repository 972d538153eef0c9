"""Parsing of Spark's progress events."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.errors import StreamError
from penstock.streams.progress import OperatorState, parse_progress

OFFSETS = {"t-0": 90, "u-with-dash-1": 10}
DECIDED = {"lag": 130, "records": 30, "tasks": 2, "reason": "why", "before": None, "ran": []}


def event(**changes: Any) -> dict[str, Any]:
    return {
        "id": "0a",
        "name": None,
        "batchId": 3,
        "timestamp": "2026-11-26T07:00:00.500Z",
        "numInputRows": 30,
        "durationMs": {"addBatch": 900, "triggerExecution": 1250},
        "sources": [{"endOffset": OFFSETS, "latestOffset": {"t-0": 190, "u-with-dash-1": 10}}],
        "stateOperators": [],
    } | changes


def read(*events: dict[str, Any]) -> Any:
    return parse_progress([json.dumps(each) for each in events], "here")


def test_a_batch() -> None:
    (batch,) = read(event())
    assert (batch.query, batch.batch, batch.seconds, batch.rows, batch.end_offset_sum, batch.lag) == (
        "0a",
        3,
        1.25,
        30,
        200,
        100,
    )
    assert batch.started == pytest.approx(1795676400.5)
    assert (batch.decision, batch.cores, batch.state) == (None, None, ())


SOURCES: dict[str, tuple[list[dict[str, Any]], int | None]] = {
    "as text": ([{"endOffset": json.dumps(OFFSETS), "latestOffset": json.dumps({"t-0": 101})}], 1),
    "of Spark": ([{"endOffset": {"t": {"0": 5, "1": 7}}, "latestOffset": {"t": {"0": 6, "1": 9}}}], 3),
    "two sources": (
        [{"endOffset": OFFSETS, "latestOffset": OFFSETS}, {"endOffset": OFFSETS, "latestOffset": {"t-0": 150}}],
        50,
    ),
    "files": ([{"endOffset": {"logOffset": 3}, "latestOffset": None}], None),
    "a number": ([{"endOffset": "17", "latestOffset": "20"}], None),
    "only the first of two sources reports it": (
        [{"endOffset": OFFSETS, "latestOffset": OFFSETS}, {"endOffset": None}],
        None,
    ),
    "none": ([], None),
    "the reported ends are older than the offsets": ([{"endOffset": OFFSETS, "latestOffset": {"t-0": 3}}], 0),
}


@pytest.mark.parametrize("case", SOURCES)
def test_lag(case: str) -> None:
    sources, lag = SOURCES[case]
    (batch,) = read(event(sources=sources))
    assert batch.lag == lag


def test_the_decision_in_an_offset_is_not_a_topic() -> None:
    (batch,) = read(event(sources=[{"endOffset": OFFSETS | {"penstock": DECIDED}, "latestOffset": OFFSETS}]))
    assert (batch.lag, batch.decision.tasks, batch.decision.reason) == (0, 2, "why")


def test_state() -> None:
    rocks = {
        "operatorName": "stateStoreSave",
        "memoryUsedBytes": 5,
        "numShufflePartitions": 8,
        "customMetrics": {"rocksdbSstFileSize": 70},
    }
    memory = {"operatorName": "dedupe", "memoryUsedBytes": 5, "numShufflePartitions": 8, "customMetrics": {}}
    (batch,) = read(event(stateOperators=[rocks, memory], penstock={"cores": 6}))
    assert batch.state == (OperatorState("stateStoreSave", 8, 70), OperatorState("dedupe", 8, 5))
    assert batch.cores == 6


def test_order_repeats_and_idle_triggers() -> None:
    idle = event(batchId=9, durationMs={"latestOffset": 3, "triggerExecution": 4})
    batches = read(event(batchId=4), idle, event(batchId=3, numInputRows=1), event(batchId=3, numInputRows=2))
    assert [(batch.batch, batch.rows) for batch in batches] == [(3, 2), (4, 30)]


@pytest.mark.parametrize("text", ["{", "[]", "3", "{}", '{"durationMs": {"addBatch": 1}}', '"progress"'])
def test_texts_that_are_not_events(text: str) -> None:
    with pytest.raises(StreamError, match="there is no progress of a streaming query at here"):
        parse_progress([text], "here")


def test_two_queries_in_a_file() -> None:
    with pytest.raises(StreamError, match="here has the progress of 2 queries"):
        read(event(), event(id="0b"))
