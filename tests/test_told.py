"""Decisions that are told together: what was decided alike at several places is one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from penstock.decisions import Choice, DecisionKind, DecisionLog, NodeRef, Told
from penstock.estimates import Estimate, Unit
from penstock.told import ToldEstimate, together

if TYPE_CHECKING:
    from collections.abc import Sequence

KIB, MIB = 1 << 10, 1 << 20


def broadcast(place: str, size: int = 99, *, saved: int | None = None) -> Told:
    return Told(
        f"{place}: dates is broadcast from the start, as it is {size} KiB",
        "a.key",
        not_shuffled=saved,
        tables=(place.partition(" ")[0], "dates"),
        place=place,
    )


def log_of(*made: Told, kind: DecisionKind = DecisionKind.BROADCAST) -> DecisionLog:
    log = DecisionLog()
    for number, one in enumerate(made):
        log.record(Choice(kind, NodeRef(number, "Join"), "right", "it is small", told=one))
    return log


ALIKE = "dates is broadcast from the start, as it is 99 KiB"

CASES: dict[str, tuple[Sequence[Told], list[str]]] = {
    "one": ([broadcast("a on x")], [f"a on x: {ALIKE}"]),
    "two": ([broadcast("a on x"), broadcast("b on y")], [f"{ALIKE}; in 2 places: a on x; b on y"]),
    "four": ([broadcast(f"{one} on x") for one in "abcd"], [f"{ALIKE}; in 4 places: a on x; b on x; 2 more"]),
    "many": (
        [broadcast(f"{one} on x") for one in "abcdefg"],
        [f"{ALIKE}; in 7 places: a on x; b on x; 5 more"],
    ),
    "another figure": (
        [broadcast("a on x"), broadcast("b on y", 7)],
        [
            f"a on x: {ALIKE}",
            "b on y: dates is broadcast from the start, as it is 7 KiB",
        ],
    ),
    "the same place twice": (
        [broadcast("a on x"), broadcast("a on x")],
        [f"a on x: {ALIKE}"],
    ),
    "no place": ([Told("rows are sorted"), Told("rows are sorted"), Told("or not")], ["rows are sorted", "or not"]),
    "hidden": ([broadcast("a on x"), replace(broadcast("b on y"), is_shown=False)], [broadcast("a on x").sentence]),
}


@pytest.mark.parametrize("case", CASES)
def test_sentences(case: str) -> None:
    made, sentences = CASES[case]
    assert [one.sentence for one in together(log_of(*made).told)] == sentences


def test_what_came_otherwise_is_told_apart() -> None:
    log = log_of(broadcast("a on x"), broadcast("b on y"), broadcast("c on z"))
    log.settle(1, instead="dates is shuffled")
    assert [one.instead for one in together(log.told)] == ["", "dates is shuffled"]


@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        (
            {"pieces": 2, "bytes before": 40 * MIB, "bytes merged": 3 * MIB, "bytes": 7},
            "40.0 MiB of partial results were merged in 2 pieces, into 3.0 MiB",
        ),
        ({"pieces": 7, "bytes divided": 80 * MIB}, "80.0 MiB of rows were divided into 7 pieces"),
        ({"tasks": 7}, ""),
    ],
)
def test_pieces_of_hot_keys(outcome: Any, told: str) -> None:
    log = log_of(broadcast("a on x"), broadcast("b on y"))
    log.settle(1, **outcome)
    texts = [one.text for one in together(log.told)]
    assert texts[-1].split(". ")[1:-1] == ([told] if told else [])
    assert len(texts) == 1 + bool(told)


def test_estimates_that_came_otherwise_are_told_apart() -> None:
    foreseen = Estimate("bytes of dates", Unit.BYTES, 99 * KIB)
    log = log_of(*(replace(broadcast(f"{place} on x"), estimate=foreseen) for place in "abc"))
    for number, came in enumerate([99, 99, 5000]):
        log.compare(number, came * KIB)
    one, other = together(log.told)
    assert (one.sentence, one.is_missed) == (f"{ALIKE}; in 2 places: a on x; b on x", False)
    assert other.is_missed


def test_figures_of_all_are_added_up() -> None:
    log = log_of(broadcast("a on x", saved=3), broadcast("b on y"), broadcast("c on y", saved=4))
    (one,) = together(log.told)
    assert one.not_shuffled == 7
    assert one.tables == ("a", "dates", "b", "c")
    assert one.nodes == ("0", "1", "2")
    assert one.option == "a.key"


def test_numbers_of_tasks_stand_in_tables() -> None:
    tasks = Told("orders: 4 tasks, as it is large", estimate=Estimate("rows", Unit.ROWS, 100_000), place="orders")
    log = log_of(tasks, tasks, kind=DecisionKind.SOURCE_PARALLELISM)
    assert len(together(log.told)) == 1
    assert together(log.told, of_tasks=False) == []
    log.compare(1, 10_000_000)  # a miss is told in any case
    assert [one.is_missed for one in together(log.told, of_tasks=False)] == [True]


MISSES = [
    # foreseen, came, how far it missed in words
    (100 * MIB, 3 * MIB, "33 times"),
    (40 * MIB, 100 * MIB, "2.5 times"),
    (20 * MIB, 0, "nothing came"),
    (0, 30 * MIB, "nothing foreseen"),
    (40 * MIB, 50 * MIB, ""),
    (40 * MIB, None, ""),
]


def estimate(foreseen: float, came: float | None) -> ToldEstimate:
    return ToldEstimate.of(Estimate("bytes of dates", Unit.BYTES, foreseen, came).as_dict())


@pytest.mark.parametrize(("foreseen", "came", "words"), MISSES)
def test_how_far_an_estimate_missed(foreseen: float, came: float | None, words: str) -> None:
    made = estimate(foreseen, came)
    assert made.off_by == words
    assert words.startswith("nothing") or words in made.text


def test_the_worst_misses() -> None:
    """One of which nothing came has no factor: such are as bad as what was foreseen."""
    made = [estimate(foreseen, came) for foreseen, came, words in MISSES if words]
    worst = [one.off_by for one in sorted(made, key=lambda one: one.miss, reverse=True)]
    assert worst == ["nothing foreseen", "nothing came", "33 times", "2.5 times"]


def test_a_newer_release_may_tell_more() -> None:
    known = Estimate("bytes of dates", Unit.BYTES, 7, 8).as_dict()
    assert ToldEstimate.of(known | {"told by": "a crystal ball"}) == ToldEstimate.of(known)
