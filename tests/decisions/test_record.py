"""Decisions as users see them: equal decisions at several locations are merged into one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from penstock.decisions.estimates import Estimate, EstimateRecord, Unit
from penstock.decisions.log import Choice, DecisionKind, DecisionLog, Explanation, NodeRef
from penstock.decisions.record import displayed_decisions

KIB, MIB = 1 << 10, 1 << 20


def broadcast(location: str, size: int = 99, *, saved: int | None = None) -> Explanation:
    return Explanation(
        f"{location}: dates is broadcast from the start, as it is {size} KiB",
        "a.key",
        not_shuffled=saved,
        tables=(location.partition(" ")[0], "dates"),
        location=location,
    )


def log_of(*explanations: Explanation, kind: DecisionKind = DecisionKind.BROADCAST) -> DecisionLog:
    log = DecisionLog()
    for number, explanation in enumerate(explanations):
        log.record(Choice(kind, NodeRef(number, "Join"), "right", "it is small", explanation=explanation))
    return log


SENTENCE = "dates is broadcast from the start, as it is 99 KiB"

CASES: dict[str, tuple[Sequence[Explanation], list[str]]] = {
    "single": ([broadcast("a on x")], [f"a on x: {SENTENCE}"]),
    "two": ([broadcast("a on x"), broadcast("b on y")], [f"{SENTENCE}; in 2 places: a on x; b on y"]),
    "four": ([broadcast(f"{table} on x") for table in "abcd"], [f"{SENTENCE}; in 4 places: a on x; b on x; 2 more"]),
    "many": (
        [broadcast(f"{table} on x") for table in "abcdefg"],
        [f"{SENTENCE}; in 7 places: a on x; b on x; 5 more"],
    ),
    "another figure": (
        [broadcast("a on x"), broadcast("b on y", 7)],
        [
            f"a on x: {SENTENCE}",
            "b on y: dates is broadcast from the start, as it is 7 KiB",
        ],
    ),
    "the same location twice": (
        [broadcast("a on x"), broadcast("a on x")],
        [f"a on x: {SENTENCE}"],
    ),
    "no location": (
        [Explanation("rows are sorted"), Explanation("rows are sorted"), Explanation("or not")],
        ["rows are sorted", "or not"],
    ),
    "hidden": ([broadcast("a on x"), replace(broadcast("b on y"), is_shown=False)], [broadcast("a on x").sentence]),
}


@pytest.mark.parametrize("case", CASES)
def test_equal_decisions_are_merged_into_a_sentence(case: str) -> None:
    explanations, sentences = CASES[case]
    decisions = displayed_decisions(log_of(*explanations).records)
    assert [decision.sentence for decision in decisions] == sentences


def test_decisions_with_a_fallback_are_not_merged() -> None:
    log = log_of(broadcast("a on x"), broadcast("b on y"), broadcast("c on z"))
    log.settle(1, instead="dates is shuffled")
    assert [decision.instead for decision in displayed_decisions(log.records)] == ["", "dates is shuffled"]


@pytest.mark.parametrize(
    ("outcome", "sentence"),
    [
        (
            {"pieces": 2, "bytes before": 40 * MIB, "bytes merged": 3 * MIB, "bytes": 7},
            "40.0 MiB of partial results were merged in 2 chunks, into 3.0 MiB",
        ),
        ({"pieces": 7, "bytes divided": 80 * MIB}, "80.0 MiB of rows were divided into 7 chunks"),
        ({"tasks": 7}, ""),
    ],
)
def test_a_sentence_reports_the_chunks_of_hot_keys(outcome: Any, sentence: str) -> None:
    log = log_of(broadcast("a on x"), broadcast("b on y"))
    log.settle(1, **outcome)
    texts = [decision.text for decision in displayed_decisions(log.records)]
    assert texts[-1].split(". ")[1:-1] == ([sentence] if sentence else [])
    assert len(texts) == 1 + bool(sentence)


def test_decisions_with_a_missed_estimate_are_not_merged() -> None:
    size = Estimate("bytes of dates", Unit.BYTES, 99 * KIB)
    log = log_of(*(replace(broadcast(f"{table} on x"), estimate=size) for table in "abc"))
    for number, actual in enumerate([99, 99, 5000]):
        log.compare(number, actual * KIB)
    merged, missed = displayed_decisions(log.records)
    assert (merged.sentence, merged.is_missed) == (f"{SENTENCE}; in 2 places: a on x; b on x", False)
    assert missed.is_missed


def test_merged_decisions_add_up_their_figures() -> None:
    log = log_of(broadcast("a on x", saved=3), broadcast("b on y"), broadcast("c on y", saved=4))
    (merged,) = displayed_decisions(log.records)
    assert merged.not_shuffled == 7
    assert merged.tables == ("a", "dates", "b", "c")
    assert merged.nodes == ("0", "1", "2")
    assert merged.option == "a.key"


def test_plain_decisions_about_parallelism_can_be_hidden() -> None:
    tasks = Explanation(
        "orders: 4 tasks, as it is large", estimate=Estimate("rows", Unit.ROWS, 100_000), location="orders"
    )
    log = log_of(tasks, tasks, kind=DecisionKind.SOURCE_PARALLELISM)
    assert len(displayed_decisions(log.records)) == 1
    assert displayed_decisions(log.records, with_parallelism=False) == []
    log.compare(1, 10_000_000)  # a miss is always shown
    assert [decision.is_missed for decision in displayed_decisions(log.records, with_parallelism=False)] == [True]


MISSES = [
    # estimated, actual, the error as text
    (100 * MIB, 3 * MIB, "33 times"),
    (40 * MIB, 100 * MIB, "2.5 times"),
    (20 * MIB, 0, "actual 0"),
    (0, 30 * MIB, "estimated 0"),
    (40 * MIB, 50 * MIB, ""),
    (40 * MIB, None, ""),
]


REFUSED, BROADCAST = "products is not broadcast, as it is 12.0 MiB", "products is broadcast, as it is 3.0 MiB"


@pytest.mark.parametrize(
    ("nodes", "instead", "expected"),
    [
        ((1, 1), None, [BROADCAST]),
        ((1, 2), None, [REFUSED, BROADCAST]),
        ((1, 1), "both sides are shuffled", [REFUSED, BROADCAST]),
    ],
    ids=["of the same join", "of another join", "the broadcast failed"],
)
def test_a_broadcast_supersedes_an_earlier_refusal(
    nodes: tuple[int, int], instead: str | None, expected: list[str]
) -> None:
    log = DecisionLog()
    choices = zip(nodes, ("not the right side", "right"), (REFUSED, BROADCAST), strict=True)
    for node, chosen, sentence in choices:
        subject = NodeRef(node, "Join")
        log.record(Choice(DecisionKind.BROADCAST, subject, chosen, "its size", explanation=Explanation(sentence)))
    log.settle(1, instead=instead)
    assert [decision.sentence for decision in displayed_decisions(log.records)] == expected


@pytest.mark.parametrize(
    ("kind", "chosen", "option", "figures", "instead", "expected"),
    [
        (DecisionKind.BROADCAST, "right", "a.key", {"bytes": 3}, None, True),
        (DecisionKind.BROADCAST, "right", "a.key", {"bytes": 3, "limit": 9}, None, False),
        (DecisionKind.BROADCAST, "right", None, {"bytes": 3}, None, False),  # a join hint
        (DecisionKind.BROADCAST, "right", None, {"bytes": 3}, "dates is shuffled", True),
        (DecisionKind.BROADCAST, "not the right side", "a.key", {}, None, False),
        (DecisionKind.VERTEX_PARALLELISM, 4, None, {}, None, False),
        (DecisionKind.WHOLE_QUERY, "run unchanged", None, {}, None, False),
        (DecisionKind.NATIVE, "Spark", None, {}, None, False),
        (DecisionKind.NATIVE, "DuckDB", None, {}, None, True),
        (DecisionKind.JOIN_ORDER, "dates first", None, {}, None, True),
    ],
)
def test_decisions_that_change_sparks_plan(
    kind: DecisionKind,
    chosen: int | str,
    option: str | None,
    figures: dict[str, int],
    instead: str | None,
    *,
    expected: bool,
) -> None:
    log, explanation = DecisionLog(), Explanation("a sentence", option)
    log.record(Choice(kind, NodeRef(1, "Join"), chosen, "it is so", figures, explanation))
    log.settle(0, instead=instead)
    assert [decision.changes_plan for decision in log.records] == [expected]


def recorded_estimate(estimated: float, actual: float | None) -> EstimateRecord:
    return EstimateRecord.from_dict(Estimate("bytes of dates", Unit.BYTES, estimated, actual).as_dict())


@pytest.mark.parametrize(("estimated", "actual", "text"), MISSES)
def test_a_miss_has_an_error_text(estimated: float, actual: float | None, text: str) -> None:
    estimate = recorded_estimate(estimated, actual)
    assert estimate.error_text == text
    assert text.endswith(" 0") or text in estimate.text


def test_misses_without_a_factor_are_the_worst() -> None:
    estimates = [recorded_estimate(estimated, actual) for estimated, actual, text in MISSES if text]
    worst_first = sorted(estimates, key=lambda estimate: estimate.severity, reverse=True)
    assert [estimate.error_text for estimate in worst_first] == ["estimated 0", "actual 0", "33 times", "2.5 times"]


def test_fields_of_newer_releases_are_ignored() -> None:
    record = Estimate("bytes of dates", Unit.BYTES, 7, 8).as_dict()
    assert EstimateRecord.from_dict(record | {"confidence": "high"}) == EstimateRecord.from_dict(record)
