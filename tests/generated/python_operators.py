"""Operators that run Python functions on columns, in filters, on tables, on groups, and on cogroups."""

from __future__ import annotations

from tests.generated.builder import Builder, Column, Relation
from tests.generated.operators import operator

LONG_FUNCTIONS = ("plus", "plus_arrow", "twice", "thrice", "negated")


@operator(3)
def function_column(b: Builder, r: Relation) -> Relation | None:
    longs, texts = r.of_kind("long"), r.of_kind("str")
    new = b.name("u")
    if texts and (not longs or b.chance(0.2)):
        c = b.rng.choice(texts).name
        return b.python(
            "udf", [r], [*r.columns, (new, "str")], r.rows, "{a}.withColumn({new}, f.shout({c}))", new=new, c=c
        )
    if not longs:
        return None
    c = b.rng.choice(longs).name
    name = b.rng.choice([*LONG_FUNCTIONS, "pair", "picky"] if b.chance(0.3) else LONG_FUNCTIONS)
    kind = "st" if name == "pair" else "long"
    op = {"twice": "pandas udf", "thrice": "pandas udf", "negated": "arrow udf", "plus_arrow": "arrow udf"}.get(
        name, "udf"
    )
    return b.python(
        op, [r], [*r.columns, (new, kind)], r.rows, f"{{a}}.withColumn({{new}}, f.{name}({{c}}))", new=new, c=c
    )


@operator(1.5)
def function_filter(b: Builder, r: Relation) -> Relation | None:
    longs = r.of_kind("long")
    if not longs:
        return None
    name, op = b.rng.choice([("is_odd", "udf filter"), ("is_even", "pandas udf filter")])
    return b.keep_columns(op, r, f"{{a}}.where(f.{name}({{c}}))", 0.5, c=b.rng.choice(longs).name)


@operator(1.2)
def table_function(b: Builder, r: Relation) -> Relation | None:
    longs = r.of_kind("long")
    if not longs or r.rows > 5000:
        return None
    i, y = b.name(), b.name()
    columns_of_input = [Column(c.name, c.kind, c.duplicates * 3) for c in r.columns]
    name = b.rng.choice(["spread", "spread_arrow"])
    text = f"select {{columns}} from {{a}} t, lateral {name}(t.{{c}}) as u(i, y)"
    columns = [*(f"t.{c}" for c in r.names), f"u.i as {i}", f"u.y as {y}"]
    return b.sql(
        "lateral udtf",
        [r],
        [*columns_of_input, (i, "int"), (y, "long")],
        r.rows * 2,
        text,
        columns=columns,
        c=b.rng.choice(longs).name,
    )


def _has_k_and_v(r: Relation) -> bool:
    k, v = r.column("k"), r.column("v")
    return k is not None and v is not None and k.kind == v.kind == "long"


@operator(0.5)
def partitioned_table_function(b: Builder, r: Relation) -> Relation | None:
    if not _has_k_and_v(r):
        return None
    text = "select k, n as {n}, t as v from sum_by(table(select k, v from {a}) partition by k order by v)"
    n = b.name()
    return b.sql(
        "partitioned udtf", [r], [Column("k", "long", 1), (n, "long"), ("v", "long")], max(r.rows // 2, 1), text, n=n
    )


@operator(1)
def map_rows(b: Builder, r: Relation) -> Relation | None:
    columns = [c for c in r.columns if c.kind in {"long", "int", "str", "date"}]
    if not columns:
        return None
    method = b.rng.choice(["mapInPandas", "mapInArrow"])
    schema = ", ".join(
        f"{c.name} { {'long': 'bigint', 'int': 'int', 'str': 'string', 'date': 'date'}[c.kind] }" for c in columns
    )
    texts = [f"cast({c.name} as string) as {c.name}" if c.kind == "str" else c.name for c in columns]
    return b.python(
        method,
        [r],
        columns,
        r.rows,
        f"{{a}}.selectExpr({{columns}}).{method}(f.same, {{schema}})",
        columns=texts,
        schema=schema,
    )


@operator(1.2)
def map_groups(b: Builder, r: Relation) -> Relation | None:
    if not _has_k_and_v(r):
        return None
    method, name = b.rng.choice([("applyInPandas", "summary"), ("applyInArrow", "summary_arrow")])
    n = b.name()
    text = f"{{a}}.select('k', 'v').groupBy('k').{method}(f.{name}, 'k bigint, n bigint, t bigint').toDF({{names}})"
    return b.python(
        method,
        [r],
        [Column("k", "long", 1), (n, "long"), ("v", "long")],
        max(r.rows // 2, 1),
        text,
        names=["k", n, "v"],
    )


@operator(1.5)
def cogroup(b: Builder, r: Relation, other: Relation | None = None) -> Relation | None:
    if not _has_k_and_v(r):
        return None
    other = b.second_input(r) if other is None else other
    if not _has_k_and_v(other):
        return None
    n, m = b.name(), b.name()
    text = "{a}.select('k', 'v').groupBy('k').cogroup({b}.select('k', 'v').groupBy('k')).applyInPandas(f.meet, 'k bigint, n bigint, n2 bigint, t bigint').toDF({names})"
    columns = [Column("k", "long", 1), (n, "long"), (m, "long"), ("v", "long")]
    return b.python("cogroup", [r, other], columns, max(r.rows, other.rows) // 2 + 1, text, names=["k", n, m, "v"])
