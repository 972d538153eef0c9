"""Fingerprints of rows: all types count, in any order, and nearly equal rows are distinguished from different rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from penstock.spark.bridge.jvm import Bridge
from penstock.spark.run.fingerprint import Fingerprint, FingerprintedRows, fingerprint
from penstock.spark.run.row_hashes import UnknownTypeError
from penstock.spark.run.row_matching import exact_differences, float_differences, rows_with, unmatched

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# Name: a value, and another value of the same type, as similar as possible.
TYPES = {
    "flag": ("true", "false"),
    "tiny": ("1Y", "2Y"),
    "small": ("1S", "2S"),
    "whole": ("1", "2"),
    "long": ("9223372036854775807L", "9223372036854775806L"),
    "decimal": ("cast('1.20' as decimal(10,2))", "cast('1.21' as decimal(10,2))"),
    "wide_decimal": (
        "cast('12345678901234567890.1' as decimal(38,1))",
        "cast('12345678901234567890.2' as decimal(38,1))",
    ),
    "single": ("1.5F", "1.50001F"),
    "double": ("0.1D + 0.2D", "0.3D"),
    "text": ("''", "' '"),
    "accent": ("'é'", "'e\u0301'"),
    "collated": ("'a' collate UTF8_LCASE", "'A' collate UTF8_LCASE"),
    "trimmed": ("'a' collate UTF8_BINARY_RTRIM", "'a ' collate UTF8_BINARY_RTRIM"),
    "bytes": ("X'00'", "X'0000'"),
    "day": ("date'2026-01-01'", "date'2026-01-02'"),
    "moment": ("timestamp'2026-01-01 00:00:00.000001'", "timestamp'2026-01-01 00:00:00.000002'"),
    "local_moment": ("timestamp_ntz'2026-01-01 00:00:00'", "timestamp_ntz'2026-01-01 00:00:01'"),
    "months": ("interval '1-2' year to month", "interval '1-3' year to month"),
    "seconds": ("interval '1 00:00:01' day to second", "interval '1 00:00:02' day to second"),
    "calendar": ("make_interval(0, 1, 0, 0)", "make_interval(0, 0, 0, 30)"),
    "list": ("array(1, null, 2)", "array(null, 1, 2)"),
    "nested_list": ("array(array(1), array(2))", "array(array(1, 2))"),
    "empty_list": ("array()", "array(null)"),
    "list_of_doubles": ("array(1.0D, 2.0D)", "array(1.0D, null)"),
    "record": ("named_struct('a', 1, 'b', int(null))", "named_struct('a', int(null), 'b', 1)"),
    "record_of_null": ("named_struct('a', cast(null as int))", "cast(null as struct<a: int>)"),
    "map": ("map('a', 1, 'b', 2)", "map('a', 2, 'b', 1)"),
    "map_of_null": ("map('a', cast(null as int))", "cast(map() as map<string, int>)"),
    "map_of_maps": ("map(1, map('x', array(1)))", "map(1, map('x', array(2)))"),
    "map_by_double": ("map(1.0D, 1)", "map(2.0D, 1)"),
    "map_of_doubles": ("map('a', double('nan'))", "map('a', double('inf'))"),
    "variant": ("parse_json('{\"a\": 1}')", 'parse_json(\'{"a": "1"}\')'),
    "variant_null": ("parse_json('null')", "cast(null as variant)"),
    "list_of_variants": ("array(parse_json('1'))", "array(parse_json('1.5'))"),
    "collated_in_map": ("map(1, 'a' collate UTF8_LCASE)", "map(1, 'A' collate UTF8_LCASE)"),
    "nothing": ("null", None),
}
NEWER = {
    "clock": ("time'12:30:00'", "time'12:30:01'"),
    "shape": (
        "st_geomfromwkb(X'0101000000000000000000F03F0000000000000040')",
        "st_geomfromwkb(X'0101000000000000000000F03F0000000000000840')",
    ),
}
if __import__("pyspark").__version__ >= "4.2":
    TYPES |= NEWER
CHANGED = [name for name, (_, other) in TYPES.items() if other is not None]
FLOATS = {"single", "double", "list_of_doubles", "map_of_doubles"}


def table(spark: SparkSession, variant: Any, changed_column: Any = None) -> Any:
    values = {
        name: pair[variant if changed_column in {None, name} and pair[variant] else 0] for name, pair in TYPES.items()
    }
    return spark.range(3).selectExpr("id", *(f"{value} as {name}" for name, value in values.items()))


@pytest.fixture(scope="module")
def bridge(spark: SparkSession) -> Bridge:
    return Bridge(spark)


@pytest.fixture(scope="module")
def prints(spark: SparkSession, bridge: Any) -> Any:
    from pyspark.ml.linalg import Vectors

    spark.conf.set("spark.sql.timeType.enabled", "true")  # off by default in some releases
    vectors = [
        spark.createDataFrame([(Vectors.dense([1.0, x]), i) for i in range(3)], ["vector", "i"]) for x in (2.0, 3.0)
    ]

    def fingerprint_of(df: DataFrame, vector: Any) -> Any:
        return fingerprint(df.join(vector, F.col("id") == F.col("i")), bridge)

    ours, other = table(spark, 0), table(spark, 1)
    nulls = ours.select("id", *(F.when(F.col("id") != 1, F.col(name)).alias(name) for name in TYPES))
    return (
        fingerprint_of(ours, vectors[0]),
        fingerprint_of(ours.repartition(3).orderBy(F.desc("id")), vectors[0]),
        fingerprint_of(other, vectors[1]),
        fingerprint_of(nulls, vectors[0]),
    )


def test_there_are_many_types() -> None:
    assert len(TYPES) >= 25


@pytest.mark.thorough
def test_equal_rows_in_another_order(prints: Any) -> None:
    ours, shuffled, *_ = prints
    assert ours.rows == 3
    assert ours.equals(shuffled)
    assert ours.column_hashes == shuffled.column_hashes
    assert ours.differing_columns(shuffled) == []


@pytest.mark.parametrize("name", [*CHANGED, "vector"])
def test_every_type_counts(prints: Any, name: Any) -> None:
    ours, _, other, _ = prints
    assert not ours.equals(other)
    position = [*TYPES, "vector"].index(name) + 1
    if name == "double":  # the values differ in the last digit
        assert position not in ours.differing_columns(other)
        assert ours.sums[position] != other.sums[position]
    else:
        assert position in ours.differing_columns(other)
    assert 0 not in ours.differing_columns(other)


@pytest.mark.parametrize("name", [name for name in TYPES if name != "nothing"])
def test_a_single_null_counts(prints: Any, name: Any) -> None:
    ours, _, _, nulls = prints
    assert list(TYPES).index(name) + 1 in ours.differing_columns(nulls)


CASES = [
    ("0.0D", "-0.0D", True),
    ("double('nan')", "sqrt(-1.0D)", True),
    ("double('nan')", "cast(null as double)", False),
    ("double('inf')", "double('-inf')", False),
    ("cast(null as string)", "''", False),
    ("map(1, 'a', 2, 'b')", "map(2, 'b', 1, 'a')", True),
    ("map(map_from_arrays(array(1), array(1)) is null, 1.0D, true, 2.0D)", "map(true, 2.0D, false, 1.0D)", True),
    ('parse_json(\'{"a":1,"b":2}\')', 'parse_json(\'{"b":2,"a":1}\')', True),
    ("named_struct('a', 0.0D)", "named_struct('a', -0.0D)", True),
]


@pytest.mark.parametrize(("left", "right", "same"), CASES)
def test_what_is_equal(spark: SparkSession, bridge: Any, left: str, right: str, same: bool) -> None:
    prints = [fingerprint(spark.sql(f"select {value} as v"), bridge) for value in (left, right)]
    assert prints[0].equals(prints[1]) is same
    assert prints[0].equals_except_floats(prints[1]) is same


def test_nulls_swapped_between_columns_count(spark: SparkSession, bridge: Any) -> None:
    """Spark's own xxhash64 gives both rows the same hash."""
    rows = [spark.sql("select 1 a, cast(null as int) b"), spark.sql("select cast(null as int) a, 1 b")]
    assert rows[0].select(F.xxhash64("a", "b")).collect()[0][0] == rows[1].select(F.xxhash64("a", "b")).collect()[0][0]
    assert not fingerprint(rows[0], bridge).equals(fingerprint(rows[1], bridge))


