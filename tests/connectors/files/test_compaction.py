"""Auto-compaction: small files are merged before the commit, with the same rows."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never

import pytest
from pyspark.sql import functions as F

from penstock.connectors import FileSink
from penstock.connectors.files.compaction import groups_to_merge
from penstock.errors import SinkError
from tests.connectors.files.test_file_sizes import files
from tests.support.equality import assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock import Environment


pytestmark = pytest.mark.usefixtures("interpreted")
# name: files, target, groups
GROUPS = {
    "none": ([], 100, []),
    "a single small file": ([("a", 10)], 100, []),
    "two small files": ([("a", 10), ("b", 20)], 100, [["a", "b"]]),
    "large ones stay": ([("a", 10), ("b", 50), ("c", 20)], 100, [["a", "c"]]),
    "folders stay apart": ([("k=1/a", 10), ("k=2/b", 10), ("k=1/c", 10)], 100, [["k=1/a", "k=1/c"]]),
    "about the target": ([(str(i), 40) for i in range(5)], 100, [["0", "2", "4"], ["1", "3"]]),
    "empty files too": ([("a", 0), ("b", 0)], 100, [["a", "b"]]),
}


@pytest.mark.parametrize("name", GROUPS)
def test_small_files_are_grouped_by_folder_up_to_the_target_size(name: str) -> None:
    file_sizes, target, expected = GROUPS[name]
    assert groups_to_merge(file_sizes, target) == expected


@pytest.fixture
def small_files(spark: SparkSession) -> Any:
    """A DataFrame of ten partitions with columns of many types."""
    return spark.range(0, 1000, 1, 10).selectExpr(
        "id",
        "if(id % 7 = 0, null, concat('t ', id, '/=%'))  as text",
        "cast(id as decimal(20, 4)) / 3 as price",
        "timestamp_micros(id * 1000001) as at",
        "date_add(date '2024-01-01', int(id % 3)) as day",
        "array(id, null) as list",
        "named_struct('x', id, 'y', map('k', id)) as inner",
        "if(id % 11 = 0, null, concat('a b/', id % 3)) as kind",
    )


@pytest.mark.parametrize("kind", ["parquet", "orc"])
@pytest.mark.parametrize("by", [[], ["kind"], ["day", "kind"]])
def test_small_files_are_merged_into_a_file_per_partition(
    make_env: Callable[..., Environment],
    spark: SparkSession,
    small_files: Any,
    tmp_path: Path,
    kind: str,
    by: list[str],
) -> None:
    env = make_env()
    sink = FileSink(str(tmp_path / "out"), format=kind, partition_by=by, parallelism=10, auto_compaction=True)
    env.write(small_files, sink)
    job = env.execute()
    folders = small_files.select(*by).distinct().count() if by else 1
    assert len(files(tmp_path / "out", f".{kind}")) == folders
    (stage,) = [vertex for vertex in job.vertices if "Compaction" in vertex.vertex.name]
    assert stage.tasks == folders
    assert "smaller than half of 128.0 MiB" in stage.reason
    written = spark.read.format(kind).schema(small_files.schema).load(str(tmp_path / "out"))
    written = written.select(*small_files.columns)  # Spark puts partition columns last
    assert written.schema.simpleString() == small_files.schema.simpleString()
    assert_same_rows(written.collect(), small_files.collect())
    assert {path.name for path in tmp_path.iterdir()} == {"out"}


@pytest.mark.thorough
def test_an_append_does_not_merge_older_files(
    make_env: Callable[..., Environment], spark: SparkSession, tmp_path: Path
) -> None:
    env = make_env(**{"sink.auto__compaction": True})
    for start in (0, 100):
        env.write(spark.range(start, start + 100, 1, 10), FileSink(str(tmp_path / "out"), mode="append"))
        env.execute()
    assert len(files(tmp_path / "out")) == 2
    assert spark.read.parquet(str(tmp_path / "out")).agg(F.sum("id")).first()[0] == sum(range(200))


@pytest.mark.thorough
def test_large_files_are_not_merged(make_env: Callable[..., Environment], spark: SparkSession, tmp_path: Path) -> None:
    env = make_env()
    df = spark.range(0, 100_000, 1, 4)
    env.write(df, FileSink(str(tmp_path / "out"), parallelism=4, target_file_size="100 kb", auto_compaction=True))
    job = env.execute()
    assert len(files(tmp_path / "out")) == 4
    assert "nothing to merge" in job.vertices[-1].reason


def test_compaction_of_csv_is_an_error() -> None:
    with pytest.raises(SinkError, match="csv cannot be merged"):
        FileSink("x", format="csv", auto_compaction=True)


def test_a_failed_merge_leaves_no_files(
    make_env: Callable[..., Environment], spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.connectors.files import sink_job as module

    def fail(*_: Any) -> Never:
        raise OSError("the disk is full")

    monkeypatch.setattr(module, "compact", fail)
    env = make_env()
    env.write(spark.range(10), FileSink(str(tmp_path / "out"), auto_compaction=True))
    with pytest.raises(Exception, match="the disk is full"):
        env.execute()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.thorough
def test_merged_parquet_files_preserve_special_values(
    make_env: Callable[..., Environment], spark: SparkSession, tmp_path: Path
) -> None:
    env = make_env()
    rows = [(1, decimal.Decimal("1.10"), dt.date(1582, 10, 3), float("nan"), b"\x00\xff", "")]
    df = spark.createDataFrame(rows, "id int, price decimal(9, 2), day date, ratio double, raw binary, text string")
    both = df.union(df).repartition(2)
    env.write(both, FileSink(str(tmp_path / "out"), parallelism=2, auto_compaction=True))
    env.execute()
    assert_same_rows(spark.read.parquet(str(tmp_path / "out")).collect(), both.collect())
