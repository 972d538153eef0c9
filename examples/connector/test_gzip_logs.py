"""Tests of the connector without Spark, and with jobs that write and read logs."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest
from gzip_logs import GzipLogs, GzipLogSink
from pyspark.sql import functions as F

from penstock import Environment
from penstock.connectors import Predicate
from penstock.errors import SinkError
from penstock.testing import read_splits

DAYS = {"2026-11-01": 3, "2026-11-02": 1, "2026-11-03": 4}
"""The days, with the number of files."""
ROWS = sorted(
    (day, f"10.0.{file}.{line}", 200, 1000 + line) for day in DAYS for file in range(DAYS[day]) for line in range(5)
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for day, files in DAYS.items():
        (tmp_path / f"day={day}").mkdir()
        for file in range(files):
            lines = "".join(f"10.0.{file}.{line} 200 {1000 + line}\n" for line in range(5))
            (tmp_path / f"day={day}" / f"{file}.gz").write_bytes(gzip.compress(lines.encode()))
    return tmp_path


def test_every_line_is_read_once(folder: Path) -> None:
    read = read_splits(GzipLogs(str(folder)))
    assert sorted(read.rows) == ROWS
    assert len(read.splits) == len(DAYS)  # all files of a day fit into a split


@pytest.mark.parametrize(
    ("volume", "parallelism", "splits", "tasks"),
    [(1, 100, 8, 8), (1, 3, 8, 3), (1 << 20, 3, 3, 3), (1 << 20, 2, 3, 2)],
)
def test_splits_follow_data_volume_and_parallelism(
    folder: Path, volume: int, parallelism: int, splits: int, tasks: int
) -> None:
    read = read_splits(GzipLogs(str(folder)), volume=volume, parallelism=parallelism)
    assert (len(read.splits), len(read.tasks)) == (splits, tasks)
    assert sorted(read.rows) == ROWS


def test_columns_have_the_order_of_the_job(folder: Path) -> None:
    read = read_splits(GzipLogs(str(folder)), columns=["bytes", "day"])
    assert sorted(read.rows) == sorted((size, day) for day, _, _, size in ROWS)


@pytest.mark.parametrize(
    ("predicate", "days"),
    [
        (Predicate("=", "day", ("2026-11-02",)), ["2026-11-02"]),
        (Predicate(">", "day", ("2026-11-01",)), ["2026-11-02", "2026-11-03"]),
        (Predicate("in", "day", ("2026-11-01", "2026-11-03")), ["2026-11-01", "2026-11-03"]),
        (Predicate("=", "host", ("10.0.0.1",)), list(DAYS)),
        (Predicate("is null", "day"), []),
    ],
)
def test_days_that_cannot_match_are_skipped(folder: Path, predicate: Predicate, days: list[str]) -> None:
    read = read_splits(GzipLogs(str(folder)), predicates=[predicate])
    assert sorted({row[0] for row in read.rows}) == days


@pytest.fixture(scope="module")
def env() -> Iterator[Environment]:
    # With the default threshold, Spark would run such small queries.
    env = Environment(progress=False, config={"execution.batch.adaptive.whole-query-threshold": 0})
    yield env
    env.spark.stop()


def test_a_job_writes_logs_and_reads_them(env: Environment, folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy"
    logs = env.read(GzipLogs(str(folder)))
    env.write(logs.where("day > '2026-11-01'"), GzipLogSink(str(target)))
    (source, *_) = env.execute("copy").vertices
    assert source.tasks == len(DAYS) - 1  # the files of the first day are not opened
    copied = env.collect(env.read(GzipLogs(str(target))))
    assert sorted(map(tuple, copied)) == [row for row in ROWS if row[0] > "2026-11-01"]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    env.write(logs, GzipLogSink(str(target)))
    with pytest.raises(SinkError, match="exists"):
        env.execute()


def test_a_failed_job_leaves_no_files(env: Environment, folder: Path, tmp_path: Path) -> None:
    logs = env.read(GzipLogs(str(folder)))
    broken = logs.withColumn(
        "status", F.when(F.col("day") > "2026-11-02", F.raise_error(F.lit("no")).cast("int")).otherwise(1)
    )
    env.write(broken, GzipLogSink(str(tmp_path / "copy")))
    with pytest.raises(Exception, match="no"):
        env.execute()
    assert [path.name for path in tmp_path.iterdir() if "copy" in path.name] == []
