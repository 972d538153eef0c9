"""Descriptions of the distribution of rows: from the log, or parsed from the text of older releases."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.history.record import EdgeRecord
from penstock.web.charts.graph import key_edges
from tests.history.records import edge, record, vertex


@pytest.mark.parametrize(
    ("partitioner", "words"),
    [
        ("HASH(l_orderkey)", "shuffled by l_orderkey"),
        ("HASH(a, b, c, d)", "shuffled by a, b and 2 more columns"),
        ("HASH(coalesce(a, 0), b)", "shuffled by coalesce(a, 0) and b"),
        ("HASH(_groupingexpression)", "shuffled by an expression"),
        ("HASH(none#7)", "shuffled by an expression"),
        ("HASH(a, b, a_name_that_was_cu", "shuffled by a, b and a_name_that_was_cu"),
        (
            "RANGE(l_orderkey#3 ASC NULLS FIRST, o_date#4L DESC NULLS LAST)",
            "sorted into ranges by l_orderkey and o_date DESC",
        ),
        ("REBALANCE(least loaded of 4)", "to the least loaded task"),
        ("RESCALE(least loaded of 4)", "to the least loaded task"),
        ("REBALANCE", "in even parts"),
        ("RESCALE", "in even parts"),
        ("BROADCAST", "broadcast"),
        ("GLOBAL", "to one task"),
        ("FORWARD", "in the same task"),
        ("FORWARD_FOR_CONSECUTIVE_HASH", "in the same task"),
        ("FORWARD_FOR_UNSPECIFIED", "in the same task"),
        ("CUSTOM", "in even parts"),
    ],
)
def test_logs_of_older_releases(partitioner: str, words: str) -> None:
    assert EdgeRecord.of(edge(1, 2, partitioner)).distribution == words


@pytest.mark.parametrize(("words", "shown"), [("by my hand", "by my hand"), ("", "in the same task")])
def test_description_in_the_log_takes_precedence(words: str, shown: str) -> None:
    assert EdgeRecord.of(edge(1, 2) | {"words": words}).distribution == shown


@pytest.mark.parametrize(
    ("figures", "filtered", "expected"),
    [
        ({"join": 2, "side": "left"}, "4", [("v1", "v3")]),
        ({"join": 2, "side": "right"}, "4", []),  # no edge provides this input
        ({"join": 2, "side": "left"}, "1", []),  # the step filters itself
        ({"join": 2, "side": "left"}, "5", []),  # a pending operator
        ({}, "4", []),  # a log of an older release
    ],
)
def test_step_that_provides_the_keys_of_a_filter(figures: Any, filtered: Any, expected: Any) -> None:
    job = record()
    job.apply(vertex(3, [4], "FINISHED"))
    decision = {"type": "decision", "at": 11.0, "subject": "x", "chosen": "by keys", "reason": "few", "outcome": {}}
    for index in (1, 2):  # reported once
        job.apply({**decision, "index": index, "kind": "dynamic filter", "nodes": [filtered], "figures": figures})
    job.apply({**decision, "index": 3, "kind": "broadcast", "nodes": ["4"], "figures": {"join": 2, "side": "left"}})
    assert key_edges(job) == expected
