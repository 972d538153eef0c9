"""Iceberg tables: pruning by metadata, delete files, older schemas, and a commit for each job."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from tests.support.services import require_module

require_module("pyiceberg", "iceberg")

import pyarrow as pa

from penstock.connectors import IcebergSink, IcebergSource
from penstock.errors import JobError, SinkError, SourceError
from tests.support.equality import assert_same_rows
from tests.support.stages import stages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock import Environment


AUTO = "execution.batch.adaptive.auto__parallelism."
VOLUME = {AUTO + "avg__data__volume__per__task": "256 kb"}
ROWS = 10_000


def rows(start: Any, count: Any) -> Any:
    ids = range(start, start + count)
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [f"n{i}" for i in ids], "price": [i / 3 for i in ids]})


@pytest.fixture(scope="module")
def properties(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("iceberg")
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}


@pytest.fixture(scope="module")
def catalog(properties: Any) -> Any:
    from pyiceberg.catalog import load_catalog

    iceberg_catalog = load_catalog("default", **properties)
    iceberg_catalog.create_namespace("n")
    return iceberg_catalog


@pytest.fixture(scope="module")
def table_name(catalog: Any) -> str:
    table = catalog.create_table("n.plain", rows(0, 1).schema)
    for part in range(10):
        table.append(rows(part * ROWS // 10, ROWS // 10))
    return "n.plain"


@pytest.fixture
def expected(spark: SparkSession) -> Any:
    return spark.createDataFrame(rows(0, ROWS).to_pandas(), "id bigint, name string, price double")


@pytest.mark.parametrize(
    ("options", "tasks"),
    [
        ({AUTO + "avg__data__volume__per__task": "64 mb"}, 1),
        ({AUTO + "avg__data__volume__per__task": "16 mb"}, 3),  # opening a file counts as 4 MiB
        ({AUTO + "avg__data__volume__per__task": "8 mb"}, 5),
        (VOLUME, 10),
        (VOLUME | {AUTO + "default__source__parallelism": 7}, 7),
    ],
    ids=["a split", "splits of four files", "splits of two files", "a split per file", "an upper bound"],
)
@pytest.mark.sample(3)
def test_all_rows_are_read_with_a_task_per_split(
    make_env: Callable[..., Environment],
    table_name: Any,
    properties: Any,
    expected: Any,
    options: dict[str, Any],
    tasks: int,
) -> None:
    env = make_env(**options)
    assert_same_rows(env.collect(env.read(IcebergSource(table_name, properties))), expected.collect())
    source = env.last_job.vertices[0]
    assert (source.parallelism, source.tasks) == (tasks, tasks)
    assert "10 files" in source.reason


@pytest.mark.parametrize(
    ("condition", "files"),
    [
        ("id between 4100 and 4200", 1),
        ("id in (5, 9999)", 2),
        ("name is null", 0),
        ("price > 3000 and price < 3003", 10),
        ("id < 0", 0),
    ],
)
def test_files_whose_statistics_cannot_match_are_pruned(
    make_env: Callable[..., Environment],
    spark: SparkSession,
    table_name: Any,
    properties: Any,
    expected: Any,
    condition: str,
    files: int,
) -> None:
    env = make_env()
    df = env.read(IcebergSource(table_name, properties)).where(condition).select("id", "name")
    assert_same_rows(env.collect(df), expected.where(condition).select("id", "name").collect())
    if files:
        assert re.search(rf"\b{files} files?\b", env.last_job.vertices[0].reason)
    else:
        assert not sum(stage.input_records for stage in stages(spark, env.last_job))


@pytest.mark.thorough
def test_files_with_an_older_schema_are_read_by_pyiceberg(
    make_env: Callable[..., Environment], spark: SparkSession, catalog: Any, properties: Any
) -> None:
    from pyiceberg.types import StringType

    table = catalog.create_table("n.older", rows(0, 1).schema)
    table.append(rows(0, 1000))
    with table.update_schema() as change:
        change.rename_column("name", "title")
        change.add_column("note", StringType())
    table.append(
        rows(1000, 1000).rename_columns(["id", "title", "price"]).append_column("note", pa.array(["x"] * 1000))
    )
    env = make_env(**VOLUME)
    df = env.read(IcebergSource("n.older", properties))
    by_note = df.groupBy("note").agg(F.count("*"), F.min("title"), F.sum("id"))
    assert_same_rows(
        env.collect(by_note), [(None, 1000, "n0", sum(range(1000))), ("x", 1000, "n1000", sum(range(1000, 2000)))]
    )
    assert env.count(df.where("id = 1500")) == 1
    source = env.last_job.vertices[0]
    assert source.tasks == source.parallelism == 1


@pytest.mark.thorough
@pytest.mark.parametrize("renamed", [False, True])
def test_added_files_are_read_by_the_name_mapping(
    make_env: Callable[..., Environment],
    spark: SparkSession,
    catalog: Any,
    properties: Any,
    tmp_path: Path,
    renamed: bool,
) -> None:
    """These files have no field ids, so the table has a name mapping. Spark reads them unless a column was renamed."""
    import pyarrow.parquet as pq

    name = f"n.added_{renamed}"
    table = catalog.create_table(name, rows(0, 1).schema)
    for part in range(40):
        pq.write_table(rows(part * 10, 10), tmp_path / f"{part}.parquet")
    table.add_files([str(tmp_path / f"{part}.parquet") for part in range(40)])
    if renamed:
        with table.update_schema() as change:
            change.rename_column("name", "title")
    spark.conf.set("spark.sql.sources.parallelPartitionDiscovery.threshold", 4)
    before = spark.conf.get("spark.sql.sources.parallelPartitionDiscovery.parallelism")
    tracker = spark.sparkContext.statusTracker()
    jobs = set(tracker.getJobIdsForGroup())
    env = make_env(**VOLUME)
    try:
        collected = env.collect(env.read(IcebergSource(name, properties)))
    finally:
        spark.conf.unset("spark.sql.sources.parallelPartitionDiscovery.threshold")
    assert_same_rows(collected, [tuple(row.values()) for row in rows(0, 400).to_pylist()])
    assert ("files of" in env.last_job.vertices[0].reason) is not renamed
    assert spark.conf.get("spark.sql.sources.parallelPartitionDiscovery.parallelism") == before
    listing_stages = [
        tracker.getStageInfo(stage)
        for job in set(tracker.getJobIdsForGroup()) - jobs
        for stage in tracker.getJobInfo(job).stageIds
    ]
    assert all(stage.numTasks <= 16 for stage in listing_stages), "Spark lists the files with a task per file"
    assert bool(listing_stages) is not renamed


@pytest.mark.thorough
def test_rows_deleted_by_rewriting_files_stay_deleted(env: Environment, catalog: Any, properties: Any) -> None:
    """pyiceberg deletes by copying the remaining rows of a file, so there is no delete file."""
    table = catalog.create_table("n.thinned", rows(0, 1).schema)
    table.append(rows(0, 1000))
    table.delete("id < 400")
    assert not table.inspect.delete_files().num_rows
    assert env.count(env.read(IcebergSource("n.thinned", properties))) == 600


@pytest.fixture(scope="module")
def merged_on_read(catalog: Any) -> Any:
    """Three data files and two delete files. All rows of the second data file are deleted."""
    from tests.connectors.iceberg.iceberg_deletes import delete_positions

    table = catalog.create_table("n.merged_on_read", rows(0, 1).schema)
    files: list[Any] = []
    for part in range(3):
        table.append(rows(part * 1000, 1000))
        files += {task.file.file_path for task in table.scan().plan_files()} - set(files)
    snapshot_before_deletes = table.current_snapshot().snapshot_id
    delete_positions(table, {files[0]: range(0, 1000, 2), files[1]: range(1000)})
    delete_positions(table, {files[0]: [1, 999]})
    table.append(rows(0, 2))  # newer than the deletes
    assert table.inspect.delete_files().num_rows == 2
    return snapshot_before_deletes, [*range(3, 998, 2), *range(2000, 3000), 0, 1]


@pytest.mark.parametrize("threshold", ["0", "64 mb"])
def test_rows_in_delete_files_stay_deleted(
    make_env: Callable[..., Environment], spark: SparkSession, properties: Any, merged_on_read: Any, threshold: str
) -> None:
    snapshot_before_deletes, remaining = merged_on_read
    env = make_env(**VOLUME | {"execution.batch.adaptive.whole__query__threshold": threshold})
    df = env.read(IcebergSource("n.merged_on_read", properties))
    assert sorted(row.id for row in env.collect(df)) == sorted(remaining)
    assert env.count(df) == len(remaining)
    filtered = env.collect(df.where("id < 1500 and name <> 'n5'").select("id"))
    assert sorted(row.id for row in filtered) == sorted(n for n in remaining if n < 1500 and n != 5)
    keys = spark.createDataFrame([(n,) for n in (0, 1, 2, 3, 4, 999, 1500, 2500)], "k long")
    joined = env.collect(df.join(keys, F.col("id") == F.col("k")).select("id"))
    assert sorted(row.id for row in joined) == [0, 1, 3, 2500]
    assert (
        env.count(env.read(IcebergSource("n.merged_on_read", properties, snapshot_id=snapshot_before_deletes))) == 3000
    )


def test_a_source_reads_the_snapshot_of_its_creation(env: Environment, catalog: Any, properties: Any) -> None:
    table = catalog.create_table("n.growing", rows(0, 1).schema)
    table.append(rows(0, 10))
    source = IcebergSource("n.growing", properties)
    table.append(rows(10, 10))
    assert env.count(env.read(source)) == 10
    assert env.count(env.read(IcebergSource("n.growing", properties))) == 20


def test_an_empty_table_has_no_rows(env: Environment, catalog: Any, properties: Any) -> None:
    catalog.create_table("n.empty", rows(0, 1).schema)
    assert env.collect(env.read(IcebergSource("n.empty", properties))) == []


def test_each_job_writes_in_a_single_commit(
    env: Environment, spark: SparkSession, catalog: Any, properties: Any, expected: Any
) -> None:
    wide = expected.withColumn("at", F.expr("timestamp'2026-02-03 04:05:06.789'"))
    for count in (1, 2):
        env.write(wide.repartition(3), IcebergSink("n.written", properties))
        env.execute()
        table = catalog.load_table("n.written")
        assert len(table.snapshots()) == count
        assert env.count(env.read(IcebergSource("n.written", properties))) == count * ROWS
    assert_same_rows(env.collect(env.read(IcebergSource("n.written", properties)).distinct()), wide.collect())
    env.write(wide.limit(7), IcebergSink("n.written", properties, mode="overwrite"))
    env.execute()
    assert table.refresh().scan().to_arrow().num_rows == 7


@pytest.mark.thorough
def test_a_partitioned_table_gets_a_file_per_partition(
    env: Environment, spark: SparkSession, catalog: Any, properties: Any, expected: Any
) -> None:
    from pyiceberg.transforms import IdentityTransform

    table = catalog.create_table("n.parted", pa.schema([("id", pa.int64()), ("kind", pa.string())]))
    with table.update_spec() as change:
        change.add_field("kind", IdentityTransform())
    df = expected.selectExpr("id", "concat('k', id % 3) as kind")
    env.write(df, IcebergSink("n.parted", properties))
    env.execute()
    assert table.refresh().scan(row_filter="kind = 'k1'").to_arrow().num_rows == ROWS // 3
    assert_same_rows(env.collect(env.read(IcebergSource("n.parted", properties))), df.collect())


def test_a_failed_job_leaves_no_commit(env: Environment, spark: SparkSession, catalog: Any, properties: Any) -> None:
    env.write(
        spark.range(100).selectExpr("if(id = 77, raise_error('bad row'), id) as v"), IcebergSink("n.never", properties)
    )
    with pytest.raises(JobError, match="bad row"):
        env.execute()
    assert not catalog.table_exists("n.never")


def test_a_missing_table_and_an_unknown_mode_are_errors(properties: Any) -> None:
    with pytest.raises(SourceError, match=r"no Iceberg table n\.none"):
        IcebergSource("n.none", properties)
    with pytest.raises(SinkError, match="mode 'merge'"):
        IcebergSink("n.t", properties, mode="merge")
