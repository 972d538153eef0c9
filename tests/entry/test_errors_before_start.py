"""Errors before the first task have a message, a cause, a hint and the user's line; also errors of full disks."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import penstock
from penstock import Environment, rebalance, rescale, state, with_parallelism
from penstock.connectors import (
    DeltaSink,
    DeltaSource,
    FileSink,
    FileSource,
    IcebergSink,
    IcebergSource,
    JdbcSink,
    JdbcSource,
    KafkaSink,
    KafkaSource,
    ObjectStoreSource,
)
from penstock.errors import ArgumentError, JobError, PenstockError, SinkError, SourceError, StateError
from tests.support.paths import TESTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def line_of(call: Any) -> int:
    return call.__code__.co_firstlineno


ARGUMENTS: dict[str, tuple[Any, type[PenstockError], str]] = {
    "collect": (lambda env, df: env.collect("select 1"), ArgumentError, "collect needs a DataFrame"),
    "count": (lambda env, df: env.count(3), ArgumentError, "count needs a DataFrame"),
    "to_arrow": (lambda env, df: env.to_arrow(None), ArgumentError, "to_arrow needs a DataFrame"),
    "to_pandas": (lambda env, df: env.to_pandas([df]), ArgumentError, "to_pandas needs a DataFrame"),
    "materialize": (lambda env, df: env.materialize("t"), ArgumentError, "materialize needs a DataFrame"),
    "explain": (lambda env, df: env.explain("select 1"), ArgumentError, "explain needs a DataFrame"),
    "sql": (lambda env, df: env.sql(df), ArgumentError, "sql needs a statement"),
    "write": (lambda env, df: env.write("t", FileSink("x")), ArgumentError, "write needs a DataFrame"),
    "a sink": (lambda env, df: env.write(df, "path"), PenstockError, "is not a sink"),
    "a source": (lambda env, df: env.read("path"), SourceError, "is not a source"),
    "execute": (lambda env, df: env.execute(3), ArgumentError, "execute needs a name"),
    "execute_async": (lambda env, df: env.execute_async(3), ArgumentError, "execute_async needs a name"),
    "parallelism of a text": (lambda env, df: with_parallelism(df, "8"), SourceError, "invalid parallelism '8'"),
    "with_parallelism": (lambda env, df: with_parallelism("t", 8), ArgumentError, "with_parallelism needs a DataFrame"),
    "a name": (lambda env, df: with_parallelism(df, 8, name=3), ArgumentError, "with_parallelism needs a name"),
    "rebalance": (lambda env, df: rebalance("t"), ArgumentError, "rebalance needs a DataFrame"),
    "rescale": (lambda env, df: rescale(df, "3"), SourceError, "invalid parallelism '3'"),
    "adaptive": (lambda env, df: rebalance(df, 2, "yes"), ArgumentError, "adaptive needs True, False or None"),
    "strategies": (
        lambda env, df: Environment(env.spark, strategies=[int]),
        ArgumentError,
        "strategies needs strategies",
    ),
    "a strategy": (lambda env, df: Environment(env.spark, strategies=3), ArgumentError, "strategies needs a list"),
    "a session": (lambda env, df: Environment("local"), ArgumentError, "Environment needs a Spark session"),
    "a config": (lambda env, df: Environment(env.spark, config="a=1"), ArgumentError, "needs a mapping of options"),
    "enable": (lambda env, df: penstock.enable("local"), ArgumentError, "enable needs a Spark session"),
    "a path": (lambda env, df: FileSink(Path("x")), ArgumentError, "FileSink needs a path"),
    "paths": (lambda env, df: FileSource([3]), ArgumentError, "FileSource needs paths"),
    "a format": (lambda env, df: FileSink("x", 3), SinkError, "format 3 is not valid"),
    "options": (lambda env, df: FileSink("x", options="header"), ArgumentError, "needs a mapping of options"),
    "partition columns": (lambda env, df: FileSink("x", partition_by=3), ArgumentError, "needs a list of column names"),
    "an Iceberg table": (
        lambda env, df: IcebergSource(3, {}),
        ArgumentError,
        "IcebergSource needs the name of a table",
    ),
    "a catalog": (lambda env, df: IcebergSink("t", "rest"), ArgumentError, "the catalog of table t needs a mapping"),
    "a snapshot": (lambda env, df: IcebergSource("t", {}, "3"), ArgumentError, "snapshot_id needs the number"),
    "servers": (lambda env, df: KafkaSource(["a:1"], "t"), ArgumentError, "KafkaSource needs servers"),
    "topics": (lambda env, df: KafkaSource("a:1", [3]), ArgumentError, "KafkaSource needs names of topics"),
    "a topic": (lambda env, df: KafkaSink("a:1", 3), ArgumentError, "KafkaSink needs the name of a topic"),
    "properties": (lambda env, df: KafkaSink("a:1", "t", "acks"), ArgumentError, "needs a mapping of options"),
    "a URL": (lambda env, df: JdbcSource(None, "t"), ArgumentError, "JdbcSource needs a URL"),
    "a table": (lambda env, df: JdbcSink("jdbc:sqlite:x", 3), ArgumentError, "JdbcSink needs the name of a table"),
    "a URI": (lambda env, df: ObjectStoreSource(Path("x")), ArgumentError, "ObjectStoreSource needs a URI"),
    "a version": (lambda env, df: DeltaSource("x", "3"), ArgumentError, "DeltaSource needs the number of a version"),
    "storage options": (lambda env, df: DeltaSink("x", storage_options=3), ArgumentError, "needs a mapping of options"),
    "a checkpoint": (lambda env, df: state.inspect(Path("x")), ArgumentError, "inspect needs a path"),
    "another checkpoint": (lambda env, df: state.rescale(3, 8), ArgumentError, "rescale needs a path"),
    "a max parallelism": (lambda env, df: state.plan("x", "8"), StateError, "max parallelism is '8'"),
    "a stream": (lambda env, df: state.start_query(df, "x"), ArgumentError, "start_query needs a writer of a stream"),
    "a session of a block": (lambda env, df: penstock.enabled("local").__enter__(), ArgumentError, "needs a Spark"),
    "a session to disable": (lambda env, df: penstock.disable("local"), ArgumentError, "spark needs a Spark session"),
    "a partition column": (lambda env, df: DeltaSink("x", partition_by=[3]), ArgumentError, "needs column names"),
}


@pytest.mark.parametrize("case", ARGUMENTS)
def test_wrong_arguments_are_refused_with_cause_and_line(env: Environment, spark: SparkSession, case: str) -> None:
    call, kind, message = ARGUMENTS[case]
    with pytest.raises(kind) as refused:
        call(env, spark.range(3))
    assert message in refused.value.message
    if kind not in {SinkError, StateError}:
        assert refused.value.line == f"{__file__}:{line_of(call)}"
    if kind is ArgumentError:
        assert "it got" in str(refused.value.cause)


def test_secrets_in_an_argument_are_masked() -> None:
    with pytest.raises(ArgumentError) as refused:
        JdbcSink("jdbc:sqlite:x", "t", properties="user=loader;password=geheim")  # type: ignore[arg-type]
    assert "user=loader" in str(refused.value)
    assert "geheim" not in str(refused.value)


@pytest.mark.parametrize("kind", [FileSink, DeltaSink])
def test_a_string_names_a_single_column(kind: Any) -> None:
    assert kind("x", partition_by="user").partition_by == ("user",)
    assert kind("x", partition_by=["a", "b"]).partition_by == ("a", "b")
    assert JdbcSink("jdbc:sqlite:x", "t", mode="upsert", key="user").key == ("user",)


def counting_rows(spark: SparkSession) -> Any:
    """Return a DataFrame that counts its rows when it runs, and the counter."""
    counter = spark.sparkContext.accumulator(0)

    def count_rows(batches: Any) -> Iterator[Any]:
        for batch in batches:
            counter.add(batch.num_rows)
            yield batch

    df = spark.range(1000).selectExpr("id", "id % 3 as user", "array(id) as many")
    return df.mapInArrow(count_rows, df.schema), counter


COLUMNS: dict[str, tuple[Any, str, str]] = {
    "a missing partition column": (
        lambda path: FileSink(path, partition_by="usr"),
        "has the partition column 'usr', which the rows do not have",
        "did you mean 'user'?",
    ),
    "a column among several": (
        lambda path: FileSink(path, partition_by=["user", "nope"]),
        "has the partition column 'nope', which the rows do not have",
        "pass columns of the rows as partition_by",
    ),
    "of a Delta table": (
        lambda path: DeltaSink(path, partition_by="usr"),
        "has the partition column 'usr', which the rows do not have",
        "did you mean 'user'?",
    ),
    "a nested column": (lambda path: FileSink(path, partition_by="many"), "which is of type array", "plain values"),
    "twice": (lambda path: FileSink(path, partition_by=["user", "USER"]), "'USER' twice", "name it once"),
    "a type that csv does not support": (lambda path: FileSink(path, "csv"), "cannot hold the rows", "cast or drop"),
    "several columns as text": (lambda path: FileSink(path, "text"), "cannot hold the rows as text", "another format"),
}


@pytest.mark.parametrize("case", COLUMNS)
def test_sinks_refuse_unsuitable_columns_before_the_first_task(
    env: Environment, spark: SparkSession, tmp_path: Path, case: str
) -> None:
    make, message, hint = COLUMNS[case]
    df, counter = counting_rows(spark)
    env.write(df, make(str(tmp_path / "out")))
    line = inspect.currentframe().f_lineno - 1  # type: ignore[union-attr]
    with pytest.raises(SinkError) as refused:
        env.execute()
    assert message in refused.value.message
    assert hint in str(refused.value.hint)
    assert refused.value.line == f"{__file__}:{line}"
    assert counter.value == 0
    assert list(tmp_path.iterdir()) == []


def test_rows_with_partition_columns_only_are_refused(env: Environment, spark: SparkSession, tmp_path: Path) -> None:
    env.write(spark.range(3), FileSink(str(tmp_path / "out"), partition_by="id"))
    with pytest.raises(SinkError, match="only partition columns"):
        env.execute()


def test_duplicate_column_names_are_refused(env: Environment, spark: SparkSession, tmp_path: Path) -> None:
    env.write(spark.range(3).selectExpr("id", "1 as ID"), FileSink(str(tmp_path / "out")))
    with pytest.raises(SinkError, match="several columns"):
        env.execute()


@pytest.mark.parametrize(
    ("first", "second", "is_refused"),
    [
        (("a", "error"), ("a", "error"), True),
        (("a", "overwrite"), ("./a/", "overwrite"), True),
        (("a", "append"), ("a", "overwrite"), True),
        (("a", "overwrite"), ("a/b", "append"), True),
        (("a", "error"), ("ab", "error"), False),
    ],
)
def test_two_sinks_at_the_same_location_are_refused(
    env: Environment, spark: SparkSession, tmp_path: Path, first: Any, second: Any, is_refused: bool
) -> None:
    df, counter = counting_rows(spark)
    df = df.select("id", "user")
    for name, mode in (first, second):
        env.write(df, FileSink(f"{tmp_path}/{name}", mode=mode))
    if not is_refused:
        env.execute()
        assert sum(spark.read.parquet(str(path)).count() for path in tmp_path.iterdir()) == 2000
        return
    with pytest.raises(SinkError, match="write to the same location") as refused:
        env.execute()
    assert __file__ in str(refused.value.line)
    assert counter.value == 0
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """Return a folder that is a separate file system of 4 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    if os.geteuid() != 0 or not mounted(folder, "size=4m"):
        if os.environ.get("ALL_TEST_SERVICES") == "1":
            pytest.fail("a small file system cannot be mounted here")
        pytest.skip("a small file system cannot be mounted here: that requires root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def mounted(folder: Path, options: str) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("mode", ["error", "append"])
def test_a_read_only_location_is_refused_before_the_first_task(
    env: Environment, spark: SparkSession, small: Path, mode: str
) -> None:
    target = small / "out"
    if mode == "append":
        target.mkdir()
    assert mounted(small, "remount,ro")
    df, counter = counting_rows(spark)
    env.write(df.select("id"), FileSink(str(target), mode=mode))
    with pytest.raises(SinkError, match="cannot be written") as refused:
        env.execute()
    folder = target if mode == "append" else small
    assert refused.value.cause == f"this user has no permission to write to file:{folder}"
    assert counter.value == 0


@pytest.mark.thorough
def test_the_error_of_a_full_local_disk_names_its_setting(small: Path) -> None:
    """In a separate process, because the local folders of a session cannot change."""
    job = TESTS / "jobs" / "full_local_dir.py"
    ended = subprocess.run([sys.executable, str(job), str(small)], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert "No space left on device" in ended.stdout
    assert (
        f"the disk of spark.local.dir is full, where Spark keeps shuffled and spilled rows: {small} has" in ended.stdout
    )
    assert "their shuffled rows may not fit into spark.local.dir" in ended.stderr


def divided(value: int) -> float:
    return 1 / value


@pytest.mark.parametrize("whole", [False, True])
def test_an_error_of_a_python_function_shows_the_users_frames(
    env: Environment, spark: SparkSession, whole: bool
) -> None:
    @F.udf("double")
    def inverse(value):  # type: ignore[no-untyped-def]  # Spark would look at types
        return divided(value)

    env = Environment(spark, progress=False) if whole else env
    df: DataFrame = spark.range(1).select(inverse("id"))
    with pytest.raises(JobError) as failed:
        env.collect(df)
    lines = str(failed.value.cause).splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1] == "ZeroDivisionError: division by zero"
    assert [line.split(", in ")[1] for line in lines if line.startswith("  File")] == ["inverse", "divided"]
    assert "worker.py" not in str(failed.value)
    original = failed.value.__cause__
    assert type(original).__name__ == "PythonException"
    assert "ZeroDivisionError" in str(original)
