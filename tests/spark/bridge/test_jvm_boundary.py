"""While jobs run, no package but those of Spark and DuckDB holds an unwrapped JVM object."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import penstock
from penstock.connectors import FileSink
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.plans import catalyst
from tests.support.jvm_boundary import collect_jvm_variables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock import Environment


VOLUME = "execution.batch.adaptive.auto__parallelism.avg__data__volume__per__task"
SMALL = {VOLUME: "1 kb", "execution.batch.adaptive.auto__parallelism.max__parallelism": 5}
MODES = {
    "many tasks": SMALL,
    "shuffled": SMALL
    | {"table.optimizer.join.broadcast__threshold": -1, "table.optimizer.adaptive__broadcast__join.strategy": "NONE"},
    "defaults": {},
}
# Queries that take different paths through planner and execution.
QUERIES = {
    "joins": lambda t: t.facts.join(t.few, "k").join(t.names, "j", "left").groupBy("n").agg(F.sum("v")),
    "anti join": lambda t: t.facts.join(t.few, "k", "anti").selectExpr("k", "v + 1 as w"),
    "grouping sets": lambda t: t.facts.rollup("k", "j").agg(F.count("v").alias("c")).orderBy("c").limit(7),
    "equal aggregates": lambda t: (
        t.facts.groupBy("k")
        .agg((F.sum("v") / F.count("v")).alias("a"))
        .join(t.facts.groupBy("k").agg(F.sum("v").alias("s"), F.count("v").alias("c")), "k")
    ),
    "repartitions": lambda t: (
        t.facts.repartition(3, "k").repartitionByRange(2, "v").coalesce(1).sortWithinPartitions("v")
    ),
    "rebalance": lambda t: t.facts.hint("rebalance", "k").join(t.few, F.expr("few.k = facts.k and w > v % 3")),
    "hints": lambda t: penstock.with_parallelism(t.facts.where("v > 5"), 2).distinct(),
    "window": lambda t: t.facts.selectExpr("k", "row_number() over (partition by k order by v) as r").where("r < 3"),
    "run by Spark": lambda t: t.facts.withColumn("u", F.spark_partition_id()).groupBy("u").count(),
}


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("boundary")
    spark.range(0, 20_000, 1, 3).selectExpr("id % 97 k", "id % 7 j", "id v").write.parquet(str(folder / "facts"))
    spark.range(0, 97, 1, 3).selectExpr("id k", "id % 10 w").write.parquet(str(folder / "few"))
    spark.range(7).selectExpr("id j", "concat('n', id % 3) n").write.partitionBy("n").parquet(str(folder / "names"))
    read = {name: spark.read.parquet(str(folder / name)).alias(name) for name in ("facts", "few", "names")}
    return SimpleNamespace(**read | {"few": read["few"].where("w = 3")})


@pytest.mark.thorough
@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("mode", MODES)
def test_jvm_objects_stay_in_the_packages_that_call_the_jvm(
    make_env: Callable[..., Environment], tables: Any, mode: str, tmp_path: Path
) -> None:
    env = make_env(**MODES[mode])
    with collect_jvm_variables() as violations:
        for query in QUERIES.values():
            env.collect(query(tables))
        sums = tables.facts.groupBy("k").agg(F.sum("v").alias("s"))
        env.write(sums.where("s > 9"), FileSink(str(tmp_path / "a")))
        env.write(sums.select("s"), FileSink(str(tmp_path / "b")))
        env.execute()
        env.explain(QUERIES["joins"](tables))
    assert not violations


def test_the_guard_detects_a_jvm_object(spark: SparkSession) -> None:
    elsewhere = {"__name__": "penstock.planner.fictional"}
    exec("def step(plan):\n    held = [plan._handle]\n", elsewhere)
    with collect_jvm_variables() as violations:
        elsewhere["step"](catalyst.analyzed_plan(Bridge(spark), spark.range(1)))
    assert violations == {"penstock.planner.fictional, step: held"}
