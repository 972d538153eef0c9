"""Iceberg tables: files by their metadata, deleted rows and older schemas read right, a job is one commit."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from tests.services import needed_module

needed_module("pyiceberg", "iceberg")

import pyarrow as pa

from penstock.connectors import IcebergSink, IcebergSource
from penstock.errors import JobError, SinkError, SourceError
from tests.equality import assert_same_rows
from tests.stages import stages

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from penstock import Environment


VOLUME = {"execution.batch.adaptive.auto__parallelism.avg__data__volume__per__task": "256 kb"}
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

    found = load_catalog("default", **properties)
    found.create_namespace("n")
    return found


@pytest.fixture(scope="module")
def table(catalog: Any) -> str:
    made = catalog.create_table("n.plain", rows(0, 1).schema)
    for part in range(10):
        made.append(rows(part * ROWS // 10, ROWS // 10))
    return "n.plain"


@pytest.fixture
def expected(spark: SparkSession) -> Any:
    return spark.createDataFrame(rows(0, ROWS).to_pandas(), "id bigint, name string, price double")


def test_all_rows(make_env: Callable[..., Environment], table: Any, properties: Any, expected: Any) -> None:
    env = make_env(**VOLUME)
    assert_same_rows(env.collect(env.read(IcebergSource(table, properties))), expected.collect())
    first = env.last_job.vertices[0]
    assert first.tasks == first.parallelism
    assert "10 files" in first.reason


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
def test_files_that_cannot_match_are_left_out(
    make_env: Callable[..., Environment],
    spark: SparkSession,
    table: Any,
    properties: Any,
    expected: Any,
    condition: str,
    files: int,
) -> None:
    env = make_env()
    df = env.read(IcebergSource(table, properties)).where(condition).select("id", "name")
    assert_same_rows(env.collect(df), expected.where(condition).select("id", "name").collect())
    if files:
        assert re.search(rf"\b{files} files?\b", env.last_job.vertices[0].reason)
    else:
        assert not sum(stage.input_records for stage in stages(spark, env.last_job))


@pytest.mark.thorough
def test_older_schemas_are_read_by_pyiceberg(
    make_env: Callable[..., Environment], spark: SparkSession, catalog: Any, properties: Any
) -> None:
    from pyiceberg.types import StringType

    made = catalog.create_table("n.older", rows(0, 1).schema)
    made.append(rows(0, 1000))
    with made.update_schema() as change:
        change.rename_column("name", "title")
        change.add_column("note", StringType())
    made.append(rows(1000, 1000).rename_columns(["id", "title", "price"]).append_column("note", pa.array(["x"] * 1000)))
    env = make_env(**VOLUME)
    df = env.read(IcebergSource("n.older", properties))
    found = df.groupBy("note").agg(F.count("*"), F.min("title"), F.sum("id"))
    assert_same_rows(
        env.collect(found), [(None, 1000, "n0", sum(range(1000))), ("x", 1000, "n1000", sum(range(1000, 2000)))]
    )
    assert env.count(df.where("id = 1500")) == 1
    first = env.last_job.vertices[0]
    assert first.tasks == first.parallelism == 1


@pytest.mark.thorough
@pytest.mark.parametrize("renamed", [False, True])
def test_files_that_were_added_are_read_by_their_names(
    make_env: Callable[..., Environment],
    spark: SparkSession,
    catalog: Any,
    properties: Any,
    tmp_path: Path,
    renamed: bool,
) -> None:
    """Such files have no ids of columns, and the table a mapping of names; Spark reads them if no column was renamed."""
    import pyarrow.parquet as pq

    name = f"n.added_{renamed}"
    made = catalog.create_table(name, rows(0, 1).schema)
    for part in range(40):
        pq.write_table(rows(part * 10, 10), tmp_path / f"{part}.parquet")
    made.add_files([str(tmp_path / f"{part}.parquet") for part in range(40)])
    if renamed:
        with made.update_schema() as change:
            change.rename_column("name", "called")
    spark.conf.set("spark.sql.sources.parallelPartitionDiscovery.threshold", 4)
    before = spark.conf.get("spark.sql.sources.parallelPartitionDiscovery.parallelism")
    tracker = spark.sparkContext.statusTracker()
    jobs = set(tracker.getJobIdsForGroup())
    env = make_env(**VOLUME)
    try:
        found = env.collect(env.read(IcebergSource(name, properties)))
    finally:
        spark.conf.unset("spark.sql.sources.parallelPartitionDiscovery.threshold")
    assert_same_rows(found, [tuple(row.values()) for row in rows(0, 400).to_pylist()])
    assert ("files of" in env.last_job.vertices[0].reason) is not renamed
    assert spark.conf.get("spark.sql.sources.parallelPartitionDiscovery.parallelism") == before
    listed = [
        tracker.getStageInfo(stage)
        for job in set(tracker.getJobIdsForGroup()) - jobs
        for stage in tracker.getJobInfo(job).stageIds
    ]
    assert all(stage.numTasks <= 16 for stage in listed), "Spark lists files by a task for each"
    assert bool(listed) is not renamed


@pytest.mark.thorough
def test_rows_of_files_that_were_written_anew_stay_deleted(env: Environment, catalog: Any, properties: Any) -> None:
    """A delete of pyiceberg copies what is left of a file: no delete file is made."""
    made = catalog.create_table("n.thinned", rows(0, 1).schema)
    made.append(rows(0, 1000))
    made.delete("id < 400")
    assert not made.inspect.delete_files().num_rows
    assert env.count(env.read(IcebergSource("n.thinned", properties))) == 600


@pytest.fixture(scope="module")
def merged_on_read(catalog: Any) -> Any:
    """A table of three files and two delete files: rows of two of them, and once more of one; a file without any row left."""
    from tests.connectors.iceberg_deletes import delete_positions

    made = catalog.create_table("n.merged_on_read", rows(0, 1).schema)
    files: list[Any] = []
    for part in range(3):
        made.append(rows(part * 1000, 1000))
        files += {task.file.file_path for task in made.scan().plan_files()} - set(files)
    before = made.current_snapshot().snapshot_id
    delete_positions(made, {files[0]: range(0, 1000, 2), files[1]: range(1000)})
    delete_positions(made, {files[0]: [1, 999]})
    made.append(rows(0, 2))  # deletes are older than these
    assert made.inspect.delete_files().num_rows == 2
    return before, [*range(3, 998, 2), *range(2000, 3000), 0, 1]


@pytest.mark.parametrize("threshold", ["0", "64 mb"])
def test_rows_of_delete_files_stay_deleted(
    make_env: Callable[..., Environment], spark: SparkSession, properties: Any, merged_on_read: Any, threshold: str
) -> None:
    before, left = merged_on_read
    env = make_env(**VOLUME | {"execution.batch.adaptive.whole__query__threshold": threshold})
    df = env.read(IcebergSource("n.merged_on_read", properties))
    assert sorted(row.id for row in env.collect(df)) == sorted(left)
    assert env.count(df) == len(left)
    few = env.collect(df.where("id < 1500 and name <> 'n5'").select("id"))
    assert sorted(row.id for row in few) == sorted(n for n in left if n < 1500 and n != 5)
    wanted = spark.createDataFrame([(n,) for n in (0, 1, 2, 3, 4, 999, 1500, 2500)], "k long")
    joined = env.collect(df.join(wanted, F.col("id") == F.col("k")).select("id"))
    assert sorted(row.id for row in joined) == [0, 1, 3, 2500]
    assert env.count(env.read(IcebergSource("n.merged_on_read", properties, snapshot_id=before))) == 3000


def test_a_snapshot_stays_as_it_was(env: Environment, catalog: Any, properties: Any) -> None:
    made = catalog.create_table("n.growing", rows(0, 1).schema)
    made.append(rows(0, 10))
    source = IcebergSource("n.growing", properties)
    made.append(rows(10, 10))
    assert env.count(env.read(source)) == 10
    assert env.count(env.read(IcebergSource("n.growing", properties))) == 20


def test_an_empty_table(env: Environment, catalog: Any, properties: Any) -> None:
    catalog.create_table("n.empty", rows(0, 1).schema)
    assert env.collect(env.read(IcebergSource("n.empty", properties))) == []


def test_written_rows_appear_in_one_commit(
    env: Environment, spark: SparkSession, catalog: Any, properties: Any, expected: Any
) -> None:
    wide = expected.withColumn("at", F.expr("timestamp'2026-02-03 04:05:06.789'"))
    for count in (1, 2):
        env.write(wide.repartition(3), IcebergSink("n.written", properties))
        env.execute()
        made = catalog.load_table("n.written")
        assert len(made.snapshots()) == count
        assert env.count(env.read(IcebergSource("n.written", properties))) == count * ROWS
    assert_same_rows(env.collect(env.read(IcebergSource("n.written", properties)).distinct()), wide.collect())
    env.write(wide.limit(7), IcebergSink("n.written", properties, mode="overwrite"))
    env.execute()
    assert made.refresh().scan().to_arrow().num_rows == 7


@pytest.mark.thorough
def test_partitioned_tables_get_files_of_one_value(
    env: Environment, spark: SparkSession, catalog: Any, properties: Any, expected: Any
) -> None:
    from pyiceberg.transforms import IdentityTransform

    made = catalog.create_table("n.parted", pa.schema([("id", pa.int64()), ("kind", pa.string())]))
    with made.update_spec() as change:
        change.add_field("kind", IdentityTransform())
    df = expected.selectExpr("id", "concat('k', id % 3) as kind")
    env.write(df, IcebergSink("n.parted", properties))
    env.execute()
    assert made.refresh().scan(row_filter="kind = 'k1'").to_arrow().num_rows == ROWS // 3
    assert_same_rows(env.collect(env.read(IcebergSource("n.parted", properties))), df.collect())


def test_a_failed_job_leaves_no_commit(env: Environment, spark: SparkSession, catalog: Any, properties: Any) -> None:
    env.write(
        spark.range(100).selectExpr("if(id = 77, raise_error('bad row'), id) as v"), IcebergSink("n.never", properties)
    )
    with pytest.raises(JobError, match="bad row"):
        env.execute()
    assert not catalog.table_exists("n.never")


def test_bad_targets(properties: Any) -> None:
    with pytest.raises(SourceError, match=r"no Iceberg table n\.none"):
        IcebergSource("n.none", properties)
    with pytest.raises(SinkError, match="mode 'merge'"):
        IcebergSink("n.t", properties, mode="merge")
