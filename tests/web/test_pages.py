"""The pages without a browser: what is on them, and that nothing a user wrote is taken for markup."""

from __future__ import annotations

import re
from typing import Any

import pytest

from penstock.history.summaries import Summary
from penstock.web import pages, views
from penstock.web.dashboard import Dashboard, Digest
from penstock.web.listing import JobWish, Wish
from tests.history.records import node, record, vertex

EVIL = "<script>alert(1)</script>'\"&"


def job_page(made: Any, wish: Any = None, **options: Any) -> str:
    return pages.job(made, 20.0, wish or JobWish(), **options)


def test_the_button_is_there_only_while_operators_are_pending() -> None:
    half, done = record(ended=False), record()
    assert "Show pending operators" in job_page(half)
    assert "Hide pending operators" in job_page(half, JobWish(pending=True))
    assert "pending operators</a>" not in job_page(done)


def test_the_number_of_pending_operators_says_on_hover_what_it_is() -> None:
    page = job_page(record(ended=False))
    assert re.findall(r'<span id="pending-operators" title="(.*?)">(.*?)</span>', page) == [("pending operators", "2")]


@pytest.mark.parametrize(
    ("may_cancel", "ended", "shown"), [(True, False, True), (False, False, False), (True, True, False)]
)
def test_the_button_to_cancel(may_cancel: bool, ended: bool, shown: bool) -> None:
    page = job_page(record(ended=ended), may_cancel=may_cancel)
    assert ('id="cancel"' in page) is shown


def decided(made: Any, index: int, **more: Any) -> Any:
    made.apply(
        {
            "type": "decision",
            "index": index,
            "at": 11.0,
            "kind": "broadcast",
            "subject": "2 join",
            "nodes": ["2"],
            "chosen": "right",
            "reason": "small",
            "figures": {},
            "outcome": {},
            "sentence": "orders join customer: broadcast, as it is small",
            "shown": True,
            **more,
        }
    )
    return made


def test_a_decision_is_a_sentence_with_the_option_that_changes_it() -> None:
    page = job_page(decided(record(), 1, option="an.option"))
    assert "<p>orders join customer: broadcast, as it is small</p>" in page
    assert "Change with <code>spark.penstock.an.option</code>" in page


def test_a_missed_estimate_is_marked() -> None:
    missed = {
        "what": "bytes of x",
        "unit": "bytes",
        "foreseen": 10,
        "came": 1000,
        "missed_by": 100.0,
        "text": "10 B foreseen, 1000 B came",
    }
    fine = missed | {"came": 10, "missed_by": None}
    assert job_page(decided(record(), 1, estimate=fine)).count("badge miss") == 0
    assert job_page(decided(record(), 1, estimate=missed)).count("badge miss") == 3, (
        "in the answers and at the decision"
    )


def test_what_missed_means_is_told_without_a_click_and_not_counted() -> None:
    made = record()
    for number in range(1, 6):
        missed = {"what": f"x {number}", "unit": "bytes", "foreseen": 10, "came": 1000, "missed_by": 100.0, "text": "y"}
        decided(made, number, estimate=missed)
    card = job_page(made).partition('id="wrong"')[2].partition("</article>")[0]
    assert "<summary>1 more</summary>" in card
    assert '</details><p class="quiet small-print">Missed: off by a factor of two or more' in card


def test_a_broadcast_that_was_not_made_is_no_estimate() -> None:
    page = job_page(decided(record(), 1, outcome={"instead": "customer is shuffled", "because": "no memory is left"}))
    assert re.findall(r'badge miss">([^<]*)<', page) == ["came otherwise"] * 2, "in the answers and at the decision"
    assert "instead: customer is shuffled, because no memory is left" in page


def test_decisions_that_are_told_together_count_as_one() -> None:
    made = record()
    for number, place in ((1, "a on x"), (2, "b on y")):
        decided(made, number, place=place, sentence=f"{place}: broadcast instead of shuffle, as it is small")
    page = job_page(made)
    assert "broadcast instead of shuffle, as it is small; in 2 places: a on x; b on y" in page
    assert re.findall(r">(broadcast \d+|vertex parallelism \d+)<", page) == ["broadcast 1", "vertex parallelism 1"]


@pytest.mark.parametrize(("ended", "said"), [(True, "for it."), (False, "for it yet.")])
def test_a_step_about_which_nothing_was_decided(ended: bool, said: str) -> None:
    made = record(ended=ended)
    made.decisions.clear()
    assert f"Nothing has been decided {said}" in pages.vertex(made, made.vertices["v1"], 20.0)


