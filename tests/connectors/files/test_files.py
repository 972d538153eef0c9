"""File sources and sinks: the decided number of tasks runs, and outputs appear atomically."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from penstock.connectors import FileSink, FileSource
from penstock.decisions.log import DecisionKind
from penstock.errors import SinkError
from penstock.spark.plans.dataframes import with_settings
from tests.support.equality import assert_as_plain_spark, assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock import Environment


VOLUME = {"execution.batch.adaptive.auto__parallelism.avg__data__volume__per__task": "64 kb"}


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    root = tmp_path_factory.mktemp("files")
    df = spark.range(0, 60_000, 1, 3).selectExpr("id", "uuid(7) as s", "id % 5 as part")
    for kind in ("parquet", "orc", "json", "csv"):
        df.write.format(kind).save(str(root / kind))
    df.select("s").write.text(str(root / "text"))
    df.write.partitionBy("part").parquet(str(root / "partitioned"))
    df.repartition(200).write.parquet(str(root / "tiny"))
    (root / "packed").mkdir()
    with gzip.open(root / "packed" / "x.csv.gz", "wt") as file:
        file.writelines(f"{i},{i}\n" for i in range(200_000))
    return root


def count_stage_tasks(spark: SparkSession, job: Any) -> Any:
    """Return the numbers of tasks of the first vertex's stages, from Spark's status tracker."""
    from penstock.spark.bridge.jvm import Bridge
    from penstock.spark.run.jobs import stages_of

    return [stage.tasks for stage in stages_of(Bridge(spark), f"penstock-{job.id}-v1")]


@pytest.mark.parametrize("kind", ["parquet", "orc", "json", "csv", "text"])
@pytest.mark.parametrize("variant", ["plain", "source", "bound"])
def test_the_decided_number_of_tasks_runs(
    make_env: Callable[..., Environment], spark: SparkSession, folder: Any, kind: str, variant: str
) -> None:
    env = make_env(
        **VOLUME,
        **(
            {"execution.batch.adaptive.auto__parallelism.default__source__parallelism": 3} if variant == "bound" else {}
        ),
    )
    source = FileSource(str(folder / kind), kind)
    df = env.read(source) if variant == "source" else source.read(spark)
    grouped = df.groupBy(F.length(df.columns[0] if kind == "text" else df.columns[1])).count()
    assert_as_plain_spark(env, grouped)
    source_vertex = env.last_job.vertices[0]
    assert source_vertex.tasks == source_vertex.parallelism
    assert source_vertex.parallelism == 3 if variant == "bound" else source_vertex.parallelism > 3
    assert source_vertex.parallelism in count_stage_tasks(spark, env.last_job)


def test_catalog_tables_have_their_name_and_decided_parallelism(
    make_env: Callable[..., Environment], spark: SparkSession, folder: Any
) -> None:
    spark.sql(f"create table if not exists files_table using parquet location '{folder / 'parquet'}'")
    env = make_env(**VOLUME)
    df = spark.table("files_table").groupBy("part").count()
    assert_as_plain_spark(env, df)
    source_vertex = env.last_job.vertices[0]
    assert "files_table" in source_vertex.vertex.name
    assert source_vertex.tasks == source_vertex.parallelism > 3
    spark.sql("drop table files_table")


@pytest.mark.thorough
def test_pruned_partitions_reduce_the_parallelism(
    make_env: Callable[..., Environment], spark: SparkSession, folder: Any
) -> None:
    env = make_env(**VOLUME)
    df = spark.read.parquet(str(folder / "partitioned"))
    env.collect(df.groupBy("part").count())
    unpruned = env.last_job.vertices[0]
    env.collect(df.where("part = 3").groupBy("id").count())
    pruned = env.last_job.vertices[0]
    assert pruned.tasks == pruned.parallelism
    assert pruned.parallelism * 3 < unpruned.parallelism


@pytest.mark.thorough
def test_partitions_with_words_of_plans_in_their_values_are_pruned(
    make_env: Callable[..., Environment], spark: SparkSession, tmp_path: Any
) -> None:
    for value, rows in (("a subquery", 10), ("others", 100_000)):
        spark.range(rows).coalesce(1).write.parquet(f"{tmp_path}/part={value}")
    env = make_env(**VOLUME)
    df = spark.read.parquet(str(tmp_path)).where("part = 'a subquery'")
    assert_as_plain_spark(env, df)
    source_vertex = env.last_job.vertices[0]
    assert source_vertex.tasks == source_vertex.parallelism == 1


def write_corrupt(path: Path) -> None:
    """Write a file of four row groups. In the second row group the column ``id`` is corrupt."""
    table = pa.table({"id": range(40_000), "n": range(40_000)})
    pq.write_table(table, path, row_group_size=10_000, compression="none", use_dictionary=False)
    content = bytearray(path.read_bytes())
    content[pq.ParquetFile(path).metadata.row_group(1).column(0).data_page_offset + 2] ^= 0xFF
    path.write_bytes(content)


@pytest.mark.parametrize("option", [True, False], ids=["option", "setting"])
def test_the_remaining_rows_of_a_corrupt_file_are_the_same_as_in_plain_spark(
    make_env: Callable[..., Environment], spark: SparkSession, tmp_path: Any, *, option: bool
) -> None:
    """A task skips the rest of its split after the corrupt page, so the remaining rows depend on Spark's splits."""
    write_corrupt(tmp_path / "a.parquet")
    env = make_env(**VOLUME)
    name = "ignoreCorruptFiles"
    with with_settings(spark, {} if option else {f"spark.sql.files.{name}": "true"}):
        rows = spark.read.options(**({name: True} if option else {})).parquet(str(tmp_path))
        assert 0 < len(rows.collect()) < 40_000
        assert_as_plain_spark(env, rows)


