"""Expressions in which Spark and DuckDB differ, over columns of Parquet files.

Spark folds constants before DuckDB sees them, so each operand is a column. The first row has the operands of
`engine_traps.json`; the others also have nulls, NaN, negative zeros, empty texts and the extremes of the types.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.duckdb.query import NativePlan, native_plan
from penstock.duckdb.worker.engine import NotNativeError
from penstock.duckdb.worker.query import QueryFunction
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.plans.logical_plan import LogicalPlan
from tests.generated.aggregates import VALUES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


TRAPS: dict[str, Any] = json.loads((Path(__file__).parent / "engine_traps.json").read_text())
_OPERAND = re.compile(r"""'(?:[^'\\]|\\.)*'|\{((?:'(?:[^'\\]|\\.)*'|"[^"]*"|[^{}'"])+)\}""")
"""A text literal, which stays unchanged, or an operand in braces."""
ROWS = 16
"""Rows with the operands and their neighbours."""
_MEMORY = 1 << 28
_EXTREMES = {
    "float": ["cast(0 as float)", "float('NaN')", "float('-Infinity')", "cast(-1.5 as float)", "float('3.4e38')"],
    "double": [
        *VALUES["double"],
        "double('1.7976931348623157E308')",
        "4.9E-324D",
        "1e15D",
        "0.005D",
        "-2.5D",
        "2147483648D",
    ],
    "timestamp": ["timestamp'1970-01-01 00:00:00Z'", "timestamp'9999-12-31 23:59:59.999999Z'"],
    "timestamp_ntz": ["timestamp_ntz'0001-01-01 00:00:00'", "timestamp_ntz'2024-03-31 02:30:00.000001'"],
    "binary": ["X''", "X'ff00'"],
    "string": [*VALUES["string"], "'1'", "'ǅ'", "'ΌΣΟΣ'", r"'a\n\r\t\\'", "'\u00a0x\u00a0'", "'e\u0301'"],
}


@dataclass(frozen=True)
class Trap:
    """An expression over columns, and the operands for these columns."""

    name: str
    sql: str
    operands: tuple[str, ...]
    columns: tuple[str, ...]


def traps() -> list[Trap]:
    """Return the expressions of all groups."""
    expressions = {name: text for group in TRAPS["expressions"].values() for name, text in group.items()}
    return [_trap(number, name, text) for number, (name, text) in enumerate(expressions.items())]


def _trap(number: int, name: str, text: str) -> Trap:
    operands: list[str] = []

    def column(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        operands.append(match[1])
        return f"x{number}_{len(operands) - 1}"

    sql = _OPERAND.sub(column, text)
    return Trap(name, sql, tuple(operands), tuple(f"x{number}_{i}" for i in range(len(operands))))


def neighbours(kind: str) -> list[str]:
    """Return values of a type, as SQL: null and the extremes among them."""
    values = _EXTREMES.get(kind) or VALUES.get(kind) or []
    decimal = re.fullmatch(r"decimal\((\d+),(\d+)\)", kind)
    if decimal:
        precision, scale = int(decimal[1]), int(decimal[2])
        digits = ["0", "1", "-1", "5", "-25", "149", "9" * precision, "-" + "9" * precision]
        values = [f"{digit}E-{scale}BD" for digit in digits if len(digit.lstrip("-")) <= precision]
    return [f"cast({value} as {kind})" for value in ["null", *values]]


def operand_rows(spark: SparkSession, all_traps: Sequence[Trap]) -> pa.Table:
    """Return a table with the columns of all traps; its first row has their operands."""
    operands = {name: sql for trap in all_traps for name, sql in zip(trap.columns, trap.operands, strict=True)}
    df = spark.sql("select " + ", ".join(f"{sql} as {name}" for name, sql in operands.items()))
    first = df.toArrow()
    kinds = {field.name: field.dataType.simpleString() for field in df.schema}
    others = {kind: neighbours(kind) for kind in set(kinds.values())}
    extreme_columns = [
        f"{sql} as `{kind} {number}`" for kind, values in others.items() for number, sql in enumerate(values)
    ]
    extremes = spark.sql("select " + ", ".join(extreme_columns)).toArrow()
    columns = {"n": pa.array(range(ROWS), pa.int32())}
    for trap in all_traps:
        for position, name in enumerate(trap.columns):
            kind = kinds[name]
            values = [first[name], *(extremes[f"{kind} {number}"] for number in range(len(others[kind])))]
            if kind.startswith("struct"):  # Arrow has no null of a struct with non-null fields
                del values[1:]
            parts = [values[_choice(trap, position, row, len(values))] for row in range(ROWS)]
            arrow_type = first[name].type
            columns[name] = pa.concat_arrays(
                [
                    part.combine_chunks().cast(arrow_type) if part.null_count == 0 else pa.nulls(1, arrow_type)
                    for part in parts
                ]
            )
    return pa.table(columns)


def _choice(trap: Trap, position: int, row: int, count: int) -> int:
    """Return the number of an operand's value: zero is the operand itself, the others are its neighbours."""
    rng = random.Random(f"{trap.name} {position} {row}")
    if row == 0 or count == 1 or (rng.random() < 0.5 and position != row % len(trap.columns)):
        return 0
    return 1 + row // len(trap.columns) % (count - 1) if position == row % len(trap.columns) else rng.randrange(count)


