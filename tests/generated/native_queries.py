"""Queries over odd Parquet tables, most of which DuckDB computes; see also `native_expressions`."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.generated.builder import Builder
from tests.generated.native_expressions import INTEGERS, KEYS, Source
from tests.generated.odd_tables import OddTable, odd_table

SAME_TABLES = 20
"""Number of seeds that share their tables, because writing and inspecting files takes longer than a query."""
SETTINGS = {
    "spark.sql.ansi.enabled": (0.5, ["false"]),
    "spark.sql.autoBroadcastJoinThreshold": (0.35, ["-1"]),
    "spark.sql.files.maxPartitionBytes": (0.3, ["1500", "4000"]),
    "spark.sql.debug.maxToStringFields": (0.05, ["2", "1000"]),
    "spark.sql.parquet.filterPushdown": (0.04, ["false"]),
    "spark.sql.parquet.enableVectorizedReader": (0.04, ["false"]),
    "spark.sql.parquet.datetimeRebaseModeInRead": (0.05, ["LEGACY", "EXCEPTION"]),
    "spark.sql.parquet.aggregatePushdown": (0.03, ["true"]),
    "spark.sql.parquet.mergeSchema": (0.03, ["true"]),
    "spark.sql.files.ignoreCorruptFiles": (0.02, ["true"]),
    "spark.sql.decimalOperations.allowPrecisionLoss": (0.04, ["false"]),
    "spark.sql.caseSensitive": (0.03, ["true"]),
    "spark.sql.adaptive.enabled": (0.04, ["false"]),
    "spark.sql.session.timeZone": (0.04, ["America/New_York"]),
    "spark.sql.sources.partitionColumnTypeInference.enabled": (0.03, ["false"]),
}
"""Settings: how often they are set, and their values."""
JOINS = ["join", "join", "left join", "right join", "full join", "left semi join", "left anti join"]
GROUPED = "select {columns} from {from} where {where} group by {keys}"
Query = Callable[[Builder, Source, list[str]], dict]
"""Returns the fields of a step; `from` is its FROM clause."""


def native_spec(b: Builder, seed: int, name: str | None = None) -> str:
    """Add a query over two odd tables, and return its name; `name` chooses it."""
    rng = b.rng
    shared = random.Random(f"tables {seed // SAME_TABLES}")
    tables = [odd_table(shared, small=n % 2 == 1) for n in range(4)]
    a, other = tables[rng.choice([0, 0, 2, 1])], tables[rng.choice([1, 1, 3, 0])]
    for key, (share, values) in SETTINGS.items():
        if rng.random() < share:
            b.settings[key] = rng.choice(values)
    b.settings |= a.settings | other.settings
    if "spark.sql.files.maxPartitionBytes" in b.settings:
        b.settings["spark.sql.files.openCostInBytes"] = "100"
    relations = [_read(b, table) for table in (a, other)]
    source, text = _source(rng, a, other)
    if name is None:
        (name,) = rng.choices(list(QUERIES), [weight for _, weight in QUERIES.values()])
    fields = QUERIES[name][0](b, source, [text])
    sql, numbers = fields.pop("sql"), [relation.index for relation in relations]
    b.steps.append({"op": f"native: {name}", "of": numbers, "sql": sql, "from": text, **fields})
    b.steps.append({"op": "shown", "of": [len(b.steps) - 1], "python": "f.shown({a})"})
    kind = "ordered" if fields.get("order") else "rows"
    b.results.append({"of": len(b.steps) - 1, "kind": kind})
    return name


def _read(b: Builder, table: OddTable):
    lists = ("columns", "files", "schema", "options")
    text = f"table.odd({', '.join(f'{name}=[{{{name}}}]' for name in lists)}, folder={{folder}}, seed={{seed}})"
    return b.python("source: odd", [], [], 100, text, **table.fields)


def _source(rng: random.Random, a: OddTable, other: OddTable) -> tuple[Source, str]:
    """Return the input of a query and its FROM clause: a table or a join."""
    columns = {f"l.{name}": kind for name, kind in a.columns.items()}
    flavours = {f"l.{name}": flavour for name, flavour in a.flavours.items()}
    text = "{a} l"
    pairs = [
        (x, y)
        for x, kind in a.columns.items()
        for y, other_kind in other.columns.items()
        if kind == other_kind and kind.partition("(")[0] in KEYS
    ]
    if pairs and rng.random() < 0.4:
        join_type = rng.choice(JOINS)
        on = [f"l.{x} = r.{y}" for x, y in rng.sample(pairs, min(len(pairs), rng.choice([1, 1, 2])))]
        text = f"{{a}} l {join_type} {{b}} r on {' and '.join(on)}"
        if "semi" not in join_type and "anti" not in join_type:
            columns |= {f"r.{name}": kind for name, kind in other.columns.items()}
            flavours |= {f"r.{name}": flavour for name, flavour in other.flavours.items()}
    return Source(rng, columns, flavours, other), text


def _keys(source: Source, limit: int = 2) -> list[str]:
    rng = source.rng
    keys = rng.sample(source.of_type(*KEYS), min(rng.choice([0, 1, 1, 1, limit]), len(source.of_type(*KEYS))))
    return [*keys, source.value()[0]] if rng.random() < 0.15 else keys


def _where(source: Source, share: float = 0.6) -> list[str]:
    return (
        [source.condition() for _ in range(source.rng.choice([1, 1, 2]))] if source.rng.random() < share else ["true"]
    )


def _grouped(source: Source, aggregates: list[str], keys: list[str] | None = None) -> dict:
    """Return a query with keys, aggregates and a condition."""
    keys = _keys(source) if keys is None else keys
    columns = [f"{key} as g{n}" for n, key in enumerate(keys)] + [
        f"{aggregate} as x{n}" for n, aggregate in enumerate(aggregates)
    ]
    text = GROUPED if keys else GROUPED.removesuffix(" group by {keys}")
    return {"sql": text, "columns": columns, "where": _where(source), "keys": keys}


def aggregates(b: Builder, source: Source, _) -> dict:
    del b
    return _grouped(source, [source.aggregate() for _ in range(source.rng.randint(2, 7))])


def similar_aggregates(b: Builder, source: Source, _) -> dict:
    rng = b.rng
    calls = source.similar_aggregates(rng.randint(2, 4))
    calls += source.similar_aggregates(2) if rng.random() < 0.4 else []
    calls.insert(rng.randint(0, len(calls)), rng.choice(["count(*) + 1", "count(*)", f"{source.aggregate()}"]))
    query = _grouped(source, calls)
    if rng.random() < 0.5:
        query["where"] = ["true"]
    return query


def constants(b: Builder, source: Source, _) -> dict:
    """Return groups by constants, or by constants and a column."""
    rng = b.rng
    keys = rng.sample(
        ["'a'", "1 + 1", "date'2024-01-01'", "cast(null as string)", "true", "1.5", "'x, y'"], rng.choice([1, 1, 2])
    )
    keys += _keys(source, 1) if rng.random() < 0.3 else []
    query = _grouped(source, [source.aggregate() for _ in range(2)], keys)
    if rng.random() < 0.5:
        query["columns"] = query["columns"][len(keys) :]
    return query


def days(b: Builder, source: Source, _) -> dict:
    """Return aggregates and comparisons of dates."""
    rng = b.rng
    day = source.column("date") or "date'1582-10-10'"
    calls = [
        f"max(year({day}))",
        f"min(year({day}))",
        f"max(month({day}))",
        f"min(day({day}))",
        f"max({day})",
        f"min({day})",
        f"count(distinct {day})",
    ]
    calls += [f"max(year(date_add({day}, {n})))" for n in (1, -1)] + [
        f"count_if({source.date_comparison()})" for _ in range(2)
    ]
    query = _grouped(source, rng.sample(calls, rng.randint(1, 4)))
    query["where"] = [source.date_comparison()] if rng.random() < 0.5 else query["where"]
    return query


def sums(b: Builder, source: Source, _) -> dict:
    """Return sums and averages that may overflow."""
    column = source.column("bigint", "int", "decimal") or "1L"
    small = (
        source.column("bigint", "int", "decimal", small=True) or "1L"
    )  # averages of extreme values depend on the order
    calls = [
        f"sum({column})",
        f"avg({small})",
        f"sum({column}) + 1",
        f"sum({column} + {column})",
        f"sum(distinct {column})",
        f"sum(-{column})",
    ]
    return _grouped(source, b.rng.sample(calls, b.rng.randint(1, 2)))


def errors(b: Builder, source: Source, _) -> dict:
    """Return a query that may fail, with a single possible error, because tasks race for the first error."""
    rng = b.rng
    text = rng.choice(source.other.of_type("string") or ["'x'"])
    integer = rng.choice(source.other.of_type("bigint", "int") or ["1"])
    inner = rng.choice(
        [
            f"(select max(cast(z.{text} as int)) from {{b}} z)",
            f"(select sum(9223372036854775807L + z.{integer}) from {{b}} z)",
            f"(select z.{integer} from {{b}} z)",
            f"(select max(1 div (z.{integer} - z.{integer})) from {{b}} z)",
            f"(select raise_error('no, ' || max(z.{text})) from {{b}} z)",
            f"(select max(cast(z.{integer} as tinyint)) from {{b}} z)",
            "(select max(element_at(array(1), 5)) from {b} z)",
        ]
    )
    column = source.column("bigint", "int") or "1"
    if rng.random() < 0.7:
        query = _grouped(source, ["count(*)"])
        query["where"] = [f"{column} {rng.choice(['>', '=', '<>'])} cast({inner} as bigint)"]
        if rng.random() < 0.3:
            return {
                **query,
                "columns": [*query["columns"], f"sum(if({query['where'][0]}, 1, 0)) as y"],
                "where": ["true"],
            }
        return query
    aggregates_that_may_fail = [
        f"max({column} * {column})",
        f"sum(cast({column} as tinyint))",
        f"max({column} div ({column} - {column}))",
        f"max({column} + 2147483647)",
    ]
    return _grouped(source, [rng.choice(aggregates_that_may_fail)])


def windows(b: Builder, source: Source, _) -> dict:
    """Return window functions over groups."""
    rng = b.rng
    inner = _grouped(source, [source.aggregate() for _ in range(2)], _keys(source, 2) or [source.value()[0]])
    calls = [
        "rank() over (partition by g0 order by n)",
        "sum(n) over (partition by g0)",
        "max(n) over (order by g0)",
        "dense_rank() over (order by n desc)",
        "count(*) over (partition by n)",
    ]
    outer = [f"{call} as w{n}" for n, call in enumerate(rng.sample(calls, 2))]
    text = "select {outer} from (select {columns}, count(*) as n from {from} where {where} group by {keys})"
    return {**inner, "sql": text, "outer": ["g0", "n", "x0", *outer]}


def having(b: Builder, source: Source, _) -> dict:
    query = _grouped(source, [source.aggregate(), source.aggregate()], _keys(source, 2) or [source.value()[0]])
    condition = b.rng.choice(
        ["count(*) > 1", f"count(*) > (select count(*) from {{b}} z{source.inner()})", "count(*) between 2 and 30"]
    )
    return {**query, "sql": query["sql"] + " having {having}", "having": [condition]}


def top(b: Builder, source: Source, _) -> dict:
    """Return the first groups in an order."""
    rng = b.rng
    query = _grouped(source, ["count(*)", f"max({source.value()[0]})"], _keys(source, 2) or [source.value()[0]])
    order = [
        f"{column.rpartition(' as ')[2]}{rng.choice(['', ' desc', ' nulls last', ' desc nulls first'])}"
        for column in query["columns"]
    ]
    text = f"{query['sql']} order by {{order}} limit {rng.choice([1, 3, 10])}"
    return {**query, "sql": text, "order": order}


def sets(b: Builder, source: Source, _) -> dict:
    """Return grouping sets, distinct rows, a union or a self-join."""
    rng = b.rng
    keys = rng.sample(source.of_type(*KEYS), 2)
    query = _grouped(source, [source.aggregate(), "count(*)"], keys)
    kind = rng.choice(["rollup", "cube", "distinct", "union", "twice"])
    if kind in {"rollup", "cube"}:
        return {**query, "sql": query["sql"].replace("{keys}", f"{kind} ({{keys}})")}
    if kind == "distinct":
        return {
            **query,
            "sql": "select distinct {columns} from {from} where {where}",
            "columns": [f"{k} as g{n}" for n, k in enumerate(keys)],
        }
    if kind == "union":
        return {**query, "sql": f"{query['sql']} union all {query['sql']}"}
    text = "with x as (" + query["sql"] + ") select p.g0, p.x1, q.x0 from x p join x q on p.g0 = q.g0 and p.g1 = q.g1"
    return {**query, "sql": text}


def joined(b: Builder, source: Source, _) -> dict:
    """Return a join of two aggregates."""
    integer = source.column(*INTEGERS) or "1"
    others = source.other.of_type(source.columns.get(integer, "int"))
    if not others:
        return aggregates(b, source, _)
    other = b.rng.choice(others)
    query = _grouped(source, [source.aggregate(), source.aggregate()], [integer])
    join_type = b.rng.choice(JOINS)
    text = f"select {{outer}} from ({query['sql']}) p {join_type} (select z.{other} as g1, count(*) as m, {{second}} from {{b}} z group by z.{other}) q on p.g0 = q.g1"
    outer = ["p.g0", "p.x0", "p.x1"] + ([] if "semi" in join_type or "anti" in join_type else ["q.m", "q.y"])
    return {
        **query,
        "sql": text,
        "outer": outer,
        "second": [f"max(z.{b.rng.choice(source.other.of_type(*KEYS))}) as y"],
    }


QUERIES: dict[str, tuple[Query, float]] = {
    "aggregates": (aggregates, 4),
    "alike": (similar_aggregates, 3),
    "constants": (constants, 0.7),
    "days": (days, 2),
    "sums": (sums, 0.7),
    "errors": (errors, 0.8),
    "windows": (windows, 1),
    "having": (having, 1),
    "top": (top, 1),
    "sets": (sets, 1.5),
    "joined": (joined, 1.5),
}
"""The queries and their weights."""