def test_figures_stand_under_the_sentence_of_their_decision() -> None:
    made = record()
    made.decisions.clear()
    decided(
        made,
        0,
        kind="dynamic filter",
        nodes=["1"],
        chosen="by the right side of 12 Join",
        figures={"rows": 1200, "join": 12, "side": "right"},
        outcome={"tasks": 3},
        sentence="orders keeps only rows with a key of customer",
    )
    decided(made, 1, nodes=["1"], chosen="no HASH(none#1) exchange", sentence="no shuffle before it")
    (told,) = re.findall(r'id="figures">(.*?)</details>', pages.vertex(made, made.vertices["v1"], 20.0), re.DOTALL)
    assert re.findall("<h3>([^<]*)</h3>", told) == ["orders keeps only rows with a key of customer"], "one has none"
    assert re.findall("<dt>([^<]*)</dt><dd>([^<]*)</dd>", told) == [("rows", "1,200"), ("came out: tasks", "3")]


def test_decisions_of_one_kind_are_shown_on_demand() -> None:
    made = decided(decided(record(), 1), 2, kind="exchange", sentence="one exchange less")
    decisions = re.compile('class="decision"')
    assert len(decisions.findall(job_page(made))) == 3
    only = job_page(made, JobWish(kind="exchange"))
    assert len(decisions.findall(only)) == 1
    assert "<p>one exchange less</p>" in only


def test_what_changes_little_is_behind_a_click() -> None:
    page = job_page(decided(record(), 1, shown=False))
    assert "1 decision more that changes little" in page
    assert page.count('class="decision"') == 1


def test_steps_are_in_the_order_asked_for() -> None:
    made = record()
    made.apply(vertex(3, [], "FINISHED", label="the long one", timestamps={"RUNNING": 11.0, "FINISHED": 19.0}))
    for sort, first in (("", "1"), ("-took", "3"), ("-step", "3"), ("took", "1"), ("nonsense", "1")):
        table = job_page(made, JobWish(sort=sort)).partition('<table class="steps">')[2]
        assert re.search(r"<tbody>\s*<tr><td class=\"number\"><a [^>]*>(\d+)<", table)[1] == first, sort  # type: ignore[index]


def test_the_query_and_sparks_pages() -> None:
    made = record()
    made.query = {"statement": "SELECT <1>", "line": "collect at job.py:3", "page": "http://spark/SQL/execution/?id=7"}
    made.application = {"id": "local-1", "page": "http://spark"}
    here, elsewhere = job_page(made, is_here=True), job_page(made)
    for page in (here, elsewhere):
        assert "SELECT &lt;1&gt;" in page
        assert "collect at job.py:3" in page
        assert '<a href="http://spark/SQL/execution/?id=7">SQL execution 7' in page
    assert '<a href="http://spark/stages/stage/?id=1&amp;attempt=0">stage 1</a>' in here
    assert "http://spark/stages" not in elsewhere, "nobody may be there any more"
    assert "local-1" in elsewhere


def test_a_job_that_runs_is_compared_in_words_only() -> None:
    last = record(job_id="ffffffffffff")
    page = pages.job(record(ended=False), 12.0, JobWish(), last=last)
    assert "It has run for 2.0 s; the last run took 10.0 s" in page
    assert "-80 %" not in page


def test_the_last_run_is_compared_with() -> None:
    last = record(job_id="ffffffffffff")
    page = job_page(record(), last=last, earlier=[Summary.of(last)])
    assert 'href="/ui/jobs/0123456789ab/compare/ffffffffffff"' in page
    assert "It took 10.0 s, the last run 10.0 s" in page


def test_skew_is_marked() -> None:
    one = record()
    one.vertices["v1"]["subpartitions"] = [10, 20, 400 << 20]
    page = pages.vertex(one, one.vertices["v1"], 20.0)
    assert page.count('class="skewed"') == 1
    assert page.count('class="run skewed"') == 1


def test_tasks_are_compared_with_those_of_their_stage() -> None:
    one = record()
    short = [one.tasks["v1"][0] | {"index": number} for number in range(5)]
    long = [one.tasks["v1"][2] | {"index": number, "stage": 2} for number in range(3)]
    one.apply({"type": "tasks", "at": 13.0, "vertex": "v1", "tasks": [*short, *long]})
    assert "run skewed" not in pages.vertex(one, one.vertices["v1"], 20.0)


