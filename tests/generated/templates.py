"""Sharp shapes with random parts: what reasoning about plans gets wrong is rarer among uniform pipelines."""

from __future__ import annotations

from collections.abc import Callable

from tests.generated import joins, python_operators
from tests.generated.builder import Builder, Column, Relation
from tests.generated.operators import OPERATORS, group, where, windowed
from tests.generated.results import files, finish
from tests.generated.tables import SQLITE_NAMES

Template = Callable[[Builder], None]
TEMPLATES: dict[str, tuple[Template, float]] = {}


def template(name: str, weight: float = 1.0):
    def register(function: Template) -> Template:
        TEMPLATES[name] = function, weight
        return function

    return register


def rows(b: Builder, relation: Relation) -> None:
    b.results.append({"of": relation.index, "kind": "rows"})


def by_k(b: Builder, r: Relation) -> Relation:
    """Return something whose rows lie by k: groups, a window, distinct keys, a join, a repartition."""
    k = r.column("k")
    way = b.rng.choice(["group", "group", "group", "window", "repartition", "distinct", "join", "summary"])
    if way == "window":
        columns = ["k", "v", "count(*) over (partition by k) as n", "sum(v) over (partition by k) as t"]
        return b.python(
            "window",
            [r],
            [k, Column("v", "long", r.rows), ("n", "long"), ("t", "long")],
            r.rows,
            "{a}.selectExpr({columns})",
            columns=columns,
        )
    if way == "repartition":
        return b.keep("repartition by", r, "{a}.repartition({k})", k="k")
    if way == "distinct":
        return b.python(
            "distinct",
            [r],
            [Column("k", "long", 2), Column("v", "long", 9)],
            r.rows,
            "{a}.selectExpr('k', 'v % 2 as v').distinct()",
        )
    if way == "join":
        made = joins.join(
            b, r, b.table("small"), how=b.rng.choice(["join", "left join"]), pairs=[(k, Column("k", "long", 1))]
        )
        if made is not None and made.column("k") and made.column("v"):
            return made
    if way == "summary":
        made = python_operators.map_groups(b, r)
        if made is not None:
            return made
    call = b.rng.choice(["sum", "max", "count"])
    columns = [Column("k", "long", 1), Column("v", "long", 50)]
    return b.sql(
        "aggregate",
        [r],
        columns,
        max(r.rows // 3, 1),
        "select {columns} from {a} group by {keys}",
        columns=["k", f"{call}(v) as v"],
        keys=["k"],
    )


def fuss(b: Builder, r: Relation) -> Relation:
    """Return the rows after one or two steps that should leave k where it is."""
    for _ in range(b.rng.choice([1, 1, 2])):
        function = b.rng.choice(
            [
                *[python_operators.function_column] * 3,
                *[python_operators.function_filter] * 2,
                *[python_operators.table_function] * 2,
                *[joins.cross_join] * 2,
                where,
                python_operators.map_rows,
                _renamed,
                joins.subquery,
                *b.rng.choices(list(OPERATORS), list(OPERATORS.values())),
            ]
        )
        before = len(b.steps), len(b.relations)
        made = function(b, r)
        if (
            made is None
            or made.column("k") is None
            or made.column("v") is None
            or made.column("k").kind != "long"
            or made.rows > 30_000
        ):
            del b.steps[before[0] :], b.relations[before[1] :]
            continue
        r = made
    return r


def _renamed(b: Builder, r: Relation) -> Relation:
    columns = [f"{c.name} as {c.name}" if c.name != "k" else "k as k0" for c in r.columns]
    old = b.python(
        "rename",
        [r],
        [Column("k0" if c.name == "k" else c.name, c.kind, c.duplicates) for c in r.columns],
        r.rows,
        "{a}.selectExpr({columns})",
        columns=columns,
    )
    back = ["k0 as k" if c.name == "k0" else c.name for c in old.columns]
    return b.python("rename", [old], r.columns, r.rows, "{a}.selectExpr({columns})", columns=back)


@template("layout, then a join or cogroup by the same key", 5)
def layout(b: Builder) -> None:
    left = fuss(b, by_k(b, b.table(b.rng.choice(["pairs", "small", "facts"]))))
    right = by_k(b, b.table(b.rng.choice(["pairs", "small", "facts"])))
    if b.chance(0.4):
        right = fuss(b, right)
    if b.chance(0.5):
        left, right = right, left
    way = b.rng.choice(["join", "join", "join", "cogroup", "window", "union"])
    if way == "cogroup":
        made = python_operators.cogroup(b, left, right)
    elif way == "window":
        made = windowed(b, left, [left.column("k")])
    elif way == "union":
        names = [
            n
            for n in left.names
            if right.column(n)
            and right.column(n).kind == left.column(n).kind
            and left.column(n).kind in {"long", "int"}
        ]
        columns = [Column(n, left.column(n).kind, left.rows) for n in names]
        made = b.python(
            "union",
            [left, right],
            columns,
            left.rows + right.rows,
            "{a}.selectExpr({names}).union({b}.selectExpr({names}))",
            names=names,
        )
        made = group(b, made, [made.column("k")])
    else:
        pairs = [(left.column("k"), right.column("k"))]
        if joins.matches(left, right, pairs) > 60_000:
            right = group(b, right, [right.column("k")])
            pairs = [(left.column("k"), right.column("k"))]
        made = joins.join(b, left, right, pairs=pairs, hint="" if b.chance(0.8) else None)
    finish(b, made if made is not None and made.columns else left)


@template("many keys", 1.5)
def many_keys(b: Builder) -> None:
    """Joins by three or four keys, then by the names of the other side."""
    n = b.rng.choice([2, 3, 4, 4])
    keys = [f"k{i}" for i in range(n)]
    texts = ["k as k0", "v as k1", "k % 7 as k2", "v % 5 as k3"][:n]

    def keyed(name):
        table = b.table(name)
        return b.python(
            "project",
            [table],
            [Column(c, "long", 4) for c in [*keys, "v"]],
            table.rows,
            "{a}.selectExpr({columns})",
            columns=[*texts, "v"],
        )

    big, small, third = keyed("small"), keyed("small"), keyed("small")
    names = [f"r{i}" for i in range(n)]
    hint = b.rng.choice(["/*+ BROADCAST(b) */ ", "/*+ BROADCAST(b) */ ", "", "/*+ BROADCAST(a) */ "])
    out = [f"a.{k}" for k in keys] if b.chance(0.3) else []
    columns = [*out, *(f"b.{k} as {r}" for k, r in zip(keys, names, strict=True)), "a.v"]
    grouped = b.python("repartition by", [big], big.columns, big.rows, "{a}.repartition({keys})", keys=keys)
    if b.chance(0.6):
        grouped = b.sql(
            "aggregate",
            [big],
            big.columns,
            big.rows,
            "select {columns} from {a} group by {keys}",
            columns=[*keys, "sum(v) as v"],
            keys=keys,
        )
    made = [Column(c.split(" as ")[-1].split(".")[-1], "long", 4) for c in columns]
    joined = b.sql(
        "join",
        [grouped, small],
        made,
        97,
        "select {hint}{columns} from {a} a join {b} b on {on}",
        hint=hint,
        columns=columns,
        on=[f"a.{k} = b.{k}" for k in keys],
    )
    how = b.rng.choice(["join", "left join", "full join", "left anti join"])
    third = b.sql(
        "aggregate",
        [third],
        third.columns,
        97,
        "select {columns} from {a} group by {keys}",
        columns=[*keys, "sum(v) as v"],
        keys=keys,
    )
    shown = ["a.*"] if "anti" in how else ["a.*", "b.v as w"]
    last = b.sql(
        how,
        [joined, third],
        [*made, *([] if "anti" in how else [("w", "long")])],
        97,
        "select {columns} from {a} a " + how + " {b} b on {on}",
        columns=shown,
        on=[f"a.{r} = b.{k}" for k, r in zip(keys, names, strict=True)],
    )
    finish(b, last)


@template("hints and skew", 2)
def hints(b: Builder) -> None:
    big = b.table(b.rng.choice(["facts", "large"]))
    other = b.table(b.rng.choice(["pairs", "small"]))
    how = b.rng.choice(joins.HOW)
    hint = f"/*+ {b.rng.choice(joins.HINTS)}({b.rng.choice('ab')}) */ "
    left, right = (big, other) if b.chance(0.7) else (other, big)
    made = joins.join(b, left, right, how=how, pairs=[(left.column("k"), right.column("k"))], hint=hint)
    if b.chance(0.5) and made.column("k"):
        made = group(b, made, [made.column("k")]) or made
    finish(b, made)


@template("settings", 2)
def settings(b: Builder) -> None:
    way = b.rng.choice(["csv", "date", "map", "property", "ansi", "zone"])
    source = b.python(
        "source: texts",
        [],
        [("line", "str"), ("js", "str"), Column("k", "long", 4), ("id", "long")],
        300,
        "table({name})",
        name="texts",
    )
    if way in {"csv", "date"}:
        b.settings["spark.sql.legacy.timeParserPolicy"] = "LEGACY"
        pattern = b.rng.choice(["MM/dd/yyyy", "M/d/yyyy", "MM/dd/yy"])
        text = (
            f"to_date(split(line, ',')[1], '{pattern}')"
            if way == "date"
            else f"from_csv(line, 'id long, d date', map('dateFormat', '{pattern}', 'mode', 'PERMISSIVE')).d"
        )
        kind = "date"
    elif way == "map":
        b.settings["spark.sql.mapKeyDedupPolicy"] = "LAST_WIN"
        text, kind = (
            b.rng.choice(["map_concat(map('a', k), map('a', id))", "map_from_arrays(array(id, id), array(1, k))"]),
            "map",
        )
    elif way == "property":
        b.properties["generated.word"] = b.rng.choice(["one", "two"])
        text, kind = None, "str"
    elif way == "ansi":
        b.settings["spark.sql.ansi.enabled"] = "false"
        text, kind = b.rng.choice(
            [
                ("cast(line as int)", "int"),
                ("k div (k - 3)", "long"),
                ("cast(id * 1000 as tinyint)", "int"),
                ("array(1)[k]", "int"),
            ]
        )
    else:
        b.settings["spark.sql.session.timeZone"] = b.rng.choice(["Asia/Kolkata", "America/New_York"])
        text, kind = "cast(cast(timestamp_seconds(id * 4000) as date) as string)", "str"
    late = b.chance(0.6)
    if late:  # behind an exchange
        source = b.sql(
            "aggregate",
            [source],
            source.columns,
            300,
            "select max(line) as line, max(js) as js, k, max(id) as id from {a} group by k, id",
        )
    if way == "property":
        made = b.python(
            "udf", [source], [*source.columns, ("x", "str")], 300, "{a}.withColumn('x', f.local_property('k'))"
        )
    else:
        made = b.python(
            "project",
            [source],
            [*source.columns, ("x", kind)],
            300,
            "{a}.selectExpr({columns})",
            columns=["*", f"{text} as x"],
        )
    if b.chance(0.5):
        made = (
            joins.join(
                b,
                made,
                b.table("small"),
                how=b.rng.choice(joins.HOW[:2]),
                pairs=[(made.column("k"), Column("k", "long", 1))],
            )
            or made
        )
    elif kind in {"date", "str", "int"} and b.chance(0.5):
        made = b.sql(
            "aggregate", [made], [("x", kind), ("n", "long")], 100, "select x, count(*) as n from {a} group by x"
        )
    rows(b, made)


@template("text files and settings", 0.7)
def text_files(b: Builder) -> None:
    b.settings["spark.sql.legacy.timeParserPolicy"] = "LEGACY"
    kind = b.rng.choice(["csv", "json"])
    pattern = b.rng.choice(["MM/dd/yyyy", "yyyy-MM-dd"])
    text = "spark.read.schema('t date, k bigint' if {kind} == 'json' else {schema}).option('dateFormat', {pattern}).format({kind}).load(str(table.folder / {name}))"
    schema = "id bigint, k bigint, j int, s string, v bigint, z int, x double, d decimal(12,3), dt string, ts string, b boolean, t date"
    made = b.python(
        f"source: {kind}",
        [],
        [("t", "date"), Column("k", "long", 4)],
        300,
        text,
        kind=kind,
        pattern=pattern,
        name=f"pairs_{kind}",
        schema=schema,
    )
    rows(
        b,
        b.sql(
            "aggregate",
            [made],
            [("t", "date"), ("n", "long")],
            300,
            "select t, count(*) as n, max(k) as m from {a} group by t",
        ),
    )


@template("files", 2)
def written(b: Builder) -> None:
    table = b.table(b.rng.choice(["pairs", "small"]))
    part = b.rng.choice(["p", "_p", "__day", "P"])
    columns = ["k", "v", f"cast(v % 4 as int) as {part}"]
    made = b.python(
        "project",
        [table],
        [Column("k", "long", 4), Column("v", "long", 9), Column(part, "int", 99)],
        table.rows,
        "{a}.selectExpr({columns})",
        columns=columns,
    )
    if b.chance(0.6):
        made = b.python("repartition by", [made], made.columns, made.rows, "{a}.repartition({n}, {k})", n=3, k="k")
    way = b.rng.choice(["dynamic", "append", "sorted", "cached", "any"])
    first = b.keep("filter", made, "{a}.where({where})", where=f"{part} <> 1")
    second = b.keep(
        "filter", made, "{a}.where({where})", where=b.rng.choice([f"{part} = 1", f"{part} in (0, 1)", "v > 1000"])
    )
    given = {"first": first.index, "partition_by": [part]}
    if way == "dynamic":
        b.settings["spark.sql.sources.partitionOverwriteMode"] = "dynamic"
        files(b, second, mode="overwrite", **given)
    elif way == "append":
        files(b, second, mode="append", **given)
    elif way == "sorted":
        ordered = b.keep("sort within", made, "{a}.repartition(1).sortWithinPartitions({p}, {v})", p=part, v="v")
        files(b, ordered, mode="overwrite", partition_by=[part], sorted_by="v", format="parquet")
    elif way == "cached":
        files(b, second, mode=b.rng.choice(["append", "overwrite"]), first=first.index, cached=True)
    else:
        files(b, second)


@template("collated keys", 2)
def collated(b: Builder) -> None:
    name = b.rng.choice(["UTF8_LCASE", "UNICODE_CI", "UNICODE"])

    def made(table):
        r = b.table(table)
        text = f"collate(concat(if(k % 2 = 0, 'a', 'A'), k % 9), '{name}') as c"
        return b.python(
            "project",
            [r],
            [Column("k", "long", 5), ("v", "long"), Column("c", "ci", r.rows // 9 + 1)],
            r.rows,
            "{a}.selectExpr({columns})",
            columns=["k", "v", text],
        )

    left, right = made(b.rng.choice(["small", "pairs"])), made(b.rng.choice(["small", "dim"]))
    if b.chance(0.4):
        text = f"select k, v, collate(c, '{name}') as c from values (1L, 2L, 'a3'), (3L, 1L, 'A5'), (4L, 9L, null) as t(k, v, c)"
        right = b.sql("values", [], right.columns, 3, text)
    if b.chance(0.4):
        left = b.sql(
            "aggregate", [left], left.columns, 20, "select max(k) as k, sum(v) as v, lower(c) as c from {a} group by c"
        )
    way = b.rng.choice(["in", "not in", "exists", "not exists", "join", "left join", "full join"])
    inner = " where c is not null" if b.chance(0.5) else ""
    if way in {"in", "not in"}:
        r = b.sql(
            f"{way} subquery",
            [left, right],
            left.columns,
            left.rows,
            f"select * from {{a}} a where c {way} (select c from {{b}}{inner})",
        )
    elif "exists" in way:
        r = b.sql(
            f"{way} subquery",
            [left, right],
            left.columns,
            left.rows,
            f"select * from {{a}} a where {way} (select 1 from {{b}} b where b.c = a.c)",
        )
    else:
        r = joins.join(b, left, right, how=way, pairs=[(left.column("c"), right.column("c"))], hint="")
    rows(b, r)


@template("errors that a join or filter removes", 3)
def errors(b: Builder) -> None:
    way = b.rng.choice(["key", "limit", "rollup", "condition", "udf", "where"])
    left = b.table("small")
    risks = [
        "#k % #z",
        "100 div #z",
        "#k div (#v - 3)",
        "cast(element_at(array('1', 'x'), cast(#k % 2 + 1 as int)) as bigint)",
        "element_at(array(1L, 2L, 3L, 4L, 5L), #z)",
    ]
    risk = b.rng.choice(risks)
    risky, prefixed = risk.replace("#", ""), risk.replace("#", "a.")
    base = b.python(
        "project",
        [left],
        [Column("k", "long", 3), ("v", "long"), ("z", "int")],
        left.rows,
        "{a}.selectExpr({columns})",
        columns=["k", "v", "cast(v % 5 as int) as z"],
    )
    small = b.table(b.rng.choice(["small", "dim"]))
    if way == "key":
        keep = b.python(
            "project",
            [small],
            [Column("k", "long", 1)],
            97,
            "{a}.where({where}).select('k')",
            where="v % 5 not in (0, 3) and v > 3 and k % 2 = 1",
        )
        how = b.rng.choice(["join", "join", "left semi join"])
        joined = b.sql(
            how, [base, keep], base.columns, base.rows, "select a.* from {a} a " + how + " {b} b on a.k = b.k"
        )
        third = b.keep("filter", b.table(b.rng.choice(["dim", "small"])), "{a}.where({where})", where="k < 5")
        made = b.sql(
            b.rng.choice(["join", "left join"]),
            [joined, third],
            base.columns,
            97,
            f"select a.* from {{a}} a {b.rng.choice(['join', 'left join', 'left semi join'])} {{b}} b on {prefixed} = b.k",
        )
    elif way == "limit":
        n = b.rng.choice([1, 3, 10])
        numbers = b.python(
            "range", [], [("id", "long")], 2000, "spark.range(0, {n}, 1, {parts})", n=2000, parts=b.rng.choice([2, 8])
        )
        bad = b.rng.choice([400, 900, 1500])
        text = b.rng.choice(
            [
                f"10 / (id - {bad})",
                f"10 % (id - {bad})",
                f"cast(if(id = {bad}, 'x', '1') as int)",
                f"if(id = {bad}, raise_error('no'), id)",
            ]
        )
        made = b.sql(
            "unordered limit",
            [numbers],
            [("id", "long"), ("x", "other")],
            n,
            f"select id, {text} as x from {{a}} limit {n}",
        )
    elif way == "rollup":
        how = b.rng.choice(
            [
                "rollup(k, z)",
                "cube(k, z)",
                "grouping sets ((k), (z))",
                "grouping sets ((k), ())",
                "grouping sets ((k, z), (k))",
            ]
        )
        number = b.rng.choice(
            [
                "9000000000000000000L",
                "cast('99999999999999999999999999999999' as decimal(38, 2))",
                "-9000000000000000000L",
            ]
        )
        text = f"select k, sum(if(z = 0, -1, 1) * {number}) as t from (select k % 3 as k, z % 2 as z from {{a}}) group by {how}"
        made = b.sql("rollup", [base], [("k", "long"), ("t", "other")], 20, text)
        if b.chance(0.4):
            b.settings["spark.sql.ansi.enabled"] = "false"
    elif way == "condition":
        cut = b.python("filter", [small], small.columns, 10, "{a}.where({where})", where="v % 5 <> 0 and k > 3")
        tiny = b.table("dim")
        first = b.sql("join", [base, cut], base.columns, base.rows, "select a.* from {a} a join {b} b on a.k = b.k")
        made = b.sql(
            "join",
            [first, tiny],
            base.columns,
            base.rows,
            f"select a.* from {{a}} a join {{b}} b on a.v = b.k and {prefixed} < 50",
        )
    elif way == "udf":
        keep = b.keep("filter", small, "{a}.where({where})", where="k % 50 <> 49")
        joined = b.sql("join", [base, keep], base.columns, base.rows, "select a.* from {a} a join {b} b on a.k = b.k")
        made = b.python("udf", [joined], [*base.columns, ("x", "long")], base.rows, "{a}.withColumn('x', f.picky('k'))")
    else:
        made = b.sql(
            "filter",
            [base],
            base.columns,
            base.rows,
            f"select * from (select *, {risky} as x from {{a}} where z <> 0 and v > 4 and k is not null) where x > 2",
        )
    rows(b, made)


def late_values(b: Builder) -> Relation:
    """Groups with a value that may fail, of which a filter or a join may leave the failing one out."""
    b.settings |= {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
    source, by = b.table(b.rng.choice(["facts", "pairs", "small"])), b.rng.choice(["k", "k", "k, v % 2"])
    divisor = b.rng.choice(["max(k) - 7", "count(*) - 1", "max(v) - max(v)", "max(k) - 5"])
    value = b.rng.choice([f"sum(v) / ({divisor})", f"sum(v) div ({divisor})", f"sum(v) % ({divisor})"])
    columns = [Column("k", "long", 2), Column("q", "dbl", 9), Column("m", "long", 9), Column("n", "long", 9)]
    having = b.rng.choice(["", "", " having max(k) <> 7", " having count(*) > 1"])
    again = b.rng.choice(["max(k)", "max(k)", f"cast({value} as bigint)", "size(collect_list(v))"])
    text = f"select k, cast({value} as double) as q, {again} as m, count(*) as n from {{a}} group by {by}{having}"
    made = b.sql("aggregate", [source], columns, 90, text)
    if b.chance(0.5):
        made = b.keep(
            "filter", made, "{a}.where({where})", where=b.rng.choice(["m <> 7", "n > 1", "q > 0", "k % 7 > 0"])
        )
    if b.chance(0.4):
        other = b.keep("filter", b.table("dim"), "{a}.where({where})", where=b.rng.choice(["k <> 7", "k > 1", "v > 3"]))
        how, hint = (
            b.rng.choice(["join", "left semi join", "left anti join"]),
            b.rng.choice(["/*+ broadcast(b) */", ""]),
        )
        made = b.sql(how, [made, other], columns, 90, f"select {hint} a.* from {{a}} a {how} {{b}} b on a.k = b.k")
    return made


@template("values of groups that are left out", 2)
def values_left_out(b: Builder) -> None:
    made = late_values(b)
    finish(b, group(b, made) or made) if b.chance(0.3) else rows(b, made)


@template("writes of served sessions that may fail", 2)
def served_writes(b: Builder) -> None:
    made = late_values(b)
    shape = b.rng.choice(
        [
            "{a}.orderBy('q', 'k', 'n')",
            "{a}.groupBy('q').agg(F.max('k').alias('k'), F.max('m').alias('m'), F.max('n').alias('n'))",
            "{a}.withColumn('m', F.count('*').over(Window.partitionBy('q')))",
            "{a}.distinct()",
            "{a}.repartition(3, 'n')",
            "{a}.cache()",
            "{a}",
        ]
    )
    made = b.keep("shape", made, shape)
    made = b.keep("select", made, "{a}.select('k', 'q', 'm', 'n')")
    first = "{a}.selectExpr('k', 'cast(v as double) as q', 'v as m', 'v as n')"
    before = b.python("first", [b.table("small")], made.columns, 97, first)
    mode = b.rng.choice(["overwrite", "overwrite", "append", "error", "ignore"])
    result = {"of": made.index, "kind": "served", "format": "parquet", "mode": mode, "partition_by": []}
    # Whether a table is there already is asked when the stages have run, so which error comes first depends on the plan.
    is_there = mode in {"overwrite", "append"} and b.chance(0.8)
    b.results.append(result | ({"first": before.index} if is_there else {}))


@template("several results", 3)
def several(b: Builder) -> None:
    table = b.table(b.rng.choice(["pairs", "small", "facts"]))
    shared = by_k(b, table)
    if b.chance(0.25):
        shared = b.keep("localCheckpoint", shared, b.rng.choice(["{a}.localCheckpoint()", "{a}.cache()"]))
    if b.chance(0.3):
        shared = fuss(b, shared)
    if b.chance(0.25):  # which rows are computed decides whether it fails
        columns = ["k", "v", b.rng.choice(["10 div (k - 3) as e", "10 div v as e", "cast(v * 100000000 as int) as e"])]
        kept = [shared.column("k"), shared.column("v"), ("e", "long")]
        shared = b.python("project", [shared], kept, shared.rows, "{a}.selectExpr({columns})", columns=columns)
    if b.chance(0.6):
        rows(b, shared)
    small = b.table(b.rng.choice(["small", "dim"]))
    text = b.rng.choice(["v > 60", "v % 3 = 0", "k % 2 = 0", "v = 7", "k > 50", "k <> 3", "10 div (k - 3) < 5"])
    ways = {
        "filter": lambda: b.keep("filter", shared, "{a}.where({where})", where=text),
        "filter, columns": lambda: b.python(
            "filter",
            [shared],
            [shared.column("k"), shared.column("v")],
            shared.rows,
            "{a}.where({where}).select('k', 'v')",
            where=text,
        ),
        "filter, total": lambda: b.python(
            "global aggregate",
            [shared],
            [("t", "long")],
            1,
            "{a}.where({where}).agg(F.sum('v').alias('t'))",
            where=text,
        ),
        "semi": lambda: b.sql(
            "left semi join",
            [shared, small],
            shared.columns,
            shared.rows,
            "select a.* from {a} a left semi join {b} b on a.k = b.k",
        ),
        "anti": lambda: b.sql(
            "left anti join",
            [shared, small],
            shared.columns,
            shared.rows,
            "select a.* from {a} a left anti join {b} b on a.k = b.k",
        ),
        "group": lambda: group(b, shared, [shared.column("k")]),
        "distinct": lambda: b.keep("distinct", shared, "{a}.distinct()") if shared.is_plain else None,
        "dropDuplicates": lambda: b.python(
            "sorted dropDuplicates",
            [shared],
            [shared.column("k")],
            shared.rows,
            "{a}.select('k').dropDuplicates(['k'])",
        ),
        "limit": lambda: b.sql(
            "limit", [shared], [shared.column("k"), shared.column("v")], 5, "select k, v from {a} order by k, v limit 5"
        ),
        "self join": lambda: (
            b.sql(
                "self join",
                [shared, shared],
                [Column("k", "long", 9)],
                shared.rows,
                "select a.k, b.v as w from {a} a join {b} b on a.k = b.k",
            )
            if (shared.column("k").duplicates < 20)
            else None
        ),
    }
    for way in b.rng.sample(list(ways), b.rng.randint(1, 4)):
        made = ways[way]()
        if made is not None:
            rows(b, made)
    if not b.results:
        rows(b, shared)
    b.rng.shuffle(b.results)


@template("not deterministic, or by an order", 3)
def orders(b: Builder) -> None:
    way = b.rng.choice(["first", "first", "zip", "now", "cte", "range", "random zip", "number"])
    if way == "first":
        r = b.python(
            "source: parquet",
            [],
            [Column("k", "long", 330), ("v", "long")],
            600,
            "table({name}).selectExpr('k', 'id as v')",
            name=b.rng.choice(["facts", "large", "pairs"]),
        )
        big = (
            joins.join(b, r, b.table("small"), how="join", pairs=[(r.column("k"), Column("k", "long", 1))], hint="")
            if b.chance(0.7)
            else None
        )
        if big is None or not big.column("k") or not big.column("v"):
            big = r
        big = b.python("select", [big], [big.column("k"), big.column("v")], big.rows, "{a}.select('k', 'v')")
        end = b.rng.choice(
            [
                "dropDuplicates(['k'])",
                "groupBy('k').agg(F.first('v').alias('v'))",
                "groupBy('k').agg(F.last('v').alias('v'))",
                "groupBy('k').agg(F.first('v').alias('v'), F.count('*').alias('n'))",
                "groupBy('k').agg(F.collect_list('v').alias('v'))",
            ]
        )
        direction = b.rng.choice(["F.desc('v')", "F.asc('v')"])
        rows(
            b,
            b.python(
                "sorted first",
                [big],
                [Column("k", "long", 1), ("v", "long")],
                big.rows,
                f"{{a}}.repartition('k').sortWithinPartitions('k', {direction}).{end}",
            ),
        )
    elif way in {"zip", "random zip"}:
        name = b.rng.choice(["facts", "large", "pairs"])
        columns = b.rng.sample(["s", "x", "d", "a", "st", "id"], 3)
        number = "monotonically_increasing_id()" if way == "zip" else "concat(spark_partition_id(), '-', rand(5))"
        one = b.python(
            "numbered",
            [],
            [("n", "long"), Column("k", "long", 99)],
            600,
            "table({name}).selectExpr({columns})",
            name=name,
            columns=[f"{number} as n", "k"],
        )
        two = b.python(
            "numbered",
            [],
            [("n", "long"), ("v", "long")],
            600,
            "table({name}).selectExpr({columns})",
            name=name,
            columns=[f"{number} as n", "v", *columns],
        )
        rows(
            b,
            b.sql(
                "join",
                [one, two],
                [("k", "long")],
                600,
                "select {columns} from {a} a join {b} b on a.n = b.n",
                columns=["a.k", "b.v", *(f"b.{c}" for c in columns)],
            ),
        )
    elif way == "number":
        source = b.python("range", [], [("id", "long")], 500, "spark.range(0, 500, 1, 4)")
        one = b.python(
            "numbered",
            [source],
            [("id", "long"), ("n", "long")],
            500,
            "{a}.selectExpr({columns})",
            columns=[
                "id",
                b.rng.choice(["monotonically_increasing_id() as n", "spark_partition_id() as n", "rand(3) as n"]),
            ],
        )
        rows(
            b,
            b.sql("aggregate", [one], [("k", "long")], 500, "select id % 7 as k, max(n) as n from {a} group by id % 7"),
        )
    elif way == "now":
        shared = by_k(b, b.table("small"))
        made = b.python(
            "project",
            [shared],
            [*shared.columns, ("now", "ts")],
            shared.rows,
            "{a}.selectExpr('*', 'current_timestamp() as now')",
        )
        for text in ("{a}.where('k > 5')", "{a}.groupBy('now').count()", "{a}.select('k', 'now')"):
            one = b.python("current time", [made], [("now", "ts")], 97, text)
            b.results.append({"of": one.index, "kind": "rows", "once": "now"})
    elif way == "cte":
        table = b.table("pairs")
        text = b.rng.choice(
            [
                "with c as (select k, v, uuid() as u from {a}) select count(*) as n from c x join c y on x.u = y.u",
                "with c as (select k, v, rand() as u from {a}) select count(*) as n from c x join c y on x.u = y.u",
                "with c as (select k, any_value(rand()) as u from {a} group by k) select count(*) as n from c x join c y on x.k = y.k and x.u = y.u",
            ]
        )
        rows(b, b.sql("cte", [table], [("n", "long")], 1, text))
    else:
        r = b.table(b.rng.choice(["small", "pairs"]))
        n = b.rng.choice([3, 8])
        order = "'v', 'k'"
        made = b.python(
            "numbered",
            [r],
            [("k", "long"), ("v", "long"), ("p", "int")],
            r.rows,
            f"{{a}}.repartitionByRange({n}, {order}).selectExpr('k', 'v', 'spark_partition_id() as p')",
        )
        if b.chance(0.5):
            made = b.sql(
                "aggregate",
                [made],
                [("p", "int")],
                n,
                "select p, count(*) as n, min(v) as low, max(v) as high from {a} group by p",
            )
        rows(b, made)


@template("recursion and limits", 1.2)
def recursion(b: Builder) -> None:
    if b.chance(0.6):
        made = None
        while made is None:
            made = joins.recursion(b, b.table(b.rng.choice(["small", "dim"])))
        if b.chance(0.4):
            made = group(b, made) or made
        rows(b, made)
        return
    r = b.table(b.rng.choice(["facts", "pairs"]))
    made = b.python("select", [r], [r.column("k"), r.column("v")], r.rows, "{a}.select('k', 'v')")
    made = b.keep(
        "mapInPandas over a sort",
        made,
        "{a}.orderBy({order}).mapInPandas(f.same, 'k bigint, v bigint')",
        order=["v", "k"],
    )
    n = b.rng.choice([1, 9])
    rows(
        b,
        b.sql(
            "unordered limit",
            [made],
            [("n", "long")],
            1,
            f"select count(*) as n, max(v) is not null as m from (select * from {{a}} limit {n})",
        ),
    )


@template("databases", 0.7)
def databases(b: Builder) -> None:
    name = b.rng.choice(SQLITE_NAMES)
    made = b.python(
        "source: sqlite",
        [],
        [Column(name, "long", 200), ("v", "long"), ("s", "str")],
        600,
        "table.lite({name})",
        name=name,
    )
    if b.chance(0.5):
        made = b.sql(
            "aggregate",
            [made],
            [("s", "str"), ("n", "long")],
            5,
            f"select s, count(*) as n, count({name}) as m, sum(v) as t from {{a}} group by s",
        )
    elif b.chance(0.5):
        made = b.sql(
            "aggregate",
            [made],
            [("k", "long")],
            400,
            f"select {name} as k, count(*) as n, sum(v) as t from {{a}} group by {name}",
        )
    rows(b, made)
