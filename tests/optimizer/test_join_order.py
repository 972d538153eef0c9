import itertools

import pytest

from penstock.graph import OperatorKind
from penstock.optimizer.broadcast_join import AdaptiveBroadcastJoin
from penstock.optimizer.dynamic_filtering import FilterPath
from penstock.optimizer.join_order import SEQUENCE, JoinOrder, JoinSequence, best_order
from tests.optimizer.harness import Case, result


@pytest.mark.parametrize(
    ("left", "needs", "order"),
    [
        ({1: 0.9, 2: 0.6, 3: 0.1}, {}, (3, 2, 1)),
        ({1: 0.5, 2: 0.5, 3: 0.5}, {}, (1, 2, 3)),
        ({1: 0.9, 2: 0.6, 3: 0.1}, {3: {1}}, (2, 1, 3)),
        ({1: 0.9, 2: 0.6, 3: 0.1}, {3: {2}, 2: {1}}, (1, 2, 3)),
    ],
)
def test_best_order(left, needs, order):
    assert best_order([1, 2, 3], left, {join: needs.get(join, set()) for join in left}) == order


def join(number, build, condition, join_type="Inner"):
    return {
        "join_type": join_type, "cannot_fail": True, "condition_ids": frozenset(condition), "right_output": frozenset({f"b{number}"}),
        "left_output": frozenset({"a"}), "filters": (FilterPath("left", (1,), (number, "right"), keys_from=build),),
    }  # fmt: skip


TEXT = "1 -> 13\n3 *> 13\n13 -> 20\n20 -> 14\n4 *> 14\n14 -> 15\n5 *> 15\n15 #> 99"
FACTS = {13: join(13, 3, "a"), 14: join(14, 4, "a"), 15: join(15, 5, "a"), 20: {"drops_columns": True}}


def run(text=TEXT, **changes):
    facts = FACTS | {int(node): FACTS.get(int(node), {}) | new for node, new in changes.items()}
    job = Case([JoinOrder], text, facts)
    for source, rows in ((3, 90), (4, 50), (5, 1)):
        job.finish(source, result(1, rows=rows, scanned={source: 100}))
    return job


def test_the_most_reducing_comes_first():
    job = run()
    assert job.manager.graph.node(15).properties[SEQUENCE] == JoinSequence((13, 20, 14, 15), (15, 14, 13))
    assert job.chosen("join order") == ["15 (1.0% left), 14 (50.0% left), 13 (90.0% left)"]
    assert job.edges == Case([], TEXT, FACTS).edges


@pytest.mark.parametrize(
    ("failing", "sequences"),
    [("13", {15: ((14, 15), (15, 14))}), ("14", {}), ("15", {14: ((13, 20, 14), (14, 13))})],
)
def test_what_may_fail_keeps_its_place_and_is_not_overtaken(failing, sequences):
    job = run(**{failing: {"cannot_fail": False}})
    found = {n: job.manager.graph.node(n).properties.get(SEQUENCE) for n in (13, 14, 15)}
    assert {n: one for n, one in found.items() if one} == {n: JoinSequence(*one) for n, one in sequences.items()}


@pytest.mark.parametrize("finished", list(itertools.permutations((3, 4, 5))))
def test_a_chain_that_grows_is_put_in_order_anew(finished):
    text = "0 #> 1\n1 #> 13\n3 #> 13\n13 #> 14\n4 #> 14\n14 #> 15\n5 #> 15\n15 #> 99"
    job = Case([AdaptiveBroadcastJoin, JoinOrder], text, FACTS)
    for source in finished:
        job.finish(source, result(1, rows={3: 90, 4: 50, 5: 1}[source], scanned={source: 100}))
    sequences = {n: job.manager.graph.node(n).properties.get(SEQUENCE) for n in (13, 14, 15)}
    assert sequences == {13: None, 14: None, 15: JoinSequence((13, 14, 15), (15, 14, 13))}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"15": {"condition_ids": frozenset({"a", "b13"})}}, (14, 13, 15)),  # it needs a column of 13
        ({"15": {"condition_ids": frozenset({"a", "b13"})}, "14": {"condition_ids": frozenset({"b13"})}}, (13, 15, 14)),
        ({"20": {"drops_columns": False}}, (15, 14)),  # something is computed in between
        ({"14": {"join_type": "LeftOuter"}}, None),
        ({"20": {"kind": OperatorKind.CALC, "dynamic_filters": ("one",)}}, (15, 14)),
    ],
)
def test_what_stays_in_place(changes, expected):
    sequence = run(**changes).manager.graph.node(15).properties.get(SEQUENCE)
    assert (sequence and sequence.joins) == expected
