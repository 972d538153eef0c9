"""Operators with one input: each takes a relation and returns the next, or None if it does not apply."""

from __future__ import annotations

from collections.abc import Callable

from tests.generated.builder import KEYS, Builder, Column, Relation
from tests.generated.expressions import aggregate, computed, condition, window
from tests.generated.tables import KINDS

Operator = Callable[[Builder, Relation], Relation | None]
OPERATORS: dict[Operator, float] = {}
"""All operators and their weights."""
RISK = 0.03
"""Probability of an expression that may fail."""


def operator(weight: float = 1.0):
    def register(function: Operator) -> Operator:
        OPERATORS[function] = weight
        return function

    return register


@operator(3)
def project(b: Builder, r: Relation) -> Relation | None:
    selected = [c for c in r.columns if c.name in {"k", "v"} or b.chance(0.8)]
    added = []
    for _ in range(b.rng.randint(1, 2)):
        expression = computed(b, r, risky=b.chance(RISK))
        if expression:
            added.append((expression[0], Column(b.name(), expression[1], r.rows)))
    if b.chance(0.15) and selected:  # a renamed key
        old = b.rng.choice(selected)
        selected = [c for c in selected if c is not old]
        added.append((old.name, Column(b.name(old.name[0]), old.kind, old.duplicates)))
    if not selected + added:
        return None
    texts = [c.name for c in selected] + [f"{text} as {c.name}" for text, c in added]
    return b.python(
        "project", [r], [*selected, *(c for _, c in added)], r.rows, "{a}.selectExpr({columns})", columns=texts
    )


@operator(3)
def where(b: Builder, r: Relation) -> Relation:
    return b.keep_columns("filter", r, "{a}.where({where})", 0.6, where=condition(b, r, risky=b.chance(RISK)))


@operator(4)
def group(b: Builder, r: Relation, keys: list[Column] | None = None) -> Relation | None:
    keys = b.keys(r) if keys is None else keys
    calls = [aggregate(b, r) for _ in range(b.rng.randint(1, 3))]
    key_texts = [f"lower({c.name}) as {c.name}" if c.kind == "ci" else c.name for c in keys]
    columns = [Column(c.name, c.kind, 1 if len(keys) == 1 else c.duplicates) for c in keys]
    named_calls = [(text, b.name()) for text, _ in calls]
    columns += [Column(name, kind, r.rows) for (_, name), (_, kind) in zip(named_calls, calls, strict=True)]
    texts = [*key_texts, *(f"{text} as {name}" for text, name in named_calls)]
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
    key_list = ", ".join(c.name for c in keys)
    grouping = b.rng.choice(
        [
            "rollup({keys})",
            "cube({keys})",
            f"grouping sets (({key_list}), ())",
            f"grouping sets (({keys[0].name}), ({key_list}), ())",
        ]
    )
    texts = [c.name for c in keys] + [f"{text} as {name}" for name, (text, _) in zip(names, calls, strict=True)]
    if b.chance(0.5):
        name = b.name()
        texts.append(f"grouping_id() as {name}")
        columns.append(Column(name, "long", r.rows))
    return b.sql(
        grouping.split("(")[0].strip(),
        [r],
        columns,
        r.rows,
        "select {columns} from {a} group by " + grouping,
        columns=texts,
        keys=[c.name for c in keys],
    )


