"""Random SQL expressions over a relation's columns."""

from __future__ import annotations

from tests.generated.builder import NUMBERS, ORDERABLE, Builder, Column, Relation


def computed(b: Builder, relation: Relation, *, risky: bool = False) -> tuple[str, str] | None:
    """Return a new expression and its kind, or None for an unsupported column; a risky one may fail on some rows."""
    rng = b.rng
    column = rng.choice(relation.columns)
    c = column.name
    choices = {
        "long": [
            (f"{c} + 1", "long"),
            (f"{c} * 2 - 1", "long"),
            (f"pmod(hash({c}), 10)", "int"),
            (f"coalesce({c}, -1)", "long"),
            (f"cast({c} as string)", "str"),
            (f"cast({c} % 50 as decimal(12,3))", "dec"),
            (f"nullif({c}, 7)", "long"),
            (f"array({c} % 3, 2)", "longs"),
            (f"named_struct('a', {c} % 5, 'b', 'x')", "longst"),
            (f"date_add(date'2024-01-31', cast({c} % 40 as int))", "date"),
            (f"make_dt_interval(0, cast({c} % 7 as int))", "iv"),
            (f"if({c} % 2 = 0, {c}, null)", "long"),
            (f"{c} div 3", "long"),
            (f"current_date() = date'1999-01-01' or {c} > 3", "bool"),
        ],
        "int": [(f"cast({c} as bigint)", "long"), (f"{c} + 1", "int"), (f"-{c}", "int"), (f"bin({c})", "str")],
        "str": [
            (f"upper({c})", "str"),
            (f"length({c})", "int"),
            (f"coalesce({c}, 'none')", "str"),
            (f"collate({c}, 'UTF8_LCASE')", "ci"),
            (f"collate({c}, 'UNICODE_CI')", "ci"),
            (f"concat({c}, '-', {c})", "str"),
            (f"substr({c}, 1, 1)", "str"),
        ],
        "ci": [(f"lower({c})", "ci"), (f"{c} = 'ab'", "bool"), (f"collate(lower({c}), 'UTF8_BINARY')", "str")],
        "dbl": [(f"{c} * 2", "dbl"), (f"isnan({c})", "bool"), (f"nanvl({c}, 1.0d)", "dbl"), (f"{c} > 3.5d", "bool")],
        "dec": [
            (f"{c} + 1", "dec"),
            (f"cast({c} as bigint)", "long"),
            (f"cast({c} as decimal(20,6))", "dec"),
            (f"round({c}, 1)", "dec"),
        ],
        "date": [
            (f"year({c})", "int"),
            (f"date_add({c}, 1)", "date"),
            (f"cast({c} as timestamp)", "ts"),
            (f"dayofweek({c})", "int"),
        ],
        "ts": [
            (f"cast({c} as date)", "date"),
            (f"hour({c})", "int"),
            (f"{c} + interval 90 minutes", "ts"),
            (f"{c} - timestamp'2024-01-01 00:00:00'", "iv"),
            (f"date_trunc('DAY', {c})", "ts"),
        ],
        "bool": [(f"not {c}", "bool"), (f"cast({c} as int)", "int")],
        "arr": [
            (f"size({c})", "int"),
            (f"array_contains({c}, 1)", "bool"),
            (f"sort_array({c})", "arr"),
            (f"transform({c}, y -> y + 1)", "arr"),
            (f"try_element_at({c}, 1)", "int"),
        ],
        "st": [(f"{c}.a", "int"), (f"{c}.b", "str")],
        "map": [(f"{c}['a']", "int"), (f"map_keys({c})", "strs"), (f"size({c})", "int")],
        "iv": [(f"{c} + interval 1 hour", "iv")],
        "var": [(f"variant_get({c}, '$.a', 'int')", "int"), (f"cast({c} as string)", "str")],
    }
    if risky:
        choices |= {
            "long": [
                (f"10 div ({c} - 3)", "long"),
                (f"100 % {c}", "long"),
                (f"cast({c} as tinyint)", "int"),
                (f"{c} * 9000000000000000", "long"),
            ],
            "int": [
                (f"7 div {c}", "long"),
                (f"{c} % {c}", "int"),
                (f"element_at(array(1, 2), if({c} > 3, 3, 1))", "int"),
            ],
            "str": [(f"cast({c} as int)", "int")],
            "dec": [(f"{c} / ({c} - 2.25)", "dec"), (f"cast({c} * 100000000 as decimal(10,3))", "dec")],
            "arr": [(f"{c}[1]", "int"), (f"element_at({c}, 3)", "int")],
            "map": [(f"element_at({c}, 'zz')", "int")],
        }
    expressions = choices.get(column.kind)
    if not expressions:
        return None
    text, kind = rng.choice(expressions)
    return text, {"longs": "other", "longst": "other", "strs": "other"}.get(kind, kind)


