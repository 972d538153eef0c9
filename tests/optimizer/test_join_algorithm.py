import pytest

from penstock.graph import OperatorKind
from penstock.optimizer.join_algorithm import HASH_SIDE, JoinAlgorithm, hash_side, largest_table
from tests.optimizer.harness import MIB, Case, result


@pytest.mark.parametrize(
    ("sizes", "memory", "all_bytes", "volume", "expected"),
    [
        ((10, 10, 10, 10), 400, 80, 20, 100),  # a task reads 10 MiB of this side, ten times that in memory
        ((10, 10, 10, 70), 400, 200, 20, 280),  # its largest subpartition is more than that
        ((0, 0), 0, 10, 16, 0),
    ],
)
def test_largest_table(sizes, memory, all_bytes, volume, expected):
    info = result(*sizes, rows=0, memory=memory * MIB)
    assert largest_table(info, all_bytes * MIB, volume * MIB) == expected * MIB


@pytest.mark.parametrize(
    ("join_type", "left", "right", "limit", "expected"),
    [
        ("Inner", (5, 5), (50, 50), 100, "left"),
        ("Inner", (50, 50), (5, 5), 100, "right"),
        ("Inner", (5, 500), (600, 600), 400, ""),
        ("Inner", (5, 500), (300, 300), 400, "right"),
        ("Inner", (5, 5), (5, 5), 100, "right"),
        ("LeftOuter", (5, 5), (50, 50), 100, "left"),
        ("LeftOuter", (50, 50), (5, 5), 100, "right"),
        ("RightOuter", (5, 5), (50, 50), 100, "left"),
        ("RightOuter", (50, 50), (5, 5), 100, "right"),
        ("FullOuter", (5, 5), (50, 50), 100, "left"),
        ("FullOuter", (50, 50), (5, 5), 100, "right"),
        ("FullOuter", (5, 5), (5, 5), 100, "right"),
        ("Cross", (5, 5), (50, 50), 100, "left"),
        ("LeftSemi", (5, 5), (50, 50), 100, "right"),
        ("LeftAnti", (5, 5), (50, 50), 100, "right"),
        ("LeftSingle", (5, 5), (50, 50), 100, "right"),
        ("ExistenceJoin(exists#1)", (5, 5), (50, 50), 100, "right"),
    ],
)
def test_hash_side(join_type, left, right, limit, expected):
    results = {"left": result(*left, rows=0), "right": result(*right, rows=0)}
    assert hash_side(join_type, results, 16 * MIB, limit * MIB)[0] == expected


def test_the_join_is_told_once_both_sides_are_measured():
    job = Case([JoinAlgorithm], "1 #> 3\n2 #> 3\n3 -> 4", {3: {"join_type": "Inner"}})
    job.finish(1, result(20, 20))
    assert HASH_SIDE not in job.manager.graph.node(3).properties
    assert job.finish(2, result(200, 200)) == ["n3 -> n4"]
    assert job.manager.graph.node(3).properties[HASH_SIDE] == "left"
    assert job.chosen("join algorithm") == ["hash join, builds left"]


def test_no_hash_tables_where_tasks_may_be_merged():
    facts = {3: {"join_type": "Inner"}, 5: {"kind": OperatorKind.OPAQUE}}
    job = Case([JoinAlgorithm], "1 #> 3\n2 #> 3\n3 -> 4\n4 -> 5", facts)
    job.finish(1, result(20, 20))
    job.finish(2, result(200, 200))
    assert HASH_SIDE not in job.manager.graph.node(3).properties
