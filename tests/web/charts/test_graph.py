"""The graph of a job as SVG."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from penstock.web.charts.graph import draw_graph, wrapped
from penstock.web.steps import steps_of
from tests.history.records import record, vertex


def drawn(made: Any, critical: Any = (), *, pending: bool = False) -> str:
    return draw_graph(made, steps_of(made, 20.0), critical, pending=pending)


def test_pending_operators_are_drawn_on_demand() -> None:
    half = record(ended=False)
    assert "pending" not in drawn(half)
    shown = drawn(half, pending=True)
    assert shown.count('class="vertex pending"') == 2
    assert len(re.findall(r'<path class="edge pending"', shown)) == 2
    assert shown.count(">tasks undecided<") == 2


def test_the_box_of_a_pending_operator() -> None:
    made = record(ended=False)
    made.apply({"type": "nodes", "at": 1.0, "nodes": [made.nodes["2"] | {"parallelism": 5, "max_parallelism": 8}]})
    root = ET.fromstring(drawn(made, pending=True))
    (box,) = [one for one in root.iterfind(".//{*}g") if one.get("data-id") == "n2"]
    assert [text.text for text in box.iterfind("{*}text")] == [
        "Still open",
        "operator 2",
        "join",
        "tasks 5 · at most 8",
    ]
    (tip,) = [title.text for title in box.iterfind("{*}title")]
    assert tip == "join\nall of join\nnot yet part of a step"


@pytest.mark.parametrize(
    ("text", "lines", "expected"),
    [
        ("", 3, ()),
        ("short", 3, ("short",)),
        ("one two three four", 3, ("one two", "three four")),
        ("one two three four five six", 2, ("one two", "three …")),
        ("customer_demographics again", 3, ("customer_…", "again")),
        ("a-b-c-d-e-f g", 3, ("a-b-c-d-e…", "g")),
    ],
)
def test_texts_break_between_words(text: Any, lines: Any, expected: Any) -> None:
    assert wrapped(text, lines, 10) == expected


def test_the_more_bytes_the_wider_an_edge() -> None:
    made = record()
    for number, size in ((1, 1 << 20), (3, 1 << 30)):
        made.apply(vertex(number, [], "FINISHED", bytes_out=size))
    made.apply(vertex(2, [2, 3], "FINISHED", [("v1", "1-2"), ("v3", "1-2")]))
    thin, thick = (float(width) for width in re.findall(r'class="edge finished" stroke-width="([\d.]+)"', drawn(made)))
    assert thick > 3 * thin


def test_steps_that_the_end_waited_for_are_marked() -> None:
    made = record()
    assert drawn(made).count("critical") == 0
    shown = drawn(made, ("v1", "v2"))
    assert shown.count('class="vertex finished critical"') == 2
    assert shown.count('class="edge finished critical"') == 1


def test_it_is_a_document_even_with_odd_names() -> None:
    evil = "<script>alert(1)</script>'\"&"
    made = record()
    made.apply({"type": "nodes", "at": 1.0, "nodes": [made.nodes["1"] | {"name": evil, "description": evil}]})
    made.apply(vertex(1, [1], "FINISHED", name=evil, label=evil, reason=evil))
    ET.fromstring(drawn(made, pending=True))


def test_keys_that_filter_a_step_are_a_dashed_line_with_a_label() -> None:
    made = record()
    made.apply(vertex(3, [4], "FINISHED"))
    given = {"join": 2, "side": "left"}
    kept = {"type": "decision", "index": 1, "at": 11.0, "kind": "dynamic filter", "subject": "x", "chosen": "by keys"}
    made.apply({**kept, "reason": "few", "outcome": {}, "nodes": ["4"], "figures": given})
    shown = drawn(made)
    assert shown.count('class="edge keys"') == 1
    assert ">keys filter step 3<" in shown


def test_tasks_beside_those_decided_are_counted_in_the_box() -> None:
    made = record()
    made.apply(vertex(1, [1], "FINISHED", parallelism=2))
    assert ">2 tasks +1 · 50 rows<" in drawn(made)
