"""Failures of the database while it is read or written, of the driver around the commit, and of tasks that write."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.connectors import JdbcSink
from penstock.errors import JobError, PenstockError
from tests.support.paths import TESTS
from tests.support.services import DRIVERS, Postgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock import Environment


JOB = TESTS / "jobs" / "jdbc_copy.py"
VOLUME = {"execution.batch.adaptive.auto__parallelism.avg__data__volume__per__task": "256 kb"}


@pytest.fixture(scope="module")
def database() -> Iterator[Any]:
    server = Postgres()
    server.sql(
        "create table source as select i as id, i % 7 as g, repeat('x', 100) as pad from generate_series(1, 20000) i; analyze source"
    )
    yield server
    server.close()


def read(spark: SparkSession, server: Any) -> Any:
    return spark.read.format("jdbc").options(url=server.url, dbtable="source", **server.properties).load()


@pytest.fixture
def stop_database(database: Any, tmp_path: Path) -> Iterator[Any]:
    """A function for `mapInPandas` that waits after a batch until the database is stopped, which this fixture does."""
    reached, dead = str(tmp_path / "reached"), str(tmp_path / "dead")

    def wait_for_stop(frames: Any) -> Iterator[Any]:
        import os
        import time

        for frame in frames:
            yield frame
            open(reached, "a").close()
            while not os.path.exists(dead):
                time.sleep(0.05)

    def kill() -> None:
        while not over.wait(0.05):
            if os.path.exists(reached):
                database.stop()
                open(dead, "w").close()
                return

    over = threading.Event()
    killer = threading.Thread(target=kill)
    killer.start()
    yield wait_for_stop
    over.set()
    killer.join()
    assert os.path.exists(dead), "the database was not stopped"


@pytest.mark.thorough
def test_a_database_that_stops_while_it_is_read_fails_the_job(
    make_env: Callable[..., Environment], spark: SparkSession, database: Any, stop_database: Any
) -> None:
    """Two tasks have read rows when it stops; the other tasks cannot connect."""
    env = make_env(**VOLUME)
    df = read(spark, database)
    with pytest.raises(JobError) as raised:
        env.collect(df.mapInPandas(stop_database, df.schema).groupBy("g").count())
    assert env.last_job.vertices[0].parallelism > 2
    assert database.password not in str(raised.value)
    assert str(raised.value).startswith("step 1 failed: source")
    database.start()
    assert sum(row[1] for row in env.collect(df.groupBy("g").count())) == 20_000


def test_a_database_that_stops_while_it_is_written_fails_the_job(
    make_env: Callable[..., Environment],
    spark: SparkSession,
    database: Any,
    stop_database: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    env = make_env()
    rows = spark.range(100_000, 120_000, 1, 4).selectExpr("id", "repeat(cast(id as string), 20) as pad")
    env.write(rows.mapInPandas(stop_database, rows.schema), JdbcSink(database.url, "target", database.properties))
    with pytest.raises(PenstockError):
        env.execute()
    database.start()
    assert database.sql("select to_regclass('target') is null") == "t"
    (staged,) = database.sql("select tablename from pg_tables where tablename like 'penstock_target_%'").split()
    (warning,) = [text for text in caplog.messages if "could not be dropped" in text]
    assert f"table {staged} of jdbc:postgresql:" in warning
    env.write(rows.limit(100), JdbcSink(database.url, "target", database.properties))
    env.execute()
    assert database.sql("select count(*), count(distinct id) from target") == "100|100"


@pytest.mark.parametrize(
    ("exit_time", "rows_after_exit"),
    [pytest.param("before", "0", marks=pytest.mark.slow), pytest.param("after", "2000", marks=pytest.mark.slow)],
)
def test_a_driver_that_exits_around_the_commit_writes_rows_once(
    postgres: Postgres, exit_time: str, rows_after_exit: str
) -> None:
    table = f"copied_{exit_time}"
    postgres.sql(f"create table {table} (id int, v bigint)")
    properties = [postgres.properties[name] for name in ("user", "password", "driver")]
    arguments = [postgres.url, *properties, str(DRIVERS["postgresql"]), table, f"{exit_time}-1"]

    def run(exit_time: str) -> Any:
        command = [sys.executable, JOB, *arguments, exit_time]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    assert run(exit_time).returncode == 9
    assert postgres.sql(f"select count(*) from {table}") == rows_after_exit
    second_run = run("no")
    assert second_run.returncode == 0, second_run.stderr
    assert postgres.sql(f"select count(*), count(distinct id), sum(v) from {table}") == f"2000|2000|{2000 * 1999}"
    assert postgres.sql("select count(*) from pg_tables where tablename like 'penstock_copied%'") == "0"


@pytest.mark.thorough
def test_a_failing_task_writes_no_row_twice(
    postgres: Postgres, make_env: Callable[..., Environment], spark: SparkSession, tmp_path: Path
) -> None:
    """A Python worker that is killed fails its task, and the rows that the task had written are rolled back."""
    marker = str(tmp_path / "died")

    def die_once(frames: Any) -> Iterator[Any]:
        import os

        for number, frame in enumerate(frames):
            if number == 1 and not os.path.exists(marker):
                open(marker, "w").close()
                os._exit(9)
            yield frame

    env = make_env()
    df = spark.range(0, 50_000, 1, 2).selectExpr("id", "id as v").mapInPandas(die_once, "id bigint, v bigint")
    for _ in range(2):  # local Spark does not repeat tasks: the first job fails, the second writes everything
        env.write(df, JdbcSink(postgres.url, "killed", postgres.properties, token="killed"))
        try:
            env.execute()
        except JobError:
            assert postgres.sql("select to_regclass('killed') is null") == "t"
    assert postgres.sql("select count(*), count(distinct id) from killed") == "50000|50000"
