"""The record of failed native queries, and the supported releases of DuckDB."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from penstock import Environment
from penstock.duckdb import failures as native_failures
from penstock.duckdb.worker import engine
from penstock.errors import JobError
from tests.support.native import compute_all_natively
from tests.support.paths import TESTS
from tests.support.stages import SINGLE_DUCKDB_TASK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JOB = TESTS / "jobs" / "native_failures.py"
INFINITE = 2147483647
SINGLE_TASK = {"execution.batch.adaptive.whole-query-threshold": 1}
MANY_TASKS = {"execution.batch.adaptive.whole-query-threshold": 0, "execution.native": True}


@pytest.fixture
def all_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB computes every supported part, however small."""
    compute_all_natively(monkeypatch)


def write_days(folder: Path, largest: int) -> None:
    keys, days = pa.array([1, 1, 2], pa.int32()), pa.array([largest, 0, 1], pa.int32()).cast(pa.date32())
    pq.write_table(pa.table({"k": keys, "d": days}), folder / "a.parquet")


def years(spark: SparkSession, folder: Path) -> DataFrame:
    """Return a query that fails in DuckDB for an infinite day."""
    return spark.read.parquet(str(folder)).selectExpr("k", "year(d) y").groupBy("k").sum("y")


def choice(env: Environment) -> tuple[str, str, str]:
    """Return the choice, the reason and the fallback of the last job's native decision."""
    assert env.last_job is not None
    decision = next(decision for decision in env.last_job.decisions if decision.kind == "native")
    return str(decision.chosen), decision.reason, str(decision.outcome.get("instead", ""))


def test_a_failed_query_is_not_tried_again(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_days(tmp_path, INFINITE)
    env, rows = Environment(spark, config=SINGLE_TASK, progress=False), []
    choices, steps = [], []
    for _ in range(2):
        rows.append(sorted(map(tuple, env.collect(years(spark, tmp_path)))))
        choices.append(choice(env))
        assert env.last_job is not None
        steps.append(env.last_job.vertices[0].reason)
    assert rows == [[(1, 5881580 + 1970), (2, 1970)]] * 2
    assert choices[0][0] == SINGLE_DUCKDB_TASK
    assert choices[0][2] == "Spark computes it"
    assert steps[0].startswith("Spark computes the query: ")
    assert choices[1][0] == "not in one task of DuckDB"
    assert "DuckDB failed on it before" in choices[1][1]
    assert caplog.text.count("DuckDB failed, so Spark computes the rows") == 1


@pytest.mark.thorough
def test_a_task_that_fails_for_its_values_is_not_repeated(tmp_path: Path) -> None:
    """Spark repeats failed tasks; the driver learns of the failure later, so that the task may have started again."""
    done = subprocess.run(
        [sys.executable, str(JOB), str(tmp_path)], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    reason = "Invalid Input Error: a date that DuckDB reads as infinite"
    ran = json.loads(done.stdout.splitlines()[-1])
    for name, chosen in (("part", "Spark"), ("query", SINGLE_DUCKDB_TASK)):
        assert ran[name]["rows"] == [[1, 5881580 + 1970], [2, 1970]]
        assert ran[name]["failed"] in ([1], [2])
        assert ran[name]["chosen"] == chosen
    assert ran["elsewhere"] == [4], "tasks whose rows have no fallback are repeated"
    assert ran["part"]["reason"] == ran["query"]["outcome"]["because"] == reason


def test_changed_files_are_tried_again(spark: SparkSession, tmp_path: Path) -> None:
    env, choices = Environment(spark, config=SINGLE_TASK, progress=False), []
    for day in (INFINITE, 7, INFINITE):
        write_days(tmp_path, day)
        expected = sorted(map(tuple, years(spark, tmp_path).collect()))
        assert sorted(map(tuple, env.collect(years(spark, tmp_path)))) == expected
        choices.append(choice(env))
    assert [chosen for chosen, _, _ in choices] == [SINGLE_DUCKDB_TASK] * 3
    assert [instead for _, _, instead in choices] == ["Spark computes it", "", "Spark computes it"]


@pytest.mark.usefixtures("all_parts")
def test_a_failing_user_function_is_no_failure_of_duckdb(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": pa.array(range(1000), pa.int32()), "v": range(1000)}), tmp_path / "a.parquet")

    def same(value):  # type: ignore[no-untyped-def]
        return value

    def fails(value):  # type: ignore[no-untyped-def]
        raise ValueError("of the user")

    env, chosen = Environment(spark, config=MANY_TASKS, progress=False), []
    for function in (fails, same):
        rows = spark.read.parquet(str(tmp_path)).where("v > 5 and v % 3 = 1")
        df = rows.withColumn("u", F.udf(function, "long")("v")).groupBy("u").count()
        with nullcontext() if function is same else pytest.raises(JobError, match="of the user"):
            env.collect(df)
        chosen.append(choice(env)[0])
    assert chosen == ["Spark", "DuckDB"]


def test_a_file_that_changed_while_it_was_read_is_tried_again(spark: SparkSession, tmp_path: Path) -> None:
    """Such a failure does not predict the next query."""
    write_days(tmp_path, INFINITE)
    plan = years(spark, tmp_path)
    from penstock.spark.bridge.jvm import Bridge
    from penstock.spark.plans.catalyst import analyzed_plan

    bridge = Bridge(spark)
    handle = analyzed_plan(bridge, plan)._handle
    native_failures.record_failure(bridge, handle, "a.parquet has changed since the query was planned")
    assert native_failures.previous_failure_reason(bridge, handle) is None
    native_failures.record_failure(bridge, handle, "a sum that may not fit")
    assert (
        native_failures.previous_failure_reason(bridge, handle) == "DuckDB failed on it before (a sum that may not fit)"
    )


@pytest.mark.parametrize(
    ("version", "is_supported"),
    [
        ("0.10.3", False),
        ("1.1.3", False),
        ("1.4.5", False),
        ("1.5.0", True),
        ("1.5.6", True),
        ("1.10.0", True),
        ("2.0.1", True),
        ("2.0.0.dev12", True),
        ("2.1.0", False),
        ("3.0", False),
    ],
)
def test_supported_releases(version: str, is_supported: bool) -> None:
    assert (engine.unsupported_reason(version) is None) == is_supported


def test_another_release_is_not_used(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_failures, "version", lambda _: "1.1.3")
    env = Environment(spark, config=SINGLE_TASK, progress=False)
    pq.write_table(pa.table({"k": [1, 1, 2]}), tmp_path / "a.parquet")
    env.collect(spark.read.parquet(str(tmp_path)).groupBy("k").count())
    assert choice(env)[:2] == (
        "not in one task of DuckDB",
        "DuckDB 1.1.3 is not supported: install 1.5 to 2.0",
    )
