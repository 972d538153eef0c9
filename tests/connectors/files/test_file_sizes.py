"""Files of a target size, also if a single partition has most of the rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from penstock.connectors import FileSink
from penstock.errors import ConfigError
from tests.support.equality import assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock import Environment


ROWS = 200_000
MB = 1 << 20


def files(folder: Path, ending: str = ".parquet") -> Any:
    return sorted(file.stat().st_size for file in folder.rglob(f"*{ending}") if not file.name.startswith((".", "_")))


def near(sizes: Any, target: Any) -> Any:
    return sum(0.75 * target <= size <= 1.25 * target for size in sizes) / len(sizes)


@pytest.fixture(scope="module")
def skewed(spark: SparkSession) -> Any:
    """A DataFrame with four of five rows in a hot partition; each of four other partitions has the size of two files."""
    kind = F.expr("if(id % 5 > 0, 'hot', concat('k', id div 5 % 4))").alias("kind")
    return spark.range(0, ROWS, 1, 60).select("id", F.expr("uuid(7)").alias("text"), kind)


@pytest.mark.thorough
@pytest.mark.parametrize(("kind", "ending"), [("parquet", ".parquet"), ("json", ".json"), ("orc", ".orc")])
def test_a_skewed_partition_is_divided_into_files_of_the_target_size(
    make_env: Callable[..., Environment], spark: SparkSession, skewed: Any, tmp_path: Path, kind: str, ending: str
) -> None:
    env = make_env()
    target = MB // 4 if kind != "json" else 5 * MB // 8
    env.write(skewed, FileSink(str(tmp_path / "out"), format=kind, partition_by=["kind"], target_file_size=target))
    job = env.execute()
    hot = files(tmp_path / "out" / "kind=hot", ending)
    assert len(hot) > 8
    assert near(hot, target) >= 0.9, hot
    assert near(files(tmp_path / "out", ending), target) >= 0.8
    assert "in files of" in job.vertices[-1].reason
    written = spark.read.format(kind).load(str(tmp_path / "out"))
    assert_same_rows(
        written.groupBy("kind").agg(F.count("*"), F.sum("id")).collect(),
        skewed.groupBy("kind").agg(F.count("*"), F.sum("id")).collect(),
    )


@pytest.mark.thorough
@pytest.mark.parametrize("extra", [(), ("text",), ("nested",)], ids=["numbers", "texts", "nested values"])
def test_the_rows_of_a_single_task_are_divided_into_files_of_the_target_size(
    make_env: Callable[..., Environment], spark: SparkSession, tmp_path: Path, extra: Any
) -> None:
    """A single task reads the file of one row group, but divides the rows of a partition into slots by a hash."""
    columns = {
        "text": F.expr("sha1(string(id))").alias("text"),
        "nested": F.expr("named_struct('a', array(id), 'b', map(id, sha1(string(id))))").alias("nested"),
    }
    kind = F.expr("if(id % 10 > 0, 'hot', concat('k', id div 10 % 2))").alias("kind")
    numbers: list[Any] = [] if extra else ["id", F.expr("rand(1)").alias("x")]
    spark.range(0, ROWS if not extra else ROWS // 4, 1, 1).select(
        *numbers, *(columns[name] for name in extra), kind
    ).write.parquet(str(tmp_path / "in"))
    rows = spark.read.parquet(str(tmp_path / "in"))
    env = make_env()
    target = sum(files(tmp_path / "in")) // 20
    env.write(rows, FileSink(str(tmp_path / "out"), partition_by=["kind"], target_file_size=target))
    job = env.execute()
    hot = files(tmp_path / "out" / "kind=hot")
    if "nested" in extra or tuple(map(int, spark.version.split(".")[:2])) < (4, 1):
        assert len(hot) == 1  # no hashable column, or a Spark without custom row placement
    else:
        assert 14 <= len(hot) <= 24
        assert near(hot, target) >= 0.9, hot
        assert job.vertices[0].tasks == 1
    assert_same_rows(spark.read.parquet(str(tmp_path / "out")).select(rows.columns).collect(), rows.collect())


@pytest.mark.thorough
def test_unpartitioned_files_have_the_target_size(
    make_env: Callable[..., Environment], skewed: Any, tmp_path: Path
) -> None:
    env = make_env()
    env.write(skewed.drop("kind"), FileSink(str(tmp_path / "out"), target_file_size="512 kb"))
    env.execute()
    sizes = files(tmp_path / "out")
    assert len(sizes) > 8
    assert near(sizes, MB // 2) >= 0.9, sizes


def test_small_partitions_share_a_task(
    make_env: Callable[..., Environment], spark: SparkSession, tmp_path: Path
) -> None:
    env = make_env()
    df = spark.range(0, 10_000, 1, 20).withColumn("kind", F.col("id") % 50)
    env.write(df, FileSink(str(tmp_path / "out"), partition_by=["kind"]))
    job = env.execute()
    assert len(files(tmp_path / "out")) == 50  # instead of 20 per partition
    assert job.vertices[-1].parallelism == 1


def test_the_parallelism_of_the_user_applies(
    make_env: Callable[..., Environment], spark: SparkSession, tmp_path: Path
) -> None:
    env = make_env()
    df = spark.range(0, 1000, 1, 4).withColumn("kind", F.col("id") % 2)
    env.write(df, FileSink(str(tmp_path / "out"), partition_by=["kind"], parallelism=3))
    job = env.execute()
    assert job.vertices[-1].parallelism == 3


@pytest.mark.thorough
def test_small_queries_write_a_file_per_partition(spark: SparkSession, tmp_path: Path) -> None:
    """Queries below the whole-query threshold also have files of the target size."""
    from penstock import Environment

    df = spark.range(0, 5000, 1, 16).withColumn("kind", F.col("id") % 3)
    env = Environment(spark, progress=False)
    env.write(df, FileSink(str(tmp_path / "out"), partition_by=["kind"]))
    env.execute()
    assert len(files(tmp_path / "out")) == 3


@pytest.mark.parametrize("size", ["0", "-1", "many"])
def test_a_bad_target_size_is_an_error(size: str) -> None:
    with pytest.raises(ConfigError, match=r"sink\.target-file-size"):
        FileSink("x", target_file_size=size)