@pytest.mark.parametrize(("tasks", "told"), [(3, ""), (1000, "The first 3 of 1,000 tasks are shown.")])
def test_it_is_told_how_many_tasks_are_not_shown(tasks: int, told: str) -> None:
    one = record()
    stage = {
        "id": 1,
        "attempt": 0,
        "tasks": tasks,
        "bytes_in": 0,
        "bytes_out": 0,
        "rows_in": 0,
        "rows_out": 0,
        "spilled": 0,
        "seconds": 9.0,
    }
    one.apply({"type": "tasks", "at": 13.0, "vertex": "v1", "tasks": one.tasks["v1"], "stages": [stage]})
    page = pages.vertex(one, one.vertices["v1"], 20.0)
    assert re.findall(r"The first [^<]*", page) == ([told] if told else [])


def test_what_was_repeated_is_told() -> None:
    """An earlier release's log has no attempts; see `test_skew_is_marked`."""
    one = record()
    ran = one.tasks["v1"][0]
    again = [ran | {"attempt": 0}, ran | {"attempt": 0, "state": "FAILED"}, ran | {"attempt": 1}]
    one.apply({"type": "tasks", "at": 13.0, "vertex": "v1", "tasks": again})
    page = pages.vertex(one, one.vertices["v1"], 20.0)
    assert re.findall(r'<span class="stage">(1[^<]*)</span>', page) == ["1", "1, failed", "1 again"]
    told = views.vertex_details(one, one.vertices["v1"], 20.0)["subtasks"]
    assert [(task["attempt"], task["status"]) for task in told] == [(0, "SUCCESS"), (0, "FAILED"), (1, "SUCCESS")]


def test_a_job_of_many_steps_is_drawn_elsewhere() -> None:
    made = record()
    made.apply({"type": "nodes", "at": 1.0, "nodes": [node(number, "x") for number in range(10, 720)]})
    for number in range(10, 720):
        made.apply(vertex(number, [number], "FINISHED"))
    page = job_page(made)
    assert '<img src="/jobs/0123456789ab/graph.svg?pending=false"' in page
    assert page.count('class="what"') == 600


def test_a_list_of_several_pages() -> None:
    summaries = [Summary.of(record(job_id=f"{number:012x}")) for number in range(250)]
    page = pages.jobs(summaries, Wish(sort="name", page=2), 30.0)
    assert re.findall(r'<a class="button" href="([^"]*)">(\w+)</a>', page) == [
        ("/?sort=name", "Previous"),
        ("/?sort=name&amp;page=3", "Next"),
    ]


@pytest.mark.parametrize(("unread", "said"), [(0, []), (1, ["1 event log"]), (3, ["3 event logs"])])
def test_logs_that_cannot_be_read_are_counted(unread: int, said: list[str]) -> None:
    assert re.findall(r"<p[^>]*>([^<]*) cannot be read", pages.jobs([], Wish(), 30.0, unread=unread)) == said


def test_user_text_is_no_markup() -> None:
    made = record(name=EVIL)
    made.query = {"statement": EVIL, "line": EVIL, "page": None}
    made.application = {"id": EVIL, "page": "http://spark"}
    missed = {"what": EVIL, "unit": "bytes", "foreseen": 10, "came": 1000, "missed_by": 100.0, "text": EVIL}
    for event in (
        {"type": "exception", "at": 1.0, "message": EVIL, "trace": EVIL, "vertex": None},
        {
            "type": "nodes",
            "at": 1.0,
            "nodes": [made.nodes["1"] | {"kind": "Source", "name": EVIL, "description": EVIL, "label": EVIL}],
        },
        {"type": "vertex", "at": 1.0, "id": "v1", "name": EVIL, "label": EVIL, "reason": EVIL},
        {"type": "refused", "at": 1.0, "what": EVIL, "because": EVIL, "nodes": []},
    ):
        made.apply(event)
    decided(made, 1, sentence=EVIL, option=EVIL, estimate=missed, kind=EVIL)
    made.config = {EVIL: {"value": EVIL, "origin": EVIL}}
    other = record(name=EVIL, job_id="ffffffffffff")
    summaries = [Summary.of(made)]
    shown = [
        job_page(made, JobWish(pending=True, sort=EVIL, kind=EVIL), may_cancel=True, last=other, earlier=summaries),
        pages.vertex(made, made.vertices["v1"], 1.0),
        pages.jobs(summaries, Wish(), 1.0),
        pages.jobs(summaries, Wish(text=EVIL, state=EVIL, sort=EVIL), 1.0),
        pages.compare(other, made, 1.0, summaries),
        pages.dashboard(Dashboard.of(summaries, [Digest.of(made)], 30.0)),
        pages.problem(EVIL, EVIL),
    ]
    for page in shown:
        assert "alert(1)" in page
        assert "<script>alert" not in page
