"""Random nested expressions over special and pseudo-random values: DuckDB's values are those of plain Spark."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from penstock.duckdb.expressions.registry import FAMILIES
from tests.duckdb.expressions.comparison import Comparison, operands_of
from tests.duckdb.expressions.nested import nested_expressions, replaced
from tests.duckdb.expressions.values import SPECIAL, random_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("interpreted", "views")

# Expressions that the registry does not have.
_OTHERS = [
    *[f"{a} {operator} {b}" for a, b in (("int1", "int2"), ("long1", "long2"), ("dec1", "dec2")) for operator in "+-*"],
    *["double1 + double2", "double1 - double2", "double1 * double2", "double1 / double2", "dec1 / dec2", "int1 / int2"],
    *["short1 + short1", "byte1 - short1", "long1 + 1", "int1 * 3", "dec1 * 2", "float1 + float2", "wide1 + dec1"],
    *["if(bool1, str1, str2)", "if(bool1, int1, int2)", "if(bool1, double1, double2)", "if(bool1, date1, date2)"],
    *["case when bool1 then dec1 when bool2 then dec2 end", "case when bool1 then long1 else long2 end"],
    *["if(bool1, time1, null)", "if(bool1, ntz1, null)", "case when bool1 then bool2 else bool1 end"],
    *["str1 in ('a', 'b', '')", "int1 in (1, 2, int2)", "int1 >= small1 and int1 < 100", "str1 like 'a%'"],
    *["str1 is null", "bool1 is not null", "double1 is null", "date1 <= date2 or date1 > date'2024-03-01'"],
    *["double1 < double2", "float1 = float2", "double1 in (0.0, 1.5)", "time1 < timestamp'2024-03-31 02:30:00'"],
    *["hour(time1)", "minute(time1)", "second(time1)", "hour(ntz1)", "second(ntz1)", "to_date(time1)", "to_date(ntz1)"],
    *["year(time1)", "month(ntz1)", "dayofweek(time1)", "date_trunc('HOUR', time1)", "date_trunc('MONTH', time1)"],
    *["date_trunc('WEEK', time1)", "date_trunc('MINUTE', ntz1)", "cast(time1 as timestamp_ntz)", "unix_micros(time1)"],
    *["cast(ntz1 as timestamp)", "cast(date1 as timestamp_ntz)", "cast(date2 as timestamp)", "cast(time1 as bigint)"],
    *[
        "cast(time1 as string)",
        "cast(ntz1 as string)",
        "date_format(time1, 'yyyy-MM-dd HH:mm')",
        "unix_timestamp(time1)",
    ],
    *["timestamp_seconds(int1)", "timestamp_millis(small1)", "from_unixtime(int1)", "coalesce(time1, ntz1)"],
]
_FAILING = {
    "int": "cast(digits as int)",
    "bigint": "cast(digits as bigint)",
    "string": "cast(cast(digits as int) as string)",
    "date": "cast(dates as date)",
    "double": "cast(digits as double)",
    "boolean": "cast(flags as boolean)",
    "decimal(10,2)": "cast(digits as decimal(10,2))",
}
"""Expressions of each type that fail for many rows in ANSI mode."""
_FAMILY_OF_TYPE = {"tinyint": "integers", "smallint": "integers", "int": "integers", "bigint": "integers"}
_FAMILY_OF_TYPE |= {"float": "floating", "double": "floating", "timestamp": "timestamp", "timestamp_ntz": "timestamp"}
_FAMILIES = ("integers", "floating", "decimal", "string", "boolean", "date", "timestamp")
_ROWS = 1000
_BATCH = 20
"""Number of expressions in a query."""
_MAX_BATCHES = 30
_COUNTS = [  # of values
    pytest.param(15_000, marks=pytest.mark.thorough),
    pytest.param(100_000, marks=pytest.mark.slow),
]


@pytest.mark.parametrize("count", _COUNTS)
@pytest.mark.parametrize("family", _FAMILIES)
def test_nested_expressions(session: SparkSession, tmp_path: Path, family: str, count: int) -> None:
    """`NESTED_SEED` sets the seed. The output has the number of values that were compared, for the documentation."""
    seed = int(os.environ.get("NESTED_SEED", "1"))
    rng = random.Random(f"{seed} {family}")
    rows = random_rows(_ROWS, seed)
    columns, examples = _types(session, tmp_path, rows)
    roots = [sql for sql, kind in examples.items() if _family(kind) == family]
    declined: Counter[str] = Counter()
    values = expressions = failing = without_values = 0
    for _ in range(_MAX_BATCHES):
        if values >= count:
            break
        batch = nested_expressions(rng, roots, examples, columns, _BATCH)
        reasons = Comparison(session, tmp_path, batch).declined(rows)
        declined.update(reasons.values())
        native = Comparison(session, tmp_path, [sql for sql in batch if sql not in reasons])
        indices = native.computable_rows(rows) if native.expressions else {}
        computed = Comparison(session, tmp_path, [sql for sql, numbers in indices.items() if numbers])
        failing += len(indices) - len(computed.expressions)
        if computed.expressions:
            differences, empty = computed.compare(rows, indices)
            assert differences == {}
            values += sum(map(len, indices.values()))
            without_values += len(empty)
        expressions += len(batch)
    native_count = expressions - sum(declined.values())
    print(
        f"{family}: {expressions} expressions, {native_count} of them native, {values} values compared, "
        f"{failing} expressions failed for all rows, {without_values} had only nulls, declined: {dict(declined)}"
    )
    assert values >= count
    assert native_count > expressions / 2


def _types(session: SparkSession, folder: Path, rows: pa.Table) -> tuple[dict[str, str], dict[str, str]]:
    """Return the types of the columns and of all examples."""
    examples = [sql for entries in FAMILIES.values() for entry in entries for sql in entry.examples] + _OTHERS
    df = Comparison(session, folder, examples).query(rows)
    kinds = [field.dataType.simpleString() for field in df.schema.fields[1:]]
    columns = {field.name: field.dataType.simpleString() for field in session.table("t").schema.fields}
    return {name: columns[name] for name in SPECIAL}, dict(zip(examples, kinds, strict=True))


def _family(kind: str) -> str:
    return _FAMILY_OF_TYPE.get(kind, kind.partition("(")[0])


@pytest.mark.thorough
def test_operands_that_fail(session: SparkSession, tmp_path: Path) -> None:
    """If an operand fails in Spark, DuckDB must not return a value that it computes without the operand."""
    rows = random_rows(300)
    columns, examples = _types(session, tmp_path, rows)
    expressions = []
    for sql in examples:
        for name in operands_of(sql):
            failing = _FAILING.get(columns[name])
            if failing is not None and len(operands_of(sql)) > 1:
                expressions.append(replaced(sql, {name: f"({failing})"}))
    reasons = Comparison(session, tmp_path, expressions).declined(rows)
    native = [sql for sql in expressions if sql not in reasons]
    indices = Comparison(session, tmp_path, native).computable_rows(rows)
    computed = [sql for sql in native if indices[sql]]
    assert len(native) > len(_FAILING) * 10
    for start in range(0, len(computed), _BATCH):
        differences, _ = Comparison(session, tmp_path, computed[start : start + _BATCH]).compare(rows, indices)
        assert differences == {}
