"""How rows get from one step to the next: in the words of the log, or of the text that older releases wrote."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.web.edges import distribution, key_edges
from tests.history.records import record, vertex


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
    assert distribution({"partitioner": partitioner}) == words


@pytest.mark.parametrize(("words", "shown"), [("by my hand", "by my hand"), ("", "in the same task")])
def test_the_words_of_the_log_count(words: str, shown: str) -> None:
    assert distribution({"partitioner": "HASH(k)", "words": words}) == shown


@pytest.mark.parametrize(
    ("figures", "filtered", "expected"),
    [
        ({"join": 2, "side": "left"}, "4", [("v1", "v3")]),
        ({"join": 2, "side": "right"}, "4", []),  # nothing comes from there
        ({"join": 2, "side": "left"}, "1", []),  # the step filters by its own keys
        ({"join": 2, "side": "left"}, "5", []),  # not part of a step yet
        ({}, "4", []),  # an older release tells less
    ],
)
def test_the_step_that_gives_the_keys_of_a_filter(figures: Any, filtered: Any, expected: Any) -> None:
    made = record()
    made.apply(vertex(3, [4], "FINISHED"))
    of = {"type": "decision", "at": 11.0, "subject": "x", "chosen": "by keys", "reason": "few", "outcome": {}}
    for index in (1, 2):  # told once
        made.apply({**of, "index": index, "kind": "dynamic filter", "nodes": [filtered], "figures": figures})
    made.apply({**of, "index": 3, "kind": "broadcast", "nodes": ["4"], "figures": {"join": 2, "side": "left"}})
    assert key_edges(made) == expected
