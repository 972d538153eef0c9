import pytest

from penstock.graph import OperatorKind
from penstock.optimizer.early_aggregation import GROUPING_SETS, SUMS_FIRST, EarlyAggregation, GroupingSets, pays
from tests.optimizer.harness import MIB, Case, result


@pytest.mark.parametrize(
    ("rows", "groups", "copies", "expected"),
    [
        (1000, 10, 3, True),
        (1000, 1000, 3, False),  # a group per row: nothing is saved, and everything is hashed once more
        (1000, 560, 3, True),
        (1000, 570, 3, False),
        (1000, 780, 9, True),  # the more copies, the more is saved
        (1000, 10, 1, False),
        (0, 0, 3, True),
        (0, 5, 3, False),
    ],
)
def test_pays(rows, groups, copies, expected):
    assert pays(rows, groups, copies) is expected


# sales joined with items (3) and stores (4), multiplied by node 20 and summed up by node 30
TEXT = "1 -> 13\n3 *> 13\n13 -> 14\n4 *> 14\n14 -> 20\n20 #> 30\n30 -> 40"


def facts(*origins, copies=3, rows=1_000_000, **changes):
    return {
        1: {"kind": OperatorKind.SOURCE, "rows": rows, "bytes": 32 * MIB}, 13: {"join_type": "Inner"}, 14: {"join_type": "Inner"},
        30: {"kind": OperatorKind.AGGREGATE, GROUPING_SETS: GroupingSets(20, copies, origins)},
    } | {int(node): new for node, new in changes.items()}  # fmt: skip


ITEM, STORE = ((14, "left"), (13, "right")), ((14, "right"),)


def run(text=TEXT, items=1000, stores=10, **changes):
    origins = changes.pop("origins", (ITEM, STORE))
    job = Case([EarlyAggregation], text, facts(*origins, **changes))
    job.finish(3, result(1, rows=items))
    job.finish(4, result(1, rows=stores))
    return job


@pytest.mark.parametrize(
    ("changes", "groups"),  # two tasks read half of the rows each
    [
        ({}, 10_000),
        ({"origins": (ITEM, ITEM, ITEM)}, 1000),  # columns of one table
        ({"origins": (ITEM, STORE, ITEM)}, 10_000),
        ({"items": 40_000, "copies": 30}, 400_000),
        ({"items": 500}, 5000),
    ],
)
def test_few_groups(changes, groups):
    job = run(**changes)
    assert job.manager.graph.node(30).properties[SUMS_FIRST]
    (decision,) = [d for d in job.decisions if d.kind.value == "early aggregation"]
    assert (decision.chosen, decision.figures["groups"]) == ("before rows are multiplied", groups)


@pytest.mark.parametrize(
    "changes",
    [
        {"origins": (ITEM, ())},  # a column of the sales themselves
        {"items": -1},
        {"rows": -1},
        {"rows": 10_000},
        {"items": 50_000},
        {"copies": 1},
        {"text": TEXT.replace("20 #> 30", "20 /> 21\n21 #> 30")},  # the copies have other readers
        {"text": TEXT.replace("1 -> 13", "1 #> 13")},  # the sales are not measured yet
        {"14": {"kind": OperatorKind.AGGREGATE}},
    ],
)
def test_what_is_left_alone(changes):
    job = run(**changes)
    assert job.chosen("early aggregation") == []
    assert SUMS_FIRST not in job.manager.graph.node(30).properties


def test_rows_that_were_exchanged_are_counted():
    job = run(TEXT.replace("1 -> 13", "1 #> 13"), rows=-1)
    job.finish(1, result(32, rows=1_000_000))
    assert job.chosen("early aggregation") == ["before rows are multiplied"]
    (decision,) = [d for d in job.decisions if d.kind.value == "early aggregation"]
    assert decision.reason == "1,000,000 rows are read of 10,000 groups at most, for 3 grouping sets"
