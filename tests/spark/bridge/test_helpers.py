"""The Java helpers, which need a single call each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.clientserver import JavaClient
from pyspark.sql import functions as F

from penstock.spark.bridge.jvm import Bridge, items, option, with_fields
from penstock.spark.bridge.settings import change_settings, read_settings
from penstock.spark.io import files
from penstock.spark.plans import catalyst
from penstock.spark.plans.dataframes import hints_and_options
from penstock.spark.plans.expressions import Expression
from penstock.spark.plans.joins import join_facts
from penstock.spark.plans.nodes import RepartitionFacts, SortFacts, read_plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 40])
def test_sequences(spark: SparkSession, count: int) -> None:
    assert items(Bridge(spark).seq(range(count))) == list(range(count))


@pytest.mark.parametrize(
    "text", ["x", "ab" * 1990, "ab" * 1999, "ab" * 2000, "ab" * 9000, "ä€😀" * 4000, "\x00\n\t'\\" * 50]
)
def test_long_texts_are_complete(spark: SparkSession, text: Any) -> None:
    literal = spark.range(1).select(F.lit(text).alias("t"))._jdf.queryExecution().analyzed().projectList().apply(0)
    assert Expression(Bridge(spark), literal.child()).sql == str(literal.child().sql())


def test_settings_of_a_session(spark: SparkSession) -> None:
    bridge = Bridge(spark)
    session = bridge.session.clone()
    changes = {"spark.sql.shuffle.partitions": "7", "spark.sql.session.timeZone": "Asia/Tokyo"}
    change_settings(session, changes)
    assert {key: session._handle.conf().get(key) for key in changes} == changes
    assert spark.conf.get("spark.sql.shuffle.partitions") != "7"
    settings = read_settings(session, "spark.sql.s")
    assert {key: settings[key] for key in changes} == changes
    assert settings == {key: value for key, value in settings.items() if key.startswith("spark.sql.s")}


PLANS = {
    "projection": lambda df: df.selectExpr("id as a", "id + 1 as b", "x"),
    "aggregate": lambda df: df.groupBy("x").agg(F.sum("id").alias("s")),
    "filter": lambda df: df.where("x is not null and id is not null"),
    "filter that chooses": lambda df: df.where("x > 3"),
    "join": lambda df: df.alias("l").join(df.selectExpr("id as j", "x as y"), F.col("l.x") == F.col("y")),
    "union": lambda df: df.union(df),
    "sort": lambda df: df.orderBy("x", F.desc("id")),
    "sort within tasks": lambda df: df.sortWithinPartitions("x"),
    "coalesce": lambda df: df.coalesce(3),
    "repartition": lambda df: df.repartition(3),
    "repartition by a key": lambda df: df.repartition("x"),
    "repartition by ranges": lambda df: df.repartitionByRange(5, "x"),
    "nothing": lambda df: df,
}


@pytest.mark.parametrize("name", PLANS)
def test_facts_are_those_of_spark(spark: SparkSession, tmp_path: Path, name: str) -> None:
    spark.range(50).selectExpr("id", "id % 7 as x", "'text' as t").write.parquet(str(tmp_path / "t"))
    plan = catalyst.optimized_plan(Bridge(spark), PLANS[name](spark.read.parquet(str(tmp_path / "t"))))
    for node in read_plan(plan).walk():
        handle = node._handle
        assert node.name == handle.getClass().getSimpleName()
        assert len(node.children) == handle.children().size()
        assert node.ids == tuple(str(column.exprId().id()) for column in items(handle.output()))
        assert node.keys == tuple(str(column.canonicalized().toString()) for column in items(handle.output()))
        assert set(node.references) == {str(column.exprId().id()) for column in items(handle.references().toSeq())}
        assert node.is_deterministic == handle.deterministic()
        assert node.description == " ".join(handle.simpleString(25).split())
        assert node.filters_only_nulls == (node.name == "Filter" and ">" not in handle.condition().toString())
        assert (node.files is not None) == (node.name == "LogicalRelation")
        assert (node.sort is None) == (node.name != "Sort")
        if node.sort is not None:
            order = tuple(key.toString() for key in items(handle.order()))
            assert node.sort == SortFacts(getattr(handle, "global")(), order)
        assert (node.repartition is None) == ("Repartition" not in node.name)
        if node.repartition is not None:
            by_key = node.name == "RepartitionByExpression"
            partitions = option(handle.optNumPartitions()) if by_key else handle.numPartitions()
            assert node.repartition == RepartitionFacts(handle.shuffle(), partitions)


def test_columns_are_mapped_through_projections(spark: SparkSession) -> None:
    df = spark.range(5).selectExpr("id as a", "id + 1 as b")
    (node,) = [node for node in read_plan(catalyst.analyzed_plan(Bridge(spark), df)).walk() if node.name == "Project"]
    renamed, computed = node.ids
    assert node.input_columns([renamed]) == node.children[0].ids
    assert node.input_columns([renamed, computed]) is None
    assert node.renamed_keys[node.children[0].keys[0]] == node.keys[0]


# name: the columns that are read, and their bytes of 40 by Spark's default sizes (bigint 8, int 4, string 20)
FRACTIONS = {
    "all": (lambda df: df, 40),
    "a column": (lambda df: df.select("a"), 8),
    "rows by a column": (lambda df: df.where("a > 1"), 40),
    "a column by another": (lambda df: df.where("a > 1").select("c"), 8 + 4),
    "a computed column": (lambda df: df.selectExpr("concat(t, c) as x"), 20 + 4),
}


@pytest.mark.parametrize("name", FRACTIONS)
def test_fraction_of_a_row_that_is_read(spark: SparkSession, tmp_path: Path, name: str) -> None:
    change, expected = FRACTIONS[name]
    path = str(tmp_path / "t")
    spark.range(9).selectExpr("id as a", "id as b", "cast(id as int) as c", "'x' as t").coalesce(1).write.parquet(path)
    bridge = Bridge(spark)
    plan = read_plan(catalyst.optimized_plan(bridge, change(spark.read.parquet(path))))
    (leaf,) = plan.leaves()
    listing = files.list_files(leaf, plan)
    assert listing.fraction == pytest.approx(expected / 40)
    assert all(listing.splittable)
    assert listing.format == "parquet"
    assert listing.name == "t"
    assert listing.rows() == 9


@pytest.mark.parametrize("query", ["select * from {t}", "select * from range(3) where id in (select max(id) from {t})"])
def test_observed_metrics_are_detected(spark: SparkSession, query: str) -> None:
    bridge = Bridge(spark)
    df = spark.range(5)
    for rows, expected in ((df, False), (df.observe("seen", F.count(F.lit(1)).alias("n")), True)):
        plan = catalyst.optimized_plan(bridge, spark.sql(query, t=rows))
        assert catalyst.observes_metrics(plan) is expected


def test_copies_of_case_classes(spark: SparkSession) -> None:
    bridge = Bridge(spark)
    df = spark.range(5).alias("l").join(spark.range(7).alias("r"), F.col("l.id") == F.col("r.id"))
    join = df._jdf.queryExecution().analyzed()
    left, right = join.left(), join.right()
    swapped = with_fields(bridge, join, left=right, right=left)
    assert swapped.left().equals(right)
    assert swapped.right().equals(left)
    assert swapped.condition().equals(join.condition())
    assert join.left().equals(left)


# name: a query about a join of two tables, and its calls into the JVM: 1 for the query, 2 for a text with objects, and 1
# for each object
CALLS = {
    "settings": (lambda bridge, plan, join: read_settings(bridge.session, "spark.sql.s"), 1),
    "metrics": (lambda bridge, plan, join: catalyst.observes_metrics(plan), 1),
    "listings": (lambda bridge, plan, join: catalyst.mixes_listings(plan), 1),
    "marks": (lambda bridge, plan, join: hints_and_options(plan), 1),
    "plan": (lambda bridge, plan, join: read_plan(plan), 1 + 2 + 4),
    "join": (lambda bridge, plan, join: join_facts(join), 1 + 2 + 2),
    "sequence": (lambda bridge, plan, join: bridge.seq([1, 2, 3, 4]), 1),
}


@pytest.mark.parametrize("name", CALLS)
def test_number_of_calls_into_the_jvm(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    call, expected = CALLS[name]
    bridge = Bridge(spark)
    df = spark.range(5).join(spark.range(7).selectExpr("id as j"), F.col("id") == F.col("j"))
    plan = read_plan(catalyst.analyzed_plan(bridge, df))
    (join,) = (node for node in plan.walk() if node.name == "Join")
    assert len(list(plan.walk())) == 4
    call(bridge, plan, join)  # loads the classes
    sent, send = [], JavaClient.send_command

    def counted(client: Any, command: Any, *arguments: Any, **keywords: Any) -> Any:
        sent.append(command)
        return send(client, command, *arguments, **keywords)

    monkeypatch.setattr(JavaClient, "send_command", counted)
    call(bridge, plan, join)
    assert len([command for command in sent if not command.startswith("m\n")]) == expected
