from __future__ import annotations

from typing import Any

import pytest

from penstock.graph import FilterPath, JoinInput, JoinOperator, JoinSide, JoinType, ScanOperator, Side
from penstock.optimizer.broadcast_join import AdaptiveBroadcastJoin
from penstock.optimizer.build_side_first import BuildSideFirst, side_to_measure_first
from penstock.optimizer.strategy import PartialResult
from penstock.testing import MIB, StrategyHarness, measured


@pytest.mark.parametrize(
    ("join_type", "left", "right", "shrinking", "expected"),
    [
        ("Inner", 100, 900, "l", "left"),
        ("Inner", 900, 100, "l", None),  # the side that may be small has far larger sources
        ("Inner", 300, 100, "l", "left"),
        ("Inner", 100, 900, "lr", "left"),
        ("Inner", 900, 100, "lr", "right"),
        ("Inner", 100, 900, "", None),  # neither side may shrink
        ("Inner", 5, 10, "l", None),  # too small to be worth a delay
        ("Inner", None, 900, "l", "left"),  # an unknown size may be small
        ("Inner", 900, None, "l", None),
        ("LeftOuter", 100, 900, "l", "left"),  # the left side cannot be broadcast, but it can filter the right side
        ("LeftOuter", 100, 900, "r", None),
        ("LeftOuter", 300, 100, "r", "right"),
        ("FullOuter", 100, 900, "lr", None),
        ("LeftSemi", 500, 500, "lr", "right"),  # the right side can also be broadcast
    ],
)
def test_first_side(join_type: str, left: int | None, right: int | None, shrinking: str, expected: str | None) -> None:
    sizes = {Side.LEFT: left, Side.RIGHT: right}
    assert (
        side_to_measure_first(JoinType(join_type), sizes, [side for side in Side if side[0] in shrinking], 16)
        == expected
    )


def join(left: Any, right: Any, shrinking: str = "l", sources: Any = ((), ()), filters: Any = ()) -> Any:
    first, second = (
        JoinSide(sources=frozenset(below), source_bytes=size * MIB, may_shrink=side[0] in shrinking)
        for side, size, below in zip(Side, (left, right), sources, strict=True)
    )
    return JoinOperator(JoinType.INNER, left=first, right=second, filters=filters)


def test_the_probe_side_waits() -> None:
    job = StrategyHarness([BuildSideFirst, AdaptiveBroadcastJoin], "1 #> 3\n2 #> 3\n3 -> 4", {3: join(100, 900)})
    assert job.vertices == {"n1"}
    assert job.pending == 3
    assert job.finish(1, measured(3)) == ["n2 -> n3 -> n4"]
    assert job.edges == {"1 *> 3", "2 -> 3", "3 -> 4"}


def test_a_large_side_leads_to_a_shuffled_join() -> None:
    job = StrategyHarness([BuildSideFirst, AdaptiveBroadcastJoin], "1 #> 3\n2 #> 3\n3 -> 4", {3: join(100, 900)})
    assert job.finish(1, measured(300)) == ["n2"]
    assert job.edges == {"1 #> 3", "2 #> 3", "3 -> 4"}
    assert job.finish(2, measured(300)) == ["n3 -> n4"]


TOO_MANY_KEYS = 10_000_000
"""More rows than a dynamic filter may have keys."""


@pytest.mark.parametrize(
    ("size", "rows", "config", "released"),
    [
        (300, TOO_MANY_KEYS, {}, True),
        (3, TOO_MANY_KEYS, {}, False),  # it may be broadcast
        (300, 1000, {}, False),  # its keys may filter the other side
        (300, 1000, {"table.optimizer.dynamic-filtering.enabled": False}, True),
        (
            3,
            TOO_MANY_KEYS,
            {"table.optimizer.adaptive-broadcast-join.strategy": "NONE"},
            None,
        ),  # nothing waits from the start
    ],
)
def test_waiting_sides_are_released_if_the_awaited_side_will_be_large(
    size: int, rows: int, config: dict[str, object], released: bool | None
) -> None:
    text, facts = "1 #> 3\n2 #> 3\n3 -> 4", {3: join(100, 900)}
    job = StrategyHarness([BuildSideFirst, AdaptiveBroadcastJoin], text, facts, config=config)
    started = job.progress(1, PartialResult(5, 10, size * MIB, rows))
    assert started == (["n2"] if released else [])
    assert job.vertices == ({"n1"} if released is False else {"n1", "n2"})
    if released:
        release = job.decisions[-1]
        assert release.chosen == "not the left side"
        assert release.figures["bytes foreseen"] == 2 * size * MIB
        assert "5 of its 10 tasks" in release.reason
        assert job.progress(1, PartialResult(6, 10, size * MIB, rows)) == []
        assert len(job.decisions) == 2


