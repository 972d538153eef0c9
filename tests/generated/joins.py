"""Operators with two inputs: joins, subqueries, set operations."""

from __future__ import annotations

from tests.generated.builder import KEYS, MAX_ROWS, NUMBERS, Builder, Column, Relation
from tests.generated.expressions import condition
from tests.generated.operators import operator

JOIN_TYPES = ["join", "left join", "right join", "full join", "left semi join", "left anti join"]
HINTS = ["BROADCAST", "MERGE", "SHUFFLE_HASH", "SHUFFLE_REPLICATE_NL"]


def _pairs(b: Builder, left: Relation, right: Relation) -> list[tuple[Column, Column]]:
    """Draw pairs of columns to join by, k with k more often than others."""
    possible = [(x, y) for x in left.columns for y in right.columns if x.kind in KEYS and _comparable(x, y)]
    k = [(x, y) for x, y in possible if x.name == y.name == "k"]
    chosen = k[:1] if k and b.chance(0.75) else []
    rest = [pair for pair in possible if pair not in chosen]
    same_name = [pair for pair in rest if pair[0].name == pair[1].name]
    count = b.rng.choice([0, 0, 0, 1, 1, 2, 3]) + (not chosen)
    for _ in range(count):
        source = same_name if same_name and b.chance(0.6) else rest
        if source:
            chosen.append(b.rng.choice(source))
    return list(dict.fromkeys(chosen))


def _comparable(x: Column, y: Column) -> bool:
    return x.kind == y.kind or {x.kind, y.kind} <= NUMBERS


def _on(b: Builder, x: Column, y: Column) -> str:
    p, q = f"a.{x.name}", f"b.{y.name}"
    if x.kind == y.kind == "long" and b.chance(0.12):
        return b.rng.choice(
            [
                f"{p} + 1 = {q} + 1",
                f"{p} = {q} - 1 + 1",
                f"cast({p} as string) = cast({q} as string)",
                f"plus_one({p}) = {q} + 1",
            ]
        )
    if x.kind == y.kind == "str" and b.chance(0.2):
        return b.rng.choice([f"upper({p}) = upper({q})", f"collate({p}, 'UTF8_LCASE') = collate({q}, 'UTF8_LCASE')"])
    return f"{p} <=> {q}" if b.chance(0.12) else f"{p} = {q}"


def matches(left: Relation, right: Relation, pairs: list[tuple[Column, Column]]) -> int:
    """Return an estimated upper bound of the rows of a join."""
    each = [
        x.duplicates * y.duplicates + min(left.rows * min(y.duplicates, 30), right.rows * min(x.duplicates, 30))
        for x, y in pairs
    ]
    return min(each, default=left.rows * right.rows)


@operator(6)
def join(
    b: Builder,
    r: Relation,
    other: Relation | None = None,
    join_type: str | None = None,
    pairs=None,
    hint: str | None = None,
) -> Relation | None:
    has_other = other is not None
    other = b.second_input(r) if other is None else other
    pairs = _pairs(b, r, other) if pairs is None else pairs
    join_type = b.rng.choices(JOIN_TYPES, [6, 3, 1.5, 2, 2, 2])[0] if join_type is None else join_type
    est = matches(r, other, pairs)
    if not pairs or (est > MAX_ROWS and not has_other):
        return None
    on = [_on(b, x, y) for x, y in pairs]
    if join_type != "left anti join" and b.chance(0.12):
        on.append(_extra(b, r, other))
    if (
        b.chance(0.12)
        and len(pairs) == 1
        and pairs[0][0].name == pairs[0][1].name
        and pairs[0][0].kind != "ci"
        and join_type not in {"left semi join", "left anti join"}
    ):
        return _using(b, r, other, pairs[0][0], join_type, est)
    left, right = _outputs(b, r, other, join_type)
    columns = [*(f"a.{c.name}" for c in left), *(f"b.{old.name} as {new.name}" for old, new in right)]
    rows = {"left semi join": r.rows, "left anti join": r.rows}.get(join_type, est + r.rows)
    output = [
        *_multiplied(left, pairs, join_type, 0),
        *(_multiplied([new], pairs, join_type, 1)[0] for _, new in right),
    ]
    if hint is None and b.chance(0.2):
        hint = f"/*+ {b.rng.choice(HINTS)}({b.rng.choice('ab')}) */ "
    text = "select {hint}{columns} from {a} a " + join_type + " {b} b on {on}"
    return b.sql(join_type, [r, other], output, min(rows, MAX_ROWS * 2), text, hint=hint or "", columns=columns, on=on)


