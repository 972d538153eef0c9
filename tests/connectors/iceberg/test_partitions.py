"""Partitioned Iceberg tables: each transform of each type gives the files the partition values of their rows."""

from __future__ import annotations

import datetime as dt
import itertools
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.services import require_module

require_module("pyiceberg", "iceberg")

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg import types as ice
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import parse_transform

from penstock.connectors import IcebergSink, IcebergSource
from penstock.errors import JobError, SinkError
from tests.support.equality import assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock import Environment

NUMBERS = itertools.count()
UTC = dt.UTC
DECIMALS = [Decimal(text) for text in ("0.00", "14.20", "-14.21", "99999999999999999999999999999999999.99")]
DATES = [dt.date(2017, 11, 16), dt.date(1969, 12, 31), dt.date(1, 1, 1), dt.date(9999, 12, 31)]
TIMES = [
    dt.datetime(2017, 11, 16, 22, 31, 8, 1),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
    dt.datetime(1582, 10, 10),
    dt.datetime(2026, 3, 29, 2, 30),  # not in every zone
]
COLUMNS: dict[str, tuple[Any, str, list[Any], list[str]]] = {
    "b": (ice.BooleanType(), "boolean", [True, False], []),
    "i": (ice.IntegerType(), "int", [0, 34, -1, 2**31 - 1, -(2**31) + 10], ["bucket[7]", "truncate[10]"]),
    "l": (ice.LongType(), "bigint", [0, 34, -7, 2**63 - 1], ["bucket[7]", "truncate[1000]"]),
    "f": (ice.FloatType(), "float", [0.1, 1.5, float("inf"), float("nan")], []),
    "d": (ice.DoubleType(), "double", [0.1, -1e30, 1e-30], []),
    "n": (ice.DecimalType(37, 2), "decimal(37,2)", DECIMALS, ["bucket[7]", "truncate[50]"]),
    "day": (ice.DateType(), "date", DATES, ["bucket[7]", "year", "month", "day"]),
    "t": (ice.TimestampType(), "timestamp_ntz", TIMES, ["bucket[7]", "year", "month", "day", "hour"]),
    "tz": (
        ice.TimestamptzType(),
        "timestamp",
        [time.replace(tzinfo=UTC) for time in TIMES],
        ["bucket[7]", "year", "month", "day", "hour"],
    ),
    "s": (
        ice.StringType(),
        "string",
        ["", "iceberg", "a/b=c %41", "éé日本🎉xyz", "__HIVE_DEFAULT_PARTITION__"],
        ["bucket[7]", "truncate[3]"],
    ),
    "bin": (ice.BinaryType(), "binary", [b"", b"\x00\x01\x02\xff", b"v"], ["bucket[7]", "truncate[2]"]),
}
"""For each column its Iceberg type, its Spark type, values, and the transforms besides identity and void."""
SCHEMA = Schema(*(ice.NestedField(number, name, column[0]) for number, (name, column) in enumerate(COLUMNS.items(), 1)))
SPARK_SCHEMA = ", ".join(f"{name} {column[1]}" for name, column in COLUMNS.items())
ROWS = [
    tuple(
        None if row % (number + 3) == 0 else column[2][row % len(column[2])]
        for number, column in enumerate(COLUMNS.values())
    )
    for row in range(40)
]


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


def create_table(catalog: Any, *by: tuple[str, str]) -> Any:
    fields = [
        PartitionField(SCHEMA.find_field(name).field_id, 1000 + number, parse_transform(transform), f"p{number}")
        for number, (name, transform) in enumerate(by)
    ]
    return catalog.create_table(f"n.t{next(NUMBERS)}", SCHEMA, partition_spec=PartitionSpec(*fields))


def table_name(table: Any) -> str:
    return ".".join(table.name())


def check_files(table: Any) -> int:
    """Check the partition of each file against pyiceberg's transforms of its rows, and return the number of files."""
    table.refresh()
    count = 0
    for task in table.scan().plan_files():
        rows = pq.ParquetFile(task.file.file_path.removeprefix("file:")).read()
        assert rows.num_rows == task.file.record_count
        for index, field in enumerate(table.spec().fields):
            column = SCHEMA.find_field(field.source_id)
            transform = field.transform.transform(column.field_type)
            values = rows[column.name]
            if pa.types.is_temporal(values.type):
                values = values.cast(pa.int32() if pa.types.is_date(values.type) else pa.int64())
            for value in values.to_pylist():
                expected, actual = transform(value), task.file.partition[index]
                if column.name == "d" and expected is not None:  # pyiceberg's Avro reader rounds doubles to 4 bytes
                    expected, actual = (pa.scalar(number, pa.float32()).as_py() for number in (expected, actual))
                assert repr(actual) == repr(expected), (column.name, str(field.transform))
        count += 1
    return count


