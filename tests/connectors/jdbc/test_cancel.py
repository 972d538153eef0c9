"""Jobs that are cancelled while they write to a database: they end quickly, and leave neither tables nor statements."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.connectors import JdbcSink
from penstock.errors import JobCancelledError
from tests.connectors.jdbc.test_sink import leftover_tables
from tests.support.silence import HangingProxy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock import Environment
    from penstock.scheduler.job import Job

WAITING = {
    "postgresql": "select count(*) from pg_stat_activity where query ilike '%penstock_cancelled%' and state <> 'idle'"
    " and pid <> pg_backend_pid()",
    "mysql": "select count(*) from information_schema.processlist where info like '%penstock_cancelled%'"
    " and id <> connection_id()",
}


@pytest.fixture(params=["postgres", "mariadb"])
def server(request: pytest.FixtureRequest) -> Any:
    server = request.getfixturevalue(request.param)
    server.sql("drop table if exists cancelled")
    server.sql("create table cancelled (id bigint)")
    server.sql("insert into cancelled values (-1)")
    return server


def slow_rows(spark: SparkSession, reached: Path, seconds: float) -> DataFrame:
    """Return rows whose tasks yield three batches, create the file `reached`, and then wait before each batch."""
    path = str(reached)

    def delay(batches: Iterator[Any]) -> Iterator[Any]:
        for number, batch in enumerate(batches):
            if number == 3:
                open(path, "w").close()
            if number > 2:
                time.sleep(seconds)
            yield batch

    return spark.range(0, 200_000, 1, 2).mapInArrow(delay, "id long")


def cancel_seconds(job: Job, reached: Path) -> float:
    """Cancel a job once it writes, and return the seconds until it has ended."""
    wait_until(reached.exists)
    time.sleep(0.5)
    begun = time.monotonic()
    job.cancel()
    with pytest.raises(JobCancelledError):
        job.wait(30)
    return time.monotonic() - begun


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


def assert_nothing_remains(server: Any) -> None:
    """Check that the table is unchanged, and that tables and statements of the job soon disappear."""
    wait_until(lambda: leftover_tables(server) == [], 20)
    wait_until(lambda: server.sql(WAITING[server.url.split(":")[1]]) == "0", 20)
    assert server.sql("select id from cancelled") == "-1"


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_job_is_cancelled_while_it_writes_rows(
    env: Environment, spark: SparkSession, server: Any, tmp_path: Path, mode: str
) -> None:
    rows = slow_rows(spark, tmp_path / "reached", seconds=60)
    env.write(rows, JdbcSink(server.url, "cancelled", server.properties, mode=mode))
    job = env.execute_async("cancelled")
    assert cancel_seconds(job, tmp_path / "reached") < 3
    assert job.state == "CANCELED"
    assert_nothing_remains(server)


@pytest.mark.thorough
def test_a_job_is_cancelled_while_the_database_does_not_respond(
    env: Environment, spark: SparkSession, server: Any, tmp_path: Path
) -> None:
    rows = slow_rows(spark, tmp_path / "reached", seconds=0.2)
    with HangingProxy(server.port) as proxy:
        url = server.url.replace(f":{server.port}/", f":{proxy.port}/")
        env.write(rows, JdbcSink(url, "cancelled", server.properties))
        job = env.execute_async("cancelled")
        wait_until((tmp_path / "reached").exists)
        assert leftover_tables(server) != []
        proxy.hangs.set()
        assert cancel_seconds(job, tmp_path / "reached") < 3
        assert job.state == "CANCELED"
        proxy.hangs.clear()
        assert_nothing_remains(server)
