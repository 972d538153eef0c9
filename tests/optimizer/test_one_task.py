"""Exchanges behind what one task reads are dropped: graphs before, what finished, graphs after."""

import pytest

from penstock.graph import OperatorKind
from penstock.optimizer.one_task import OneTask
from tests.optimizer.harness import Case, result

AGGREGATE, SORT, WINDOW = ({"kind": kind} for kind in (OperatorKind.AGGREGATE, OperatorKind.SORT, OperatorKind.WINDOW))
SOURCE, CALC = {"kind": OperatorKind.SOURCE}, {"cheap": True}


def case(text, facts, **config):
    options = {key.replace("__", "."): value for key, value in config.items()}
    return Case([OneTask], text, {1: SOURCE, **facts}, options)


@pytest.mark.parametrize(
    ("text", "facts", "size", "expected"),
    [
        ("1 #> 2\n2 #> 3\n3 -> 4", {2: AGGREGATE, 3: SORT}, 16, {"1 #> 2", "2 -> 3", "3 -> 4"}),
        ("1 #> 2\n2 #> 3\n3 -> 4", {2: AGGREGATE, 3: SORT}, 17, {"1 #> 2", "2 #> 3", "3 -> 4"}),
        ("1 #> 2\n2 -> 3\n3 #> 4\n4 #> 5", {2: AGGREGATE, 3: CALC, 4: WINDOW, 5: SORT}, 1, {"1 #> 2", "2 -> 3", "3 -> 4", "4 -> 5"}),
        # a join may give more rows than it gets, and so may a narrow operator that is more than columns and filters
        ("1 #> 2\n2 #> 3\n9 #> 3\n3 #> 4", {2: AGGREGATE, 3: {"join_type": "Inner"}, 4: SORT}, 1, {"1 #> 2", "2 #> 3", "9 #> 3", "3 #> 4"}),
        ("1 #> 2\n2 -> 3\n3 #> 4", {2: AGGREGATE, 3: {}, 4: SORT}, 1, {"1 #> 2", "2 -> 3", "3 #> 4"}),
        # a join chained to what the exchange leaves meets its other side by it
        ("1 #> 2\n2 #> 3\n3 ~> 4\n9 #> 4", {2: AGGREGATE, 3: AGGREGATE, 4: {"join_type": "Inner"}}, 1,
         {"1 #> 2", "2 #> 3", "3 ~> 4", "9 #> 4"}),
        ("1 #> 2\n2 #> 3\n3 ~> 4", {2: AGGREGATE, 3: AGGREGATE, 4: WINDOW}, 1, {"1 #> 2", "2 -> 3", "3 ~> 4"}),
        # what several read, what the user gave a number, and what he asked to be dealt out
        ("1 #> 2\n2 #> 3\n2 #> 4", {2: AGGREGATE, 3: SORT, 4: SORT}, 1, {"1 #> 2", "2 #> 3", "2 #> 4"}),
        ("1 #> 2\n2 #> 3", {2: AGGREGATE, 3: {**SORT, "parallelism": 3}}, 1, {"1 #> 2", "2 #> 3"}),
        ("1 #> 2\n2 => 3", {2: AGGREGATE, 3: SORT}, 1, {"1 #> 2", "2 => 3"}),
    ],
)  # fmt: skip
def test_graphs(text, facts, size, expected):
    job = case(text, facts)
    job.finish(1, result(size))
    assert job.edges == expected


def test_it_is_recorded_once():
    job = case("1 #> 2\n2 #> 3", {2: AGGREGATE, 3: SORT})
    job.finish(1, result(1))
    assert job.chosen("exchange") == ["no HASH(k)"]


@pytest.mark.parametrize(
    "config",
    [
        {"execution.batch.adaptive.auto-parallelism.enabled": False},
        {"execution.batch.adaptive.auto-parallelism.min-parallelism": 2},
    ],
)
def test_not_where_one_task_is_not_what_is_wanted(config):
    job = Case([OneTask], "1 #> 2\n2 #> 3", {1: SOURCE, 2: AGGREGATE, 3: SORT}, config)
    job.finish(1, result(1))
    assert job.edges == {"1 #> 2", "2 #> 3"}
