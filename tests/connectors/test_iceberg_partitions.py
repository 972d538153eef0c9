"""Partitioned Iceberg tables: every transform of every type, and entries of files with the values of their rows."""

from __future__ import annotations

import datetime as dt
import itertools
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from tests.services import needed_module

needed_module("pyiceberg", "iceberg")

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg import types as ice
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import parse_transform

from penstock.connectors import IcebergSink, IcebergSource
from penstock.errors import JobError, SinkError
from tests.equality import assert_same_rows

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
        [one.replace(tzinfo=UTC) for one in TIMES],
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
"""For each column its type, the type in Spark, values, and the transforms besides identity and void."""
SCHEMA = Schema(*(ice.NestedField(place, name, one[0]) for place, (name, one) in enumerate(COLUMNS.items(), 1)))
SPARK = ", ".join(f"{name} {one[1]}" for name, one in COLUMNS.items())
ROWS = [
    tuple(
        None if place % (number + 3) == 0 else one[2][place % len(one[2])]
        for number, one in enumerate(COLUMNS.values())
    )
    for place in range(40)
]


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


def made(catalog: Any, *by: tuple[str, str]) -> Any:
    fields = [
        PartitionField(SCHEMA.find_field(name).field_id, 1000 + place, parse_transform(transform), f"p{place}")
        for place, (name, transform) in enumerate(by)
    ]
    return catalog.create_table(f"n.t{next(NUMBERS)}", SCHEMA, partition_spec=PartitionSpec(*fields))


def name_of(table: Any) -> str:
    return ".".join(table.name())


def check_files(table: Any) -> int:
    """Compare the partition of each file with what pyiceberg's own Python computes of each of its rows."""
    table.refresh()
    count = 0
    for task in table.scan().plan_files():
        rows = pq.ParquetFile(task.file.file_path.removeprefix("file:")).read()
        assert rows.num_rows == task.file.record_count
        for place, field in enumerate(table.spec().fields):
            column = SCHEMA.find_field(field.source_id)
            transform = field.transform.transform(column.field_type)
            values = rows[column.name]
            if pa.types.is_temporal(values.type):
                values = values.cast(pa.int32() if pa.types.is_date(values.type) else pa.int64())
            for value in values.to_pylist():
                wanted, found = transform(value), task.file.partition[place]
                if (
                    column.name == "d" and wanted is not None
                ):  # pyiceberg's compiled reader of entries rounds to 4 bytes
                    wanted, found = pa.scalar(wanted, pa.float32()).as_py(), pa.scalar(found, pa.float32()).as_py()
                assert repr(found) == repr(wanted), (column.name, str(field.transform))
        count += 1
    return count


GROUPS = {
    "identity of whole numbers": [("b", "identity"), ("i", "identity")],
    "identity of fractions": [("f", "identity"), ("d", "identity"), ("n", "identity")],
    "identity of times": [("day", "identity"), ("t", "identity"), ("tz", "identity")],
    "identity of texts": [("s", "identity"), ("bin", "identity"), ("l", "identity")],
    "void": [("i", "void"), ("s", "identity"), ("l", "void")],
    **{
        f"{kind} of {name}": [(name, transform)]
        for name, one in COLUMNS.items()
        for transform in one[3]
        for kind in [transform]
    },
}
QUICK = {"void"}
THOROUGH = {"identity of fractions", "identity of texts", "bucket[7] of n", "truncate[3] of s", "hour of tz"}


def mark_of(case: str) -> Any:
    if case in QUICK:
        return ()
    return pytest.mark.thorough if case in THOROUGH else pytest.mark.slow


@pytest.mark.parametrize("case", [pytest.param(case, marks=mark_of(case)) for case in GROUPS])
def test_files_have_the_partition_of_their_rows(
    env: Environment, spark: SparkSession, catalog: Any, properties: Any, case: str
) -> None:
    table = made(catalog, *GROUPS[case])
    df = spark.createDataFrame(ROWS, SPARK).repartition(2)
    env.write(df, IcebergSink(name_of(table), properties))
    env.execute()
    assert check_files(table) > 1
    assert_same_rows(env.collect(env.read(IcebergSource(name_of(table), properties))), df.collect())
    assert table.scan().to_arrow().num_rows == len(ROWS)


@pytest.mark.thorough
def test_several_transforms_together(env: Environment, spark: SparkSession, catalog: Any, properties: Any) -> None:
    """pyiceberg leaves files out by the partitions that were written, and finds all rows."""
    table = made(catalog, ("s", "truncate[2]"), ("l", "bucket[4]"), ("tz", "month"), ("i", "void"))
    df = spark.createDataFrame(ROWS, SPARK)
    for count in (1, 2):
        env.write(df.repartition(3), IcebergSink(name_of(table), properties))
        env.execute()
        assert len(table.refresh().snapshots()) == count
    every = check_files(table)
    for condition, is_wanted in (
        ("l = 34", lambda row: row[2] == 34),
        ("s = 'iceberg'", lambda row: row[9] == "iceberg"),
        ("s is null", lambda row: row[9] is None),
        ("tz < '2000-01-01T00:00:00+00:00'", lambda row: row[8] is not None and row[8].year < 2000),
    ):
        scan = table.scan(row_filter=condition)
        assert scan.to_arrow().num_rows == 2 * sum(map(is_wanted, ROWS))
        assert 0 < len(list(scan.plan_files())) < every
    env.write(df.limit(5), IcebergSink(name_of(table), properties, mode="overwrite"))
    env.execute()
    check_files(table)
    assert table.scan().to_arrow().num_rows == 5


def test_what_pyiceberg_cannot_compute_is_refused(
    env: Environment, spark: SparkSession, catalog: Any, properties: Any
) -> None:
    kind = ice.StructType(ice.NestedField(2, "x", ice.LongType()))
    spec = PartitionSpec(PartitionField(2, 1000, parse_transform("identity"), "x"))
    catalog.create_table("n.within", Schema(ice.NestedField(1, "s", kind)), partition_spec=spec)
    df = spark.range(1).selectExpr("named_struct('x', raise_error('a row was made')) as s")
    env.write(df, IcebergSink("n.within", properties))
    with pytest.raises(SinkError, match="a field within a column"):
        env.execute()


@pytest.mark.thorough
def test_partitions_that_change_meanwhile_are_refused(
    env: Environment, spark: SparkSession, catalog: Any, properties: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.connectors.iceberg_commit import PreparedIceberg

    table = made(catalog, ("l", "bucket[4]"))
    commit = PreparedIceberg.commit

    def changed(self: Any, access: Any) -> None:
        with table.update_spec() as change:
            change.remove_field("p0")
        commit(self, access)

    monkeypatch.setattr(PreparedIceberg, "commit", changed)
    env.write(spark.createDataFrame(ROWS, SPARK), IcebergSink(name_of(table), properties))
    with pytest.raises((SinkError, JobError), match=r"partitions of table .* have changed"):
        env.execute()
    assert table.refresh().current_snapshot() is None
