"""Appends to existing tables: incompatible columns are refused before a job starts, compatible rows are written."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from penstock.connectors.tables.table_schema import CHAR_TYPE_KEY, check_columns
from penstock.errors import JobError, SinkError
from tests.support.equality import assert_same_rows
from tests.support.outcomes import mostly_slow
from tests.support.services import require_module

require_module("deltalake", "delta")
require_module("pyiceberg", "iceberg")

import deltalake
import pyarrow as pa

from penstock.connectors import DeltaSink, DeltaSource, IcebergSink, IcebergSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock import Environment


pytestmark = pytest.mark.usefixtures("interpreted")
FIRST = (
    "select id, concat('n', id) as name, cast(id as int) as small, cast(id as decimal(10,2)) as price from range(20)"
)
INCOMPATIBLE = {
    "a text for a number": ("select cast(id as string) as id, 'x' as name from range(3)", "id .* of type string"),
    "a number for a text": ("select id, id as name from range(3)", "name .* of type bigint"),
    "a narrower type": ("select id, 'x' as name, id as small from range(3)", "small .* of type bigint"),
    "a wider decimal": ("select id, 'x' as name, cast(1 as decimal(20,2)) as price from range(3)", "price .* decimal"),
    "another scale": ("select id, 'x' as name, cast(1 as decimal(10,4)) as price from range(3)", "price .* decimal"),
    "a double for a decimal": ("select id, 'x' as name, 1.0d as price from range(3)", "price .* double"),
    "a date": ("select id, current_date() as name from range(3)", "name .* date"),
    "bytes": ("select id, binary('x') as name from range(3)", "name .* binary"),
    "an array": ("select id, array('x') as name from range(3)", "name .* array<string>"),
    "one more column": ("select id, 'x' as name, 1 as more from range(3)", "more that the table does not have"),
    "only other columns": ("select 1 as a, 2 as b", "column a that the table does not have"),
    "a column in two cases": ("select id, 'x' as name, 'y' as NAME from range(3)", "twice"),
    "an interval": ("select id, interval 1 day as name from range(3)", "name .* interval"),
}
COMPATIBLE = {
    "the same": FIRST,
    "another order": "select name, price, small, id from (" + FIRST + ")",
    "a column less": "select id, name from (" + FIRST + ")",
    "other cases": "select id as ID, name as Name, small, price from (" + FIRST + ")",
    "a type that fits": "select id, name, cast(small as smallint) as small, price from (" + FIRST + ")",
    "no rows": "select * from (" + FIRST + ") where id < 0",
    "nulls": "select if(id > 3, id, null) as id, cast(null as string) as name from range(9)",
    "an int for a long": "select small as id, name from (" + FIRST + ")",
    "never null": "select 1L as id, 'a' as name, 1 as small",
    "padded": "select id, cast(name as char(9)) as name from (" + FIRST + ")",
}


class Delta:
    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "t")

    def sink(self, **options: Any) -> Any:
        return DeltaSink(self.path, **options)

    def source(self) -> Any:
        return DeltaSource(self.path)


class Iceberg:
    def __init__(self, folder: Path) -> None:
        self.catalog = {"type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": f"file://{folder}"}

    def sink(self, **options: Any) -> Any:
        return IcebergSink("n.t", self.catalog, **options)

    def source(self) -> Any:
        return IcebergSource("n.t", self.catalog)


@pytest.fixture(params=[Delta, Iceberg])
def table(request: pytest.FixtureRequest, env: Environment, spark: SparkSession, tmp_path: Path) -> Any:
    created = request.param(tmp_path)
    env.write(spark.sql(FIRST).where("id < 10"), created.sink())
    env.execute()
    return created


@pytest.mark.parametrize("case", mostly_slow(INCOMPATIBLE))
def test_rows_with_incompatible_columns_are_refused(
    env: Environment, spark: SparkSession, table: Any, case: Any
) -> None:
    query, message = INCOMPATIBLE[case]
    before = env.collect(env.read(table.source()))
    env.write(spark.sql(query), table.sink())
    with pytest.raises(SinkError, match=message):  # not a JobError, because no job has started
        env.execute()
    env._outputs.take()
    assert_same_rows(env.collect(env.read(table.source())), before)


@pytest.mark.parametrize("whole_query", [False, True])
@pytest.mark.parametrize("case", mostly_slow(COMPATIBLE))
def test_rows_with_compatible_columns_are_written(
    make_env: Callable[..., Environment], spark: SparkSession, table: Any, case: Any, whole_query: bool
) -> None:
    env = make_env(**({"execution.batch.adaptive.whole-query-threshold": "64 mb"} if whole_query else {}))
    before = env.read(table.source())
    new_rows = spark.sql(COMPATIBLE[case])
    expected = (
        env.collect(before)
        + before.limit(0)
        .unionByName(new_rows.toDF(*[name.lower() for name in new_rows.columns]), allowMissingColumns=True)
        .collect()
    )
    env.write(new_rows, table.sink())
    env.execute()
    assert_same_rows(env.collect(env.read(table.source())), expected)


@pytest.mark.thorough
@pytest.mark.parametrize("whole_query", [False, True])
def test_nulls_in_non_nullable_columns_fail_the_job(
    make_env: Callable[..., Environment], spark: SparkSession, tmp_path: Path, whole_query: bool
) -> None:
    env = make_env(**({"execution.batch.adaptive.whole-query-threshold": "64 mb"} if whole_query else {}))
    table = Delta(tmp_path)
    schema = pa.schema([pa.field("id", pa.int64(), False), pa.field("name", pa.string())])
    deltalake.write_deltalake(table.path, pa.table({"id": [1], "name": ["a"]}, schema))
    for query in (
        "select 2L as id, cast(null as string) as name",
        "select nullif(id, 7) as id, 'x' as name from range(5)",
    ):
        env.write(spark.sql(query), table.sink())
        env.execute()
    assert env.count(env.read(table.source())) == 7
    env.write(spark.sql("select nullif(id, 7) as id, 'x' as name from range(9)"), table.sink())
    with pytest.raises(JobError, match=r"column id of table .* does not allow nulls"):
        env.execute()
    env.write(spark.sql("select 'x' as name"), table.sink())
    with pytest.raises(SinkError, match="have no column id"):
        env.execute()
    env._outputs.take()
    assert env.count(env.read(table.source())) == 7


TEXTS = ["", "a", "abc", "abc  ", "a    ", "     ", "äöü", "a\t", None]


@pytest.mark.thorough
def test_char_and_varchar_lengths_of_a_delta_table_apply(env: Environment, spark: SparkSession, tmp_path: Path) -> None:
    """Spark stores the lengths of char and varchar in the metadata of columns; strings are padded and checked as in Spark."""
    columns = spark.sql("select '' as c, '' as v").schema
    kinds = {"c": "char(3)", "v": "varchar(3)"}
    for field in columns:
        field.metadata = {CHAR_TYPE_KEY: kinds[field.name]}
    table = Delta(tmp_path)
    rows = spark.createDataFrame([(text, text) for text in TEXTS], "c string, v string")
    env.write(spark.createDataFrame([], columns), table.sink())
    env.execute()
    spark.sql("create table of_length (c char(3), v varchar(3)) using parquet")
    try:
        rows.write.insertInto("of_length")
        folder = spark.sql("describe formatted of_length").where("col_name = 'Location'").first()
        assert folder is not None
        expected = spark.read.parquet(folder["data_type"]).collect()
        env.write(rows, table.sink())
        env.execute()
        assert_same_rows(env.collect(env.read(table.source())), expected)
        for column in kinds:
            env.write(spark.sql(f"select 'abcd' as {column}"), table.sink())
            with pytest.raises(JobError, match=f"column {column} of table .* takes 3 characters"):
                env.execute()
            env._outputs.take()
        assert env.count(env.read(table.source())) == len(TEXTS)
    finally:
        spark.sql("drop table of_length")


def test_nested_columns_are_checked_and_written(env: Environment, spark: SparkSession, tmp_path: Path) -> None:
    """In Delta tables only, because an overwrite of an Iceberg table does not change its columns."""
    table = Delta(tmp_path)
    env.write(
        spark.sql("select array(id) as a, named_struct('x', id) as s, map('k', id) as m from range(3)"),
        table.sink(mode="overwrite"),
    )
    env.execute()
    env.write(
        spark.sql(
            "select array(null, id) as a, named_struct('x', if(id > 1, id, null)) as s, map('k', cast(null as bigint)) as m from range(3)"
        ),
        table.sink(),
    )
    env.execute()
    assert env.count(env.read(table.source())) == 6
    for expression in (
        "named_struct('y', id) as s",
        "named_struct('x', id, 'y', id) as s",
        "array('x') as a",
        "map(1, id) as m",
    ):
        env.write(spark.sql(f"select {expression} from range(3)"), table.sink())
        with pytest.raises(SinkError, match="of type"):
            env.execute()
        env._outputs.take()


@pytest.mark.thorough
def test_a_delta_overwrite_replaces_the_columns(env: Environment, spark: SparkSession, tmp_path: Path) -> None:
    table = Delta(tmp_path)
    for query in ("select id, 'x' as p from range(3)", "select 'a' as id, 1.5d as other, 'y' as p from range(2)"):
        env.write(spark.sql(query), table.sink(mode="overwrite", partition_by=["p"]))
        env.execute()
        assert_same_rows(
            env.collect(env.read(table.source()).select(spark.sql(query).columns)), spark.sql(query).collect()
        )
    assert deltalake.DeltaTable(table.path).to_pyarrow_table().num_rows == 2


def test_dynamic_partition_overwrite_of_a_delta_table_is_refused(
    env: Environment, spark: SparkSession, tmp_path: Path
) -> None:
    table = Delta(tmp_path)
    env.write(spark.sql("select id, id % 3 as p from range(9)"), table.sink(partition_by=["p"]))
    env.execute()
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        env.write(spark.sql("select 1L as id, 1L as p"), table.sink(mode="overwrite"))
        with pytest.raises(SinkError, match="single partitions"):
            env.execute()
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
        env._outputs.take()
    assert env.count(env.read(table.source())) == 9


@pytest.mark.thorough
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Asia/Tokyo", "America/St_Johns"])
def test_delta_tables_can_be_partitioned_by_timestamps(
    env: Environment, spark: SparkSession, tmp_path: Path, zone: str
) -> None:
    table = Delta(tmp_path)
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        rows = spark.sql(
            "select id, timestamp_micros(1761438600123456 + id * 1800000000) as t, timestamp_ntz'2026-03-29 02:30:00' as n from range(6)"
        )
        env.write(rows, table.sink(partition_by=["t", "n"]))
        env.execute()
        assert_same_rows(
            env.collect(env.read(table.source()).select("id", F.unix_micros("t"), "n")),
            rows.select("id", F.unix_micros("t"), "n").collect(),
        )
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    times = deltalake.DeltaTable(table.path).to_pyarrow_table().column("t").to_pylist()
    assert min(times) == dt.datetime(2025, 10, 26, 0, 30, 0, 123456, dt.UTC)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["_p", ".p", "a=b", "p q", "é"])
def test_partition_columns_of_delta_tables_can_have_special_characters(
    env: Environment, spark: SparkSession, tmp_path: Path, name: str
) -> None:
    table = Delta(tmp_path)
    rows = spark.range(12).selectExpr("id", f"nullif(concat('x=', id % 3), 'x=2') as `{name}`")
    for _ in range(2):
        env.write(rows, table.sink(partition_by=[name]))
        env.execute()
    assert_same_rows(env.collect(env.read(table.source()).select("id", f"`{name}`")), rows.union(rows).collect())
    assert deltalake.DeltaTable(table.path).to_pyarrow_table().num_rows == 24


@pytest.mark.parametrize("feature", ["constraint", "mapping"])
def test_tables_with_constraints_or_column_mapping_are_not_written(
    env: Environment, spark: SparkSession, tmp_path: Path, feature: str
) -> None:
    table = Delta(tmp_path)
    env.write(spark.range(3), table.sink())
    env.execute()
    log = deltalake.DeltaTable(table.path)
    if feature == "constraint":
        log.alter.add_constraint({"positive": "id >= 0"})
    else:
        import json

        file = min((tmp_path / "t" / "_delta_log").glob("*.json"))
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        for line in lines:
            if "metaData" in line:
                line["metaData"]["configuration"]["delta.columnMapping.mode"] = "name"
        file.write_text("\n".join(map(json.dumps, lines)))
    env.write(spark.sql("select -1L as id"), table.sink())
    with pytest.raises(Exception, match=r"cannot be written|not supported"):
        env.execute()
    env._outputs.take()


@pytest.mark.parametrize(
    ("ddl", "sensitive", "message"),
    [
        ("a int", False, None),
        ("A int", False, None),
        ("A int", True, "that the table does not have"),
        ("b int", False, "that the table does not have"),
        ("n int", False, "have no column a"),
        ("a int, n smallint", False, None),
        ("a bigint", False, "of type bigint"),
        ("a int, s struct<x: int>", False, None),
        ("a int, s struct<X: int>", False, "of type struct"),
        ("a int, s struct<x: smallint>", False, "of type struct"),
        ("a int, l array<int>", False, "nested nulls are not allowed"),
    ],
)
def test_columns_are_checked_by_name_type_and_nullability(ddl: str, sensitive: bool, message: str | None) -> None:
    from pyspark.sql.types import ArrayType, IntegerType, StructField

    table = StructType(
        [
            StructField("a", IntegerType(), False),
            StructField("n", IntegerType()),
            StructField("s", StructType([StructField("x", IntegerType())])),
            StructField("l", ArrayType(IntegerType(), False)),
        ]
    )
    schema = StructType.fromDDL(ddl)
    if message is None:
        check_columns(schema, table, "table t", case_sensitive=sensitive)
    else:
        with pytest.raises(SinkError, match=message):
            check_columns(schema, table, "table t", case_sensitive=sensitive)