def test_duplicates_and_names(spark: SparkSession, bridge: Any) -> None:
    df = spark.sql("select 1 as `a.b`, 2 as `a.b`, 3 as `A.b` from range(4)")
    single = fingerprint(df, bridge)
    assert single.rows == 4
    twice = fingerprint(df.union(df), bridge)
    assert twice.hashes == tuple(2 * value for value in single.hashes)
    assert not twice.equals(single)


def test_no_rows_and_no_columns(spark: SparkSession, bridge: Any) -> None:
    assert fingerprint(spark.range(0), bridge).rows == 0
    assert fingerprint(spark.range(5).select(), bridge).rows == 5


def test_ambiguous_field_names_are_refused(spark: SparkSession, bridge: Any) -> None:
    with pytest.raises(UnknownTypeError, match="have equal names"):
        fingerprint(spark.sql("select named_struct('a', 1, 'A', 2) s"), bridge)


def test_values_swapped_between_rows_count(spark: SparkSession, bridge: Any) -> None:
    """The sums per column are equal."""
    ours = fingerprint(spark.sql("select * from values (1, 2.0D), (2, 3.0D) t(k, v)"), bridge)
    swapped = fingerprint(spark.sql("select * from values (1, 3.0D), (2, 2.0D) t(k, v)"), bridge)
    assert ours.sums == swapped.sums
    assert ours.equals_except_floats(swapped)
    assert not ours.may_equal(swapped)


