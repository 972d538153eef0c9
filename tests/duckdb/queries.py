"""Generated queries of several operators, which DuckDB computes in a single task, or Spark in part."""

from __future__ import annotations

import random

from tests.generated.aggregates import COLUMNS, OTHER, Generator

_KEYS = ["i8", "i16", "i32", "i64", "d5", "d15", "small15", "day", "s", "b"]
_JOINS = ["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"]
_FUNCTIONS = [
    "count(*)",
    "count(s)",
    "count(DISTINCT s)",
    "min(day)",
    "max(i64)",
    "sum(i32)",
    "sum(small15)",
    "sum(DISTINCT d5)",
    "avg(small15)",
    "avg(d5)",
    "avg(i16)",
    "avg(d15)",
    "sum(small15) / count(s)",
    "sum(small15) / 7",
    "sum(d15) * 0.0001",
    "CAST(sum(small15) AS decimal(38,1))",
    "CAST(avg(i16) / 64 AS decimal(11,6))",
    "sum(CASE WHEN i16 - i8 > 0 AND i16 - i8 <= 90 THEN 1 ELSE 0 END)",
    "max(i16 * i8) - min(CAST(i8 AS int) + 1)",
]
_WINDOWS = [
    "row_number() OVER (PARTITION BY i8 ORDER BY a0, a1, s)",
    "rank() OVER (PARTITION BY s ORDER BY a0 DESC)",
    "dense_rank() OVER (ORDER BY a1 NULLS LAST)",
    "sum(a0) OVER (PARTITION BY i8)",
    "count(a1) OVER (PARTITION BY s ORDER BY i8)",
    "max(a1) OVER (PARTITION BY s ORDER BY i8, a0, a1 ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)",
]
_OUTER = [
    "a0 > (SELECT count(*) FROM u)",
    "i8 IN (SELECT u_i8 FROM u)",
    "i8 NOT IN (SELECT u_i8 FROM u WHERE u_i8 IS NOT NULL)",
    "i8 NOT IN (SELECT u_i8 FROM u)",
    "(EXISTS (SELECT 1 FROM u WHERE u_i8 = i8) OR a0 > 3)",
    "a0 >= (SELECT max(u_i16) FROM u WHERE u_s = 'none')",
    "a0 BETWEEN 1 AND 30",
]


def query_with_join(seed: int) -> str:
    """Return a query with a join, an aggregate, and operators over its result."""
    rng = random.Random(seed)
    key = rng.choice(_KEYS)
    kind = rng.choice(_JOINS)
    extra_condition = f" AND i16 <> {OTHER}i16" if rng.random() < 0.3 else ""
    tables = f"t {kind} u ON {key} = {OTHER}{key}{extra_condition}" if rng.random() < 0.7 else "t"
    if rng.random() < 0.2:
        tables += f" JOIN (SELECT {OTHER}s AS y FROM u WHERE {OTHER}i8 > 0) v ON s = y" if "FULL" not in tables else ""
    where = f" WHERE {Generator(rng, COLUMNS).of('boolean', 2)}" if rng.random() < 0.5 else ""
    functions = [f"{function} AS a{n + 2}" for n, function in enumerate(rng.sample(_FUNCTIONS, 3))]
    sums = ", ".join(["count(*) AS a0", "max(i16) AS a1", *functions])
    grouped = "ROLLUP (i8, s)" if rng.random() < 0.2 else "i8, s"
    inner = f"SELECT i8, s, {sums} FROM {tables}{where} GROUP BY {grouped}"
    if rng.random() < 0.2:
        inner = f"SELECT * FROM ({inner}) UNION ALL SELECT * FROM ({inner})"
    shape = rng.choice(["plain", "plain", "filtered", "windows", "first", "again", "value"])
    if shape == "filtered":
        return f"SELECT * FROM ({inner}) WHERE {' AND '.join(rng.sample(_OUTER, 2))}"
    if shape == "windows":
        window_columns = ", ".join(f"{window} AS w{n}" for n, window in enumerate(rng.sample(_WINDOWS, 2)))
        return f"SELECT a0, a1, i8, s, {window_columns.replace('row_number()', 'rank()')} FROM ({inner})"
    if shape == "first":  # sorted by all columns, so that the first rows are unique up to equality
        names = ["i8", "s", "a0", "a1", "a2", "a3", "a4"]
        order = ", ".join(f"{name} {rng.choice(['', 'DESC', 'NULLS LAST', 'DESC NULLS FIRST'])}" for name in names)
        return f"SELECT * FROM ({inner}) ORDER BY {order} LIMIT {rng.choice([1, 5, 40])}"
    if shape == "again":
        return f"WITH x AS ({inner}) SELECT a.i8, a.a0, a.a2, b.a3 FROM x a JOIN x b ON a.i8 = b.i8 AND a.s = b.s"
    if shape == "value":
        return f"WITH x AS ({inner}) SELECT i8, s, a0, a2 FROM x WHERE a0 = (SELECT max(a0) FROM x)"
    return inner