def condition(b: Builder, relation: Relation, *, risky: bool = False) -> str:
    """Return a condition that some of the rows meet."""
    rng = b.rng
    if risky:
        numbers = relation.of_kind("long", "int")
        if numbers:
            c = rng.choice(numbers).name
            return rng.choice([f"100 % {c} < 40", f"10 div ({c} - 3) < 5", f"cast(concat('1', {c}) as int) > 2"])
    column = rng.choice([c for c in relation.columns if c.kind in ORDERABLE] or relation.columns)
    c = column.name
    by_kind = {
        "long": [
            f"{c} > 20",
            f"{c} % 3 <> 0",
            f"{c} is not null",
            f"{c} in (1, 7, 11, 19, 50)",
            f"{c} between 3 and 60",
            f"{c} <=> 7",
        ],
        "int": [f"{c} > 1", f"{c} is not null", f"{c} in (0, 2, 3)", f"{c} % 2 = 0 or {c} is null"],
        "str": [f"{c} like '%b%'", f"{c} is not null", f"upper({c}) = 'AB'", f"{c} <> 'b'"],
        "ci": [f"{c} = 'AB'", f"{c} is null or {c} > 'ab'"],
        "dbl": [f"{c} > 2.5d", f"isnan({c}) or {c} < 5", f"{c} = 0.0d or {c} > 1"],
        "dec": [f"{c} > 7.5", f"{c} <> 0"],
        "date": [f"{c} > date'2024-02-28'"],
        "ts": [f"{c} > timestamp'2024-03-31 01:00:00'", f"hour({c}) < 5"],
        "bool": [c, f"not {c}"],
        "arr": [f"size({c}) > 0"],
        "iv": [f"{c} > interval 2 hours"],
        "st": [f"{c}.a > 1", f"{c} is not null"],
    }
    return rng.choice(by_kind.get(column.kind, [f"{c} is not null"]))


def aggregate(b: Builder, relation: Relation) -> tuple[str, str]:
    """Return a call of an aggregate function, and the kind of its result."""
    rng = b.rng
    usable = [c for c in relation.columns if c.kind in ORDERABLE]
    if not usable or b.chance(0.15):
        return "count(*)", "long"
    column = rng.choice(usable)
    c = column.name
    choices = [(f"count({c})", "long"), (f"count(distinct {c})", "long"), (f"count_if({c} is null)", "long")]
    if column.kind == "ci":
        choices += [(f"lower(max({c}))", "ci"), (f"lower(min({c}))", "ci")]
    else:
        choices += 2 * [(f"max({c})", column.kind), (f"min({c})", column.kind)]
        if column.kind != "dbl":
            choices += [(f"sort_array(collect_set({c}))", "other"), (f"sort_array(collect_list({c}))", "other")]
    if column.kind in {"long", "int"}:
        choices += 4 * [(f"sum({c})", "long")]
        choices += [
            (f"avg({c})", "fuz"),
            (f"sum(distinct {c})", "long"),
            (f"approx_count_distinct({c})", "long"),
            (f"stddev({c})", "fuz"),
            (f"percentile({c}, 0.5)", "fuz"),
            (f"bit_xor({c})", column.kind),
            (f"sum({c}) filter (where {condition(b, relation)})", "long"),
            (f"twice(sum({c}))", "long"),
            (f"spread_of({c})", "long"),
        ]
    if column.kind == "dec":
        choices += [(f"sum({c})", "other"), (f"avg({c})", "other")]
    if column.kind == "dbl":
        choices += [(f"sum({c})", "fuz"), (f"avg({c})", "fuz")]
    if column.kind == "bool":
        choices += [(f"every({c})", "bool"), (f"any({c})", "bool")]
    id_ = relation.column("id")
    if id_ is not None and id_.duplicates == 1 and id_ is not column and column.kind != "ci":
        choices += [(f"max_by({c}, id)", column.kind)]
    return rng.choice(choices)


def window(b: Builder, relation: Relation, keys: list[Column]) -> tuple[str, str] | None:
    """Return a window function over some keys, and the kind of its result."""
    rng = b.rng
    by = f"partition by {', '.join(c.name for c in keys)}" if keys else ""
    numbers = relation.of_kind(*NUMBERS)
    orderable = relation.of_kind(*ORDERABLE)
    choices: list[tuple[str, str]] = [(f"count(*) over ({by})", "long")]
    if numbers:
        n = rng.choice(numbers)
        kind = "other" if n.kind == "dec" else "long"
        choices += 2 * [(f"sum({n.name}) over ({by})", kind), (f"max({n.name}) over ({by})", n.kind)]
        choices += [
            (f"sum({n.name}) over ({by} order by {n.name} range between 5 preceding and 1 following)", kind),
            (f"count(*) over ({by} order by {n.name} range between unbounded preceding and current row)", "long"),
            (f"avg({n.name}) over ({by})", "other" if n.kind == "dec" else "fuz"),
        ]
    if orderable:
        o = rng.choice(orderable)
        down = rng.choice(["", " desc", " desc nulls last", " nulls last"])
        choices += [
            (f"rank() over ({by} order by {o.name}{down})", "int"),
            (f"dense_rank() over ({by} order by {o.name}{down})", "int"),
            (f"cume_dist() over ({by} order by {o.name}{down})", "fuz"),
        ]
    order = relation.total_order
    if order is not None:
        rng.shuffle(order)
        over = f"over ({by} order by {', '.join(order)}"
        choices += [(f"row_number() {over})", "int"), (f"ntile(3) {over})", "int")]
        if numbers:
            n = rng.choice(numbers)
            kind = "other" if n.kind == "dec" else "long"
            choices += [
                (f"lag({n.name}) {over})", n.kind),
                (f"lead({n.name}, 2) {over})", n.kind),
                (f"last_value({n.name}) {over})", n.kind),
                (f"first_value({n.name}) ignore nulls {over})", n.kind),
                (f"nth_value({n.name}, 2) {over})", n.kind),
                (f"sum({n.name}) {over} rows between 2 preceding and 1 following)", kind),
            ]
    return rng.choice(choices)