def test_counted_rows_are_those_that_pass_through(spark: SparkSession, bridge: Any) -> None:
    from penstock.spark.run.plain_runs import in_user_session

    df = in_user_session(bridge, spark.range(100).selectExpr("id", "id * 0.5D as `x.y`", "id as id"))
    counted = FingerprintedRows(df, bridge)
    assert counted.fingerprint().rows == 0
    assert counted.df.columns == ["id", "x.y", "id"]
    assert counted.df.collect() == df.collect()
    assert counted.fingerprint().equals(fingerprint(df, bridge))


def test_infinite_sums_prove_nothing() -> None:
    ours = Fingerprint(1, (1, 1), 1, (1,), {0: (float("inf"), float("inf"))}, (float("nan"), float("inf")))
    assert ours.may_equal(replace(ours, hashes=(2, 2)))
    assert not ours.may_equal(replace(ours, exact_hash=2))


def test_differing_rows_are_listed(spark: SparkSession, bridge: Any) -> None:
    ours = spark.range(50).selectExpr("id", "map('k', id) as m", "id * 0.1D as d", "X'FF' as b")
    theirs = ours.where("id <> 7").union(ours.where("id = 9"))
    more, less = exact_differences(bridge, ours, theirs, 5)
    assert rows_with(bridge, ours, more, 5) == [("7", "{k -> 7}", str(7 * 0.1), "FF")]
    assert rows_with(bridge, theirs, less, 5) == [("9", "{k -> 9}", "0.9", "FF")]


NOISE = [
    ("v * (1 + 1e-13D)", 0),
    ("v * (1 + 1e-6D)", 20),
    ("if(v = 3.0D, v + 1e-6D, v)", 1),
    ("if(v = 0.0D, 1e-13D, v)", 0),
    ("if(v = 0.0D, 1e-9D, v)", 1),
    ("20.0D - v - 1", 0),  # the same values in another order
]


@pytest.mark.parametrize(("change", "expected"), NOISE)
def test_doubles_are_paired(spark: SparkSession, bridge: Any, change: str, expected: int) -> None:
    ours = spark.range(20).selectExpr("cast(id as double) as v")
    unpaired = float_differences(bridge, ours.selectExpr(f"{change} as v").repartition(3), ours)
    assert unpaired is not None
    zero = int("1 + 1e-6D" in change)  # zero times anything is zero
    assert tuple(map(len, unpaired)) == (expected - zero, expected - zero)


def test_pairs_whose_order_changes_with_the_noise(spark: SparkSession, bridge: Any) -> None:
    ours = spark.createDataFrame([(1.0, 5.0), (1.0 + 1e-12, 7.0)], "a double, b double")
    theirs = spark.createDataFrame([(1.0 + 1e-12, 5.0), (1.0, 7.0)], "a double, b double")
    assert float_differences(bridge, ours, theirs) == ([], [])


def test_too_many_to_be_paired(spark: SparkSession, bridge: Any) -> None:
    ours = spark.range(2000).selectExpr("id * 1.0D as v")
    assert float_differences(bridge, ours.selectExpr("-v - 1 as v"), ours) is None


def test_partners_are_matched_once() -> None:
    row = ((1, 2), ((1.0,), ()))
    near = ((1, 2), ((1.0 + 1e-12,), ()))
    assert unmatched([row, row], [near]) == ([row], [])
    assert unmatched([row], [near, ((1, 2), ((None,), ()))]) == ([], [((1, 2), ((None,), ()))])
    assert unmatched([row], [((1, 3), ((1.0,), ()))]) == ([row], [((1, 3), ((1.0,), ()))])