@pytest.mark.thorough
def test_dynamic_filters_do_not_prune_a_corrupt_row_group(
    make_env: Callable[..., Environment], spark: SparkSession, tmp_path: Any
) -> None:
    """Plain Spark loses the rows after the corrupt row group, so pruning that group must not restore them."""
    (tmp_path / "facts").mkdir()
    write_corrupt(tmp_path / "facts" / "a.parquet")
    spark.range(30_000, 40_000).selectExpr("id", "id % 5000 as n").write.parquet(str(tmp_path / "keys"))
    env = make_env(**{"table.optimizer.join.broadcast__threshold": "-1"})
    with with_settings(
        spark, {"spark.sql.files.ignoreCorruptFiles": "true", "spark.sql.autoBroadcastJoinThreshold": "-1"}
    ):
        keys = spark.read.parquet(str(tmp_path / "keys")).where("n = 0")
        assert_as_plain_spark(env, spark.read.parquet(str(tmp_path / "facts")).join(keys, "id"))
    kinds = {decision.kind for decision in env.last_job.decisions}
    assert DecisionKind.DYNAMIC_FILTER in kinds


@pytest.mark.thorough
def test_outputs_that_read_different_columns_of_a_corrupt_file_have_the_expected_rows(
    env: Environment, spark: SparkSession, tmp_path: Any
) -> None:
    write_corrupt(tmp_path / "a.parquet")
    with with_settings(spark, {"spark.sql.files.ignoreCorruptFiles": "true"}):
        groups = spark.read.parquet(str(tmp_path)).groupBy("n").agg(F.count("*").alias("c"), F.sum("id").alias("s"))
        queries = [groups.agg(F.sum("c")), groups.agg(F.sum("s"))]
        expected = [df.collect() for df in queries]
        for number, df in enumerate(queries):
            env.write(df, FileSink(str(tmp_path / f"out-{number}"), "parquet"))
        env.execute()
        assert [spark.read.parquet(str(tmp_path / f"out-{number}")).collect() for number in (0, 1)] == expected