def filtered_by_a_later_join(arrow: str) -> StrategyHarness:
    """Return a job in which 3 joins 1 and 2, and 5 joins 3 and 4; keys of 4 filter 1 before its exchange to 3."""
    path = FilterPath(Side.LEFT, (1, 3), JoinInput(5, Side.RIGHT), keys_from=4)
    facts = {
        1: ScanOperator(bytes=900 * MIB),
        3: join(900, 900, ""),
        5: join(1800, 20, "r", ({1, 2}, {4}), (path,)),
    }
    return StrategyHarness([BuildSideFirst], f"1 #> 3\n2 #> 3\n3 -> 5\n4 {arrow} 5", facts)


def test_a_source_is_released_if_the_keys_are_too_many() -> None:
    job = filtered_by_a_later_join("#>")
    assert job.progress(4, PartialResult(1, 10, 1, 1)) == []
    assert job.progress(4, PartialResult(5, 10, 300 * MIB, TOO_MANY_KEYS)) == ["n1"]


def test_the_waiting_table_is_named_in_the_sentence() -> None:
    """The sentence names the table of a source that waits for keys of a join it does not feed."""
    path = FilterPath(Side.LEFT, (1, 3), JoinInput(5, Side.RIGHT), keys_from=4)
    facts = {
        1: ScanOperator(bytes=900 * MIB, table="lineitem"),
        3: join(900, 900, "", ((1,), (2,)), (path,)),
        5: join(1800, 20, "r", ((6,), (4,))),
    }
    job = StrategyHarness([BuildSideFirst], "1 #> 3\n2 #> 3\n3 -> 7\n6 #> 5\n4 #> 5\n5 -> 7", facts)
    job.progress(4, PartialResult(5, 10, 300 * MIB, TOO_MANY_KEYS))
    sentences = [decision.displayed.sentence for decision in job.decisions]
    assert any("lineitem no longer waits for" in sentence for sentence in sentences)


def test_sides_that_cannot_shrink_start_at_the_same_time() -> None:
    job = StrategyHarness([BuildSideFirst], "1 #> 3\n2 #> 3\n3 -> 4", {3: join(100, 900, "")})
    assert job.vertices == {"n1", "n2"}


def test_a_star_join_collapses_into_a_single_vertex() -> None:
    text = "1 #> 12\n2 #> 12\n12 #> 13\n3 #> 13\n13 #> 14\n4 #> 14\n14 #> 15\n5 #> 15\n15 #> 16\n6 #> 16\n16 #> 99"
    facts = {n: join(900, 50, "r") for n in range(12, 17)}
    job = StrategyHarness([BuildSideFirst, AdaptiveBroadcastJoin], text, facts)
    assert job.vertices == {"n2", "n3", "n4", "n5", "n6"}
    started = [job.finish(dimension, measured(1)) for dimension in range(2, 7)]
    assert started == [[], [], [], [], ["n1 -> n12 -> n13 -> n14 -> n15 -> n16"]]


def test_a_source_waits_for_keys_of_a_later_join() -> None:
    job = filtered_by_a_later_join("*>")
    assert job.vertices == {"n2", "n4"}
    assert job.finish(4, measured(1)) == ["n1"]


@pytest.mark.parametrize(("size", "vertices"), [(15, {"n1", "n4"}), (17, {"n4"})])
def test_a_small_table_does_not_wait_for_keys(size: int, vertices: Any) -> None:
    # 1 is broadcast to 3; the keys of 4 could filter it
    path = FilterPath(Side.LEFT, (1, 3), JoinInput(5, Side.RIGHT), keys_from=4)
    facts = {1: ScanOperator(bytes=size * MIB), 3: join(900, size, ""), 5: join(900, 20, "r", filters=(path,))}
    job = StrategyHarness([BuildSideFirst], "7 -> 3\n1 *> 3\n3 -> 5\n4 *> 5", facts)
    assert job.vertices == vertices


def test_a_side_waits_for_a_source_that_will_be_filtered() -> None:
    # the keys of 4 filter 1, which makes the left side of 3 worth measuring before 2 starts
    path = FilterPath(Side.LEFT, (1, 3), JoinInput(5, Side.RIGHT), keys_from=4)
    facts = {
        1: ScanOperator(bytes=500 * MIB),
        3: join(500, 900, "", ({1}, {2})),
        5: join(1400, 20, "r", ({1, 2}, {4}), (path,)),
    }
    job = StrategyHarness([BuildSideFirst], "1 #> 3\n2 #> 3\n3 -> 5\n4 *> 5", facts)
    assert job.vertices == {"n4"}
    assert job.finish(4, measured(1)) == ["n1"]
    assert job.finish(1, measured(30)) == ["n2"]


@pytest.mark.parametrize("text", ["1 #> 3\n2 #> 3\n3 -> 4", "1 #> 3\n3 #> 2\n0 #> 2"])
def test_circular_waits_are_refused(text: str) -> None:
    job = StrategyHarness([BuildSideFirst], text, {})
    assert not job.context.defer(1, until=1)
    ends = job.graph.edges[0]
    assert not job.context.defer(ends.source_id, until=ends.target_id)
