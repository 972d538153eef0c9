"""The five questions that people ask first, answered from steps and decisions."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.told import ToldDecision, ToldEstimate
from penstock.web.comparison import Comparison, Figure
from penstock.web.findings import Links, findings
from penstock.web.timing import Timing
from tests.web.test_timing import step


def decision(kind: str, sentence: str, **more: Any) -> ToldDecision:
    values: dict[str, Any] = {
        "id": 0,
        "kind": kind,
        "chosen": "",
        "sentence": sentence,
        "place": "",
        "option": None,
        "estimate": None,
        "not_shuffled": None,
        "tables": (),
        "is_shown": True,
        "instead": "",
        "because": "",
        "pieces": "",
        "nodes": (),
        "at": 0.0,
    }
    return ToldDecision(**(values | more))


def estimate(what: str, foreseen: float, came: float | None, missed_by: float | None = None) -> ToldEstimate:
    return ToldEstimate(what, "bytes", foreseen, came, missed_by, f"{foreseen:g} foreseen, {came} came")


def answers(name: str, steps: Any = (), decisions: Any = (), last: Any = None, comparison: str | None = None) -> Any:
    total = max((one.ran[1] for one in steps if one.ran), default=0.0)
    found = findings(steps, Timing.of(steps, total), decisions, last, Links("0a", comparison))
    (one,) = [one for one in found if one.id == name]
    return one


def test_the_longest_step_comes_first_and_leads_to_its_page() -> None:
    found = answers("longest", [step("v1", (0, 2)), step("v2", (2, 8), "v1"), step("v3", None)])
    first = found.items[0]
    assert (first.text, first.note, first.href) == (
        "Step v2: does v2",
        "6.0 s, 75 % of the job",
        "/ui/jobs/0a/vertices/v2",
    )
    assert [item.text for item in found.items[1:]] == ["Then step v1: does v1"]


def test_a_longest_step_that_nobody_waited_for_is_told_as_such() -> None:
    found = answers(
        "longest", [step("a", (0, 7)), step("b", (0, 1)), step("c", (1, 8), "b", busy=((1, 8),)), step("d", (0, 7.5))]
    )
    assert found.items[0].text == "Step c: does c"
    assert found.items[1].text == ("Step d took longer, but beside others, and nothing waited for its end: does d")


def test_much_time_in_which_nothing_ran_is_told() -> None:
    found = answers("longest", [step("a", (0, 1)), step("b", (4, 5))])
    assert found.items[1].text == (
        "No task ran for 3.0 s, 60 % of the job: Spark planned, collected rows or built tables to broadcast"
    )
    assert len(answers("longest", [step("a", (0, 1)), step("b", (1.1, 5))]).items) == 2


def test_broadcasts_that_came_otherwise_come_first_then_those_that_spared_most() -> None:
    found = answers(
        "broadcast",
        decisions=[
            decision("broadcast", "small"),
            decision("broadcast", "large", not_shuffled=9, option="the.option"),
            decision("broadcast", "of no use", is_shown=False),
            decision("broadcast", "other", instead="shuffled", because="it grew"),
            decision("exchange", "no broadcast"),
        ],
    )
    assert [item.text for item in found.items] == ["other", "large", "small"]
    assert [item.note for item in found.items] == [
        "instead: shuffled, because it grew",
        "change with spark.penstock.the.option",
        "",
    ]
    assert [item.mark for item in found.items] == ["came otherwise", "", ""]
    assert found.question == "What was broadcast, what was not, and why?"


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
def test_a_side_that_was_not_broadcast_is_told_of_where_the_other_was_not_either(
    second: ToldDecision, expected: list[str]
) -> None:
    first = decision("broadcast", "a is too large", chosen="not the left side", nodes=("3",))
    assert [item.text for item in answers("broadcast", decisions=[first, second]).items] == expected


def test_what_was_read_less_comes_with_its_reason() -> None:
    found = answers(
        "read-less",
        decisions=[
            decision("source parallelism", "as expected", estimate=estimate("bytes of a", 100, 91)),
            decision("source parallelism", "a little less", estimate=estimate("bytes of b", 10, 8)),
            decision("source parallelism", "much less", estimate=estimate("bytes of c", 1000, 3)),
            decision("subpartitions", "not about reading", estimate=estimate("bytes of d", 1000, 3)),
            decision("dynamic filter", "a filter"),
        ],
    )
    texts = [item.text for item in found.items]
    assert texts == ["bytes of c: 1000 foreseen, 3 came", "bytes of b: 10 foreseen, 8 came", "a filter"]


def test_what_was_only_filtered_was_not_read_less() -> None:
    found = answers(
        "read-less",
        [step("a", (0, 1), label="orders", source="orders", rows_in=2000, rows_out=50)],
        [decision("dynamic filter", "a filter"), decision("dynamic filter", "a filter")],
    )
    assert [item.text for item in found.items] == [
        "All rows were read, of the columns that the query needs; filters dropped rows right after that, before any join",
        "a filter",
        "The query's own filters kept 50 of 2,000 rows of orders",
    ]


def test_a_broadcast_tells_what_it_came_to() -> None:
    grown = estimate("orders in memory", 8 << 20, 11 << 20, 1.4)
    found = answers(
        "broadcast", decisions=[decision("broadcast", "fits"), decision("broadcast", "grew", estimate=grown)]
    )
    assert [(item.text, item.mark) for item in found.items] == [
        ("grew; it came to 11.0 MiB in memory", "missed"),
        ("fits", ""),
    ]


def test_what_filters_of_one_step_kept_together_and_what_is_computed_once() -> None:
    reads = step("a", (0, 1), label="orders", source="orders", rows_in=200, rows_out=5)
    joins = step("b", (0, 1), label="items → join orders", source="items", rows_in=200, rows_out=5)
    found = answers(
        "read-less",
        [reads, joins],
        [
            decision("dynamic filter", "a filter", tables=("orders", "users")),
            decision("dynamic filter", "another", tables=("items", "users")),
            decision("sharing", "rows of users are computed once: for orders and items"),
        ],
    )
    assert [item.text for item in found.items][1:] == [
        "a filter; all filters of step a together kept 2.5%",
        "another",
        "rows of users are computed once",
    ]


def test_the_worst_estimate_comes_first_and_each_once() -> None:
    wrong = estimate("bytes of a", 10, 100, 10.0)
    found = answers(
        "wrong",
        decisions=[
            decision("broadcast", "one", estimate=wrong),
            decision("exchange", "two", estimate=wrong),
            decision("exchange", "three", estimate=estimate("bytes of b", 10, 1000, 100.0)),
            decision("exchange", "four", estimate=estimate("bytes of c", 10, 11)),
            decision("exchange", "five", estimate=estimate("bytes of d", 90, 0, 90.0)),
        ],
    )
    assert [(item.text, item.mark) for item in found.items] == [
        ("bytes of d: 90 foreseen, 0 came", "missed"),
        ("bytes of b: 10 foreseen, 1000 came", "missed"),
        ("bytes of a: 10 foreseen, 100 came", "missed"),
    ]
    assert found.note == (
        "Missed: off by a factor of two or more, or on the other side of a limit; below 4 MiB or 1,000 rows none counts"
    )


def test_the_last_run() -> None:
    last = Comparison((Figure("Seconds", "5.0 s", "2.0 s", "-60 %"),), (), (), (Figure("an.option", "1", "2", ""),), ())
    found = answers("last-run", last=last, comparison="/there")
    assert [(item.text, item.note, item.href) for item in found.items] == [
        ("It took 2.0 s, the last run 5.0 s", "-60 %", "/there"),
        ("an.option is 2 instead of 1", "", ""),
    ]


def test_a_run_that_goes_on_has_no_change_in_percent() -> None:
    last = Comparison((Figure("Seconds", "60.0 s", "2.0 s", ""),), (), (), (), (), is_running=True)
    (first,) = answers("last-run", last=last, comparison="/there").items
    assert (first.text, first.note) == ("It has run for 2.0 s; the last run took 60.0 s", "")


def test_where_nothing_can_be_compared_nothing_is_claimed() -> None:
    found = answers("read-less", decisions=[decision("source parallelism", "a", estimate=estimate("rows", 9, None))])
    assert (found.items, found.none) == ((), "Nothing is known of what was read.")


@pytest.mark.parametrize("name", ["longest", "broadcast", "read-less", "wrong", "last-run"])
def test_where_there_is_no_answer_this_is_said(name: str) -> None:
    found = answers(name)
    assert found.items == ()
    assert found.none.endswith(".")