FIXED = {"execution.batch.adaptive.auto__parallelism.enabled": False, "parallelism.default": 2}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("options", "setting", "reason"),
    [
        ({}, {}, ""),
        ({"scan.parallelism": "2"}, {}, ", so the parallelism of 2 does not apply"),
        ({}, FIXED, ""),
    ],
    ids=["free", "scan.parallelism", "fixed"],
)
def test_sources_of_queries_that_depend_on_partitions_have_the_splits_of_spark(
    make_env: Callable[..., Environment], spark: SparkSession, folder: Any, options: Any, setting: Any, reason: str
) -> None:
    env = make_env(**VOLUME, **setting)
    tiny = spark.read.options(**options).parquet(str(folder / "tiny"))
    assert_as_plain_spark(env, tiny.select("id", F.monotonically_increasing_id(), F.spark_partition_id()))
    source_vertex = env.last_job.vertices[0]
    assert source_vertex.tasks == tiny.rdd.getNumPartitions() > 2
    reasons = [decision.reason for decision in env.last_job.decisions if "Spark splits" in decision.reason]
    assert reasons == [f"Spark splits this source itself{reason}: its rows depend on its tasks"]


def test_dynamic_partition_pruning_gives_the_same_rows(env: Environment, spark: SparkSession, folder: Any) -> None:
    facts = spark.read.parquet(str(folder / "partitioned"))
    keys = spark.createDataFrame([(1, "a"), (3, "b"), (9, "a")], "part int, team string").where("team = 'a'")
    df = facts.join(keys, "part").groupBy("team").agg(F.count("*"), F.sum("id"))
    assert "dynamicpruning" in df._jdf.queryExecution().optimizedPlan().toString()
    assert_as_plain_spark(env, df)


def test_tiny_files_share_splits(make_env: Callable[..., Environment], spark: SparkSession, folder: Any) -> None:
    env = make_env()
    df = spark.read.parquet(str(folder / "tiny"))
    assert env.count(df) == 60_000
    source_vertex = env.last_job.vertices[0]
    assert (
        source_vertex.tasks == source_vertex.parallelism == 13
    )  # four MiB for opening a file, 64 MiB per task on so few cores


def test_an_unsplittable_file_has_a_reason(
    make_env: Callable[..., Environment], spark: SparkSession, folder: Any
) -> None:
    env = make_env(**VOLUME, **{"scan.parallelism": 4})
    df = spark.read.csv(str(folder / "packed"))
    assert env.count(df) == 200_000
    source_vertex = env.last_job.vertices[0]
    assert (source_vertex.parallelism, source_vertex.tasks) == (1, 1)
    assert "can be split into at most 1" in source_vertex.reason


@pytest.mark.parametrize(
    ("option", "expected"), [({"scan.parallelism": "5"}, 5), ({"scan.infer-parallelism.max": "2"}, 2)]
)
def test_parallelism_options_of_the_reader_apply(
    make_env: Callable[..., Environment], spark: SparkSession, folder: Any, option: dict[str, Any], expected: int
) -> None:
    env = make_env(**VOLUME)
    env.count(spark.read.options(**option).parquet(str(folder / "parquet")))
    source_vertex = env.last_job.vertices[0]
    assert source_vertex.tasks == source_vertex.parallelism == expected


def test_an_empty_folder_has_no_rows(env: Environment, spark: SparkSession, tmp_path: Path) -> None:
    spark.range(0).write.parquet(str(tmp_path / "none"))
    df = spark.read.parquet(str(tmp_path / "none")).groupBy("id").count()
    assert env.collect(df) == []


# -- sinks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["parquet", "orc", "json", "csv"])
@pytest.mark.parametrize("parallelism", [None, 1, 3])
def test_a_file_sink_writes_all_rows_with_the_parallelism_of_the_user(
    env: Environment, spark: SparkSession, folder: Any, tmp_path: Path, kind: str, parallelism: int | None
) -> None:
    df = spark.read.parquet(str(folder / "parquet")).groupBy("part").agg(F.count("*").alias("n"))
    path = str(tmp_path / "out")
    env.write(df, FileSink(path, kind), parallelism=parallelism)
    env.execute()
    written = spark.read.schema(df.schema).format(kind).load(path)
    assert_same_rows(written.collect(), df.collect())
    assert (tmp_path / "out" / "_SUCCESS").exists()
    if parallelism:
        assert env.last_job.vertices[-1].parallelism == parallelism


