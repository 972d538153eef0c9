import dataclasses
import itertools

import pytest

from penstock.graph import OperatorKind
from penstock.optimizer.broadcast_join import AdaptiveBroadcastJoin
from penstock.optimizer.skewed_aggregation import AdaptiveSkewedAggregation
from penstock.optimizer.skewed_join import AdaptiveSkewedJoin
from tests.optimizer.harness import RESOURCES, Case, result

EVEN, HOT = (100, 100, 100, 100), (100, 3000, 100, 100)
STRATEGY = "table.optimizer.skewed-join-optimization.strategy"
AGGREGATE = {"kind": OperatorKind.AGGREGATE, "mergeable": True}
KEEPS_ALL = {"kind": OperatorKind.AGGREGATE, "mergeable": False, "not_mergeable_because": "it keeps every value"}


def case(join_type, text="1 #> 3\n2 #> 3\n3 #> 4", config=None, **facts):
    return Case([AdaptiveBroadcastJoin, AdaptiveSkewedJoin], text, {3: {"join_type": join_type}, **facts}, config)


@pytest.mark.parametrize(
    ("join_type", "left", "right", "cut"),
    [
        ("Inner", HOT, EVEN, {"1"}),
        ("Inner", EVEN, HOT, {"2"}),
        ("Inner", HOT, HOT, {"1", "2"}),
        ("Inner", EVEN, EVEN, set()),
        ("LeftOuter", HOT, HOT, {"1"}),
        ("LeftSemi", HOT, HOT, {"1"}),
        ("LeftAnti", HOT, HOT, {"1"}),
        ("RightOuter", HOT, HOT, {"2"}),
        ("FullOuter", HOT, HOT, set()),
        ("Inner", (100, 400, 100, 100), EVEN, set()),  # not above four times the median
        ("Inner", (100, 401, 100, 100), EVEN, {"1"}),
        ("Inner", (10, 250, 10, 10), EVEN, set()),  # below the threshold of 256 MiB
        ("Inner", HOT, (1, 1, 1, 1), set()),  # becomes a broadcast join
    ],
)
def test_sides(join_type, left, right, cut):
    job = case(join_type)
    job.finish(1, result(*left))
    job.finish(2, result(*right))
    assert {edge[0] for edge in job.edges if edge.endswith("cut")} == cut


LEFT = ["", "merge", "broadcast", "shuffle_hash", "shuffle_replicate_nl", "no_broadcast_hash", "made up"]


@pytest.mark.parametrize("strategy", ["AUTO", "FORCED"])
@pytest.mark.parametrize("join_type", ["Inner", "LeftOuter", "RightOuter", "FullOuter", "LeftSemi", "LeftAnti"])
def test_hints(join_type, strategy):
    plain = {"Inner": {"1", "2"}, "RightOuter": {"2"}, "FullOuter": set()}.get(join_type, {"1"})
    for left, right in itertools.product(LEFT, LEFT[:-2]):
        node = {"join_type": join_type, "hinted": bool(left or right), "hints": (left, right)}
        job = Case([AdaptiveSkewedJoin], "1 #> 3\n2 #> 3\n3 #> 4", {3: node}, {STRATEGY: strategy})
        job.finish(1, result(*HOT))
        job.finish(2, result(*HOT))
        cut = {edge[0] for edge in job.edges if edge.endswith("cut")}
        assert cut == (plain if {left, right} <= {"", "merge"} else set()), (left, right)


def relying(node, config=None):
    job = case("Inner", "1 #> 3\n2 #> 3\n3 -> 4\n4 ~> 5", config)
    job = Case([AdaptiveSkewedJoin], "1 #> 3\n2 #> 3\n3 -> 4\n4 ~> 5", {3: {"join_type": "Inner"}, 5: node}, config)
    job.finish(1, result(*HOT))
    job.finish(2, result(*EVEN))
    return job


def test_an_aggregate_behind_it_is_merged_after():
    assert relying(AGGREGATE).edges == {"1 #> 3 cut", "2 #> 3", "3 -> 4", "4 #> 5"}


def test_what_cannot_be_merged_forbids_it():
    job = relying(KEEPS_ALL)
    assert job.edges == {"1 #> 3", "2 #> 3", "3 -> 4", "4 ~> 5"}
    assert "it keeps every value" in str(list(job.decisions)[-1])


def test_forced():
    job = relying({"kind": OperatorKind.WINDOW}, {STRATEGY: "FORCED"})
    assert job.edges == {"1 #> 3 cut", "2 #> 3", "3 -> 4", "4 #> 5"}


def test_off():
    job = case("Inner", config={STRATEGY: "NONE"})
    job.finish(1, result(*HOT))
    job.finish(2, result(*EVEN))
    assert job.edges == {"1 #> 3", "2 #> 3", "3 #> 4"}


def test_a_hot_group_that_keeps_nobody_waiting_is_left_alone():
    cores = dataclasses.replace(RESOURCES, cores=2)
    job = Case([AdaptiveSkewedAggregation], "1 #> 2\n2 ~> 3", {2: {"kind": OperatorKind.REPARTITION}, 3: AGGREGATE}, resources=cores)
    job.finish(1, result(*HOT))
    assert job.edges == {"1 #> 2", "2 ~> 3"}
    assert "on 2 cores" in str(list(job.decisions)[-1])


@pytest.mark.parametrize(
    ("node", "sizes", "after"),
    [
        (AGGREGATE, HOT, {"1 #> 2 cut", "2 #> 3"}),
        (AGGREGATE, EVEN, {"1 #> 2", "2 ~> 3"}),
        (KEEPS_ALL, HOT, {"1 #> 2", "2 ~> 3"}),
        ({"kind": OperatorKind.WINDOW}, HOT, {"1 #> 2", "2 ~> 3"}),
    ],
)
def test_a_repartition_before_an_aggregate(node, sizes, after):
    job = Case([AdaptiveSkewedAggregation], "1 #> 2\n2 ~> 3", {2: {"kind": OperatorKind.REPARTITION}, 3: node})
    job.finish(1, result(*sizes))
    assert job.edges == after


@pytest.mark.parametrize(
    ("target", "sizes", "expected"),
    [
        (KEEPS_ALL, HOT, ["it cannot be merged: it keeps every value"]),
        ({"kind": OperatorKind.GROUPED_MAP}, HOT, ["it needs equal keys in one task"]),
        ({"kind": OperatorKind.WINDOW}, HOT, ["it needs equal keys in one task"]),
        (AGGREGATE, HOT, []),
        (KEEPS_ALL, EVEN, []),
    ],
)
def test_a_hot_key_that_cannot_be_spread_is_told(target, sizes, expected):
    job = Case([AdaptiveSkewedAggregation], "1 #> 2\n2 -> 3", {2: target})
    job.finish(1, result(*sizes))
    assert [decision.reason.split(";")[0] for decision in job.decisions] == expected
    assert all(decision.chosen == "not split" and decision.nodes == (2,) for decision in job.decisions)
    assert not {edge for edge in job.edges if edge.endswith("cut")}
