"""Processes beside the driver that compute queries."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from penstock import Environment
from penstock.connectors import FileSink
from penstock.duckdb import process
from penstock.duckdb.process import QueryProcess
from penstock.duckdb.worker.columns import Column
from penstock.duckdb.worker.engine import NotNativeError
from penstock.duckdb.worker.query import QueryFunction
from penstock.duckdb.worker.server import SentRows, StoredRows
from penstock.errors import JobError
from penstock.spark.bridge.jvm import Bridge
from tests.support.equality import assert_same_rows
from tests.support.paths import ROOT
from tests.support.stages import computed_by_duckdb, stages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIMIT = 1 << 20
CONSTANT = "SELECT 1::BIGINT AS n"
ENDLESS = "SELECT count(*) AS n FROM range(1000000000) a, range(1000000000) b"


def query(sql: str) -> QueryFunction:
    return QueryFunction(sql, (), (Column("n", "bigint"),), (), memory=64 << 20)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[QueryProcess]:
    server = QueryProcess(str(tmp_path))
    yield server
    server.kill()


def test_few_rows_are_sent(server: QueryProcess, tmp_path: Path) -> None:
    for rows in (3, 0):
        answer = server.compute(query(f"SELECT CAST(range AS BIGINT) AS n FROM range({rows})"), LIMIT)
        assert isinstance(answer, SentRows)
        assert (answer.count, len(answer.batches)) == (rows, min(rows, 1))
    assert [file.name for file in tmp_path.iterdir()] == ["penstock-duckdb.ledger"]


def test_many_rows_are_stored_until_they_are_released(server: QueryProcess) -> None:
    rows = server.compute(query("SELECT CAST(range AS BIGINT) AS n FROM range(100000)"), LIMIT)
    assert isinstance(rows, StoredRows)
    assert sum(batch.num_rows for batch in rows(iter(()))) == 100_000
    assert server.release()
    assert isinstance(server.compute(query(CONSTANT), LIMIT), SentRows)
    assert not Path(rows.path).parent.exists()


def test_the_limit_counts_the_bytes_of_rows_in_the_jvm(server: QueryProcess) -> None:
    flags = QueryFunction("SELECT range > 9 AS b FROM range(100000)", (), (Column("b", "boolean"),), (), 64 << 20)
    assert isinstance(server.compute(flags, 2_000_000), StoredRows)
    server.release()
    assert isinstance(server.compute(flags, 3_000_000), SentRows)


def test_a_process_that_fails_after_its_answer_sends_no_second_answer(server: QueryProcess) -> None:
    rows = server.compute(query("SELECT CAST(range AS BIGINT) AS n FROM range(100000)"), LIMIT)
    assert isinstance(rows, StoredRows)
    lock = Path(str(Path(rows.path).parent) + ".lock")
    lock.unlink()
    lock.mkdir()  # the process cannot remove it
    server.release()
    with pytest.raises(NotNativeError, match="its process ended with code 1"):
        server.compute(query(CONSTANT), LIMIT)
    assert not server.release()


def test_errors_are_raised_in_the_driver(server: QueryProcess) -> None:
    for sql, message in (("SELECT error('odd') AS n", "odd"), ("SELECT 'text' AS n", "text")):
        with pytest.raises(NotNativeError, match=message):
            server.compute(query(sql), LIMIT)
    assert isinstance(server.compute(query(CONSTANT), LIMIT), SentRows)


def test_a_killed_process_is_an_error(server: QueryProcess) -> None:
    timer = threading.Timer(0.5, server.kill)
    timer.start()
    with pytest.raises(NotNativeError, match="its process ended with code -9"):
        server.compute(query(ENDLESS), LIMIT)
    assert not server.is_running()


def test_the_process_ends_with_the_driver(tmp_path: Path) -> None:
    """Also while it computes, and if the driver is killed."""
    code = (
        "import sys, threading, time\n"
        "from tests.duckdb.test_process import ENDLESS, query\n"
        "from penstock.duckdb.process import QueryProcess\n"
        "server = QueryProcess(sys.argv[1])\n"
        "threading.Thread(target=server.compute, args=[query(ENDLESS), 1000], daemon=True).start()\n"
        "print(server._process.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True, env=environment
    ) as driver:
        assert driver.stdout is not None
        pid = int(driver.stdout.readline())
        time.sleep(1)
        os.kill(pid, 0)  # it computes
        driver.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and "zombie" not in Path(f"/proc/{pid}/status").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_idle_processes_are_reused(tmp_path: Path) -> None:
    idle = process._IdleProcesses()
    first, second = idle.take(str(tmp_path)), idle.take(str(tmp_path))
    idle.add(first)
    assert idle.take(str(tmp_path)) is first
    first.kill()
    idle.add(first)
    idle.add(second)
    assert idle.take(str(tmp_path)) is second
    idle.add(second)
    other = idle.take("elsewhere")
    assert other not in (first, second)
    assert not second.is_running()  # it served another session
    other.kill()


def test_workers_of_another_interpreter_use_a_task(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    bridge = Bridge(spark)
    assert process.is_available(bridge)
    monkeypatch.setattr(sys, "executable", "/usr/bin/other-python")
    assert not process.is_available(bridge)


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = str(tmp_path_factory.mktemp("process") / "table")
    columns = "id", "id % 7 AS k", "CAST(id AS decimal(12,2)) AS d", "IF(id % 2 = 0, -0.0D, id / 4D) AS f"
    spark.range(0, 150_000, 1, 2).selectExpr(*columns).write.parquet(path)
    spark.read.parquet(path).createOrReplaceTempView("process_rows")
    yield path
    spark.catalog.dropTempView("process_rows")


CONFIG = {"execution.batch.adaptive.whole-query-threshold": 1}
SMALL_RESULT = "SELECT k, sum(d) AS s, max(id) AS m FROM process_rows GROUP BY k ORDER BY s DESC"


SMALL_RESULTS = (
    SMALL_RESULT,
    f"{SMALL_RESULT} LIMIT 3",
    f"{SMALL_RESULT} LIMIT 2 OFFSET 3",
    f"{SMALL_RESULT} LIMIT 2 OFFSET 9",
    "SELECT count(*) FROM process_rows WHERE id < 0",
    "SELECT k, max(id) FROM process_rows WHERE id < 0 GROUP BY k ORDER BY k",
    "SELECT k FROM process_rows GROUP BY k ORDER BY sum(d) DESC",
    "SELECT k, k AS j, sum(d) FROM process_rows GROUP BY k ORDER BY max(id) LIMIT 3",
    "SELECT d, k FROM process_rows ORDER BY k DESC, id LIMIT 5 OFFSET 2",
    "SELECT id FROM process_rows WHERE d > 7 ORDER BY -d LIMIT 5",
    "SELECT id, f FROM process_rows ORDER BY f, id LIMIT 3",
    "SELECT k, max(f) FROM process_rows WHERE id % 2 = 0 GROUP BY k ORDER BY max(f), k",
    "SELECT k, sum(d) / (k - 3) FROM process_rows GROUP BY k HAVING k <> 3 ORDER BY k",
    "SELECT k, sum(id) / (max(k) - 3) FROM process_rows GROUP BY k HAVING max(k) <> 3 AND count(*) > 1 ORDER BY k",
)


@pytest.mark.parametrize("sql", SMALL_RESULTS)
def test_a_small_result_needs_no_task_of_spark(spark: SparkSession, table: str, sql: str) -> None:
    env = Environment(spark, config=CONFIG, progress=False)
    assert str(env.collect(spark.sql(sql))) == str(spark.sql(sql).collect())  # also the sign of zero
    assert computed_by_duckdb(env.last_job)
    assert stages(spark, env.last_job) == []


@pytest.mark.usefixtures("in_task")
@pytest.mark.parametrize("sql", SMALL_RESULTS)
def test_a_task_of_spark_returns_the_same_rows(spark: SparkSession, table: str, sql: str) -> None:
    env = Environment(spark, config=CONFIG, progress=False)
    assert str(env.collect(spark.sql(sql))) == str(spark.sql(sql).collect())  # also the sign of zero
    assert computed_by_duckdb(env.last_job)
    assert stages(spark, env.last_job) != []


def test_lost_rows_are_detected(spark: SparkSession, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compute = QueryProcess.compute

    def without_batches(server: QueryProcess, function: QueryFunction, limit: int) -> SentRows:
        rows = compute(server, function, limit)
        assert isinstance(rows, SentRows)
        return SentRows((), rows.count)

    monkeypatch.setattr(QueryProcess, "compute", without_batches)
    env = Environment(spark, config=CONFIG | {"execution.verify": True}, progress=False)
    with pytest.raises(JobError, match="VerificationError: the result of DuckDB for table must have 7 rows"):
        env.collect(spark.sql(SMALL_RESULT))


def test_a_small_result_is_written_to_a_single_file(spark: SparkSession, table: str, tmp_path: Path) -> None:
    env = Environment(spark, config=CONFIG, progress=False)
    env.write(spark.sql(SMALL_RESULT), FileSink(str(tmp_path / "written")))
    env.execute("write")
    assert computed_by_duckdb(env.last_job)
    assert len(list((tmp_path / "written").glob("*.parquet"))) == 1
    assert_same_rows(spark.read.parquet(str(tmp_path / "written")).collect(), spark.sql(SMALL_RESULT).collect())


def test_a_large_result_passes_through_an_exchange(spark: SparkSession, table: str) -> None:
    env = Environment(spark, config=CONFIG, progress=False)
    sql = "SELECT id, max(k) AS k, max(d) AS d FROM process_rows GROUP BY id ORDER BY id DESC"
    assert str(env.collect(spark.sql(sql))) == str(spark.sql(sql).collect())  # also the sign of zero
    assert computed_by_duckdb(env.last_job)
    assert stages(spark, env.last_job) != []


@pytest.mark.parametrize("c", ["1.00", "9999999.99"], ids=["short products", "long products"])
def test_products_that_overflow_64_bits_are_computed_again(spark: SparkSession, tmp_path: Path, c: str) -> None:
    factors = "cast(99999999.99 as decimal(18,2)) a; cast(99.99 as decimal(18,2)) b; cast({} as decimal(18,2)) c"
    spark.range(4).selectExpr("id % 2 k", *factors.format(c).split("; ")).write.parquet(str(tmp_path / "t"))
    df = spark.read.parquet(str(tmp_path / "t")).groupBy("k").agg(F.sum(F.expr("a * b * c")).alias("s"))
    env = Environment(spark, config=CONFIG, progress=False)
    assert_same_rows(env.collect(df), df.collect())
    assert computed_by_duckdb(env.last_job)


LOOKUPS = (
    "SELECT id, d FROM process_rows WHERE k = 3 AND id < 40",
    "SELECT id, k + 1 AS j FROM process_rows WHERE id = 7",
    "SELECT id FROM process_rows WHERE id = -1",
    "SELECT id, f FROM process_rows WHERE k = 2 AND id < 90 ORDER BY id DESC",
)


@pytest.mark.parametrize("sql", LOOKUPS)
def test_a_lookup_of_few_rows_needs_no_task_of_spark(spark: SparkSession, table: str, sql: str) -> None:
    env = Environment(spark, config=CONFIG, progress=False)
    rows, expected = env.collect(spark.sql(sql)), spark.sql(sql).collect()
    assert (str(rows) if "ORDER BY" in sql else sorted(map(str, rows))) == (
        str(expected) if "ORDER BY" in sql else sorted(map(str, expected))
    )
    assert computed_by_duckdb(env.last_job)
    assert stages(spark, env.last_job) == []


def test_a_lookup_of_many_rows_is_computed_by_spark_and_remembered(
    spark: SparkSession, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.duckdb.query._SENT_BYTES", 100)
    env = Environment(spark, config=CONFIG, progress=False)
    outcomes = []
    for _ in range(2):
        assert_same_rows(env.collect(spark.sql(LOOKUPS[0])), spark.sql(LOOKUPS[0]).collect())
        assert not computed_by_duckdb(env.last_job)
        outcomes += [str(decision) for decision in env.last_job.decisions if decision.kind == "native"]
    assert "it returns many rows" in outcomes[0]
    assert "DuckDB failed on it before" in outcomes[-1]


@pytest.mark.usefixtures("in_task")
def test_spark_computes_a_lookup_without_a_process(spark: SparkSession, table: str) -> None:
    env = Environment(spark, config=CONFIG, progress=False)
    assert_same_rows(env.collect(spark.sql(LOOKUPS[0])), spark.sql(LOOKUPS[0]).collect())
    assert not computed_by_duckdb(env.last_job)
