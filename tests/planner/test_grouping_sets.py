"""The origins of the columns of grouping sets: the joins and sides that each column passes through."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from penstock.entry.results import ResultSink
from penstock.graph import AggregateOperator, OperatorKind
from penstock.planner.outputs import Output
from tests.planner.drafts import steps_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock import Environment


# name: query over facts f and dimensions d and e, copies of a row, the tables of the last join side of each column
CASES: dict[str, tuple[str, int | None, Any]] = {
    "a column of a dimension": ("select d.a, sum(f.v) from f join d on f.k = d.k group by rollup(d.a)", 2, [["d"]]),
    "two dimensions": (
        "select d.a, e.b, sum(f.v) from f join d on f.k = d.k join e on f.l = e.l group by cube(d.a, e.b)",
        4,
        [["d"], ["e"]],
    ),
    "a column of the facts": ("select f.k, sum(f.v) from f join d on f.k = d.k group by rollup(f.k)", 2, [["f"]]),
    "renamed on the way": (
        "select x, sum(v) from (select d.a as x, f.v from f join d on f.k = d.k) group by rollup(x)",
        2,
        [["d"]],
    ),
    "computed": ("select d.a + 1, sum(f.v) from f join d on f.k = d.k group by rollup(d.a + 1)", 2, [[]]),
    "without a join": ("select k, sum(v) from f group by rollup(k, l)", 3, [[], []]),
    "no copies": ("select k, sum(v) from f group by k", None, None),
    "an aggregate that cannot run before the copy": (
        "select k, count(distinct v) from f group by rollup(k)",
        None,
        None,
    ),
}


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("tables")
    columns = {
        "f": "id % 9 as k, id % 5 as l, cast(id as int) as v",
        "d": "id as k, id % 3 as a",
        "e": "id as l, id % 2 as b",
    }
    for name, expressions in columns.items():
        spark.range(500 if name == "f" else 9).selectExpr(*expressions.split(", ")).write.parquet(str(folder / name))
        spark.read.parquet(str(folder / name)).createOrReplaceTempView(name)
    yield
    for name in columns:
        spark.catalog.dropTempView(name)


def tables_below(graph: Any, join_id: Any, side: Any) -> Any:
    """Return the tables below a side of a join."""
    (todo,) = [[e.source_id] for e in graph.in_edges(join_id) if e.type_number == side.input_number]
    names = set()
    while todo:
        node = graph.node(todo.pop())
        todo += [edge.source_id for edge in graph.in_edges(node.id)]
        if node.kind is OperatorKind.SOURCE:
            names.add(node.name.removeprefix("Source: "))
    return sorted(names)


@pytest.mark.parametrize("name", CASES)
def test_where_columns_come_from(
    make_env: Callable[..., Environment], spark: SparkSession, tables: Any, name: str
) -> None:
    query, copies, origins = CASES[name]
    env = make_env()
    graph = steps_of(env, [Output(spark.sql(query), ResultSink("x", lambda df: df))]).graph
    grouping_sets = [node.operator.grouping_sets for node in graph if isinstance(node.operator, AggregateOperator)]
    if copies is None:
        assert set(grouping_sets) == {None}
        return
    (sets,) = grouping_sets
    assert sets.copies == copies
    assert graph.node(sets.node_id).kind is OperatorKind.CALC
    paths = [
        [tables_below(graph, join_input.join_id, join_input.side) for join_input in inputs] for inputs in sets.origins
    ]
    assert sorted(path[-1] if path else [] for path in paths) == sorted(origins)
