"""Failing jobs raise a clear error, and leave no partial output and no running tasks."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from penstock.connectors import FileSink
from penstock.errors import ConfigError, JobError, PenstockError, SinkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock import Environment


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = str(tmp_path_factory.mktemp("table") / "t")
    spark.range(1000).selectExpr("id", "id % 7 as k", "cast(id as string) as s").write.parquet(folder)
    return folder


def run_failing_job(env: Environment, df: DataFrame, tmp_path: Path, error: Any = JobError) -> str:
    """Run a failing job, check that it leaves no files or tasks, and return the error message."""
    env.write(df, FileSink(str(tmp_path / "out")))
    with pytest.raises(error) as caught:
        env.execute("doomed")
    assert not list(tmp_path.glob("out*"))
    assert not list(tmp_path.glob(".penstock*"))
    assert not env.spark.sparkContext.statusTracker().getActiveJobsIds()
    assert env.last_job.state == "FAILED"
    return str(caught.value)


def test_a_python_exception_arrives_with_its_traceback(
    env: Environment, spark: SparkSession, table: Any, tmp_path: Path
) -> None:
    def broken(batches: Any) -> Iterator[Any]:
        for batch in batches:
            yield batch.assign(s=batch.k / batch.undefined_column)

    text = run_failing_job(env, spark.read.parquet(table).mapInPandas(broken, "id long, k long, s string"), tmp_path)
    assert "undefined_column" in text
    assert "in broken" in text
    assert __file__ in text
    assert "step 1 failed: " in text
    assert "MapInPandas" in text


def test_a_failing_expression_names_the_users_line(
    env: Environment, spark: SparkSession, table: Any, tmp_path: Path
) -> None:
    df = spark.read.parquet(table).groupBy("k").agg(F.sum("id").alias("n"))
    bad = df.select("k", (F.col("n") / F.expr("int(k - k)")).alias("x"))
    text = run_failing_job(env, bad, tmp_path)
    assert "DIVIDE_BY_ZERO" in text or "Division by zero" in text
    assert f"{os.path.basename(__file__)}:" in text
    assert "step 2 failed: " in text


def test_a_missing_file_fails_the_job(env: Environment, spark: SparkSession, table: Any, tmp_path: Path) -> None:
    path = tmp_path / "gone"
    spark.range(10).write.parquet(str(path))
    df = spark.read.parquet(str(path)).groupBy("id").count()
    for file in path.iterdir():
        file.unlink()
    path.rmdir()
    text = run_failing_job(env, df, tmp_path)
    assert "does not exist" in text or "FILE_NOT_EXIST" in text or "NOT_FOUND" in text.upper()


@pytest.mark.parametrize(
    ("name", "content"), [("corrupt.parquet", b"PAR1 this is not parquet PAR1"), ("text.parquet", b"a,b\n1,2\n")]
)
def test_the_error_of_a_corrupt_file_names_it(
    env: Environment, spark: SparkSession, tmp_path: Path, name: str, content: bytes
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / name).write_bytes(content)
    df = spark.read.schema("id long").parquet(str(tmp_path / "in"))
    assert name in run_failing_job(env, df, tmp_path)


def test_a_schema_that_differs_from_the_file_fails_the_job(
    env: Environment, spark: SparkSession, table: Any, tmp_path: Path
) -> None:
    text = run_failing_job(
        env, spark.read.schema("id long, k date, s string").parquet(table).groupBy("k").count(), tmp_path
    )
    assert "k" in text
    assert "step 1 failed: " in text


def test_existing_outputs_are_refused_or_ignored(
    env: Environment, spark: SparkSession, table: Any, tmp_path: Path
) -> None:
    env.write(spark.read.parquet(table), FileSink(table))
    env.write(spark.read.parquet(table), FileSink(str(tmp_path / "never")))
    with pytest.raises(SinkError, match="exists already"):
        env.execute()
    assert not (tmp_path / "never").exists()
    env.write(spark.read.parquet(table).limit(1), FileSink(table, mode="ignore"))
    env.execute()
    assert spark.read.parquet(table).count() == 1000


def test_a_failing_sink_keeps_other_sinks_unchanged(
    env: Environment, spark: SparkSession, table: Any, tmp_path: Path
) -> None:
    good = spark.read.parquet(table)
    env.write(good, FileSink(str(tmp_path / "good")))
    bad = good.groupBy("k").agg(F.max("s").alias("s")).select(F.raise_error("s"))
    run_failing_job(env, bad, tmp_path)
    assert not (tmp_path / "good").exists()


@pytest.mark.parametrize("bad", ["0", "abc", "-2"])
def test_an_invalid_scan_parallelism_is_refused(env: Environment, spark: SparkSession, table: Any, bad: str) -> None:
    with pytest.raises(ConfigError) as caught:
        env.collect(spark.read.option("scan.parallelism", bad).parquet(table))
    assert repr(bad) in str(caught.value)
    assert re.search(r"the options of \S*\bt\b", str(caught.value)), "the table"


def test_streams_are_refused(env: Environment, spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="stream") as caught:
        env.collect(spark.readStream.format("rate").load())
    assert isinstance(caught.value, PenstockError)


def run(code: Any, **environ: Any) -> Any:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | environ,
    )


def test_a_missing_java_is_reported_with_a_hint() -> None:
    done = run("import penstock; penstock.Environment()", JAVA_HOME="/nowhere", PATH="/nowhere")
    assert "no Java 17 or newer" in done.stderr
    assert "apt-get install" in done.stderr


def test_a_connect_session_is_refused() -> None:
    from pyspark.sql.connect.session import SparkSession as Connect

    from penstock import Environment
    from penstock.errors import SessionError

    with pytest.raises(SessionError, match="Spark Connect") as caught:
        Environment(Connect.__new__(Connect))  # without a server
    assert "spark.api.mode=classic" in str(caught.value)


@pytest.mark.thorough
def test_ctrl_c_leaves_no_tasks_or_files(tmp_path: Path) -> None:
    """The job runs in a separate process, which receives SIGINT."""
    job = tmp_path / "job.py"
    job.write_text(
        textwrap.dedent("""
        import pathlib, sys, time
        from penstock import Environment
        from penstock.connectors import FileSink

        target, reached = sys.argv[1:]

        def slowly(batches):
            pathlib.Path(reached).touch()
            time.sleep(120)
            yield from batches

        env = Environment()
        df = env.spark.range(10)
        env.write(df.mapInPandas(slowly, df.schema), FileSink(target))
        try:
            env.execute("endless")
        except KeyboardInterrupt:
            print("state", env.last_job.state, "active", len(env.spark.sparkContext.statusTracker().getActiveJobsIds()))
    """)
    )
    reached = tmp_path / "reached"
    (tmp_path / "target").mkdir()
    process = subprocess.Popen(
        [sys.executable, str(job), str(tmp_path / "target" / "out"), str(reached)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    end = time.time() + 90
    while not reached.exists() and time.time() < end:
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert "state CANCELED active 0" in out
    assert list((tmp_path / "target").iterdir()) == []
