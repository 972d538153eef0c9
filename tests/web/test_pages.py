"""The pages without a browser: what is on them, and that nothing a user wrote is taken for markup."""

from __future__ import annotations

import itertools
import re
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as h

from penstock.history.event_log import Summary
from penstock.web import pages, views
from penstock.web.drawing import draw, layout
from tests.history.records import record

EVIL = "<script>alert(1)</script>'\"&"


def test_pending_operators_are_drawn_on_demand() -> None:
    half = record(ended=False)
    assert "pending" not in draw(half, pending=False)
    drawn = draw(half, pending=True)
    assert drawn.count('class="vertex pending"') == 2
    assert drawn.count('class="edge pending"') == 2
    assert drawn.count("max parallelism undecided") == 2


def test_the_button_is_there_only_while_operators_are_pending() -> None:
    half, done = record(ended=False), record()
    assert "Show pending operators" in pages.job(half, 20.0, pending=False, may_cancel=False)
    assert "Hide pending operators" in pages.job(half, 20.0, pending=True, may_cancel=False)
    assert "pending operators</a>" not in pages.job(done, 20.0, pending=False, may_cancel=False)


@pytest.mark.parametrize(
    ("may_cancel", "ended", "shown"), [(True, False, True), (False, False, False), (True, True, False)]
)
def test_the_button_to_cancel(may_cancel: bool, ended: bool, shown: bool) -> None:
    page = pages.job(record(ended=ended), 20.0, pending=False, may_cancel=may_cancel)
    assert ('id="cancel"' in page) is shown


def test_what_the_optimizer_changed_is_shown_with_its_reason() -> None:
    page = pages.job(record(), 20.0, pending=False, may_cancel=False)
    assert re.search(r'class="before">HASH\(k\)<.*class="after">BROADCAST<.*it is small', page, re.DOTALL)


def test_skew_is_marked() -> None:
    one = record()
    page = pages.vertex(one, one.vertices["v1"], 20.0)
    assert page.count('class="skewed"') == 2, "one subpartition and one task"
    assert [bar["skewed"] for bar in pages.bars([10, 20, 400])] == [False, False, True]


def test_what_was_repeated_is_told() -> None:
    """An earlier release's log has no attempts; see `test_skew_is_marked`."""
    one = record()
    ran = one.tasks["v1"][0]
    again = [ran | {"attempt": 0}, ran | {"attempt": 0, "state": "FAILED"}, ran | {"attempt": 1}]
    one.apply({"type": "tasks", "at": 13.0, "vertex": "v1", "tasks": again})
    page = pages.vertex(one, one.vertices["v1"], 20.0)
    assert re.findall(r"<tr><td>(1[^<]*)</td>", page) == ["1", "1, failed", "1 again"]
    told = views.vertex_details(one, one.vertices["v1"], 20.0)["subtasks"]
    assert [(task["attempt"], task["status"]) for task in told] == [(0, "SUCCESS"), (0, "FAILED"), (1, "SUCCESS")]


def test_user_text_is_no_markup() -> None:
    made = record(name=EVIL)
    for event in (
        {"type": "exception", "at": 1.0, "message": EVIL, "trace": EVIL, "vertex": None},
        {"type": "nodes", "at": 1.0, "nodes": [made.nodes["1"] | {"name": EVIL, "description": EVIL}]},
        {"type": "vertex", "at": 1.0, "id": "v1", "name": EVIL, "reason": EVIL},
    ):
        made.apply(event)
    shown = [
        pages.job(made, 1.0, pending=True, may_cancel=True),
        pages.vertex(made, made.vertices["v1"], 1.0),
        pages.jobs([Summary.of(made)], 1.0),
        draw(made, pending=True),
    ]
    for page in shown:
        assert "<script>alert" not in page
    ET.fromstring(draw(made, pending=True))


@given(h.lists(h.tuples(h.integers(0, 30), h.integers(0, 30)), max_size=60))
def test_boxes_never_lie_upon_each_other_and_edges_lead_down(pairs: Any) -> None:
    edges = [(str(min(pair)), str(max(pair))) for pair in pairs if pair[0] != pair[1]]
    names = [str(number) for number in range(31)]
    found = layout(names, edges)
    places = found.places
    assert set(places) == set(names)
    for source, target in edges:
        assert places[source][1] < places[target][1]
    for edge, bends in found.bends.items():
        rows = range(int(places[edge[0]][1]) + 1, int(places[edge[1]][1]))
        assert [bend[1] for bend in bends] == list(rows), "a long edge passes every row between"
    taken = sorted(
        [*places.values(), *(bend for bends in found.bends.values() for bend in bends)], key=lambda spot: spot[::-1]
    )
    for one, other in itertools.pairwise(taken):
        assert one[1] != other[1] or other[0] - one[0] > 0.9