@pytest.mark.parametrize("parallelism", [1, 4])
def test_a_sink_is_chained_unless_it_has_its_own_parallelism(
    env: Environment, spark: SparkSession, folder: Any, tmp_path: Path, parallelism: int
) -> None:
    df = spark.read.option("scan.parallelism", "2").parquet(str(folder / "parquet"))
    env.write(df, FileSink(str(tmp_path / "chained")))
    env.execute()
    assert len(list((tmp_path / "chained").glob("part-*"))) == 2
    assert len(env.last_job.vertices) == 1
    env.write(df, FileSink(str(tmp_path / "own"), parallelism=parallelism))
    env.execute()
    assert len(list((tmp_path / "own").glob("part-*"))) == parallelism
    assert [v.parallelism for v in env.last_job.vertices] == [2, parallelism]


@pytest.mark.thorough
def test_a_sorted_result_is_written_in_order(
    env: Environment, spark: SparkSession, folder: Any, tmp_path: Path
) -> None:
    df = spark.read.parquet(str(folder / "parquet")).orderBy("s")
    env.write(df, FileSink(str(tmp_path / "sorted"), "csv"), parallelism=1)
    env.execute()
    (file,) = (tmp_path / "sorted").glob("part-*")
    keys = [line.split(",")[1] for line in file.read_text().splitlines()]
    assert len(keys) == 60_000
    assert keys == sorted(keys)


@pytest.mark.thorough
def test_write_modes(env: Environment, spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "out")

    def write(mode: Any, values: Any) -> Any:
        env.write(spark.range(values).toDF("v"), FileSink(path, mode=mode))
        env.execute()
        return spark.read.parquet(path).count()

    assert write("error", 5) == 5
    assert write("append", 3) == 8
    assert write("ignore", 9) == 8
    assert write("overwrite", 2) == 2
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]


@pytest.mark.thorough
def test_a_job_can_overwrite_the_path_that_it_reads(env: Environment, spark: SparkSession, tmp_path: Path) -> None:
    """The old files are removed after the new files are staged."""
    path = str(tmp_path / "out")
    spark.range(10).toDF("v").write.parquet(path)
    env.write(spark.read.parquet(path).selectExpr("v + 100 as v"), FileSink(path, mode="overwrite"))
    env.execute()
    assert sorted(row.v for row in spark.read.parquet(path).collect()) == list(range(100, 110))


@pytest.mark.thorough
def test_partitioned_writes_create_a_folder_per_value(
    env: Environment, spark: SparkSession, folder: Any, tmp_path: Path
) -> None:
    df = spark.read.parquet(str(folder / "parquet"))
    for mode in ("error", "append"):
        env.write(df.where("id < 50"), FileSink(str(tmp_path / "out"), mode=mode, partition_by=["part"]))
        env.execute()
    assert sorted(p.name for p in (tmp_path / "out").glob("part=*")) == [f"part={i}" for i in range(5)]
    assert spark.read.parquet(str(tmp_path / "out")).count() == 100


def test_a_target_that_is_a_file(env: Environment, spark: SparkSession, tmp_path: Path) -> None:
    """An append to a file is an error, and an overwrite replaces it, as in Spark."""
    (tmp_path / "out").write_text("something")
    env.write(spark.range(3), FileSink(str(tmp_path / "out"), mode="append"))
    with pytest.raises(SinkError, match="is a file"):
        env.execute()
    assert (tmp_path / "out").read_text() == "something"
    env.write(spark.range(3), FileSink(str(tmp_path / "out"), mode="overwrite"))
    env.execute()
    assert spark.read.parquet(str(tmp_path / "out")).count() == 3


@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_a_repeated_write_replaces_what_tasks_of_the_failed_write_have_left(
    spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    job = FileSink(str(tmp_path / "out"), "parquet", partition_by=["k"]).open(spark)
    rows = spark.range(6).selectExpr("id", "id % 2 as k")
    with with_settings(spark, {"spark.sql.sources.partitionOverwriteMode": mode}):
        job.write(rows.where("k = 0"))
        (staging,) = tmp_path.glob(".penstock-*")
        assert job.restart()
        assert not staging.exists()
        (staging / "k=7").mkdir(parents=True)
        (staging / "k=7" / "part-00000.parquet").write_bytes(b"of a task of the failed write")
        job.write(rows.where("k = 1"))
        assert [path.name for path in staging.glob("k=*")] == ["k=1"]
    job.abort()
    assert not staging.exists()
