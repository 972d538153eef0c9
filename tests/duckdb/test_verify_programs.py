"""`penstock verify` of plain PySpark programs: every query is compared."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from penstock.cli.main import main
from penstock.duckdb.worker import query
from penstock.extension import enabled
from penstock.shadow.comparison import REPORTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROGRAM = """
import sys

from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import LongType


def main(out):
    spark = SparkSession.builder.appName("nightly").getOrCreate()
    make_inputs(spark, out)
    facts = spark.read.parquet(f"{out}/facts")
    dims = spark.read.parquet(f"{out}/dims")
    joined = facts.join(dims, F.col("k") == F.col("j"))

    # Joins, an aggregate and an order.
    by_team = joined.groupBy("team").agg(F.sum("v").alias("s")).orderBy("team")
    by_team.collect()

    # A window.
    latest = Window.partitionBy("team").orderBy(F.desc("id"))
    ranked = joined.withColumn("r", F.row_number().over(latest)).where("r <= 3")
    ranked.show(3)
    ranked.count()

    # A function in Python.
    @F.udf(LongType())
    def doubled(value):
        return 2 * value

    joined.groupBy("team").agg(F.sum(doubled("k")).alias("s")).toPandas()

    # Cached rows, read twice.
    cached = joined.groupBy("team", "v").count().cache()
    cached.count()
    cached.groupBy("v").sum("count").collect()

    # Three writes, and an insert.
    by_team.write.parquet(f"{out}/by_team")
    ranked.write.option("header", True).csv(f"{out}/ranked")
    cached.groupBy("team").count().write.saveAsTable("teams_of_verify")
    by_team.selectExpr("team", "s").write.insertInto("teams_of_verify")

    # A loop over rows, and queries that Spark runs itself.
    joined.groupBy("v").count().foreach(lambda row: None)
    facts.where("v = 3").collect()
    cached.unpersist()


def make_inputs(spark, out):
    numbers = spark.range(2000)
    numbers.selectExpr("id", "id % 50 AS k", "CAST(id % 7 AS INT) AS v").write.parquet(f"{out}/facts")
    teams = spark.range(50).selectExpr("id AS j", "concat('team ', id % 5) AS team")
    teams.write.parquet(f"{out}/dims")


main(sys.argv[1])
"""
# For each query: the call, the engine, and the number of rows.
QUERIES = [
    ("collect", "native", 5),
    ("show", "Penstock", 15),
    ("count", "native", 1),
    ("toPandas", "Penstock", 5),
    ("count", "Penstock", 1),
    ("cache", "Penstock", 35),
    ("collect", "Penstock", 7),
    ("write.parquet", "native", 5),
    ("write.csv", "Penstock", 15),
    ("write.saveAsTable", "Penstock", 5),
    ("write.insertInto", "native", 5),
    ("foreach", "Penstock", 7),
]
BROKEN_ENGINE = """
from penstock.duckdb.worker import query

query_batches = query.query_batches


def without_a_row(*arguments):
    for batch in query_batches(*arguments):
        yield batch.slice(1) if batch.num_rows > 1 else batch


query.query_batches = without_a_row
"""
NONDETERMINISTIC = """
import random
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.builder.getOrCreate()
groups = spark.range(500).groupBy((F.col("id") % 7).alias("k")).count()
groups.withColumn("x", F.udf(lambda _: random.random(), "double")("k")).collect()
groups.withColumn("x", F.rand()).collect()
groups.collect()
"""
FAILING = """
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.range(500).selectExpr("id % 7 AS k", "1 DIV (id - 7) AS n").groupBy("k").sum("n").collect()
"""
BY_SPARK = """
from pyspark.sql import SparkSession

SparkSession.builder.getOrCreate().range(5).selectExpr("id + 1").collect()
"""


@pytest.fixture
def verify(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Return a function that verifies a program in this process, on the shared session."""
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(query, "query_batches", query.query_batches)
    monkeypatch.setenv("PENSTOCK_EXECUTION_SHADOW", "NO")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
    REPORTS.clear()

    def run(program: str, *options: str) -> Any:
        file = tmp_path / "job.py"
        file.write_text(program)
        return CliRunner().invoke(main, ["verify", *options, str(file), str(tmp_path)])

    with enabled(spark):  # disables Penstock again afterwards
        yield run
    REPORTS.clear()
    spark.sql("DROP TABLE IF EXISTS teams_of_verify")


def reported(done: Any) -> list[dict[str, Any]]:
    """Return the comparisons in a JSON report, each with the name of its job."""
    jobs = json.loads(done.stdout)["verify"]["jobs"]
    return [output | {"job": job["job"]} for job in jobs for output in job["outputs"]]


@pytest.mark.thorough
def test_every_query_of_an_unchanged_program_is_compared(verify: Callable[..., Any]) -> None:
    done = verify(PROGRAM, "--output-format", "json")
    assert done.exit_code == 0, done.stderr
    outputs = reported(done)
    assert [(output["job"].split()[0], output["engine"], output["rows"]["spark"]) for output in outputs] == QUERIES
    assert all(
        output["verdict"] == "equal" and output["rows"]["penstock"] == output["rows"]["spark"] for output in outputs
    )
    lines = [int(output["job"].rpartition(":")[2]) for output in outputs]
    assert lines == sorted(lines)
    assert json.loads(done.stdout)["verify"]["computed-by-spark"]["needs no shuffle"] >= 3


@pytest.mark.thorough
def test_query_with_a_lost_row_is_reported(verify: Callable[..., Any]) -> None:
    done = verify(BROKEN_ENGINE + PROGRAM)
    assert done.exit_code == 1
    lost = [line for line in done.stdout.splitlines() if ": different: " in line]
    assert lost[0].startswith("collect at ")
    assert "rows: different: 4 rows, plain Spark returns 5" in lost[0]
    assert any(line.startswith("write.parquet at job.py:") for line in lost), done.stdout + done.stderr
    assert re.search(r"more often on Spark: .*team=team \d", done.stdout), "which team is lost depends on the order"


@pytest.mark.thorough
def test_nondeterministic_queries_are_not_compared(verify: Callable[..., Any]) -> None:
    done = verify(NONDETERMINISTIC, "--output-format", "json")
    assert done.exit_code == 0, done.stderr
    random, left, groups = reported(done)
    assert left["verdict"] == "computed by Spark"
    assert random["verdict"] == "cannot be compared"
    assert "plain Spark itself returns other rows" in random["reason"]
    assert groups["verdict"] == "equal"


def test_a_query_that_fails_on_both_is_equal(verify: Callable[..., Any]) -> None:
    done = verify(FAILING, "--output-format", "json")
    assert done.exit_code == 1, "the program failed"
    (output,) = reported(done)
    assert (output["verdict"], output["reason"]) == ("equal", "both raise DIVIDE_BY_ZERO")


def test_a_program_whose_queries_spark_runs(verify: Callable[..., Any]) -> None:
    done = verify(BY_SPARK)
    assert done.exit_code == 2
    assert "nothing was compared: Spark runs all queries of the program itself" in done.stdout
    assert "needs no shuffle" in done.stdout