GROUPS = {
    "identity of integers": [("b", "identity"), ("i", "identity")],
    "identity of fractions": [("f", "identity"), ("d", "identity"), ("n", "identity")],
    "identity of times": [("day", "identity"), ("t", "identity"), ("tz", "identity")],
    "identity of texts": [("s", "identity"), ("bin", "identity"), ("l", "identity")],
    "void": [("i", "void"), ("s", "identity"), ("l", "void")],
    **{
        f"{kind} of {name}": [(name, transform)]
        for name, column in COLUMNS.items()
        for transform in column[3]
        for kind in [transform]
    },
}
QUICK = {"void"}
THOROUGH = {"identity of fractions", "identity of texts", "bucket[7] of n", "truncate[3] of s", "hour of tz"}


def case_mark(case: str) -> Any:
    if case in QUICK:
        return ()
    return pytest.mark.thorough if case in THOROUGH else pytest.mark.slow


@pytest.mark.parametrize("case", [pytest.param(case, marks=case_mark(case)) for case in GROUPS])
def test_files_have_the_partition_of_their_rows(
    env: Environment, spark: SparkSession, catalog: Any, properties: Any, case: str
) -> None:
    table = create_table(catalog, *GROUPS[case])
    df = spark.createDataFrame(ROWS, SPARK_SCHEMA).repartition(2)
    env.write(df, IcebergSink(table_name(table), properties))
    env.execute()
    assert check_files(table) > 1
    assert_same_rows(env.collect(env.read(IcebergSource(table_name(table), properties))), df.collect())
    assert table.scan().to_arrow().num_rows == len(ROWS)


@pytest.mark.thorough
def test_several_transforms_together(env: Environment, spark: SparkSession, catalog: Any, properties: Any) -> None:
    """pyiceberg prunes files by the written partitions, and reads all matching rows."""
    table = create_table(catalog, ("s", "truncate[2]"), ("l", "bucket[4]"), ("tz", "month"), ("i", "void"))
    df = spark.createDataFrame(ROWS, SPARK_SCHEMA)
    for count in (1, 2):
        env.write(df.repartition(3), IcebergSink(table_name(table), properties))
        env.execute()
        assert len(table.refresh().snapshots()) == count
    file_count = check_files(table)
    for condition, matches in (
        ("l = 34", lambda row: row[2] == 34),
        ("s = 'iceberg'", lambda row: row[9] == "iceberg"),
        ("s is null", lambda row: row[9] is None),
        ("tz < '2000-01-01T00:00:00+00:00'", lambda row: row[8] is not None and row[8].year < 2000),
    ):
        scan = table.scan(row_filter=condition)
        assert scan.to_arrow().num_rows == 2 * sum(map(matches, ROWS))
        assert 0 < len(list(scan.plan_files())) < file_count
    env.write(df.limit(5), IcebergSink(table_name(table), properties, mode="overwrite"))
    env.execute()
    check_files(table)
    assert table.scan().to_arrow().num_rows == 5


def test_partitions_by_nested_fields_are_refused(
    env: Environment, spark: SparkSession, catalog: Any, properties: Any
) -> None:
    kind = ice.StructType(ice.NestedField(2, "x", ice.LongType()))
    spec = PartitionSpec(PartitionField(2, 1000, parse_transform("identity"), "x"))
    catalog.create_table("n.within", Schema(ice.NestedField(1, "s", kind)), partition_spec=spec)
    df = spark.range(1).selectExpr("named_struct('x', raise_error('a row was computed')) as s")
    env.write(df, IcebergSink("n.within", properties))
    with pytest.raises(SinkError, match="a nested field"):
        env.execute()


@pytest.mark.thorough
def test_a_concurrent_change_of_the_partition_spec_is_an_error(
    env: Environment, spark: SparkSession, catalog: Any, properties: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.connectors.iceberg.commit import PreparedIceberg

    table = create_table(catalog, ("l", "bucket[4]"))
    commit = PreparedIceberg.commit

    def commit_after_change(self: Any, access: Any) -> None:
        with table.update_spec() as change:
            change.remove_field("p0")
        commit(self, access)

    monkeypatch.setattr(PreparedIceberg, "commit", commit_after_change)
    env.write(spark.createDataFrame(ROWS, SPARK_SCHEMA), IcebergSink(table_name(table), properties))
    with pytest.raises((SinkError, JobError), match=r"partition spec of table .* has changed"):
        env.execute()
    assert table.refresh().current_snapshot() is None
