"""Each source has a name of its own, by which people know it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from penstock.connectors.coordinator import SourceCoordinator
from penstock.graph import ScanOperator
from penstock.planner.outputs import Output
from penstock.planner.passes.source_names import source_names
from penstock.planner.planner import plan_job
from penstock.results import ResultSink
from tests.planner.drafts import draft, plan

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from penstock import Environment

CASES: dict[str, tuple[dict[int, str], dict[int, dict[int, str]], list[str]]] = {
    "tables that are read once": ({1: "a.parquet", 2: "b"}, {9: {1: "x"}}, ["a", "b"]),
    "aliases": ({1: "a", 2: "a", 3: "b"}, {9: {1: "x", 2: "y", 3: "z"}}, ["a x", "a y", "b"]),
    "no aliases": ({1: "a", 2: "a"}, {}, ["a (1)", "a (2)"]),
    "the name of the table as its alias": ({1: "s.a", 2: "s.a"}, {9: {1: "A", 2: "x"}}, ["s.a", "s.a x"]),
    "the same alias": ({1: "a", 2: "a"}, {9: {1: "x", 2: "x"}}, ["a x (1)", "a x (2)"]),
    "an alias of PySpark's": ({1: "a", 2: "a"}, {8: {1: "_pyspark_7b4be4"}, 9: {1: "x"}}, ["a x", "a"]),
    "the alias that is nearest": ({1: "a", 2: "a"}, {8: {1: "near"}, 9: {1: "far", 2: "y"}}, ["a near", "a y"]),
}


@pytest.mark.parametrize(("tables", "aliases", "names"), CASES.values(), ids=CASES.keys())
def test_names(tables: dict[int, str], aliases: dict[int, dict[int, str]], names: list[str]) -> None:
    made = draft("\n".join(f"{node_id} #> 9" for node_id in tables), sources=dict.fromkeys(tables, 1))
    sources = {
        node_id: replace(
            source, coordinator=SourceCoordinator(tables[node_id], None), leaf=plan("Range", ids=[f"c{node_id}"])
        )
        for node_id, source in made.sources.items()
    }
    node_of: dict[Any, int] = {
        replace(plan("Filter"), aliases={f"c{source}": name for source, name in known.items()}): node_id
        for node_id, known in aliases.items()
    }
    assert list(source_names(replace(made, sources=sources, node_of=node_of)).values()) == names


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("SELECT * FROM t x JOIN t y ON x.k = y.v", ["t x", "t y"]),
        ("SELECT * FROM t WHERE EXISTS (SELECT * FROM t AS inner_t WHERE inner_t.v = t.k)", ["t", "t inner_t"]),
        ("SELECT * FROM t WHERE k IN (SELECT v FROM t)", ["t (1)", "t (2)"]),
        ("WITH c AS (SELECT k, v FROM t) SELECT * FROM c JOIN u ON c.k = u.k", ["t", "u"]),
        # x and y are written alike, once
        (
            "SELECT * FROM u JOIN t x ON u.k = x.k JOIN t y ON u.v = y.k JOIN t z ON u.k = z.v",
            ["u", "t (x and y)", "t z"],
        ),
        # equal, but written in two ways: who reads which is not known here
        (
            "SELECT * FROM u FULL JOIN t x ON u.k = x.k FULL JOIN t y ON u.k = y.v FULL JOIN t z ON u.v = z.v",
            ["u", "t x", "t y"],
        ),
    ],
)
def test_names_in_queries(spark: SparkSession, env: Environment, tmp_path: Path, query: str, names: list[str]) -> None:
    for table in ("t", "u"):
        spark.range(10).selectExpr("id AS k", "id % 3 AS v").write.parquet(f"{tmp_path}/{table}")
        spark.read.parquet(f"{tmp_path}/{table}").createOrReplaceTempView(table)
    plan = plan_job(env._bridge, env.config, [Output(spark.sql(query), ResultSink("x", lambda df: df))], "x")
    scans = [node.operator for node in plan.graph if isinstance(node.operator, ScanOperator)]
    assert sorted(scan.table for scan in scans) == sorted(names)
