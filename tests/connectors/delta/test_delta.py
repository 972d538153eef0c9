"""Delta tables: only files of the log are read, its statistics prune them, and each job is a single commit."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from tests.support.services import require_module

require_module("deltalake", "delta")

import deltalake
import pyarrow as pa

from penstock.commit import Access
from penstock.connectors import DeltaSink, DeltaSource
from penstock.connectors.delta.commit import PreparedDelta, PreparedDeltaUpsert
from penstock.errors import JobError, SinkError, SourceError
from tests.support.equality import assert_same_rows
from tests.support.stages import stages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock import Environment


VOLUME = {"execution.batch.adaptive.auto__parallelism.avg__data__volume__per__task": "256 kb"}
ROWS = 20_000


def rows(start: Any, count: Any) -> Any:
    return pa.table(
        {
            "id": pa.array(range(start, start + count), pa.int64()),
            "day": [dt.date(2026, 1, 1) + dt.timedelta(days=i * 30 // ROWS) for i in range(start, start + count)],
            "name": [None if i % 11 == 0 else f"n{i}" for i in range(start, start + count)],
            "price": [float("nan") if i % 13 == 0 else i / 3 for i in range(start, start + count)],
        }
    )


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A table of ten live files, and files in its folder that are no longer in the log."""
    path = str(tmp_path_factory.mktemp("delta") / "t")
    deltalake.write_deltalake(path, rows(500_000, 5000))
    deltalake.write_deltalake(path, rows(0, ROWS // 10), mode="overwrite")
    for part in range(1, 10):
        deltalake.write_deltalake(path, rows(part * ROWS // 10, ROWS // 10), mode="append")
    return path


@pytest.fixture(scope="module")
def partitioned(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = str(tmp_path_factory.mktemp("delta") / "parted")
    wide = rows(0, ROWS).append_column("kind", pa.array([[None, "a b", "c/d", "é=1"][i % 4] for i in range(ROWS)]))
    deltalake.write_deltalake(path, wide, partition_by=["kind"])
    return path


@pytest.fixture
def expected(spark: SparkSession) -> Any:
    return spark.createDataFrame(rows(0, ROWS))


def test_only_files_of_the_log_are_read(make_env: Callable[..., Environment], table: Any, expected: Any) -> None:
    env = make_env(**VOLUME)
    df = env.read(DeltaSource(table))
    assert_same_rows(env.collect(df), expected.collect())
    source = env.last_job.vertices[0]
    assert source.tasks == source.parallelism
    assert "10 files" in source.reason


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("condition", "files"),
    [
        ("id between 4100 and 4200", 1),
        ("id in (5, 19999)", 2),
        ("id < 2000 or id >= 18000", 2),
        ("day = date'2026-01-07'", 1),
        ("name is null", 10),
        ("price > 6000 and price < 6003", 10),  # bounds of floats are not used
        ("id < 0", 0),
        ("id % 2 = 0 and id > 17999", 1),
    ],
)
def test_files_whose_statistics_cannot_match_are_pruned(
    make_env: Callable[..., Environment], spark: SparkSession, table: Any, expected: Any, condition: str, files: int
) -> None:
    env = make_env()
    df = env.read(DeltaSource(table)).where(condition)
    assert_same_rows(env.collect(df.select("id", "name")), expected.where(condition).select("id", "name").collect())
    if files:
        assert re.search(rf"\b{files} files?\b", env.last_job.vertices[0].reason)
    else:
        assert not sum(stage.input_records for stage in stages(spark, env.last_job))


def test_keys_of_a_finished_join_side_prune_files(
    make_env: Callable[..., Environment], spark: SparkSession, table: Any, expected: Any, tmp_path: Path
) -> None:
    env = make_env()
    spark.range(0, 100).selectExpr("id * 3 as k", "id % 50 as m").write.parquet(str(tmp_path / "d"))
    keys = spark.read.parquet(str(tmp_path / "d")).where("m = 7").select("k")
    df = env.read(DeltaSource(table)).join(F.broadcast(keys), F.col("id") == F.col("k")).groupBy("day").count()
    expected_counts = expected.join(keys, F.col("id") == F.col("k")).groupBy("day").count()
    assert_same_rows(env.collect(df), expected_counts.collect())
    reading_stages = [stage for stage in stages(spark, env.last_job, table) if stage.input_records]
    assert max(stage.input_records for stage in reading_stages) <= ROWS // 10


@pytest.mark.thorough
def test_special_partition_values_are_read_unchanged(env: Environment, partitioned: Any) -> None:
    df = env.read(DeltaSource(partitioned)).groupBy("kind").agg(F.count("*"), F.sum("id"))
    counts = {row.kind: row[1] for row in env.collect(df)}
    assert counts == dict.fromkeys([None, "a b", "c/d", "é=1"], ROWS // 4)
    assert env.count(env.read(DeltaSource(partitioned)).where("kind = 'a b'")) == ROWS // 4
    assert "1 file" in env.last_job.vertices[0].reason


@pytest.mark.parametrize("condition", ["x > 5", "x = double('NaN')", "x < double('NaN')", "x >= 1"])
def test_partitions_of_nan_are_compared_as_in_spark(
    env: Environment, spark: SparkSession, tmp_path: Path, condition: str
) -> None:
    path = str(tmp_path / "t")
    table = pa.table({"id": pa.array([1, 2, 3]), "x": pa.array([float("nan"), 1.0, 7.0])})
    deltalake.write_deltalake(path, table, partition_by=["x"])
    expected = spark.createDataFrame([(1, float("nan")), (2, 1.0), (3, 7.0)], "id long, x double").where(condition)
    assert_same_rows(env.collect(env.read(DeltaSource(path)).where(condition)), expected.collect())


@pytest.mark.thorough
def test_a_source_reads_the_version_of_its_creation(env: Environment, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    deltalake.write_deltalake(path, rows(0, 10))
    source = DeltaSource(path)
    deltalake.write_deltalake(path, rows(10, 10), mode="append")
    assert env.count(env.read(source)) == 10
    assert env.count(env.read(DeltaSource(path))) == 20
    assert env.count(env.read(DeltaSource(path, version=0))) == 10


@pytest.mark.thorough
def test_each_job_writes_in_a_single_commit(
    make_env: Callable[..., Environment], spark: SparkSession, tmp_path: Path, expected: Any
) -> None:
    env = make_env()
    path = str(tmp_path / "out")
    wide = expected.withColumn("at", F.expr("timestamp'2026-02-03 04:05:06.789'")).withColumn(
        "kind", F.expr("if(id % 4 = 0, null, concat('a b', id % 4))")
    )
    env.write(wide.repartition(3), DeltaSink(path, partition_by=["kind"]))
    env.execute()
    log = deltalake.DeltaTable(path)
    before = log.version()
    assert log.metadata().partition_columns == ["kind"]
    assert_same_rows(env.collect(env.read(DeltaSource(path))), wide.collect())
    assert log.to_pyarrow_table().num_rows == ROWS
    env.write(wide, DeltaSink(path))
    env.execute()
    assert deltalake.DeltaTable(path).version() == before + 1
    assert env.count(env.read(DeltaSource(path))) == 2 * ROWS
    env.write(wide.limit(10), DeltaSink(path, mode="overwrite"))
    env.execute()
    assert env.count(env.read(DeltaSource(path))) == 10


def test_a_failed_job_leaves_no_commit(env: Environment, spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "never"
    env.write(spark.range(100).selectExpr("if(id = 77, raise_error('bad row'), id) as v"), DeltaSink(str(path)))
    with pytest.raises(JobError, match="bad row"):
        env.execute()
    assert not list(path.rglob("*.parquet"))
    assert not deltalake.DeltaTable.is_deltatable(str(path))


def test_bad_paths_modes_partitions_and_parallelism_are_errors(
    env: Environment, spark: SparkSession, partitioned: Any, tmp_path: Path
) -> None:
    with pytest.raises(SourceError, match="not a Delta table"):
        DeltaSource(str(tmp_path))
    with pytest.raises(SinkError, match="mode 'merge'"):
        DeltaSink("x", mode="merge")
    with pytest.raises(SinkError, match="partitioned by"):
        env.write(spark.range(3), DeltaSink(partitioned, partition_by=["id"]))
        env.execute()
    with pytest.raises(SourceError, match="invalid parallelism"):
        DeltaSource(partitioned, parallelism=0)


@pytest.mark.parametrize("mode", ["append", "overwrite", "upsert"])
@pytest.mark.parametrize("by", [(), ("id",), ("kind", "id")])
def test_changed_partition_columns_are_refused_before_the_log_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, by: tuple[str, ...]
) -> None:
    """The table was created or replaced after the job had read its partition columns."""
    path = str(tmp_path / "t")
    deltalake.write_deltalake(path, pa.table({"id": [1], "kind": ["a"]}), partition_by=["kind"])
    schema = deltalake.DeltaTable(path).schema().to_json()
    monkeypatch.setattr(PreparedDelta, "move_staged_files", lambda *_: None)
    record_class = PreparedDeltaUpsert if mode == "upsert" else PreparedDelta
    for partition_columns in (by, ("kind",)):
        record = record_class(path, path, mode, schema, partition_columns, (), "", None, "receipt")
        if partition_columns == ("kind",):
            record.make_ready(Access(None))  # type: ignore[arg-type]
        else:
            with pytest.raises(SinkError, match=r"(?s)partitions of table .* have changed.*by \('kind',\)"):
                record.commit(Access(None))  # type: ignore[arg-type]
    assert deltalake.DeltaTable(path).version() == 0