def _extra(b: Builder, r: Relation, other: Relation) -> str:
    mine, theirs = r.of_kind("long", "int"), other.of_kind("long", "int")
    if not mine or not theirs:
        return "true"
    x, y = b.rng.choice(mine).name, b.rng.choice(theirs).name
    return b.rng.choice(
        [f"a.{x} <= b.{y} + 5", f"a.{x} + b.{y} > 3", f"(a.{x} > 2 or b.{y} < 50)", f"b.{y} > 1", f"a.{x} % 2 = 0"]
    )


def _outputs(
    b: Builder, r: Relation, other: Relation, join_type: str
) -> tuple[list[Column], list[tuple[Column, Column]]]:
    left = [c for c in r.columns if c.name in {"k", "v"} or b.chance(0.75)] or list(r.columns[:1])
    if "semi" in join_type or "anti" in join_type:
        return left, []
    if b.chance(0.15):  # the key of the right side is returned under its own name
        left = [c for c in left if c.name != "k"] or left
    used_names, right = {c.name for c in left}, []
    for c in other.columns:
        if b.chance(0.5) or (c.name in {"k", "v"} and c.name not in used_names):
            new = b.rename_if_taken(c, used_names)
            used_names.add(new.name)
            right.append((c, new))
    return left, right


def _multiplied(columns, pairs, join_type: str, side: int) -> list[Column]:
    if "semi" in join_type or "anti" in join_type:
        return list(columns)
    factor = min((pair[1 - side].duplicates for pair in pairs), default=100)
    return [Column(c.name, c.kind, c.duplicates * max(factor, 1)) for c in columns]


def _using(b: Builder, r: Relation, other: Relation, key: Column, join_type: str, est: int) -> Relation | None:
    used_names, shown, columns = {key.name}, [key.name], [Column(key.name, key.kind, est)]
    for letter, relation in (("a", r), ("b", other)):
        for c in relation.columns:
            if c.name != key.name and b.chance(0.6):
                new = b.rename_if_taken(c, used_names)
                used_names.add(new.name)
                shown.append(f"{letter}.{c.name} as {new.name}")
                columns.append(Column(new.name, c.kind, est))
    text = "select {columns} from {a} a " + join_type + f" {{b}} b using ({key.name})"
    return b.sql(f"{join_type} using", [r, other], columns, est + r.rows, text, columns=shown)


@operator(0.8)
def unequal_join(b: Builder, r: Relation) -> Relation | None:
    other = b.second_input(r)
    if r.rows * other.rows > 200_000:
        return None
    mine, theirs = r.of_kind(*NUMBERS), other.of_kind(*NUMBERS)
    if not mine or not theirs:
        return None
    join_type = b.rng.choice(["left semi join", "left anti join", "join", "left join"])
    if "semi" not in join_type and "anti" not in join_type and r.rows * other.rows > MAX_ROWS:
        join_type = "left semi join"
    x, y = b.rng.choice(mine).name, b.rng.choice(theirs).name
    left, right = _outputs(b, r, other, join_type)
    columns = [*(f"a.{c.name}" for c in left), *(f"b.{old.name} as {new.name}" for old, new in right)]
    output = [Column(c.name, c.kind, r.rows * other.rows) for c in [*left, *(new for _, new in right)]]
    rows = r.rows if "semi" in join_type or "anti" in join_type else r.rows * other.rows // 3
    text = "select {columns} from {a} a " + join_type + " {b} b on {on}"
    return b.sql(
        f"unequal {join_type}",
        [r, other],
        output,
        rows,
        text,
        columns=columns,
        on=[b.rng.choice([f"a.{x} < b.{y}", f"a.{x} + b.{y} = 9", f"a.{x} <> b.{y}"])],
    )


@operator(1.2)
def cross_join(b: Builder, r: Relation) -> Relation | None:
    """Join with a single row: a total or a constant."""
    other = b.table("one") if b.chance(0.4) else b.second_input(r)
    numbers = other.of_kind("long")
    if not numbers:
        return None
    name, c = b.name(), b.rng.choice(numbers).name
    if other.rows > 1 or b.chance(0.5):
        column = f"{b.rng.choice(['max', 'count', 'sum'])}({c})"
        text = "select a.*, b.x as {name} from {a} a cross join (select {column} as x from {b}) b"
        return b.sql("cross join", [r, other], [*r.columns, (name, "long")], r.rows, text, name=name, column=column)
    text = "select a.*, b.{column} as {name} from {a} a cross join {b} b"
    return b.sql("cross join", [r, other], [*r.columns, (name, "long")], r.rows, text, name=name, column=c)


