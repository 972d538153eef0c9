"""Parquet files on a real S3 server, read without a Hadoop file system."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from penstock.connectors import ObjectStoreSource, Predicate, ScanContext
from penstock.connectors.files.object_store import _pack, _partition_values
from penstock.errors import SourceError
from tests.support.equality import assert_same_rows
from tests.support.stages import stages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock import Environment
    from tests.support.services import SeaweedFs


VOLUME = {"execution.batch.adaptive.auto__parallelism.avg__data__volume__per__task": "128 kb"}
ROWS = 40_000


def rows(start: Any, count: Any) -> Any:
    ids = range(start, start + count)
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [f"n{i * 7919 % 100_003}" for i in ids]})


@pytest.fixture(scope="module")
def bucket(s3: SeaweedFs) -> Any:
    """A bucket with forty small files in four partitions, and a large file of many row groups."""
    system = s3.filesystem()
    system.create_dir("bucket")
    for i in range(40):
        kind = [None, "a", "b c", "d"][i % 4]
        folder = f"bucket/small/kind={'__HIVE_DEFAULT_PARTITION__' if kind is None else kind}"
        pq.write_table(rows(i * ROWS // 40, ROWS // 40), f"{folder}/f{i}.parquet", filesystem=system)
    pq.write_table(rows(0, ROWS), "bucket/large/file.parquet", filesystem=system, row_group_size=2000)
    return s3


@pytest.mark.thorough
@pytest.mark.parametrize(("folder", "min_parallelism"), [("small", 4), ("large", 3)])
def test_each_row_is_read_once_in_splits_of_similar_size(
    make_env: Callable[..., Environment], spark: SparkSession, bucket: Any, folder: str, min_parallelism: int
) -> None:
    env = make_env(**VOLUME)
    df = env.read(ObjectStoreSource(f"s3://bucket/{folder}", bucket.options))
    (row,) = env.collect(df.agg(F.count("*"), F.countDistinct("id"), F.sum("id")))
    assert tuple(row) == (ROWS, ROWS, ROWS * (ROWS - 1) // 2)
    source = env.last_job.vertices[0]
    assert source.parallelism >= min_parallelism
    splits = ObjectStoreSource(f"s3://bucket/{folder}", bucket.options).enumerate_splits(ScanContext(100, 128 << 10))
    sizes = [sum(part.size for part in split) for split in splits]
    assert source.parallelism == len(splits)
    assert max(sizes) <= 1.5 * sum(sizes) / len(sizes)
    assert any(stage.tasks == source.parallelism for stage in stages(spark, env.last_job, folder))


@pytest.mark.thorough
def test_partition_values_are_columns_and_prune_files(make_env: Callable[..., Environment], bucket: Any) -> None:
    env = make_env(**VOLUME)
    df = env.read(ObjectStoreSource("s3://bucket/small", bucket.options))
    counts = env.collect(df.groupBy("kind").count())
    assert_same_rows(counts, [(kind, ROWS // 4) for kind in (None, "a", "b c", "d")])
    assert env.count(df.where("kind = 'b c'")) == ROWS // 4
    assert env.last_job.vertices[0].parallelism <= 5  # 20 without pruning
    source = ObjectStoreSource("s3://bucket/small", bucket.options)
    splits = source.enumerate_splits(ScanContext(100, 1 << 20, predicates=(Predicate("=", "kind", ("d",)),)))
    assert {part.path.split("/")[-2] for split in splits for part in split} == {"kind=d"}


def test_local_files_are_read(env: Environment, tmp_path: Path) -> None:
    pq.write_table(rows(0, 100), tmp_path / "a.parquet")
    assert env.count(env.read(ObjectStoreSource(f"file://{tmp_path}"))) == 100


def test_missing_files_buckets_and_wrong_secrets_are_errors(bucket: Any, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no files below"):
        ObjectStoreSource(f"file://{tmp_path}").schema  # noqa: B018
    with pytest.raises(SourceError, match="cannot be listed") as raised:
        ObjectStoreSource("s3://bucket/small", bucket.options | {"secret_key": "not-this-one"}).schema  # noqa: B018
    assert "not-this-one" not in str(raised.value)
    with pytest.raises(SourceError, match="cannot be listed"):
        ObjectStoreSource("s3://no-bucket/x", bucket.options).schema  # noqa: B018


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [([], []), ([60, 60, 60], [[60, 60], [60]]), ([500], [[500]]), ([10] * 5, [[10, 10, 10], [10, 10]])],
)
def test_small_files_are_packed_up_to_the_split_size(sizes: Any, expected: Any) -> None:
    assert _pack(sizes, [size + 350 // 4 for size in sizes], 350) == expected


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("r/a.parquet", {}),
        ("r/k=1/b%20c=x%2Fy/a", {"k": "1", "b c": "x/y"}),
        ("r/k=__HIVE_DEFAULT_PARTITION__/a", {"k": None}),
        ("r/d/k=2/a", {"k": "2"}),
    ],
)
def test_partition_values_are_read_from_the_path(path: str, values: Any) -> None:
    assert _partition_values(path, "r") == values
