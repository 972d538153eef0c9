"""Labels of the parts of a graph."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.base.location import UserLine
from penstock.graph import (
    AggregateOperator,
    CalcOperator,
    JobVertex,
    JoinOperator,
    JoinSequence,
    JoinSide,
    JoinType,
    Operator,
    OperatorKind,
    ScanOperator,
    Side,
    SinkOperator,
    StreamEdge,
    StreamGraph,
    StreamNode,
)
from penstock.graph.labels import (
    edge_label,
    join_name,
    listed,
    node_name,
    side_name,
    started_reason,
    table_name,
    vertex_name,
)
from penstock.graph.partitioner import (
    BROADCAST,
    FORWARD,
    GLOBAL,
    RESCALE,
    AdaptiveRebalancePartitioner,
    AdaptiveRescalePartitioner,
    ForwardForConsecutiveHashPartitioner,
    HashPartitioner,
    RangePartitioner,
)

COLUMNS = {"1": "n_name", "2": "revenue"}
ORDERS = JoinSide(keys=("o_custkey",), tables=("orders", "lineitem"), key_tables=("orders",))
CUSTOMER = JoinSide(keys=("c_custkey",), tables=("customer", "nation", "region", "supplier", "part"))
JOIN = JoinOperator(JoinType.INNER, left=ORDERS, right=CUSTOMER)
BY_NAME = HashPartitioner(("none#1",))
NODES = [
    StreamNode(1, ScanOperator(table="orders"), "Source: orders.parquet"),
    StreamNode(2, CalcOperator(), "Calc"),
    StreamNode(3, ScanOperator(), "Source: range"),
    StreamNode(4, JOIN, "Join"),
    StreamNode(5, AggregateOperator(None), "Aggregate"),
    StreamNode(6, Operator(OperatorKind.SORT), "Sort"),
    StreamNode(7, SinkOperator(), "Sink: collect"),
    StreamNode(8, SinkOperator(), "Sink: out/late"),
    StreamNode(9, JOIN, "my join", location=UserLine("job.py", 3)),
    StreamNode(10, Operator(OperatorKind.JOIN), "Join"),
    StreamNode(11, Operator(OperatorKind.OPAQUE), "GlobalLimit"),
    StreamNode(12, AggregateOperator(None), "late flights"),
]
EDGES = [
    StreamEdge("a", 1, 2, FORWARD),
    StreamEdge("b", 2, 4, FORWARD),
    StreamEdge("c", 3, 4, BROADCAST, 2),
    StreamEdge("d", 4, 5, ForwardForConsecutiveHashPartitioner(BY_NAME)),
    StreamEdge("e", 5, 6, RangePartitioner(("revenue#2 DESC NULLS LAST", "n_name#1 ASC NULLS FIRST"))),
    StreamEdge("f", 6, 7, FORWARD),
    StreamEdge("g", 10, 8, FORWARD),
    StreamEdge("h", 3, 10, BROADCAST, 2),
]
GRAPH = StreamGraph(NODES, EDGES)


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (1, "orders"),
        (2, ""),
        (3, "range"),
        (4, "orders join customer with 4 more tables on o_custkey"),
        (5, "aggregate by n_name"),
        (6, "sort by revenue DESC and n_name"),
        (7, "return rows"),
        (8, "write to out/late"),
        (9, "my join"),
        (10, "join of range"),
        (11, "limit"),
        (12, "late flights"),  # the user's own name
    ],
)
def test_operators(number: int, name: str) -> None:
    assert node_name(GRAPH, GRAPH.node(number), COLUMNS) == name


def test_vertices() -> None:
    vertex = JobVertex("v1", "…", (1, 2, 4, 5), (), None, None)
    assert vertex_name(GRAPH, vertex, COLUMNS) == (
        "orders → join customer with 4 more tables on o_custkey → aggregate by n_name"
    )
    assert vertex_name(GRAPH, JobVertex("v2", "Calc", (2,), (), None, None), COLUMNS) == "choose columns"


def test_labels_list_joins_in_execution_order() -> None:
    def joined(number: int, table: str, sequence: JoinSequence | None = None) -> StreamNode:
        side = JoinSide(keys=(f"{table}_id",), tables=(table,), key_tables=(table,))
        left = JoinSide(keys=(f"{table}_key",), tables=("sales",), key_tables=("sales",))
        join = JoinOperator(JoinType.INNER, left=left, right=side)
        return StreamNode(number, join.with_strategy(replace(join.strategy, sequence=sequence)), "Join")

    sales = StreamNode(1, ScanOperator(table="sales"), "Source: sales")
    edges = [StreamEdge("1-2", 1, 2, FORWARD), StreamEdge("2-3", 2, 3, FORWARD)]
    vertex = JobVertex("v1", "…", (1, 2, 3), (), None, None)
    for sequence, name in (
        (None, "sales → join items on items_key → join days on days_key"),
        (JoinSequence((2, 3), (3, 2)), "sales → join days on days_key → join items on items_key"),
    ):
        graph = StreamGraph([sales, joined(2, "items"), joined(3, "days", sequence)], edges)
        assert vertex_name(graph, vertex, {}) == name


@pytest.mark.parametrize(
    ("join", "first", "name"),
    [
        (JOIN, Side.RIGHT, "customer with 4 more tables join orders on c_custkey"),
        (replace(JOIN, right=JoinSide()), Side.LEFT, "orders join the right side on o_custkey"),
        (JoinOperator(JoinType.INNER), Side.LEFT, "join"),
        (replace(JOIN, left=CUSTOMER), Side.LEFT, "customer with 4 more tables join others like them on c_custkey"),
        (replace(JOIN, right=ORDERS), Side.LEFT, "orders join orders on o_custkey"),
    ],
)
def test_joins(join: JoinOperator, first: Side, name: str) -> None:
    assert join_name(join, first) == name


def test_the_label_of_a_side_names_all_its_tables() -> None:
    assert side_name(JOIN, Side.LEFT) == "orders with lineitem"
    grouped = replace(JOIN, left=replace(JOIN.left, is_aggregated=True))
    assert side_name(grouped, Side.LEFT) == "groups of orders with lineitem"


@pytest.mark.parametrize(
    ("partitioner", "label"),
    [
        (FORWARD, ""),
        (BY_NAME, "shuffled by n_name"),
        (ForwardForConsecutiveHashPartitioner(BY_NAME), ""),
        (RangePartitioner(("revenue#2 ASC NULLS FIRST",)), "sorted into ranges by revenue"),
        (BROADCAST, "broadcast"),
        (GLOBAL, "to one task"),
        (RESCALE, "in even parts"),
        (AdaptiveRebalancePartitioner(4), "to the least loaded task"),
        (AdaptiveRescalePartitioner(4), "to the least loaded task"),
        (HashPartitioner(("_groupingexpression#9", "none#7")), "shuffled by an expression and an expression"),
    ],
)
def test_edges(partitioner: Any, label: str) -> None:
    assert edge_label(partitioner, COLUMNS) == label


@pytest.mark.parametrize(
    ("number", "subject"),
    [(4, "the join has"), (1, "the reading of the table has"), (8, "the write has"), (2, "the step has")],
)
def test_started_already(number: int, subject: str) -> None:
    assert started_reason(GRAPH.node(number)) == f"{subject} started already"


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("lineitem.parquet", "lineitem"),
        ("flights.csv.gz", "flights"),
        ("spark_catalog.sales.orders", "sales.orders"),
        ("v1.2/data", "v1.2/data"),
        ("(select *\n  from orders where a_long_condition = 'holds') q", "(select * from orders where a_long_cond…"),
    ],
)
def test_tables(source: str, name: str) -> None:
    assert table_name(source) == name


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["a"], "a"),
        (["a", "b"], "a and b"),
        (["a", "b", "c"], "a, b and c"),
        (["a", "b", "c", "d"], "a, b and 2 more columns"),
    ],
)
def test_lists(names: list[str], text: str) -> None:
    assert listed(names, "columns") == text
