"""The graph of a job as SVG."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from penstock.web.charts.graph import draw_graph, wrap_text
from penstock.web.steps import steps_of
from tests.history.records import record, vertex


def drawn(job: Any, critical: Any = (), *, pending: bool = False) -> str:
    return draw_graph(job, steps_of(job, 20.0), critical, pending=pending)


def test_pending_operators_are_drawn_on_demand() -> None:
    half = record(ended=False)
    assert "pending" not in drawn(half)
    shown = drawn(half, pending=True)
    assert shown.count('class="vertex pending"') == 2
    assert len(re.findall(r'<path class="edge pending"', shown)) == 2
    assert shown.count(">tasks undecided<") == 2


def test_the_box_of_a_pending_operator() -> None:
    job = record(ended=False)
    job.apply({"type": "nodes", "at": 1.0, "nodes": [job.nodes["2"].values | {"parallelism": 5, "max_parallelism": 8}]})
    root = ET.fromstring(drawn(job, pending=True))
    (box,) = [group for group in root.iterfind(".//{*}g") if group.get("data-id") == "n2"]
    assert [text.text for text in box.iterfind("{*}text")] == [
        "Pending",
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
        ("big two three four", 3, ("big two", "three four")),
        ("big two three four five six", 2, ("big two", "three …")),
        ("customer_demographics again", 3, ("customer_…", "again")),
        ("a-b-c-d-e-f g", 3, ("a-b-c-d-e…", "g")),
    ],
)
def test_wrapping_of_texts(text: Any, lines: Any, expected: Any) -> None:
    assert wrap_text(text, lines, 10) == expected


def test_width_of_edges() -> None:
    job = record()
    for number, size in ((1, 1 << 20), (3, 1 << 30)):
        job.apply(vertex(number, [], "FINISHED", bytes_out=size))
    job.apply(vertex(2, [2, 3], "FINISHED", [("v1", "1-2"), ("v3", "1-2")]))
    thin, thick = (float(width) for width in re.findall(r'class="edge finished" stroke-width="([\d.]+)"', drawn(job)))
    assert thick > 3 * thin


def test_critical_path_is_marked() -> None:
    job = record()
    assert drawn(job).count("critical") == 0
    shown = drawn(job, ("v1", "v2"))
    assert len(re.findall(r'class="vertex finished critical( longest)?"', shown)) == 2
    assert shown.count('class="edge finished critical"') == 1


def test_the_longest_step_is_marked_with_all_of_its_text() -> None:
    job = record()
    label = " → ".join(f"orders join table_{number} on key_{number}" for number in range(9))
    times = {"RUNNING": 12.5, "FINISHED": 99.0}
    job.apply(vertex(2, [2, 3], "FINISHED", [("v1", "1-2")], label=label, timestamps=times))
    shown = drawn(job)
    (longest,) = re.findall(r'<a id="step-(v\d+)"[^>]*><g class="[^"]*longest', shown)
    assert longest == "v2"
    assert "Step 2, the longest" in shown
    assert "table_8" in shown.partition("</title>")[2]
    assert "…" not in shown


def test_special_characters_are_escaped() -> None:
    evil = "<script>alert(1)</script>'\"&"
    job = record()
    job.apply({"type": "nodes", "at": 1.0, "nodes": [job.nodes["1"].values | {"name": evil, "description": evil}]})
    job.apply(vertex(1, [1], "FINISHED", name=evil, label=evil, reason=evil))
    ET.fromstring(drawn(job, pending=True))


def test_keys_of_a_filter_are_a_labelled_edge() -> None:
    job = record()
    job.apply(vertex(3, [4], "FINISHED"))
    figures = {"join": 2, "side": "left"}
    decision = {
        "type": "decision",
        "index": 1,
        "at": 11.0,
        "kind": "dynamic filter",
        "subject": "x",
        "chosen": "by keys",
    }
    job.apply({**decision, "reason": "few", "outcome": {}, "nodes": ["4"], "figures": figures})
    shown = drawn(job)
    assert shown.count('class="edge keys"') == 1
    assert ">keys filter step 3<" in shown


def test_additional_tasks_are_shown_in_the_box() -> None:
    job = record()
    job.apply(vertex(1, [1], "FINISHED", parallelism=2))
    assert ">2 tasks +1 · 50 rows<" in drawn(job)
