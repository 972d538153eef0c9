"""Listeners that collect lineage get the same plans, inputs and outputs from served queries as from plain Spark."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import penstock
from penstock.scheduler.job import RECENT
from tests.conftest import OFF
from tests.support.paths import TESTS
from tools.java_classes import CannotCompileError, javac, spark_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = TESTS / "integrations" / "java" / "LineageListener.java"
GROUPED = (
    "SELECT region, sum(price) AS revenue FROM lineage_orders JOIN lineage_customers USING (customer) GROUP BY region"
)
PROGRAMS: dict[str, Callable[[SparkSession, str], Any]] = {
    "write": lambda spark, path: spark.sql(GROUPED).write.mode("overwrite").parquet(path),
    "create table": lambda spark, path: (
        spark.sql(f"CREATE OR REPLACE TEMP VIEW lineage_view AS {GROUPED}").collect()
        + spark.sql(f"INSERT OVERWRITE DIRECTORY '{path}' USING parquet SELECT * FROM lineage_view").collect()
    ),
    "insert": lambda spark, path: spark.sql(f"INSERT OVERWRITE lineage_target {GROUPED}").collect(),
    "collect": lambda spark, path: spark.sql(GROUPED).collect(),
    "failure": lambda spark, path: spark.sql(f"SELECT raise_error(string(revenue)) FROM ({GROUPED})").collect(),
}


@pytest.fixture(scope="module")
def new_listener(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Any]:
    """Return a function that creates a listener, compiled from its Java source."""
    folder = tmp_path_factory.mktemp("lineage")
    try:
        command = [javac(), "--release", "17", "-proc:none", "-cp", f"{spark_jars()}/*", "-d", str(folder), str(SOURCE)]
    except CannotCompileError as error:
        assert os.environ.get("ALL_CHECKS") != "1", error
        pytest.skip(f"{error}, so no listener can be compiled")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    jvm = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    loader.addURL(jvm.java.io.File(f"{folder}/").toURI().toURL())
    return lambda: loader.loadClass("penstock.tests.LineageListener").newInstance()


@pytest.fixture(scope="module", autouse=True)
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("tables")
    orders = spark.range(0, 1000, 1, 2).selectExpr("id % 10 AS customer", "id % 7 AS price")
    customers = spark.range(10).select(F.col("id").alias("customer"), (F.col("id") % 2).alias("region"))
    for name, df in {"orders": orders, "customers": customers}.items():
        df.write.parquet(f"{folder}/{name}")
        spark.read.parquet(f"{folder}/{name}").createOrReplaceTempView(f"lineage_{name}")
    spark.sql(f"CREATE TABLE lineage_target (region BIGINT, revenue BIGINT) USING parquet LOCATION '{folder}/target'")
    yield
    spark.sql("DROP TABLE lineage_target")
    for name in ("orders", "customers", "view"):
        spark.catalog.dropTempView(f"lineage_{name}")


def events(spark: SparkSession, listener: Any, program: Callable[[], Any]) -> list[str]:
    """Run a program, and return the queries that the listener recorded, sorted, as the two buses are not ordered."""
    context, manager = spark._jsparkSession.sparkContext(), spark._jsparkSession.listenerManager()
    context.listenerBus().waitUntilEmpty()
    context.addSparkListener(listener)
    manager.register(listener)
    try:
        try:
            program()
        except Exception as error:
            assert "USER_RAISED_EXCEPTION" in str(error)
        context.listenerBus().waitUntilEmpty()
    finally:
        manager.unregister(listener)
        context.removeSparkListener(listener)
    return sorted(re.sub(r"Location: \S+|@[0-9a-f]+", "", query) for query in listener.queries())


@pytest.mark.parametrize("name", PROGRAMS)
def test_listeners_get_the_same_plans(
    spark: SparkSession, new_listener: Callable[[], Any], tmp_path: Path, name: str
) -> None:
    program = lambda: PROGRAMS[name](spark, str(tmp_path / "out"))  # noqa: E731
    plain, served = new_listener(), new_listener()
    expected = events(spark, plain, program)
    RECENT.clear()
    with penstock.enabled(spark, config=OFF):
        assert events(spark, served, program) == expected
    assert len(RECENT) == 1
    assert any("/orders" in query and "/customers" in query for query in expected), expected
    # The stages of a job run before Spark's execution of the query: a listener gets them as jobs of no query.
    assert plain.jobsWithoutQuery() == 0 < served.jobsWithoutQuery()
