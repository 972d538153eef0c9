"""Batches from the offsets of a checkpoint."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from penstock.connectors.kafka.streams.micro_batches import BatchDecision
from penstock.connectors.kafka.streams.offsets import PlannedBatch, partition_offsets, planned_batch_of, to_offset
from penstock.connectors.kafka.streams.pace import MeasuredBatch
from penstock.streams.progress import parse_batches


def planned(lag: int, before: MeasuredBatch | None = None) -> PlannedBatch:
    return PlannedBatch(BatchDecision(lag, lag, 2, "why"), before, () if before is None else (before,))


def entry(*sources: Any) -> str:
    return "\n".join(["v1", json.dumps({"conf": {}}), *(json.dumps(source) for source in sources)])


def test_an_offset_round_trips_through_json() -> None:
    reached = {("t", 0): 5, ("with-dash", 11): 7}
    batch = replace(planned(12, MeasuredBatch(9, 1.25, waited=True)), reader="abc_1")
    offset = json.loads(json.dumps(to_offset(reached, batch)))
    assert partition_offsets(offset) == reached
    assert planned_batch_of(offset) == batch
    del offset["penstock"]["reader"]
    assert planned_batch_of(offset) == replace(batch, reader=None), "earlier releases write no reader"
    assert planned_batch_of(to_offset(reached)) is None


def test_the_next_batch_records_the_duration_of_a_batch() -> None:
    first, second = to_offset({("t", 0): 5}, planned(5)), to_offset({("t", 0): 7}, planned(2, MeasuredBatch(5, 1.5)))
    records = parse_batches({7: entry(first), 8: entry(second)}, "here")
    assert [(record.batch, record.decision.records, record.ran) for record in records] == [
        (7, 5, MeasuredBatch(5, 1.5)),
        (8, 2, None),
    ]


def test_a_source_with_nothing_to_read_has_no_batch() -> None:
    idle = to_offset({("t", 0): 5}, planned(5))
    later = to_offset({("t", 0): 6}, planned(1, MeasuredBatch(5, 9.0)))
    other = {"logOffset": 3}
    logs = {0: entry(other, idle), 1: entry(other, idle), 2: entry(other, later)}
    assert [(record.batch, record.source, record.ran) for record in parse_batches(logs, "here")] == [
        (0, 1, MeasuredBatch(5, 9.0)),
        (2, 1, None),
    ]


def test_offsets_without_decisions_and_offsets_that_are_not_objects() -> None:
    assert parse_batches({0: entry({"t-0": 5}), 1: "v1\n{}\n17\n-"}, "here") == []
