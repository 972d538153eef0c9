"""Operators of one input: each takes a relation and returns the next one, or None where it does not fit."""

from __future__ import annotations

from collections.abc import Callable

from tests.generated.builder import KEYS, Builder, Column, Relation
from tests.generated.expressions import aggregate, computed, condition, window
from tests.generated.tables import KINDS

Operator = Callable[[Builder, Relation], Relation | None]
OPERATORS: dict[Operator, float] = {}
"""All operators, and how often each is drawn."""
RISK = 0.03


def operator(weight: float = 1.0):
    def register(function: Operator) -> Operator:
        OPERATORS[function] = weight
        return function

    return register


@operator(3)
def project(b: Builder, r: Relation) -> Relation | None:
    kept = [c for c in r.columns if c.name in {"k", "v"} or b.chance(0.8)]
    made = []
    for _ in range(b.rng.randint(1, 2)):
        found = computed(b, r, risky=b.chance(RISK))
        if found:
            made.append((found[0], Column(b.name(), found[1], r.rows)))
    if b.chance(0.15) and kept:  # a renamed key
        old = b.rng.choice(kept)
        kept = [c for c in kept if c is not old]
        made.append((old.name, Column(b.name(old.name[0]), old.kind, old.duplicates)))
    if not kept + made:
        return None
    texts = [c.name for c in kept] + [f"{text} as {c.name}" for text, c in made]
    return b.python("project", [r], [*kept, *(c for _, c in made)], r.rows, "{a}.selectExpr({columns})", columns=texts)


@operator(3)
def where(b: Builder, r: Relation) -> Relation:
    return b.keep("filter", r, "{a}.where({where})", 0.6, where=condition(b, r, risky=b.chance(RISK)))


