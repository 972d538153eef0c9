"""Events as Spark tells them, and what is not one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.errors import StreamError
from penstock.streams.progress import OperatorState, progress_of

OURS = {"t-0": 90, "u-with-dash-1": 10}
DECIDED = {"lag": 130, "records": 30, "tasks": 2, "reason": "why", "before": None, "ran": []}


def event(**changes: Any) -> dict[str, Any]:
    return {
        "id": "0a",
        "name": None,
        "batchId": 3,
        "timestamp": "2026-11-26T07:00:00.500Z",
        "numInputRows": 30,
        "durationMs": {"addBatch": 900, "triggerExecution": 1250},
        "sources": [{"endOffset": OURS, "latestOffset": {"t-0": 190, "u-with-dash-1": 10}}],
        "stateOperators": [],
    } | changes


def read(*events: dict[str, Any]) -> Any:
    return progress_of([json.dumps(one) for one in events], "here")


def test_a_batch() -> None:
    (one,) = read(event())
    assert (one.query, one.batch, one.seconds, one.rows, one.ends, one.lag) == ("0a", 3, 1.25, 30, 200, 100)
    assert one.began == pytest.approx(1795676400.5)
    assert (one.decision, one.cores, one.state) == (None, None, ())


SOURCES: dict[str, tuple[list[dict[str, Any]], int | None]] = {
    "as text": ([{"endOffset": json.dumps(OURS), "latestOffset": json.dumps({"t-0": 101})}], 1),
    "of Spark": ([{"endOffset": {"t": {"0": 5, "1": 7}}, "latestOffset": {"t": {"0": 6, "1": 9}}}], 3),
    "two sources": ([{"endOffset": OURS, "latestOffset": OURS}, {"endOffset": OURS, "latestOffset": {"t-0": 150}}], 50),
    "files": ([{"endOffset": {"logOffset": 3}, "latestOffset": None}], None),
    "a number": ([{"endOffset": "17", "latestOffset": "20"}], None),
    "one of two tells it": ([{"endOffset": OURS, "latestOffset": OURS}, {"endOffset": None}], None),
    "none": ([], None),
    "the topics end before, as the broker was late": ([{"endOffset": OURS, "latestOffset": {"t-0": 3}}], 0),
}


@pytest.mark.parametrize("case", SOURCES)
def test_lag(case: str) -> None:
    sources, lag = SOURCES[case]
    (one,) = read(event(sources=sources))
    assert one.lag == lag


def test_a_decision_of_penstock_is_no_topic() -> None:
    (one,) = read(event(sources=[{"endOffset": OURS | {"penstock": DECIDED}, "latestOffset": OURS}]))
    assert (one.lag, one.decision.tasks, one.decision.reason) == (0, 2, "why")


def test_state() -> None:
    rocks = {
        "operatorName": "stateStoreSave",
        "memoryUsedBytes": 5,
        "numShufflePartitions": 8,
        "customMetrics": {"rocksdbSstFileSize": 70},
    }
    memory = {"operatorName": "dedupe", "memoryUsedBytes": 5, "numShufflePartitions": 8, "customMetrics": {}}
    (one,) = read(event(stateOperators=[rocks, memory], penstock={"cores": 6}))
    assert one.state == (OperatorState("stateStoreSave", 8, 70), OperatorState("dedupe", 8, 5))
    assert one.cores == 6


def test_order_repeats_and_idle_triggers() -> None:
    idle = event(batchId=9, durationMs={"latestOffset": 3, "triggerExecution": 4})
    found = read(event(batchId=4), idle, event(batchId=3, numInputRows=1), event(batchId=3, numInputRows=2))
    assert [(one.batch, one.rows) for one in found] == [(3, 2), (4, 30)]


@pytest.mark.parametrize("text", ["{", "[]", "3", "{}", '{"durationMs": {"addBatch": 1}}', '"progress"'])
def test_what_is_no_event(text: str) -> None:
    with pytest.raises(StreamError, match="there is no progress of a streaming query at here"):
        progress_of([text], "here")


def test_two_queries_in_one_file() -> None:
    with pytest.raises(StreamError, match="here has the progress of 2 queries"):
        read(event(), event(id="0b"))