@operator(2)
def subquery(b: Builder, r: Relation) -> Relation | None:
    other = b.second_input(r)
    possible = [(x, y) for x in r.columns for y in other.columns if x.kind in KEYS - {"st"} and _comparable(x, y)]
    if not possible:
        return None
    same_name = [(x, y) for x, y in possible if x.name == y.name]
    x, y = b.rng.choice(same_name if same_name and b.chance(0.6) else possible)
    inner = f" where {condition(b, other)}" if b.chance(0.5) else ""
    kind = b.rng.choice(["in", "not in", "exists", "not exists", "in or", "scalar", "correlated"])
    key, match = f"a.{x.name}", f"{y.name}"
    if kind in {"in", "not in"}:
        text = f"select * from {{a}} a where {key} {kind} (select {match} from {{b}}{inner})"
    elif kind in {"exists", "not exists"}:
        text = f"select * from {{a}} a where {kind} (select 1 from {{b}} b where b.{match} = {key})"
    elif kind == "in or":
        text = f"select * from {{a}} a where {key} in (select {match} from {{b}}{inner}) or {key} is null"
    elif kind == "scalar":
        if x.kind == "ci" or y.kind == "ci":
            return None
        text = f"select * from {{a}} a where {key} >= (select min({match}) from {{b}}{inner})"
    else:
        name = b.name()
        text = f"select a.*, (select count(*) from {{b}} b where b.{match} = {key}) as {name} from {{a}} a"
        return b.sql("correlated subquery", [r, other], [*r.columns, (name, "long")], r.rows, text)
    return b.sql(f"{kind} subquery", [r, other], r.columns, r.rows, text)


@operator(2.5)
def set_operation(b: Builder, r: Relation) -> Relation | None:
    other = b.second_input(r)
    names = [
        c.name
        for c in r.columns
        if (o := other.column(c.name)) is not None and o.kind == c.kind and c.kind not in {"fuz", "other", "map", "var"}
    ]
    operation = b.rng.choice(
        ["union", "union", "unionByName", "intersect", "intersectAll", "subtract", "exceptAll", "missing"]
    )
    if operation in {"intersect", "intersectAll", "subtract", "exceptAll"}:
        names = [n for n in names if r.column(n).kind in KEYS - {"ci"}]
        names = b.rng.sample(names, min(len(names), 3))
    if not names:
        return None
    rows = r.rows + other.rows if "nion" in operation or operation == "missing" else r.rows
    columns = [Column(n, r.column(n).kind, r.column(n).duplicates + other.column(n).duplicates) for n in names]
    if operation == "missing":
        extra = [Column(c.name, c.kind, rows) for c in r.columns if c.name not in other.names]
        text = "{a}.unionByName({b}.selectExpr({names}), allowMissingColumns=True)"
        rest = [Column(c.name, c.kind, rows) for c in r.columns if c.name not in {*names, *(e.name for e in extra)}]
        return b.python(
            "unionByName missing",
            [r, other],
            [next(d for d in [*columns, *extra, *rest] if d.name == c.name) for c in r.columns],
            rows,
            text,
            names=names,
        )
    text = f"{{a}}.selectExpr({{names}}).{operation}({{b}}.selectExpr({{names}}))"
    return b.python(operation, [r, other], columns, rows, text, names=names)


@operator(0.5)
def common_table(b: Builder, r: Relation) -> Relation | None:
    """Read a common table expression twice."""
    key = r.column("k")
    if key is None or key.kind != "long":
        return None
    text = "with c as (select k, count(*) as n, max(k) as m from {a} group by k) select x.k, x.n as {n}, y.m as {m} from c x join c y on x.k = y.m"
    n, m = b.name(), b.name()
    return b.sql("cte", [r], [Column("k", "long", 1), (n, "long"), (m, "long")], r.rows, text, n=n, m=m)


@operator(0.25)
def recursion(b: Builder, r: Relation) -> Relation | None:
    """Read a recursive common table expression, which may join a table."""
    key = r.column("k")
    if key is None or key.kind != "long" or r.rows > 1500 or key.duplicates > 50:
        return None
    depth = b.rng.choice([3, 6])
    if b.chance(0.5):
        step = f"select c.n + 1, c.k from c where c.n < {depth}"
    else:
        step = f"select c.n + 1, b.k from c join {{b}} b on b.k = c.k + 1 where c.n < {depth}"
    other, n = b.table(b.rng.choice(["dim", "small"])), b.name()
    text = (
        "with recursive c(n, k) as (select 0, k from {a} where k < 4 union all " + step + ") select n as {n}, k from c"
    )
    return b.sql("recursive cte", [r, other], [(n, "int"), ("k", "long")], 50, text, n=n)