@operator(4)
def group(b: Builder, r: Relation, keys: list[Column] | None = None) -> Relation | None:
    keys = b.keys(r) if keys is None else keys
    calls = [aggregate(b, r) for _ in range(b.rng.randint(1, 3))]
    shown = [f"lower({c.name}) as {c.name}" if c.kind == "ci" else c.name for c in keys]
    columns = [Column(c.name, c.kind, 1 if len(keys) == 1 else c.duplicates) for c in keys]
    made = [(text, b.name()) for text, _ in calls]
    columns += [Column(name, kind, r.rows) for (_, name), (_, kind) in zip(made, calls, strict=True)]
    texts = [*shown, *(f"{text} as {name}" for text, name in made)]
    if not keys:
        return b.sql("global aggregate", [r], columns, 1, "select {columns} from {a}", columns=texts)
    names = [c.name for c in keys]
    having = " having count(*) > 1" if b.chance(0.1) else ""
    text = "select {columns} from {a} group by {keys}" + having
    return b.sql("aggregate", [r], columns, max(r.rows // 2, 1), text, columns=texts, keys=names)


@operator(1.5)
def grouping_sets(b: Builder, r: Relation) -> Relation | None:
    keys = [c for c in b.keys(r) if c.kind != "ci"]
    if not keys:
        return None
    calls = [aggregate(b, r) for _ in range(b.rng.randint(1, 2))]
    columns = [Column(c.name, c.kind, r.rows) for c in keys]
    names = [b.name() for _ in calls]
    columns += [Column(name, kind, r.rows) for name, (_, kind) in zip(names, calls, strict=True)]
    listed = ", ".join(c.name for c in keys)
    how = b.rng.choice(
        [
            "rollup({keys})",
            "cube({keys})",
            f"grouping sets (({listed}), ())",
            f"grouping sets (({keys[0].name}), ({listed}), ())",
        ]
    )
    texts = [c.name for c in keys] + [f"{text} as {name}" for name, (text, _) in zip(names, calls, strict=True)]
    if b.chance(0.5):
        name = b.name()
        texts.append(f"grouping_id() as {name}")
        columns.append(Column(name, "long", r.rows))
    return b.sql(
        how.split("(")[0].strip(),
        [r],
        columns,
        r.rows,
        "select {columns} from {a} group by " + how,
        columns=texts,
        keys=[c.name for c in keys],
    )


@operator(3)
def windowed(b: Builder, r: Relation, keys: list[Column] | None = None) -> Relation | None:
    keys = b.keys(r, 2) if keys is None else keys
    found = window(b, r, keys)
    if found is None or r.rows > 3000:
        return None
    made = Column(b.name("w"), found[1], r.rows)
    return b.python(
        "window",
        [r],
        [*r.columns, made],
        r.rows,
        "{a}.selectExpr({columns})",
        columns=["*", f"{found[0]} as {made.name}"],
    )


@operator(0.8)
def top_per_group(b: Builder, r: Relation) -> Relation | None:
    keys, order = b.keys(r, 1), r.total_order
    if not keys or order is None:
        return None
    by = f"partition by {keys[0].name} order by {', '.join(order)}"
    text = f"select {{columns}} from (select *, {b.rng.choice(['row_number', 'rank'])}() over ({by}) as rn from {{a}}) where rn <= 2"
    return b.sql("top per group", [r], r.columns, r.rows // 2, text, columns=r.names)


@operator(1)
def distinct(b: Builder, r: Relation) -> Relation | None:
    return b.keep("distinct", r, b.rng.choice(["{a}.distinct()", "{a}.dropDuplicates()"])) if r.is_plain else None


@operator(0.8)
def drop_duplicates(b: Builder, r: Relation) -> Relation | None:
    """By some columns, the first in an order that a sort within partitions makes."""
    keys, order = b.keys(r, 2), r.total_order
    if order is None or not keys or any(c.kind == "ci" for c in keys):
        return None
    names = [c.name for c in keys]
    b.rng.shuffle(order)
    text = "{a}.repartition({keys}).sortWithinPartitions({order}).dropDuplicates({list})"
    text = text.replace("{list}", repr(names).replace("{", "{{"))
    order = [*names, *(o for o in order if o not in names)]
    columns = [Column(c.name, c.kind, 1 if len(keys) == 1 and c in keys else c.duplicates) for c in r.columns]
    return b.python("sorted dropDuplicates", [r], columns, max(r.rows // 2, 1), text, keys=names, order=order)


@operator(0.8)
def sorted_first(b: Builder, r: Relation) -> Relation | None:
    """first and last where the order below is determined."""
    keys, order = b.keys(r, 1), r.total_order
    values = [c for c in r.columns if c not in keys and c.kind in {"long", "int", "str"}]
    if order is None or not keys or keys[0].kind == "ci" or not values:
        return None
    key, value = keys[0].name, b.rng.choice(values)
    order = [key, *(o for o in order if o != key)]
    made = [Column(b.name(), value.kind, r.rows), Column(b.name(), value.kind, r.rows)]
    text = "{a}.repartition({key}).sortWithinPartitions({order}).groupBy({key}).agg(F.first({value}).alias({one}), F.last({value}).alias({two}))"
    return b.python(
        "sorted first",
        [r],
        [Column(key, keys[0].kind, 1), *made],
        max(r.rows // 2, 1),
        text,
        key=key,
        order=order,
        value=value.name,
        one=made[0].name,
        two=made[1].name,
    )


@operator(1)
def limited(b: Builder, r: Relation) -> Relation | None:
    order = r.total_order
    if order is None:
        return None
    n = b.rng.choice([1, 5, 13, 50])
    directions = [f"{o}{b.rng.choice(['', ' desc', ' nulls last'])}" for o in order]
    text = f"select {{columns}} from {{a}} order by {{order}} limit {n}" + (
        f" offset {b.rng.choice([1, 7])}" if b.chance(0.5) else ""
    )
    return b.sql("limit", [r], r.columns, n, text, columns=r.names, order=directions)


@operator(1.2)
def generated(b: Builder, r: Relation) -> Relation | None:
    arrays, _names = r.of("arr"), r.names
    outer = b.rng.choice(["", "_outer"])
    x, y = b.name(), b.name()
    kept = [c for c in r.columns if c.name in {"k", "v"} or b.chance(0.6)]
    if not kept:
        return None
    shown = [c.name for c in kept]
    kept = [Column(c.name, c.kind, c.duplicates * 2) for c in kept]
    if arrays and b.chance(0.6):
        a = b.rng.choice(arrays).name
        if b.chance(0.5):
            return b.python(
                "explode",
                [r],
                [*kept, (x, "int")],
                r.rows * 2,
                "{a}.selectExpr({columns})",
                columns=[*shown, f"explode{outer}({a}) as {x}"],
            )
        return b.python(
            "posexplode",
            [r],
            [*kept, (x, "int"), (y, "int")],
            r.rows * 2,
            "{a}.selectExpr({columns})",
            columns=[*shown, f"posexplode{outer}({a}) as ({x}, {y})"],
        )
    numbers = r.of("long")
    if not numbers:
        return None
    n = b.rng.choice(numbers).name
    if b.chance(0.5):
        text = f"inline(array(named_struct('a', {n}, 'b', 1), named_struct('a', {n} + 1, 'b', 2))) as ({x}, {y})"
        return b.python(
            "inline",
            [r],
            [*kept, (x, "long"), (y, "int")],
            r.rows * 2,
            "{a}.selectExpr({columns})",
            columns=[*shown, text],
        )
    text = f"stack(2, {n}, 'one', {n} + 1, 'two') as ({x}, {y})"
    return b.python(
        "stack", [r], [*kept, (x, "long"), (y, "str")], r.rows * 2, "{a}.selectExpr({columns})", columns=[*shown, text]
    )


@operator(0.6)
def pivoted(b: Builder, r: Relation) -> Relation | None:
    keys = [c for c in b.keys(r, 1) if c.kind != "ci"]
    numbers = [c for c in r.of("int", "long") if c not in keys]
    if len(numbers) < 2 or not keys:
        return None
    by, value = b.rng.sample(numbers, 2)
    key = keys[0]
    text = "{a}.groupBy({key}).pivot({by}, [0, 1, 2]).agg(F.sum({value})).toDF({names})"
    names = [key.name, *(b.name("p") for _ in range(3))]
    columns = [Column(key.name, key.kind, 1), *((name, "long") for name in names[1:])]
    return b.python(
        "pivot", [r], columns, max(r.rows // 2, 1), text, key=key.name, by=by.name, value=value.name, names=names
    )


@operator(0.5)
def unpivoted(b: Builder, r: Relation) -> Relation | None:
    numbers = r.of("long")
    if len(numbers) < 2:
        return None
    kept = [c for c in r.columns if c.kind in KEYS and c not in numbers][:3]
    n, x = b.name(), b.name()
    text = "{a}.unpivot({ids}, {values}, {n}, {x})"
    text = text.replace("{ids}", repr([c.name for c in kept])).replace("{values}", repr([c.name for c in numbers]))
    return b.python("unpivot", [r], [*kept, (n, "str"), (x, "long")], r.rows * len(numbers), text, n=n, x=x)


@operator(1.5)
def laid_out(b: Builder, r: Relation) -> Relation | None:
    keys = b.keys(r, 2)
    names = [c.name for c in keys]
    n = b.rng.choice([1, 3, 7])
    if not names or b.chance(0.3):
        return b.keep("repartition", r, b.rng.choice(["{a}.repartition({n})", "{a}.coalesce({n})"]), n=n)
    way = b.rng.choice(
        [
            "{a}.repartition({n}, {keys})",
            "{a}.repartition({keys})",
            "{a}.repartitionByRange({n}, {keys})",
            "{a}.hint('rebalance', {keys})",
            "{a}.repartition({keys}).sortWithinPartitions({keys})",
        ]
    )
    return b.keep("repartition by", r, way, n=n, keys=names)


@operator(0.7)
def hinted(b: Builder, r: Relation) -> Relation:
    return b.keep(
        "hint",
        r,
        "{a}.hint({hint})",
        hint=b.rng.choice(["rebalance", "broadcast", "merge", "shuffle_hash", "shuffle_replicate_nl"]),
    )


@operator(0.7)
def kept(b: Builder, r: Relation) -> Relation:
    way = b.rng.choice(["cache", "cache", "localCheckpoint", "checkpoint"])
    return b.keep(way, r, f"{{a}}.{way}()")


@operator(0.5)
def sampled(b: Builder, r: Relation) -> Relation | None:
    """A sample of rows whose places are determined: in one task, in a total order."""
    order = r.total_order
    if order is None:
        return None
    return b.keep(
        "sample",
        r,
        "{a}.coalesce(1).sortWithinPartitions({order}).sample(0.5, {number})",
        0.5,
        order=order,
        number=b.rng.randint(1, 99),
    )


@operator(0.5)
def chars(b: Builder, r: Relation) -> Relation | None:
    texts = r.of("str")
    if not texts:
        return None
    c = b.rng.choice(texts).name
    made = Column(b.name(), "str", r.rows)
    kind = b.rng.choice(["char(8)", "varchar(9)"])
    return b.python(
        "char",
        [r],
        [*r.columns, made],
        r.rows,
        "{a}.selectExpr({columns})",
        columns=["*", f"cast(substr({c}, 1, 5) as {kind}) as {made.name}"],
    )


@operator(0.5)
def variant(b: Builder, r: Relation) -> Relation | None:
    structs = r.of("st", "arr")
    if not structs:
        return None
    c = b.rng.choice(structs)
    made = [Column(b.name(), "var", r.rows), Column(b.name(), "int", r.rows)]
    path = "$.a" if c.kind == "st" else "$[0]"
    texts = [
        "*",
        f"parse_json(to_json({c.name})) as {made[0].name}",
        f"try_variant_get(parse_json(to_json({c.name})), '{path}', 'int') as {made[1].name}",
    ]
    return b.python("variant", [r], [*r.columns, *made], r.rows, "{a}.selectExpr({columns})", columns=texts)


@operator(0.7)
def parsed(b: Builder, r: Relation) -> Relation | None:
    """Texts made into values by functions that the session's settings change."""
    texts = r.of("str", "st")
    if not texts:
        return None
    c = b.rng.choice(texts)
    if c.kind == "st":
        made = Column(b.name(), "st", r.rows)
        text = (
            f"from_json(to_json({c.name}), '{KINDS['st'][7:-1].replace(':', ' ').replace(',', ', ')}') as {made.name}"
        )
    else:
        name = "t" if r.column("t") in texts else c.name
        made, way = b.rng.choice(
            [
                ("date", f"try_to_date({name}, 'M/d/yyyy')"),
                ("ts", f"try_to_timestamp({name}, 'M/d/yyyy')"),
                ("date", f"from_csv({name}, 'd date', map('dateFormat', 'MM/dd/yyyy')).d"),
                ("str", f"try_cast({name} as date) || ''"),
            ]
        )
        text, made = None, Column(b.name(), made, r.rows)
        text = f"{way} as {made.name}"
    return b.python("parse", [r], [*r.columns, made], r.rows, "{a}.selectExpr({columns})", columns=["*", text])