def group_rows(spark: SparkSession, query: Mapping[str, str]) -> pa.Table:
    """Return the rows of a query's table: the original group, and groups with an additional row each."""
    original = spark.sql(f"select * from values {query['rows']} as t({query['columns']})")
    kinds = [field.dataType.simpleString() for field in original.schema]
    groups = [f"select 0, * from values {query['rows']}"]
    for number, value in enumerate(neighbours(kinds[0]), 1):
        others = [
            f"cast(null as {kind})" if number % 2 else f"(select first({name}) from original)"
            for name, kind in zip(original.columns[1:], kinds[1:], strict=True)
        ]
        groups += [
            f"select {number}, * from values {query['rows']}",
            f"select {', '.join([str(number), value, *others])}",
        ]
    original.createOrReplaceTempView("original")
    columns = ", ".join(["n", *original.columns])
    return spark.sql(f"select {columns} from ({' union all '.join(groups)}) as t({columns})").toArrow()


def write_by_number(rows: pa.Table, folder: Path) -> None:
    """Write a file per value of the column ``n``."""
    folder.mkdir(parents=True)
    for number in sorted(set(rows["n"].to_pylist())):
        pq.write_table(rows.filter(pc.equal(rows["n"], number)), folder / f"{number:03}.parquet")


def whole_query_plan(spark: SparkSession, df: DataFrame, excluded: Sequence[str] = ()) -> NativePlan | str:
    """Return the DuckDB query that computes a whole query, or the reason why there is none."""
    plan = native_plan(LogicalPlan(Bridge(spark), df._jdf.queryExecution().optimizedPlan()), excluded)
    if isinstance(plan, str):
        return plan
    return "; ".join(plan.rest_reasons) if plan.rest_reasons or len(plan.parts) != 1 else plan


def computed_files(plan: NativePlan) -> list[int]:
    """Return the numbers of the files for which DuckDB computes a query without an error.

    Files are computed separately unless all succeed, as an error of a file would hide the others.
    """
    (part,) = plan.parts
    files = sorted({Path(table.local_path).name for table in part.tables[0].ranges})
    computes_all = _is_computed(part, files)
    return [int(name[:3]) for name in files if computes_all or _is_computed(part, [name])]


def _is_computed(part: QueryFunction, names: Sequence[str]) -> bool:
    """Whether a query over files of its first table succeeds, computed in this process like in a worker."""
    first, *others = part.tables
    ranges = tuple(file for file in first.ranges if Path(file.local_path).name in names)
    tables = (replace(first, ranges=ranges), *others)
    try:
        for _ in replace(part, tables=tables, memory=_MEMORY)(iter(())):
            pass
    except NotNativeError:
        return False
    return True


def exact(result: Any) -> Any:
    """Return rows as sorted texts that include negative zeros and NaN, or the condition of an error."""
    if isinstance(result, str):
        return result if re.fullmatch(r"[A-Z0-9_.]+", result) else "an error without a condition"
    return sorted(map(repr, result))
