"""What the Java helpers do in one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from py4j.clientserver import JavaClient
from pyspark.sql import functions as F

from penstock.spark import catalyst, files
from penstock.spark.dataframes import hints_and_options
from penstock.spark.expressions import Expression
from penstock.spark.joins import join_facts
from penstock.spark.jvm import Bridge, items, option, with_fields
from penstock.spark.plans import RepartitionFacts, SortFacts, read_plan
from penstock.spark.settings import change_settings, read_settings

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 40])
def test_sequences(spark: SparkSession, count: int) -> None:
    assert items(Bridge(spark).seq(range(count))) == list(range(count))


@pytest.mark.parametrize(
    "text", ["x", "ab" * 1990, "ab" * 1999, "ab" * 2000, "ab" * 9000, "ä€😀" * 4000, "\x00\n\t'\\" * 50]
)
def test_long_texts_come_whole(spark: SparkSession, text: Any) -> None:
    literal = spark.range(1).select(F.lit(text).alias("t"))._jdf.queryExecution().analyzed().projectList().apply(0)
    assert Expression(Bridge(spark), literal.child()).sql == str(literal.child().sql())


def test_settings_of_a_session(spark: SparkSession) -> None:
    bridge = Bridge(spark)
    session = bridge.session.clone()
    wanted = {"spark.sql.shuffle.partitions": "7", "spark.sql.session.timeZone": "Asia/Tokyo"}
    change_settings(session, wanted)
    assert {key: session._handle.conf().get(key) for key in wanted} == wanted
    assert spark.conf.get("spark.sql.shuffle.partitions") != "7"
    found = read_settings(session, "spark.sql.s")
    assert {key: found[key] for key in wanted} == wanted
    assert found == {key: value for key, value in found.items() if key.startswith("spark.sql.s")}


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
def test_facts_are_those_that_spark_tells_one_by_one(spark: SparkSession, tmp_path: Path, name: str) -> None:
    spark.range(50).selectExpr("id", "id % 7 as x", "'text' as t").write.parquet(str(tmp_path / "t"))
    plan = catalyst.optimized_plan(Bridge(spark), PLANS[name](spark.read.parquet(str(tmp_path / "t"))))
    for node in read_plan(plan).walk():
        handle = node._handle
        assert node.name == handle.getClass().getSimpleName()
        assert len(node.children) == handle.children().size()
        assert node.ids == tuple(str(one.exprId().id()) for one in items(handle.output()))
        assert node.keys == tuple(str(one.canonicalized().toString()) for one in items(handle.output()))
        assert set(node.references) == {str(one.exprId().id()) for one in items(handle.references().toSeq())}
        assert node.is_deterministic == handle.deterministic()
        assert node.description == " ".join(handle.simpleString(25).split())
        assert node.only_not_null == (node.name == "Filter" and ">" not in handle.condition().toString())
        assert (node.files is not None) == (node.name == "LogicalRelation")
        assert (node.sort is None) == (node.name != "Sort")
        if node.sort is not None:
            order = tuple(one.toString() for one in items(handle.order()))
            assert node.sort == SortFacts(getattr(handle, "global")(), order)
        assert (node.repartition is None) == ("Repartition" not in node.name)
        if node.repartition is not None:
            by_key = node.name == "RepartitionByExpression"
            given = option(handle.optNumPartitions()) if by_key else handle.numPartitions()
            assert node.repartition == RepartitionFacts(handle.shuffle(), given)


def test_columns_go_down_through_projections(spark: SparkSession) -> None:
    df = spark.range(5).selectExpr("id as a", "id + 1 as b")
    (node,) = [one for one in read_plan(catalyst.analyzed_plan(Bridge(spark), df)).walk() if one.name == "Project"]
    renamed, computed = node.ids
    assert node.below([renamed]) == node.children[0].ids
    assert node.below([renamed, computed]) is None
    assert node.renames[node.children[0].keys[0]] == node.keys[0]


# name: what is read, and its bytes by the widths Spark assumes (8 of a bigint, 4 of an int, 20 of a string) of 40
FRACTIONS = {
    "all": (lambda df: df, 40),
    "a column": (lambda df: df.select("a"), 8),
    "rows by a column": (lambda df: df.where("a > 1"), 40),
    "a column by another": (lambda df: df.where("a > 1").select("c"), 8 + 4),
    "a computed column": (lambda df: df.selectExpr("concat(t, c) as x"), 20 + 4),
}


@pytest.mark.parametrize("name", FRACTIONS)
def test_which_part_of_a_row_is_read(spark: SparkSession, tmp_path: Path, name: str) -> None:
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
def test_metrics_that_are_observed_are_found(spark: SparkSession, query: str) -> None:
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
    turned = with_fields(bridge, join, left=right, right=left)
    assert turned.left().equals(right)
    assert turned.right().equals(left)
    assert turned.condition().equals(join.condition())
    assert join.left().equals(left)


# name: what is asked of a join of two tables, and the calls into the JVM that it costs: one for the question, two for a
# text that comes with objects, one for each object
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
def test_a_question_is_one_call(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    question, expected = CALLS[name]
    bridge = Bridge(spark)
    df = spark.range(5).join(spark.range(7).selectExpr("id as j"), F.col("id") == F.col("j"))
    plan = read_plan(catalyst.analyzed_plan(bridge, df))
    (join,) = (node for node in plan.walk() if node.name == "Join")
    assert len(list(plan.walk())) == 4
    question(bridge, plan, join)  # from now on the classes are there
    sent, send = [], JavaClient.send_command

    def counted(client: Any, command: Any, *arguments: Any, **named: Any) -> Any:
        sent.append(command)
        return send(client, command, *arguments, **named)

    monkeypatch.setattr(JavaClient, "send_command", counted)
    question(bridge, plan, join)
    assert len([command for command in sent if not command.startswith("m\n")]) == expected
