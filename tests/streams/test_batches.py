"""Batches from the offsets of a checkpoint."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from penstock.connectors.kafka.stream_offsets import PlannedBatch, offset_of, places_of, planned_of
from penstock.connectors.micro_batches import BatchDecision
from penstock.connectors.pace import RanBatch
from penstock.streams.batches import batches_of


def planned(lag: int, before: RanBatch | None = None) -> PlannedBatch:
    return PlannedBatch(BatchDecision(lag, lag, 2, "why"), before, () if before is None else (before,))


def entry(*sources: Any) -> str:
    return "\n".join(["v1", json.dumps({"conf": {}}), *(json.dumps(source) for source in sources)])


def test_an_offset_and_back() -> None:
    reached = {("t", 0): 5, ("with-dash", 11): 7}
    one = replace(planned(12, RanBatch(9, 1.25, waited=True)), reader="abc_1")
    offset = json.loads(json.dumps(offset_of(reached, one)))
    assert places_of(offset) == reached
    assert planned_of(offset) == one
    del offset["penstock"]["reader"]
    assert planned_of(offset) == replace(one, reader=None), "as earlier releases wrote it"
    assert planned_of(offset_of(reached)) is None


def test_what_a_batch_took_is_told_with_the_next() -> None:
    first, second = offset_of({("t", 0): 5}, planned(5)), offset_of({("t", 0): 7}, planned(2, RanBatch(5, 1.5)))
    found = batches_of({7: entry(first), 8: entry(second)}, "here")
    assert [(one.batch, one.decision.records, one.ran) for one in found] == [(7, 5, RanBatch(5, 1.5)), (8, 2, None)]


def test_a_source_with_nothing_to_read_has_no_batch() -> None:
    idle = offset_of({("t", 0): 5}, planned(5))
    later = offset_of({("t", 0): 6}, planned(1, RanBatch(5, 9.0)))
    other = {"logOffset": 3}
    logs = {0: entry(other, idle), 1: entry(other, idle), 2: entry(other, later)}
    assert [(one.batch, one.source, one.ran) for one in batches_of(logs, "here")] == [
        (0, 1, RanBatch(5, 9.0)),
        (2, 1, None),
    ]


def test_offsets_of_an_older_release_and_of_sources_that_are_no_objects() -> None:
    assert batches_of({0: entry({"t-0": 5}), 1: "v1\n{}\n17\n-"}, "here") == []