@operator(3)
def windowed(b: Builder, r: Relation, keys: list[Column] | None = None) -> Relation | None:
    keys = b.keys(r, 2) if keys is None else keys
    function = window(b, r, keys)
    if function is None or r.rows > 3000:
        return None
    new = Column(b.name("w"), function[1], r.rows)
    return b.python(
        "window",
        [r],
        [*r.columns, new],
        r.rows,
        "{a}.selectExpr({columns})",
        columns=["*", f"{function[0]} as {new.name}"],
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
    return (
        b.keep_columns("distinct", r, b.rng.choice(["{a}.distinct()", "{a}.dropDuplicates()"])) if r.is_plain else None
    )


@operator(0.8)
def drop_duplicates(b: Builder, r: Relation) -> Relation | None:
    """Drop duplicates by some columns, in the order of a sort within partitions."""
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
    """Use first and last in a determined order."""
    keys, order = b.keys(r, 1), r.total_order
    values = [c for c in r.columns if c not in keys and c.kind in {"long", "int", "str"}]
    if order is None or not keys or keys[0].kind == "ci" or not values:
        return None
    key, value = keys[0].name, b.rng.choice(values)
    order = [key, *(o for o in order if o != key)]
    added = [Column(b.name(), value.kind, r.rows), Column(b.name(), value.kind, r.rows)]
    text = "{a}.repartition({key}).sortWithinPartitions({order}).groupBy({key}).agg(F.first({value}).alias({first}), F.last({value}).alias({last}))"
    return b.python(
        "sorted first",
        [r],
        [Column(key, keys[0].kind, 1), *added],
        max(r.rows // 2, 1),
        text,
        key=key,
        order=order,
        value=value.name,
        first=added[0].name,
        last=added[1].name,
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
    arrays, _names = r.of_kind("arr"), r.names
    outer = b.rng.choice(["", "_outer"])
    x, y = b.name(), b.name()
    selected = [c for c in r.columns if c.name in {"k", "v"} or b.chance(0.6)]
    if not selected:
        return None
    names = [c.name for c in selected]
    selected = [Column(c.name, c.kind, c.duplicates * 2) for c in selected]
    if arrays and b.chance(0.6):
        a = b.rng.choice(arrays).name
        if b.chance(0.5):
            return b.python(
                "explode",
                [r],
                [*selected, (x, "int")],
                r.rows * 2,
                "{a}.selectExpr({columns})",
                columns=[*names, f"explode{outer}({a}) as {x}"],
            )
        return b.python(
            "posexplode",
            [r],
            [*selected, (x, "int"), (y, "int")],
            r.rows * 2,
            "{a}.selectExpr({columns})",
            columns=[*names, f"posexplode{outer}({a}) as ({x}, {y})"],
        )
    numbers = r.of_kind("long")
    if not numbers:
        return None
    n = b.rng.choice(numbers).name
    if b.chance(0.5):
        text = f"inline(array(named_struct('a', {n}, 'b', 1), named_struct('a', {n} + 1, 'b', 2))) as ({x}, {y})"
        return b.python(
            "inline",
            [r],
            [*selected, (x, "long"), (y, "int")],
            r.rows * 2,
            "{a}.selectExpr({columns})",
            columns=[*names, text],
        )
    text = f"stack(2, {n}, 'one', {n} + 1, 'two') as ({x}, {y})"
    return b.python(
        "stack",
        [r],
        [*selected, (x, "long"), (y, "str")],
        r.rows * 2,
        "{a}.selectExpr({columns})",
        columns=[*names, text],
    )


@operator(0.6)
def pivoted(b: Builder, r: Relation) -> Relation | None:
    keys = [c for c in b.keys(r, 1) if c.kind != "ci"]
    numbers = [c for c in r.of_kind("int", "long") if c not in keys]
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
    numbers = r.of_kind("long")
    if len(numbers) < 2:
        return None
    ids = [c for c in r.columns if c.kind in KEYS and c not in numbers][:3]
    n, x = b.name(), b.name()
    text = "{a}.unpivot({ids}, {values}, {n}, {x})"
    text = text.replace("{ids}", repr([c.name for c in ids])).replace("{values}", repr([c.name for c in numbers]))
    return b.python("unpivot", [r], [*ids, (n, "str"), (x, "long")], r.rows * len(numbers), text, n=n, x=x)


@operator(1.5)
def repartitioned(b: Builder, r: Relation) -> Relation | None:
    keys = b.keys(r, 2)
    names = [c.name for c in keys]
    n = b.rng.choice([1, 3, 7])
    if not names or b.chance(0.3):
        return b.keep_columns("repartition", r, b.rng.choice(["{a}.repartition({n})", "{a}.coalesce({n})"]), n=n)
    method = b.rng.choice(
        [
            "{a}.repartition({n}, {keys})",
            "{a}.repartition({keys})",
            "{a}.repartitionByRange({n}, {keys})",
            "{a}.hint('rebalance', {keys})",
            "{a}.repartition({keys}).sortWithinPartitions({keys})",
        ]
    )
    return b.keep_columns("repartition by", r, method, n=n, keys=names)


@operator(0.7)
def hinted(b: Builder, r: Relation) -> Relation:
    return b.keep_columns(
        "hint",
        r,
        "{a}.hint({hint})",
        hint=b.rng.choice(["rebalance", "broadcast", "merge", "shuffle_hash", "shuffle_replicate_nl"]),
    )


@operator(0.7)
def cached(b: Builder, r: Relation) -> Relation:
    method = b.rng.choice(["cache", "cache", "localCheckpoint", "checkpoint"])
    return b.keep_columns(method, r, f"{{a}}.{method}()")


@operator(0.5)
def sampled(b: Builder, r: Relation) -> Relation | None:
    """Sample rows in a determined order: in a single task, in a total order."""
    order = r.total_order
    if order is None:
        return None
    return b.keep_columns(
        "sample",
        r,
        "{a}.coalesce(1).sortWithinPartitions({order}).sample(0.5, {number})",
        0.5,
        order=order,
        number=b.rng.randint(1, 99),
    )


@operator(0.5)
def chars(b: Builder, r: Relation) -> Relation | None:
    texts = r.of_kind("str")
    if not texts:
        return None
    c = b.rng.choice(texts).name
    new = Column(b.name(), "str", r.rows)
    kind = b.rng.choice(["char(8)", "varchar(9)"])
    return b.python(
        "char",
        [r],
        [*r.columns, new],
        r.rows,
        "{a}.selectExpr({columns})",
        columns=["*", f"cast(substr({c}, 1, 5) as {kind}) as {new.name}"],
    )


@operator(0.5)
def variant(b: Builder, r: Relation) -> Relation | None:
    structs = r.of_kind("st", "arr")
    if not structs:
        return None
    c = b.rng.choice(structs)
    added = [Column(b.name(), "var", r.rows), Column(b.name(), "int", r.rows)]
    path = "$.a" if c.kind == "st" else "$[0]"
    texts = [
        "*",
        f"parse_json(to_json({c.name})) as {added[0].name}",
        f"try_variant_get(parse_json(to_json({c.name})), '{path}', 'int') as {added[1].name}",
    ]
    return b.python("variant", [r], [*r.columns, *added], r.rows, "{a}.selectExpr({columns})", columns=texts)


@operator(0.7)
def parsed(b: Builder, r: Relation) -> Relation | None:
    """Parse strings with functions that depend on session settings."""
    texts = r.of_kind("str", "st")
    if not texts:
        return None
    c = b.rng.choice(texts)
    if c.kind == "st":
        schema = KINDS["st"][7:-1].replace(":", " ").replace(",", ", ")
        kind, expression = "st", f"from_json(to_json({c.name}), '{schema}')"
    else:
        name = "t" if r.column("t") in texts else c.name
        kind, expression = b.rng.choice(
            [
                ("date", f"try_to_date({name}, 'M/d/yyyy')"),
                ("ts", f"try_to_timestamp({name}, 'M/d/yyyy')"),
                ("date", f"from_csv({name}, 'd date', map('dateFormat', 'MM/dd/yyyy')).d"),
                ("str", f"try_cast({name} as date) || ''"),
            ]
        )
    new = Column(b.name(), kind, r.rows)
    text = f"{expression} as {new.name}"
    return b.python("parse", [r], [*r.columns, new], r.rows, "{a}.selectExpr({columns})", columns=["*", text])
