"""Queries over odd Parquet tables that DuckDB computes mostly, in one task or in many: see `native_expressions`."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.generated.builder import Builder
from tests.generated.native_expressions import KEYS, WHOLE, Source
from tests.generated.odd_tables import OddTable, odd_table

SAME_TABLES = 20
"""So many seeds share their tables: to write and to look at files takes longer than a query of them."""
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
"""Settings, how often they are set, and to what."""
JOINS = ["join", "join", "left join", "right join", "full join", "left semi join", "left anti join"]
GROUPED = "select {columns} from {from} where {where} group by {keys}"
Query = Callable[[Builder, Source, list[str]], dict]
"""Returns the fields of a step; what its text reads is `from`."""


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
    """Return what a query reads, and its text: a table, or a join."""
    columns = {f"l.{name}": kind for name, kind in a.columns.items()}
    flavours = {f"l.{name}": flavour for name, flavour in a.flavours.items()}
    text = "{a} l"
    pairs = [
        (x, y)
        for x, kind in a.columns.items()
        for y, there in other.columns.items()
        if kind == there and kind.partition("(")[0] in KEYS
    ]
    if pairs and rng.random() < 0.4:
        how = rng.choice(JOINS)
        on = [f"l.{x} = r.{y}" for x, y in rng.sample(pairs, min(len(pairs), rng.choice([1, 1, 2])))]
        text = f"{{a}} l {how} {{b}} r on {' and '.join(on)}"
        if "semi" not in how and "anti" not in how:
            columns |= {f"r.{name}": kind for name, kind in other.columns.items()}
            flavours |= {f"r.{name}": flavour for name, flavour in other.flavours.items()}
    return Source(rng, columns, flavours, other), text


def _keys(source: Source, most: int = 2) -> list[str]:
    rng = source.rng
    keys = rng.sample(source.of(*KEYS), min(rng.choice([0, 1, 1, 1, most]), len(source.of(*KEYS))))
    return [*keys, source.value()[0]] if rng.random() < 0.15 else keys


def _where(source: Source, share: float = 0.6) -> list[str]:
    return (
        [source.condition() for _ in range(source.rng.choice([1, 1, 2]))] if source.rng.random() < share else ["true"]
    )


def _grouped(source: Source, aggregates: list[str], keys: list[str] | None = None, **more) -> dict:
    """Return a query with keys, aggregates and a condition."""
    keys = _keys(source) if keys is None else keys
    columns = [f"{key} as g{n}" for n, key in enumerate(keys)] + [f"{one} as x{n}" for n, one in enumerate(aggregates)]
    text = GROUPED if keys else GROUPED.removesuffix(" group by {keys}")
    return {"sql": text, "columns": columns, "where": _where(source), "keys": keys, **more}


def aggregates(b: Builder, source: Source, _) -> dict:
    del b
    return _grouped(source, [source.aggregate() for _ in range(source.rng.randint(2, 7))])


def alike(b: Builder, source: Source, _) -> dict:
    rng = b.rng
    several = source.alike(rng.randint(2, 4)) + (source.alike(2) if rng.random() < 0.4 else [])
    several.insert(rng.randint(0, len(several)), rng.choice(["count(*) + 1", "count(*)", f"{source.aggregate()}"]))
    made = _grouped(source, several)
    if rng.random() < 0.5:
        made["where"] = ["true"]
    return made


def constants(b: Builder, source: Source, _) -> dict:
    """Return groups by constants, alone or not."""
    rng = b.rng
    keys = rng.sample(
        ["'a'", "1 + 1", "date'2024-01-01'", "cast(null as string)", "true", "1.5", "'x, y'"], rng.choice([1, 1, 2])
    )
    keys += _keys(source, 1) if rng.random() < 0.3 else []
    made = _grouped(source, [source.aggregate() for _ in range(2)], keys)
    if rng.random() < 0.5:
        made["columns"] = made["columns"][len(keys) :]
    return made


def days(b: Builder, source: Source, _) -> dict:
    """Return what days are, of files and of other queries."""
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
    calls += [f"max(year(date_add({day}, {n})))" for n in (1, -1)] + [f"count_if({source.day()})" for _ in range(2)]
    made = _grouped(source, rng.sample(calls, rng.randint(1, 4)))
    made["where"] = [source.day()] if rng.random() < 0.5 else made["where"]
    return made


def sums(b: Builder, source: Source, _) -> dict:
    """Return sums and averages that may not fit."""
    column = source.column("bigint", "int", "decimal") or "1L"
    small = source.column("bigint", "int", "decimal", small=True) or "1L"  # what is left of others depends on the order
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
    """Return a query that fails, or whose subquery does, perhaps; in one way only, as tasks race for the first error."""
    rng = b.rng
    text = rng.choice(source.other.of("string") or ["'x'"])
    whole = rng.choice(source.other.of("bigint", "int") or ["1"])
    inner = rng.choice(
        [
            f"(select max(cast(z.{text} as int)) from {{b}} z)",
            f"(select sum(9223372036854775807L + z.{whole}) from {{b}} z)",
            f"(select z.{whole} from {{b}} z)",
            f"(select max(1 div (z.{whole} - z.{whole})) from {{b}} z)",
            f"(select raise_error('no, ' || max(z.{text})) from {{b}} z)",
            f"(select max(cast(z.{whole} as tinyint)) from {{b}} z)",
            "(select max(element_at(array(1), 5)) from {b} z)",
        ]
    )
    column = source.column("bigint", "int") or "1"
    if rng.random() < 0.7:
        made = _grouped(source, ["count(*)"])
        made["where"] = [f"{column} {rng.choice(['>', '=', '<>'])} cast({inner} as bigint)"]
        if rng.random() < 0.3:
            return {**made, "columns": [*made["columns"], f"sum(if({made['where'][0]}, 1, 0)) as y"], "where": ["true"]}
        return made
    own = [
        f"max({column} * {column})",
        f"sum(cast({column} as tinyint))",
        f"max({column} div ({column} - {column}))",
        f"max({column} + 2147483647)",
    ]
    return _grouped(source, [rng.choice(own)])


def windows(b: Builder, source: Source, _) -> dict:
    """Return ranks and sums over groups."""
    rng = b.rng
    inner = _grouped(source, [source.aggregate() for _ in range(2)], _keys(source, 2) or [source.value()[0]])
    calls = [
        "rank() over (partition by g0 order by n)",
        "sum(n) over (partition by g0)",
        "max(n) over (order by g0)",
        "dense_rank() over (order by n desc)",
        "count(*) over (partition by n)",
    ]
    outer = [f"{one} as w{n}" for n, one in enumerate(rng.sample(calls, 2))]
    text = "select {outer} from (select {columns}, count(*) as n from {from} where {where} group by {keys})"
    return {**inner, "sql": text, "outer": ["g0", "n", "x0", *outer]}


def having(b: Builder, source: Source, _) -> dict:
    made = _grouped(source, [source.aggregate(), source.aggregate()], _keys(source, 2) or [source.value()[0]])
    condition = b.rng.choice(
        ["count(*) > 1", f"count(*) > (select count(*) from {{b}} z{source.inner()})", "count(*) between 2 and 30"]
    )
    return {**made, "sql": made["sql"] + " having {having}", "having": [condition]}


def top(b: Builder, source: Source, _) -> dict:
    """Return the first rows of all."""
    rng = b.rng
    made = _grouped(source, ["count(*)", f"max({source.value()[0]})"], _keys(source, 2) or [source.value()[0]])
    order = [
        f"{one.rpartition(' as ')[2]}{rng.choice(['', ' desc', ' nulls last', ' desc nulls first'])}"
        for one in made["columns"]
    ]
    text = f"{made['sql']} order by {{order}} limit {rng.choice([1, 3, 10])}"
    return {**made, "sql": text, "order": order}


def sets(b: Builder, source: Source, _) -> dict:
    """Return grouping sets, distinct rows, unions."""
    rng = b.rng
    keys = rng.sample(source.of(*KEYS), 2)
    made = _grouped(source, [source.aggregate(), "count(*)"], keys)
    way = rng.choice(["rollup", "cube", "distinct", "union", "twice"])
    if way in {"rollup", "cube"}:
        return {**made, "sql": made["sql"].replace("{keys}", f"{way} ({{keys}})")}
    if way == "distinct":
        return {
            **made,
            "sql": "select distinct {columns} from {from} where {where}",
            "columns": [f"{k} as g{n}" for n, k in enumerate(keys)],
        }
    if way == "union":
        return {**made, "sql": f"{made['sql']} union all {made['sql']}"}
    text = "with x as (" + made["sql"] + ") select p.g0, p.x1, q.x0 from x p join x q on p.g0 = q.g0 and p.g1 = q.g1"
    return {**made, "sql": text}


def joined(b: Builder, source: Source, _) -> dict:
    """Return the rows of two aggregates that meet."""
    whole = source.column(*WHOLE) or "1"
    others = source.other.of(source.columns.get(whole, "int"))
    if not others:
        return aggregates(b, source, _)
    other = b.rng.choice(others)
    made = _grouped(source, [source.aggregate(), source.aggregate()], [whole])
    how = b.rng.choice(JOINS)
    text = f"select {{outer}} from ({made['sql']}) p {how} (select z.{other} as g1, count(*) as m, {{second}} from {{b}} z group by z.{other}) q on p.g0 = q.g1"
    shown = ["p.g0", "p.x0", "p.x1"] + ([] if "semi" in how or "anti" in how else ["q.m", "q.y"])
    return {**made, "sql": text, "outer": shown, "second": [f"max(z.{b.rng.choice(source.other.of(*KEYS))}) as y"]}


QUERIES: dict[str, tuple[Query, float]] = {
    "aggregates": (aggregates, 4),
    "alike": (alike, 3),
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
"""The queries, and how often each is drawn."""
