"""The answer to the five most frequent questions, from steps and decisions."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.decisions.estimates import EstimateRecord
from penstock.decisions.record import DecisionRecord
from penstock.web.comparison import Comparison, Figure
from penstock.web.findings import findings
from penstock.web.steps import Timing
from tests.web.test_timing import step


def decision(kind: str, sentence: str, **more: Any) -> DecisionRecord:
    values: dict[str, Any] = {
        "id": 0,
        "kind": kind,
        "chosen": "",
        "sentence": sentence,
        "location": "",
        "option": None,
        "estimate": None,
        "not_shuffled": None,
        "tables": (),
        "is_shown": True,
        "instead": "",
        "because": "",
        "chunks": "",
        "nodes": (),
        "at": 0.0,
    }
    return DecisionRecord(**(values | more))


def estimate(what: str, foreseen: float, came: float | None, missed_by: float | None = None) -> EstimateRecord:
    return EstimateRecord(what, "bytes", foreseen, came, missed_by, f"{foreseen:g} estimated, {came} actual")


def answer(name: str, steps: Any = (), decisions: Any = (), last: Any = None, comparison: str = "") -> Any:
    total = max((step.span[1] for step in steps if step.span), default=0.0)
    answered = findings(steps, Timing.of(steps, total), decisions, last, "0a", comparison)
    (finding,) = [finding for finding in answered if finding.id == name]
    return finding


def test_longest_step_comes_first_with_a_link() -> None:
    finding = answer("longest", [step("v1", (0, 2)), step("v2", (2, 8), "v1"), step("v3", None)])
    first = finding.items[0]
    assert (first.text, first.note, first.href) == (
        "Step v2: does v2",
        "6.0 s, 75 % of the job",
        "/ui/jobs/0a/vertices/v2",
    )
    assert [item.text for item in finding.items[1:]] == ["Then step v1: does v1"]


def test_longer_step_beside_the_critical_path() -> None:
    finding = answer(
        "longest", [step("a", (0, 7)), step("b", (0, 1)), step("c", (1, 8), "b", busy=((1, 8),)), step("d", (0, 7.5))]
    )
    assert finding.items[0].text == "Step c: does c"
    assert finding.items[1].text == "Step d took longer, but in parallel to the critical path: does d"


def test_long_idle_times_are_reported() -> None:
    finding = answer("longest", [step("a", (0, 1)), step("b", (4, 5))])
    assert finding.items[1].text == (
        "No task ran for 3.0 s, 60 % of the job: Spark was planning, collecting rows or building broadcast tables"
    )
    assert len(answer("longest", [step("a", (0, 1)), step("b", (1.1, 5))]).items) == 2


def test_order_of_broadcasts() -> None:
    finding = answer(
        "broadcast",
        decisions=[
            decision("broadcast", "small"),
            decision("broadcast", "large", not_shuffled=9, option="the.option"),
            decision("broadcast", "of no use", is_shown=False),
            decision("broadcast", "other", instead="shuffled", because="it grew"),
            decision("exchange", "no broadcast"),
        ],
    )
    assert [item.text for item in finding.items] == ["other", "large", "small"]
    assert [item.note for item in finding.items] == [
        "instead: shuffled, because it grew",
        "change with spark.penstock.the.option",
        "",
    ]
    assert [item.badge for item in finding.items] == ["not carried out", "", ""]
    assert finding.question == "What was broadcast, what was not, and why?"


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        (decision("broadcast", "b is broadcast", chosen="right", nodes=("3",)), ["b is broadcast"]),
        (
            decision("broadcast", "b is too large", chosen="not the right side", nodes=("3",)),
            ["a is too large", "b is too large"],
        ),
        (decision("broadcast", "c is broadcast", chosen="right", nodes=("4",)), ["a is too large", "c is broadcast"]),
    ],
)
def test_sides_without_broadcast_are_listed_only_if_no_side_is_broadcast(
    second: DecisionRecord, expected: list[str]
) -> None:
    first = decision("broadcast", "a is too large", chosen="not the left side", nodes=("3",))
    assert [item.text for item in answer("broadcast", decisions=[first, second]).items] == expected


def test_smaller_reads_come_first() -> None:
    finding = answer(
        "read-less",
        decisions=[
            decision("source parallelism", "as expected", estimate=estimate("bytes of a", 100, 91)),
            decision("source parallelism", "a little less", estimate=estimate("bytes of b", 10, 8)),
            decision("source parallelism", "much less", estimate=estimate("bytes of c", 1000, 3)),
            decision("subpartitions", "not about reading", estimate=estimate("bytes of d", 1000, 3)),
            decision("dynamic filter", "a filter"),
        ],
    )
    texts = [item.text for item in finding.items]
    assert texts == ["bytes of c: 1000 estimated, 3 actual", "bytes of b: 10 estimated, 8 actual", "a filter"]


def test_filtered_rows_are_not_saved_reads() -> None:
    finding = answer(
        "read-less",
        [step("a", (0, 1), label="orders", source="orders", rows_in=2000, rows_out=50)],
        [decision("dynamic filter", "a filter"), decision("dynamic filter", "a filter")],
    )
    assert [item.text for item in finding.items] == [
        "All rows were read, but only the columns that the query needs; filters dropped rows directly after reading, before any join",
        "a filter",
        "The query's own filters kept 50 of 2,000 rows of orders",
    ]


def test_actual_size_of_a_broadcast() -> None:
    grown = estimate("orders in memory", 8 << 20, 11 << 20, 1.4)
    finding = answer(
        "broadcast", decisions=[decision("broadcast", "fits"), decision("broadcast", "grew", estimate=grown)]
    )
    assert [(item.text, item.badge) for item in finding.items] == [
        ("grew; its actual size in memory is 11.0 MiB", "missed"),
        ("fits", ""),
    ]


def test_selectivity_of_filters_and_shared_rows() -> None:
    reads = step("a", (0, 1), label="orders", source="orders", rows_in=200, rows_out=5)
    joins = step("b", (0, 1), label="items → join orders", source="items", rows_in=200, rows_out=5)
    finding = answer(
        "read-less",
        [reads, joins],
        [
            decision("dynamic filter", "a filter", tables=("orders", "users")),
            decision("dynamic filter", "another", tables=("items", "users")),
            decision("sharing", "rows of users are computed once: for orders and items"),
        ],
    )
    assert [item.text for item in finding.items][1:] == [
        "a filter; all filters of step a together kept 2.5% of the rows",
        "another",
        "rows of users are computed once",
    ]


def test_worst_estimate_comes_first_without_repetitions() -> None:
    wrong = estimate("bytes of a", 10, 100, 10.0)
    finding = answer(
        "wrong",
        decisions=[
            decision("broadcast", "first", estimate=wrong),
            decision("exchange", "two", estimate=wrong),
            decision("exchange", "three", estimate=estimate("bytes of b", 10, 1000, 100.0)),
            decision("exchange", "four", estimate=estimate("bytes of c", 10, 11)),
            decision("exchange", "five", estimate=estimate("bytes of d", 90, 0, 90.0)),
        ],
    )
    assert [(item.text, item.badge) for item in finding.items] == [
        ("bytes of d: 90 estimated, 0 actual", "missed"),
        ("bytes of b: 10 estimated, 1000 actual", "missed"),
        ("bytes of a: 10 estimated, 100 actual", "missed"),
    ]
    assert finding.note == (
        "Missed: off by a factor of two or more, or on the wrong side of a limit; less than 4 MiB or 1,000 rows are ignored"
    )


def test_the_last_run() -> None:
    last = Comparison((Figure("Seconds", "5.0 s", "2.0 s", "-60 %"),), (), (), (Figure("an.option", "1", "2", ""),), ())
    finding = answer("last-run", last=last, comparison="/there")
    assert [(item.text, item.note, item.href) for item in finding.items] == [
        ("It took 2.0 s; the last run took 5.0 s", "-60 %", "/there"),
        ("an.option is 2 instead of 1", "", ""),
    ]


def test_running_job_has_no_change_in_percent() -> None:
    last = Comparison((Figure("Seconds", "60.0 s", "2.0 s", ""),), (), (), (), (), is_running=True)
    (first,) = answer("last-run", last=last, comparison="/there").items
    assert (first.text, first.note) == ("It has been running for 2.0 s; the last run took 60.0 s", "")


def test_unfinished_estimates_are_not_reported() -> None:
    finding = answer("read-less", decisions=[decision("source parallelism", "a", estimate=estimate("rows", 9, None))])
    assert (finding.items, finding.empty_text) == ((), "No figures about the input were recorded.")


@pytest.mark.parametrize("name", ["longest", "broadcast", "read-less", "wrong", "last-run"])
def test_findings_without_lines(name: str) -> None:
    finding = answer(name)
    assert finding.items == ()
    assert finding.empty_text.endswith(".")
