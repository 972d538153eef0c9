"""A database that dies in the middle, a driver that dies around the commit, a task that dies while it writes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.connectors import JdbcSink
from penstock.errors import JobError, PenstockError
from tests.services import DRIVERS, Postgres

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from penstock import Environment


JOB = Path(__file__).parent.parent.parent / "jobs" / "jdbc_copy.py"
VOLUME = {"execution.batch.adaptive.auto__parallelism.avg__data__volume__per__task": "256 kb"}


@pytest.fixture(scope="module")
def mortal() -> Iterator[Any]:
    server = Postgres()
    server.sql(
        "create table source as select i as id, i % 7 as g, repeat('x', 100) as pad from generate_series(1, 20000) i; analyze source"
    )
    yield server
    server.close()


def read(spark: SparkSession, server: Any) -> Any:
    return spark.read.format("jdbc").options(url=server.url, dbtable="source", **server.properties).load()


@pytest.fixture
def dies(mortal: Any, tmp_path: Path) -> Iterator[Any]:
    """Return a function that gives rows on and, once it has given some, waits until the database is dead; started again after the test."""
    reached, dead = str(tmp_path / "reached"), str(tmp_path / "dead")

    def given_on(frames: Any) -> Iterator[Any]:
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
                mortal.stop()
                open(dead, "w").close()
                return

    over = threading.Event()
    killer = threading.Thread(target=kill)
    killer.start()
    yield given_on
    over.set()
    killer.join()
    assert os.path.exists(dead), "the database was to die"


@pytest.mark.thorough
def test_the_database_dies_while_it_is_read(
    make_env: Callable[..., Environment], spark: SparkSession, mortal: Any, dies: Any
) -> None:
    """Two tasks have rows when it dies, the others find it dead."""
    env = make_env(**VOLUME)
    df = read(spark, mortal)
    with pytest.raises(JobError) as raised:
        env.collect(df.mapInPandas(dies, df.schema).groupBy("g").count())
    assert env.last_job.vertices[0].parallelism > 2
    assert mortal.password not in str(raised.value)
    assert str(raised.value).startswith("step 1 failed: source")
    mortal.start()
    assert sum(row[1] for row in env.collect(df.groupBy("g").count())) == 20_000


def test_the_database_dies_while_it_is_written(
    make_env: Callable[..., Environment], spark: SparkSession, mortal: Any, dies: Any, caplog: pytest.LogCaptureFixture
) -> None:
    env = make_env()
    rows = spark.range(100_000, 120_000, 1, 4).selectExpr("id", "repeat(cast(id as string), 20) as pad")
    env.write(rows.mapInPandas(dies, rows.schema), JdbcSink(mortal.url, "target", mortal.properties))
    with pytest.raises(PenstockError):
        env.execute()
    mortal.start()
    assert mortal.sql("select to_regclass('target') is null") == "t"
    (staged,) = mortal.sql("select tablename from pg_tables where tablename like 'penstock_target_%'").split()
    (warning,) = [text for text in caplog.messages if "could not be dropped" in text]
    assert f"table {staged} of jdbc:postgresql:" in warning
    env.write(rows.limit(100), JdbcSink(mortal.url, "target", mortal.properties))
    env.execute()
    assert mortal.sql("select count(*), count(distinct id) from target") == "100|100"


@pytest.mark.parametrize(
    ("dies", "there"),
    [pytest.param("before", "0", marks=pytest.mark.slow), pytest.param("after", "2000", marks=pytest.mark.slow)],
)
def test_the_driver_dies_around_the_commit(postgres: Postgres, dies: str, there: str) -> None:
    table = f"copied_{dies}"
    postgres.sql(f"create table {table} (id int, v bigint)")
    given = postgres.properties
    arguments = [
        postgres.url,
        given["user"],
        given["password"],
        given["driver"],
        str(DRIVERS["postgresql"]),
        table,
        f"{dies}-1",
    ]

    def run(where: Any) -> Any:
        return subprocess.run(
            [sys.executable, JOB, *arguments, where], capture_output=True, text=True, timeout=300, check=False
        )

    assert run(dies).returncode == 9
    assert postgres.sql(f"select count(*) from {table}") == there
    again = run("no")
    assert again.returncode == 0, again.stderr
    assert postgres.sql(f"select count(*), count(distinct id), sum(v) from {table}") == f"2000|2000|{2000 * 1999}"
    assert postgres.sql("select count(*) from pg_tables where tablename like 'penstock_copied%'") == "0"


@pytest.mark.thorough
def test_a_failing_task_writes_nothing_twice(
    postgres: Postgres, make_env: Callable[..., Environment], spark: SparkSession, tmp_path: Path
) -> None:
    """A worker of Python that is killed fails its task; what the task had written by then is undone."""
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
