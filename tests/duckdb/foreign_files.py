"""Parquet files of several writers, and table schemas that Spark may read them with."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.spark.plans.dataframes import with_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOMENT = dt.datetime(2024, 3, 31, 1, 30, tzinfo=dt.UTC)
NAN, INFINITY = float("nan"), float("inf")
DECIMALS = [Decimal("-9.99"), Decimal("0.01"), None, Decimal("9.99")]


@dataclass(frozen=True)
class Case:
    """Files and how they are read.

    Parameters
    ----------
    write
        Writes the files into a folder.
    native
        Whether DuckDB reads them; otherwise Spark does, and a decision has the reason.
    schema
        The table's columns; None means the files' own.
    where
        Conditions, each for a query.
    """

    write: Callable[[SparkSession, Path], None]
    native: bool
    schema: str | None = None
    where: tuple[str, ...] = ("true",)


def arrow(values: Any, kind: pa.DataType | None = None, **options: Any) -> Callable[[SparkSession, Path], None]:
    """Write a column with Arrow, in row groups of two rows unless the options say otherwise."""

    def write(_: SparkSession, folder: Path) -> None:
        array = values if isinstance(values, pa.Array) else pa.array(values, kind)
        table = pa.table({"n": pa.array(range(len(array)), pa.int32()), "x": array})
        pq.write_table(table, folder / "a.parquet", **{"row_group_size": 2, **options})

    return write


def spark_sql(expression: str, **settings: str) -> Callable[[SparkSession, Path], None]:
    """Write an expression over ten numbers with Spark."""

    def write(spark: SparkSession, folder: Path) -> None:
        with with_settings(spark, {key.replace("__", "."): value for key, value in settings.items()}):
            df = spark.sql(f"select cast(id as int) as n, {expression} as x from range(0, 10, 1, 1)")
            df.write.mode("append").parquet(str(folder))

    return write


def in_sequence(*writers: Callable[[SparkSession, Path], None]) -> Callable[[SparkSession, Path], None]:
    """Run writers in sequence."""

    def write(spark: SparkSession, folder: Path) -> None:
        for number, write_file in enumerate(writers):
            write_file(spark, folder)
            for file in [*folder.glob("a.parquet")]:
                file.rename(folder / f"part-{number}.parquet")

    return write


def with_metadata(values: Any, kind: pa.DataType, metadata: Mapping[str, str]) -> Callable[[SparkSession, Path], None]:
    """Write a column with Arrow and metadata of the file."""

    def write(_: SparkSession, folder: Path) -> None:
        table = pa.table({"n": pa.array(range(len(values)), pa.int32()), "x": pa.array(values, kind)})
        pq.write_table(table.replace_schema_metadata(dict(metadata)), folder / "a.parquet")

    return write


def named(name: str) -> Callable[[SparkSession, Path], None]:
    """Write a file whose column has another name."""

    def write(_: SparkSession, folder: Path) -> None:
        pq.write_table(pa.table({"n": pa.array([1, 2], pa.int32()), name: [3, 4]}), folder / "a.parquet")

    return write


def in_folder(name: str) -> Callable[[SparkSession, Path], None]:
    """Write numbers into a folder whose name has the value of ``x``."""

    def write(_: SparkSession, folder: Path) -> None:
        (folder / name).mkdir()
        pq.write_table(pa.table({"n": pa.array([1, 2], pa.int32())}), folder / name / "a.parquet")

    return write


def beside_hidden(_: SparkSession, folder: Path) -> None:
    """Write a file, and hidden files that Spark ignores."""
    for name in ("a", "_b", ".c"):
        pq.write_table(pa.table({"n": pa.array([1], pa.int32()), "x": [name]}), folder / f"{name}.parquet")


DAYS = [
    dt.date(1, 1, 1),
    dt.date(1582, 10, 4),
    dt.date(1582, 10, 15),
    None,
    dt.date(9999, 12, 31),
]
DAY = "x = date'0001-01-01'", "x < date'1582-10-15'"
LONG_TEXTS = ["a" * 5000, "a" * 5000 + "b", "é" * 300, "\U0010ffff" * 70, ""]
CASES = {
    # times
    "INT96": Case(arrow([MOMENT, None], pa.timestamp("us", "UTC"), use_deprecated_int96_timestamps=True), True),
    "INT96 of Spark": Case(spark_sql("timestamp_seconds(id)", spark__sql__parquet__outputTimestampType="INT96"), True),
    "times of UTC": Case(arrow([MOMENT, None], pa.timestamp("us", "UTC")), True),
    "times of no zone": Case(arrow([MOMENT.replace(tzinfo=None), None], pa.timestamp("us")), True),
    "times of a zone, read as of none": Case(
        arrow([MOMENT], pa.timestamp("us", "UTC")), False, "n int, x timestamp_ntz"
    ),
    "times of no zone, read as of a zone": Case(
        arrow([MOMENT.replace(tzinfo=None)], pa.timestamp("us")), False, "n int, x timestamp"
    ),
    "milliseconds": Case(arrow([MOMENT], pa.timestamp("ms", "UTC")), True),
    "nanoseconds": Case(arrow([MOMENT], pa.timestamp("ns", "UTC"), version="2.6"), False),
    "times of day": Case(arrow([dt.time(1, 2)], pa.time64("us")), False),
    # days
    "days of Arrow": Case(arrow(DAYS, pa.date32()), True, where=DAY),
    "days of Spark": Case(
        spark_sql("date_add(date'2024-02-28', cast(id as int))"), True, where=("true", "x > date'2024-03-01'")
    ),
    "days of Spark in the calendar of Spark 2": Case(
        spark_sql(
            "date_add(date'1500-02-28', cast(id as int))", spark__sql__parquet__datetimeRebaseModeInWrite="LEGACY"
        ),
        False,
        where=("true", "x > date'1500-03-01'"),
    ),
    "old days of Spark": Case(
        spark_sql(
            "date_add(date'1500-02-28', cast(id as int))", spark__sql__parquet__datetimeRebaseModeInWrite="CORRECTED"
        ),
        True,
        where=("true", "x > date'1500-03-01'"),
    ),
    "days marked as of the calendar of Spark 2": Case(
        with_metadata(DAYS, pa.date32(), {"org.apache.spark.version": "3.5.0", "org.apache.spark.legacyDateTime": ""}),
        False,
        where=DAY,
    ),
    "days of Spark 2": Case(with_metadata(DAYS, pa.date32(), {"org.apache.spark.version": "2.4.8"}), False, where=DAY),
    "milliseconds as days": Case(arrow(DAYS, pa.date64()), True, where=DAY),
    # decimals
    "decimals as bytes": Case(arrow(DECIMALS, pa.decimal128(3, 2)), True, where=("true", "x > 0.00", "x = 9.99")),
    "decimals as whole numbers": Case(
        arrow(DECIMALS, pa.decimal128(3, 2), store_decimal_as_integer=True),
        True,
        where=("true", "x > 0.00", "x = 9.99"),
    ),
    "long decimals as whole numbers": Case(
        arrow([Decimal("123456789012.34"), None], pa.decimal128(15, 2), store_decimal_as_integer=True),
        True,
        where=("true", "x > 5"),
    ),
    "decimals of 38 digits": Case(
        arrow([Decimal("-" + "9" * 38), Decimal(1)], pa.decimal128(38, 0)), True, where=("true", "x < 0")
    ),
    "decimals of Spark's older form": Case(
        spark_sql("cast(id - 5 as decimal(5,2))", spark__sql__parquet__writeLegacyFormat="true"),
        True,
        where=("true", "x > 0"),
    ),
    "decimals of Spark": Case(spark_sql("cast(id - 5 as decimal(15,2))"), True, where=("true", "x > 0")),
    "decimals of another precision": Case(arrow(DECIMALS, pa.decimal128(3, 2)), False, "n int, x decimal(10,2)"),
    "decimals of another scale": Case(arrow(DECIMALS, pa.decimal128(3, 2)), False, "n int, x decimal(10,4)"),
    "decimals of a narrower type": Case(arrow(DECIMALS, pa.decimal128(10, 2)), False, "n int, x decimal(3,2)"),
    "decimals of 256 bits": Case(arrow([Decimal("1.5")], pa.decimal256(50, 2)), False),
    "whole numbers, read as decimals": Case(arrow([1, None], pa.int32()), False, "n int, x decimal(12,2)"),
    # whole numbers
    "UINT_8": Case(arrow([0, 255], pa.uint8()), False),
    "UINT_16": Case(arrow([0, 65535], pa.uint16()), False),
    "UINT_32": Case(arrow([0, 4294967295], pa.uint32(), version="2.6"), False),
    "UINT_64": Case(arrow([0, 18446744073709551615], pa.uint64()), False),
    "UINT_32, read as int": Case(arrow([0, 5], pa.uint32(), version="2.6"), False, "n int, x int"),
    "INT_8": Case(arrow([-128, 127, None], pa.int8()), True, where=("true", "x < 0")),
    "INT_8, read as int": Case(arrow([-128, 127, None], pa.int8()), False, "n int, x int", ("true", "x < 0")),
    "int, read as bigint": Case(arrow([-1, 2147483647, None], pa.int32()), False, "n int, x bigint", ("true", "x < 0")),
    "bigint, read as int": Case(arrow([1, 1 << 40], pa.int64()), False, "n int, x int"),
    "int, read as double": Case(arrow([1, None], pa.int32()), False, "n int, x double"),
    "float, read as double": Case(arrow([0.1, None, NAN], pa.float32()), False, "n int, x double"),
    "int, read as a text": Case(arrow([1, None], pa.int32()), False, "n int, x string"),
    "files of two widths": Case(
        in_sequence(arrow([1, 2], pa.int32()), arrow([3, 1 << 40], pa.int64())), False, "n int, x bigint"
    ),
    # texts
    "texts": Case(arrow(["b", "", None, "é"]), True, where=("true", "x > 'a'", "x = ''")),
    "texts of a dictionary": Case(arrow(pa.array(["a", None, "a"]).dictionary_encode()), False),
    "long texts": Case(arrow(["a", None], pa.large_string()), True),
    "bytes, read as texts": Case(arrow([b"a", b"\xff\xfe"], pa.binary()), False, "n int, x string"),
    "bytes": Case(arrow([b"a", b"\xff\xfe"], pa.binary()), False),
    "texts with zero bytes": Case(arrow(["a\0b", "a"]), True, where=("true", "x = 'a'", "x > 'a'")),
    # statistics
    "statistics that are cut": Case(arrow(LONG_TEXTS), True, where=("x > 'b'", "x < 'aa'", f"x = '{'a' * 5000}'")),
    "statistics of Spark that are cut": Case(
        spark_sql("repeat(if(id % 2 = 0, 'é', 'z'), 200 + cast(id as int))"),
        True,
        where=("x > 'zz'", "x < 'é'", "true"),
    ),
    "no statistics": Case(
        arrow(["b", None, "a"], write_statistics=False), True, where=("x > 'a'", "x is null", "true")
    ),
    "NaN in statistics": Case(
        arrow([NAN, 1.0, 2.0, NAN, -INFINITY, -0.0], pa.float64()), True, where=("true", "x is null")
    ),
    "NaN that is compared": Case(
        arrow([NAN, 1.0, 2.0, NAN, -INFINITY, -0.0], pa.float64()),
        False,
        where=("x > 1.0", "x = double('NaN')", "x <= 0.0D"),
    ),
    "NaN of 4 bytes": Case(arrow([NAN, 1.0, None, -0.0], pa.float32()), True),
    "only nulls": Case(
        arrow([None, None, None], pa.int32()), True, where=("x is null", "x > 1", "true", "x is not null")
    ),
    "no type": Case(arrow([None, None], pa.null()), False),
    "no rows": Case(arrow([], pa.int32()), True),
    "pages of the second version": Case(arrow(["a", None, "b"], data_page_version="2.0"), True),
    "delta encodings": Case(
        arrow(
            ["ab", "abc", None, "b"],
            use_dictionary=False,
            column_encoding={"x": "DELTA_BYTE_ARRAY", "n": "DELTA_BINARY_PACKED"},
        ),
        False,
    ),
    "split by bytes": Case(
        arrow([1.5, NAN], pa.float64(), use_dictionary=False, column_encoding={"x": "BYTE_STREAM_SPLIT"}), False
    ),
    # columns
    "a column in other letters": Case(named("X"), False, "n int, x bigint"),
    "a column that is missing": Case(named("y"), False, "n int, x bigint"),
    "a structure": Case(arrow([{"a": 1}, None]), False),
    "a list": Case(arrow([[1], None]), False),
    "a folder of 01": Case(in_folder("x=01"), True),
    "a folder of null": Case(in_folder("x=__HIVE_DEFAULT_PARTITION__"), True, "n int, x int"),
    "a folder, read as a text": Case(in_folder("x=01"), True, "n int, x string"),
    "hidden files": Case(beside_hidden, True),
}
