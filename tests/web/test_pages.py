"""The contents of the pages, without a browser, and the escaping of user texts."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

import pytest

from penstock.history.summaries import Summary
from penstock.web import pages, views
from penstock.web.dashboard import Dashboard, Digest
from penstock.web.listing import JobListQuery, JobPageQuery
from tests.history.records import node, record, vertex

EVIL = "<script>alert(1)</script>'\"&"


def job_page(job: Any, query: Any = None, **options: Any) -> str:
    return pages.job(job, 20.0, query or JobPageQuery(), **options)


def test_the_button_is_there_only_while_operators_are_pending() -> None:
    half, done = record(ended=False), record()
    assert "Show pending operators" in job_page(half)
    assert "Hide pending operators" in job_page(half, JobPageQuery(pending=True))
    assert "pending operators</a>" not in job_page(done)


def test_the_number_of_pending_operators_says_on_hover_what_it_is() -> None:
    page = job_page(record(ended=False))
    assert re.findall(r'<span id="pending-operators" title="(.*?)">(.*?)</span>', page) == [("pending operators", "2")]


def test_a_job_took_no_longer_because_plain_spark_ran_too() -> None:
    job = record()
    without = job_page(job)
    (duration,) = re.findall(r"<dt>Took</dt><dd>(.*?)</dd>", without)
    seconds = {"seconds": job.seconds(0.0), "spark_seconds": 80.0}
    job.apply({"type": "compared", "at": 99.0, "output": "o", "verdict": "equal", **seconds})
    job.ended += 80.0
    page = job_page(job)
    assert f"<dt>Took</dt><dd>{duration}</dd>" in page
    assert re.findall("<rect .*?>", page) == re.findall("<rect .*?>", without)


@pytest.mark.parametrize(
    ("may_cancel", "ended", "shown"), [(True, False, True), (False, False, False), (True, True, False)]
)
def test_cancel_button(may_cancel: bool, ended: bool, shown: bool) -> None:
    page = job_page(record(ended=ended), may_cancel=may_cancel)
    assert ('id="cancel"' in page) is shown


def with_decision(job: Any, index: int, **more: Any) -> Any:
    job.apply(
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
    return job


def test_decision_is_shown_with_its_option() -> None:
    page = job_page(with_decision(record(), 1, option="an.option"))
    assert "<p>orders join customer: broadcast, as it is small</p>" in page
    assert "Change with <code>spark.penstock.an.option</code>" in page


def test_missed_estimate_has_a_badge() -> None:
    missed = {
        "what": "bytes of x",
        "unit": "bytes",
        "foreseen": 10,
        "came": 1000,
        "missed_by": 100.0,
        "text": "10 B estimated, 1000 B actual",
    }
    fine = missed | {"came": 10, "missed_by": None}
    assert job_page(with_decision(record(), 1, estimate=fine)).count("badge miss") == 0
    assert job_page(with_decision(record(), 1, estimate=missed)).count("badge miss") == 3, (
        "in two findings and at the decision"
    )


def test_explanation_of_missed_is_always_visible() -> None:
    job = record()
    for number in range(1, 6):
        missed = {"what": f"x {number}", "unit": "bytes", "foreseen": 10, "came": 1000, "missed_by": 100.0, "text": "y"}
        with_decision(job, number, estimate=missed)
    card = job_page(job).partition('id="wrong"')[2].partition("</article>")[0]
    assert "<summary>1 more</summary>" in card
    assert '</details><p class="quiet small-print">Missed: off by a factor of two or more' in card


def test_broadcast_that_was_not_carried_out_has_a_badge() -> None:
    page = job_page(
        with_decision(record(), 1, outcome={"instead": "customer is shuffled", "because": "no memory is left"})
    )
    assert re.findall(r'badge miss">([^<]*)<', page) == ["not carried out"] * 2, "in two findings and at the decision"
    assert "instead: customer is shuffled, because no memory is left" in page


def test_merged_decisions_are_counted_once() -> None:
    job = record()
    for number, location in ((1, "a on x"), (2, "b on y")):
        with_decision(job, number, place=location, sentence=f"{location}: broadcast instead of shuffle, as it is small")
    page = job_page(job)
    assert "broadcast instead of shuffle, as it is small; in 2 places: a on x; b on y" in page
    assert re.findall(r">(broadcast \d+|vertex parallelism \d+)<", page) == ["broadcast 1", "vertex parallelism 1"]


@pytest.mark.parametrize(("ended", "text"), [(True, "for it."), (False, "for it yet.")])
def test_step_without_decisions(ended: bool, text: str) -> None:
    job = record(ended=ended)
    job.decisions.clear()
    assert f"Nothing has been decided {text}" in pages.vertex(job, job.vertices["v1"], 20.0)


def test_figures_are_shown_below_their_decision() -> None:
    job = record()
    job.decisions.clear()
    with_decision(
        job,
        0,
        kind="dynamic filter",
        nodes=["1"],
        chosen="by the right side of 12 Join",
        figures={"rows": 1200, "join": 12, "side": "right"},
        outcome={"tasks": 3},
        sentence="orders keeps only rows with a key of customer",
    )
    with_decision(job, 1, nodes=["1"], chosen="no HASH(none#1) exchange", sentence="no shuffle before it")
    (details,) = re.findall(r'id="figures">(.*?)</details>', pages.vertex(job, job.vertices["v1"], 20.0), re.DOTALL)
    assert re.findall("<h3>([^<]*)</h3>", details) == ["orders keeps only rows with a key of customer"], (
        "not without figures"
    )
    assert re.findall("<dt>([^<]*)</dt><dd>([^<]*)</dd>", details) == [("rows", "1,200"), ("outcome: tasks", "3")]


def test_decisions_are_filtered_by_kind() -> None:
    job = with_decision(with_decision(record(), 1), 2, kind="exchange", sentence="an exchange is avoided")
    decisions = re.compile('class="decision"')
    assert len(decisions.findall(job_page(job))) == 3
    only = job_page(job, JobPageQuery(kind="exchange"))
    assert len(decisions.findall(only)) == 1
    assert "<p>an exchange is avoided</p>" in only


def test_hidden_decisions_are_shown_on_demand() -> None:
    page = job_page(with_decision(record(), 1, shown=False))
    assert "1 more decision with little effect" in page
    assert page.count('class="decision"') == 1


def test_order_of_steps() -> None:
    job = record()
    job.apply(vertex(3, [], "FINISHED", label="the longest", timestamps={"RUNNING": 11.0, "FINISHED": 19.0}))
    for sort, first in (("", "1"), ("-took", "3"), ("-step", "3"), ("took", "1"), ("nonsense", "1")):
        table = job_page(job, JobPageQuery(sort=sort)).partition('<table class="steps">')[2]
        assert re.search(r"<tbody>\s*<tr><td class=\"number\"><a [^>]*>(\d+)<", table)[1] == first, sort  # type: ignore[index]


def test_query_and_links_to_spark() -> None:
    job = record()
    job.query = {"statement": "SELECT <1>", "line": "collect at job.py:3", "page": "http://spark/SQL/execution/?id=7"}
    job.application = {"id": "local-1", "page": "http://spark"}
    here, elsewhere = job_page(job, is_local=True), job_page(job)
    for page in (here, elsewhere):
        assert "SELECT &lt;1&gt;" in page
        assert "collect at job.py:3" in page
        assert '<a href="http://spark/SQL/execution/?id=7">SQL execution 7' in page
    assert '<a href="http://spark/stages/stage/?id=1&amp;attempt=0">stage 1</a>' in here
    assert "http://spark/stages" not in elsewhere, "the application may have ended"
    assert "local-1" in elsewhere


def test_running_job_is_compared_without_percentages() -> None:
    last = record(job_id="ffffffffffff")
    page = pages.job(record(ended=False), 12.0, JobPageQuery(), last=last)
    assert "It has been running for 2.0 s; the last run took 10.0 s" in page
    assert "-80 %" not in page


def test_comparison_with_the_last_run() -> None:
    last = record(job_id="ffffffffffff")
    page = job_page(record(), last=last, earlier=[Summary.of(last)])
    assert 'href="/ui/jobs/0123456789ab/compare/ffffffffffff"' in page
    assert "It took 10.0 s; the last run took 10.0 s" in page


def test_skew_is_marked() -> None:
    job = record()
    job.vertices["v1"] = job.vertices["v1"].updated({"subpartitions": [10, 20, 400 << 20]})
    page = pages.vertex(job, job.vertices["v1"], 20.0)
    assert page.count('class="skewed"') == 1
    assert page.count('class="run skewed"') == 1


def test_tasks_are_compared_within_their_stage() -> None:
    job = record()
    short = [asdict(job.tasks["v1"][0]) | {"index": number} for number in range(5)]
    long = [asdict(job.tasks["v1"][2]) | {"index": number, "stage": 2} for number in range(3)]
    job.apply({"type": "tasks", "at": 13.0, "vertex": "v1", "tasks": [*short, *long]})
    assert "run skewed" not in pages.vertex(job, job.vertices["v1"], 20.0)


@pytest.mark.parametrize(("tasks", "note"), [(3, ""), (1000, "The first 3 of 1,000 tasks are shown.")])
def test_note_about_tasks_that_are_not_shown(tasks: int, note: str) -> None:
    job = record()
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
    job.apply({"type": "tasks", "at": 13.0, "vertex": "v1", "tasks": map(asdict, job.tasks["v1"]), "stages": [stage]})
    page = pages.vertex(job, job.vertices["v1"], 20.0)
    assert re.findall(r"The first [^<]*", page) == ([note] if note else [])


def test_repeated_tasks_are_marked() -> None:
    """Logs of older releases have no attempts, as in `test_skew_is_marked`."""
    job = record()
    ran = asdict(job.tasks["v1"][0])
    again = [ran | {"attempt": 0}, ran | {"attempt": 0, "state": "FAILED"}, ran | {"attempt": 1}]
    job.apply({"type": "tasks", "at": 13.0, "vertex": "v1", "tasks": again})
    page = pages.vertex(job, job.vertices["v1"], 20.0)
    assert re.findall(r'<span class="stage">(1[^<]*)</span>', page) == ["1", "1, failed", "1 again"]
    subtasks = views.vertex_details(job, job.vertices["v1"], 20.0)["subtasks"]
    assert [(task["attempt"], task["status"]) for task in subtasks] == [(0, "SUCCESS"), (0, "FAILED"), (1, "SUCCESS")]


def test_graph_of_many_steps_is_not_inlined() -> None:
    job = record()
    job.apply({"type": "nodes", "at": 1.0, "nodes": [node(number, "x") for number in range(10, 720)]})
    for number in range(10, 720):
        job.apply(vertex(number, [number], "FINISHED"))
    page = job_page(job)
    assert '<img src="/jobs/0123456789ab/graph.svg?pending=false"' in page
    assert page.count('class="what"') == 600


def test_list_with_several_pages() -> None:
    summaries = [Summary.of(record(job_id=f"{number:012x}")) for number in range(250)]
    page = pages.jobs(summaries, JobListQuery(sort="name", page=2), 30.0)
    assert re.findall(r'<a class="button" href="([^"]*)">(\w+)</a>', page) == [
        ("/?sort=name", "Previous"),
        ("/?sort=name&amp;page=3", "Next"),
    ]


@pytest.mark.parametrize(("unreadable", "counts"), [(0, []), (1, ["1 event log"]), (3, ["3 event logs"])])
def test_unreadable_logs_are_counted(unreadable: int, counts: list[str]) -> None:
    page = pages.jobs([], JobListQuery(), 30.0, unreadable=unreadable)
    assert re.findall(r"<p[^>]*>([^<]*) cannot be read", page) == counts


def test_user_texts_are_escaped() -> None:
    job = record(name=EVIL)
    job.query = {"statement": EVIL, "line": EVIL, "page": None}
    job.application = {"id": EVIL, "page": "http://spark"}
    missed = {"what": EVIL, "unit": "bytes", "foreseen": 10, "came": 1000, "missed_by": 100.0, "text": EVIL}
    for event in (
        {"type": "exception", "at": 1.0, "message": EVIL, "trace": EVIL, "vertex": None},
        {
            "type": "nodes",
            "at": 1.0,
            "nodes": [job.nodes["1"].values | {"kind": "Source", "name": EVIL, "description": EVIL, "label": EVIL}],
        },
        {"type": "vertex", "at": 1.0, "id": "v1", "name": EVIL, "label": EVIL, "reason": EVIL},
        {"type": "refused", "at": 1.0, "what": EVIL, "because": EVIL, "nodes": []},
    ):
        job.apply(event)
    with_decision(job, 1, sentence=EVIL, option=EVIL, estimate=missed, kind=EVIL)
    job.config = {EVIL: {"value": EVIL, "origin": EVIL}}
    other = record(name=EVIL, job_id="ffffffffffff")
    summaries = [Summary.of(job)]
    shown = [
        job_page(job, JobPageQuery(pending=True, sort=EVIL, kind=EVIL), may_cancel=True, last=other, earlier=summaries),
        pages.vertex(job, job.vertices["v1"], 1.0),
        pages.jobs(summaries, JobListQuery(), 1.0),
        pages.jobs(summaries, JobListQuery(text=EVIL, state=EVIL, sort=EVIL), 1.0),
        pages.compare(other, job, 1.0, summaries),
        pages.dashboard(Dashboard.of(summaries, [Digest.of(job)], 30.0)),
        pages.problem(EVIL, EVIL),
    ]
    for page in shown:
        assert "alert(1)" in page
        assert "<script>alert" not in page
