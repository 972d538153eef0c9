"""Pipelines with error-prone shapes and random parts; uniform pipelines rarely have these shapes."""

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
    """Return a relation that is partitioned by k: groups, a window, distinct keys, a join, a repartition."""
    k = r.column("k")
    operation = b.rng.choice(["group", "group", "group", "window", "repartition", "distinct", "join", "summary"])
    if operation == "window":
        columns = ["k", "v", "count(*) over (partition by k) as n", "sum(v) over (partition by k) as t"]
        return b.python(
            "window",
            [r],
            [k, Column("v", "long", r.rows), ("n", "long"), ("t", "long")],
            r.rows,
            "{a}.selectExpr({columns})",
            columns=columns,
        )
    if operation == "repartition":
        return b.keep_columns("repartition by", r, "{a}.repartition({k})", k="k")
    if operation == "distinct":
        return b.python(
            "distinct",
            [r],
            [Column("k", "long", 2), Column("v", "long", 9)],
            r.rows,
            "{a}.selectExpr('k', 'v % 2 as v').distinct()",
        )
    if operation == "join":
        output = joins.join(
            b, r, b.table("small"), join_type=b.rng.choice(["join", "left join"]), pairs=[(k, Column("k", "long", 1))]
        )
        if output is not None and output.column("k") and output.column("v"):
            return output
    if operation == "summary":
        output = python_operators.map_groups(b, r)
        if output is not None:
            return output
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


def add_steps(b: Builder, r: Relation) -> Relation:
    """Add one or two steps that should preserve the partitioning by k."""
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
        output = function(b, r)
        if (
            output is None
            or output.column("k") is None
            or output.column("v") is None
            or output.column("k").kind != "long"
            or output.rows > 30_000
        ):
            del b.steps[before[0] :], b.relations[before[1] :]
            continue
        r = output
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
    left = add_steps(b, by_k(b, b.table(b.rng.choice(["pairs", "small", "facts"]))))
    right = by_k(b, b.table(b.rng.choice(["pairs", "small", "facts"])))
    if b.chance(0.4):
        right = add_steps(b, right)
    if b.chance(0.5):
        left, right = right, left
    operation = b.rng.choice(["join", "join", "join", "cogroup", "window", "union"])
    if operation == "cogroup":
        output = python_operators.cogroup(b, left, right)
    elif operation == "window":
        output = windowed(b, left, [left.column("k")])
    elif operation == "union":
        names = [
            n
            for n in left.names
            if right.column(n)
            and right.column(n).kind == left.column(n).kind
            and left.column(n).kind in {"long", "int"}
        ]
        columns = [Column(n, left.column(n).kind, left.rows) for n in names]
        output = b.python(
            "union",
            [left, right],
            columns,
            left.rows + right.rows,
            "{a}.selectExpr({names}).union({b}.selectExpr({names}))",
            names=names,
        )
        output = group(b, output, [output.column("k")])
    else:
        pairs = [(left.column("k"), right.column("k"))]
        if joins.matches(left, right, pairs) > 60_000:
            right = group(b, right, [right.column("k")])
            pairs = [(left.column("k"), right.column("k"))]
        output = joins.join(b, left, right, pairs=pairs, hint="" if b.chance(0.8) else None)
    finish(b, output if output is not None and output.columns else left)


@template("many keys", 1.5)
def many_keys(b: Builder) -> None:
    """Join by several keys, then by the keys of the other side."""
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
    output_columns = [Column(c.split(" as ")[-1].split(".")[-1], "long", 4) for c in columns]
    joined = b.sql(
        "join",
        [grouped, small],
        output_columns,
        97,
        "select {hint}{columns} from {a} a join {b} b on {on}",
        hint=hint,
        columns=columns,
        on=[f"a.{k} = b.{k}" for k in keys],
    )
    join_type = b.rng.choice(["join", "left join", "full join", "left anti join"])
    third = b.sql(
        "aggregate",
        [third],
        third.columns,
        97,
        "select {columns} from {a} group by {keys}",
        columns=[*keys, "sum(v) as v"],
        keys=keys,
    )
    shown = ["a.*"] if "anti" in join_type else ["a.*", "b.v as w"]
    last = b.sql(
        join_type,
        [joined, third],
        [*output_columns, *([] if "anti" in join_type else [("w", "long")])],
        97,
        "select {columns} from {a} a " + join_type + " {b} b on {on}",
        columns=shown,
        on=[f"a.{r} = b.{k}" for k, r in zip(keys, names, strict=True)],
    )
    finish(b, last)


@template("hints and skew", 2)
def hints(b: Builder) -> None:
    big = b.table(b.rng.choice(["facts", "large"]))
    other = b.table(b.rng.choice(["pairs", "small"]))
    join_type = b.rng.choice(joins.JOIN_TYPES)
    hint = f"/*+ {b.rng.choice(joins.HINTS)}({b.rng.choice('ab')}) */ "
    left, right = (big, other) if b.chance(0.7) else (other, big)
    output = joins.join(b, left, right, join_type=join_type, pairs=[(left.column("k"), right.column("k"))], hint=hint)
    if b.chance(0.5) and output.column("k"):
        output = group(b, output, [output.column("k")]) or output
    finish(b, output)


@template("settings", 2)
def settings(b: Builder) -> None:
    kind_of_setting = b.rng.choice(["csv", "date", "map", "property", "ansi", "zone"])
    source = b.python(
        "source: texts",
        [],
        [("line", "str"), ("js", "str"), Column("k", "long", 4), ("id", "long")],
        300,
        "table({name})",
        name="texts",
    )
    if kind_of_setting in {"csv", "date"}:
        b.settings["spark.sql.legacy.timeParserPolicy"] = "LEGACY"
        pattern = b.rng.choice(["MM/dd/yyyy", "M/d/yyyy", "MM/dd/yy"])
        text = (
            f"to_date(split(line, ',')[1], '{pattern}')"
            if kind_of_setting == "date"
            else f"from_csv(line, 'id long, d date', map('dateFormat', '{pattern}', 'mode', 'PERMISSIVE')).d"
        )
        kind = "date"
    elif kind_of_setting == "map":
        b.settings["spark.sql.mapKeyDedupPolicy"] = "LAST_WIN"
        text, kind = (
            b.rng.choice(["map_concat(map('a', k), map('a', id))", "map_from_arrays(array(id, id), array(1, k))"]),
            "map",
        )
    elif kind_of_setting == "property":
        b.properties["generated.word"] = b.rng.choice(["one", "two"])
        text, kind = None, "str"
    elif kind_of_setting == "ansi":
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
    has_exchange = b.chance(0.6)
    if has_exchange:  # after an exchange
        source = b.sql(
            "aggregate",
            [source],
            source.columns,
            300,
            "select max(line) as line, max(js) as js, k, max(id) as id from {a} group by k, id",
        )
    if kind_of_setting == "property":
        output = b.python(
            "udf", [source], [*source.columns, ("x", "str")], 300, "{a}.withColumn('x', f.local_property('k'))"
        )
    else:
        output = b.python(
            "project",
            [source],
            [*source.columns, ("x", kind)],
            300,
            "{a}.selectExpr({columns})",
            columns=["*", f"{text} as x"],
        )
    if b.chance(0.5):
        output = (
            joins.join(
                b,
                output,
                b.table("small"),
                join_type=b.rng.choice(joins.JOIN_TYPES[:2]),
                pairs=[(output.column("k"), Column("k", "long", 1))],
            )
            or output
        )
    elif kind in {"date", "str", "int"} and b.chance(0.5):
        output = b.sql(
            "aggregate", [output], [("x", kind), ("n", "long")], 100, "select x, count(*) as n from {a} group by x"
        )
    rows(b, output)


@template("text files and settings", 0.7)
def text_files(b: Builder) -> None:
    b.settings["spark.sql.legacy.timeParserPolicy"] = "LEGACY"
    kind = b.rng.choice(["csv", "json"])
    pattern = b.rng.choice(["MM/dd/yyyy", "yyyy-MM-dd"])
    text = "spark.read.schema('t date, k bigint' if {kind} == 'json' else {schema}).option('dateFormat', {pattern}).format({kind}).load(str(table.folder / {name}))"
    schema = "id bigint, k bigint, j int, s string, v bigint, z int, x double, d decimal(12,3), dt string, ts string, b boolean, t date"
    source = b.python(
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
            [source],
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
    rows_to_write = b.python(
        "project",
        [table],
        [Column("k", "long", 4), Column("v", "long", 9), Column(part, "int", 99)],
        table.rows,
        "{a}.selectExpr({columns})",
        columns=columns,
    )
    if b.chance(0.6):
        rows_to_write = b.python(
            "repartition by",
            [rows_to_write],
            rows_to_write.columns,
            rows_to_write.rows,
            "{a}.repartition({n}, {k})",
            n=3,
            k="k",
        )
    kind_of_write = b.rng.choice(["dynamic", "append", "sorted", "cached", "any"])
    first = b.keep_columns("filter", rows_to_write, "{a}.where({where})", where=f"{part} <> 1")
    second = b.keep_columns(
        "filter",
        rows_to_write,
        "{a}.where({where})",
        where=b.rng.choice([f"{part} = 1", f"{part} in (0, 1)", "v > 1000"]),
    )
    options = {"first": first.index, "partition_by": [part]}
    if kind_of_write == "dynamic":
        b.settings["spark.sql.sources.partitionOverwriteMode"] = "dynamic"
        files(b, second, mode="overwrite", **options)
    elif kind_of_write == "append":
        files(b, second, mode="append", **options)
    elif kind_of_write == "sorted":
        ordered = b.keep_columns(
            "sort within", rows_to_write, "{a}.repartition(1).sortWithinPartitions({p}, {v})", p=part, v="v"
        )
        files(b, ordered, mode="overwrite", partition_by=[part], sorted_by="v", format="parquet")
    elif kind_of_write == "cached":
        files(b, second, mode=b.rng.choice(["append", "overwrite"]), first=first.index, cached=True)
    else:
        files(b, second)


@template("collated keys", 2)
def collated(b: Builder) -> None:
    name = b.rng.choice(["UTF8_LCASE", "UNICODE_CI", "UNICODE"])

    def with_collated_key(table):
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

    left = with_collated_key(b.rng.choice(["small", "pairs"]))
    right = with_collated_key(b.rng.choice(["small", "dim"]))
    if b.chance(0.4):
        text = f"select k, v, collate(c, '{name}') as c from values (1L, 2L, 'a3'), (3L, 1L, 'A5'), (4L, 9L, null) as t(k, v, c)"
        right = b.sql("values", [], right.columns, 3, text)
    if b.chance(0.4):
        left = b.sql(
            "aggregate", [left], left.columns, 20, "select max(k) as k, sum(v) as v, lower(c) as c from {a} group by c"
        )
    kind = b.rng.choice(["in", "not in", "exists", "not exists", "join", "left join", "full join"])
    inner = " where c is not null" if b.chance(0.5) else ""
    if kind in {"in", "not in"}:
        r = b.sql(
            f"{kind} subquery",
            [left, right],
            left.columns,
            left.rows,
            f"select * from {{a}} a where c {kind} (select c from {{b}}{inner})",
        )
    elif "exists" in kind:
        r = b.sql(
            f"{kind} subquery",
            [left, right],
            left.columns,
            left.rows,
            f"select * from {{a}} a where {kind} (select 1 from {{b}} b where b.c = a.c)",
        )
    else:
        r = joins.join(b, left, right, join_type=kind, pairs=[(left.column("c"), right.column("c"))], hint="")
    rows(b, r)


@template("errors that a join or filter removes", 3)
def errors(b: Builder) -> None:
    kind_of_error = b.rng.choice(["key", "limit", "rollup", "condition", "udf", "where"])
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
    if kind_of_error == "key":
        keep = b.python(
            "project",
            [small],
            [Column("k", "long", 1)],
            97,
            "{a}.where({where}).select('k')",
            where="v % 5 not in (0, 3) and v > 3 and k % 2 = 1",
        )
        clause = b.rng.choice(["join", "join", "left semi join"])
        joined = b.sql(
            clause, [base, keep], base.columns, base.rows, "select a.* from {a} a " + clause + " {b} b on a.k = b.k"
        )
        third = b.keep_columns("filter", b.table(b.rng.choice(["dim", "small"])), "{a}.where({where})", where="k < 5")
        output = b.sql(
            b.rng.choice(["join", "left join"]),
            [joined, third],
            base.columns,
            97,
            f"select a.* from {{a}} a {b.rng.choice(['join', 'left join', 'left semi join'])} {{b}} b on {prefixed} = b.k",
        )
    elif kind_of_error == "limit":
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
        output = b.sql(
            "unordered limit",
            [numbers],
            [("id", "long"), ("x", "other")],
            n,
            f"select id, {text} as x from {{a}} limit {n}",
        )
    elif kind_of_error == "rollup":
        clause = b.rng.choice(
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
        text = f"select k, sum(if(z = 0, -1, 1) * {number}) as t from (select k % 3 as k, z % 2 as z from {{a}}) group by {clause}"
        output = b.sql("rollup", [base], [("k", "long"), ("t", "other")], 20, text)
        if b.chance(0.4):
            b.settings["spark.sql.ansi.enabled"] = "false"
    elif kind_of_error == "condition":
        filtered = b.python("filter", [small], small.columns, 10, "{a}.where({where})", where="v % 5 <> 0 and k > 3")
        tiny = b.table("dim")
        first = b.sql(
            "join", [base, filtered], base.columns, base.rows, "select a.* from {a} a join {b} b on a.k = b.k"
        )
        output = b.sql(
            "join",
            [first, tiny],
            base.columns,
            base.rows,
            f"select a.* from {{a}} a join {{b}} b on a.v = b.k and {prefixed} < 50",
        )
    elif kind_of_error == "udf":
        keep = b.keep_columns("filter", small, "{a}.where({where})", where="k % 50 <> 49")
        joined = b.sql("join", [base, keep], base.columns, base.rows, "select a.* from {a} a join {b} b on a.k = b.k")
        output = b.python(
            "udf", [joined], [*base.columns, ("x", "long")], base.rows, "{a}.withColumn('x', f.picky('k'))"
        )
    else:
        output = b.sql(
            "filter",
            [base],
            base.columns,
            base.rows,
            f"select * from (select *, {risky} as x from {{a}} where z <> 0 and v > 4 and k is not null) where x > 2",
        )
    rows(b, output)


def late_values(b: Builder) -> Relation:
    """Return groups with a value that may fail; a filter or a join may remove the failing groups."""
    b.settings |= {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
    source, by = b.table(b.rng.choice(["facts", "pairs", "small"])), b.rng.choice(["k", "k", "k, v % 2"])
    divisor = b.rng.choice(["max(k) - 7", "count(*) - 1", "max(v) - max(v)", "max(k) - 5"])
    value = b.rng.choice([f"sum(v) / ({divisor})", f"sum(v) div ({divisor})", f"sum(v) % ({divisor})"])
    columns = [Column("k", "long", 2), Column("q", "dbl", 9), Column("m", "long", 9), Column("n", "long", 9)]
    having = b.rng.choice(["", "", " having max(k) <> 7", " having count(*) > 1"])
    second_value = b.rng.choice(["max(k)", "max(k)", f"cast({value} as bigint)", "size(collect_list(v))"])
    text = (
        f"select k, cast({value} as double) as q, {second_value} as m, count(*) as n from {{a}} group by {by}{having}"
    )
    output = b.sql("aggregate", [source], columns, 90, text)
    if b.chance(0.5):
        output = b.keep_columns(
            "filter", output, "{a}.where({where})", where=b.rng.choice(["m <> 7", "n > 1", "q > 0", "k % 7 > 0"])
        )
    if b.chance(0.4):
        other = b.keep_columns(
            "filter", b.table("dim"), "{a}.where({where})", where=b.rng.choice(["k <> 7", "k > 1", "v > 3"])
        )
        join_type, hint = (
            b.rng.choice(["join", "left semi join", "left anti join"]),
            b.rng.choice(["/*+ broadcast(b) */", ""]),
        )
        output = b.sql(
            join_type, [output, other], columns, 90, f"select {hint} a.* from {{a}} a {join_type} {{b}} b on a.k = b.k"
        )
    return output


@template("values of groups that are left out", 2)
def values_left_out(b: Builder) -> None:
    groups = late_values(b)
    finish(b, group(b, groups) or groups) if b.chance(0.3) else rows(b, groups)


@template("writes of served sessions that may fail", 2)
def served_writes(b: Builder) -> None:
    output = late_values(b)
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
    output = b.keep_columns("shape", output, shape)
    output = b.keep_columns("select", output, "{a}.select('k', 'q', 'm', 'n')")
    first = "{a}.selectExpr('k', 'cast(v as double) as q', 'v as m', 'v as n')"
    existing = b.python("first", [b.table("small")], output.columns, 97, first)
    mode = b.rng.choice(["overwrite", "overwrite", "append", "error", "ignore"])
    result = {"of": output.index, "kind": "served", "format": "parquet", "mode": mode, "partition_by": []}
    # Spark checks for an existing table after the stages have run, so the first error depends on the plan.
    has_files = mode in {"overwrite", "append"} and b.chance(0.8)
    b.results.append(result | ({"first": existing.index} if has_files else {}))


@template("several results", 3)
def several(b: Builder) -> None:
    table = b.table(b.rng.choice(["pairs", "small", "facts"]))
    shared = by_k(b, table)
    if b.chance(0.25):
        shared = b.keep_columns("localCheckpoint", shared, b.rng.choice(["{a}.localCheckpoint()", "{a}.cache()"]))
    if b.chance(0.3):
        shared = add_steps(b, shared)
    if b.chance(0.25):  # it fails only if certain rows are computed
        columns = ["k", "v", b.rng.choice(["10 div (k - 3) as e", "10 div v as e", "cast(v * 100000000 as int) as e"])]
        output_columns = [shared.column("k"), shared.column("v"), ("e", "long")]
        shared = b.python(
            "project", [shared], output_columns, shared.rows, "{a}.selectExpr({columns})", columns=columns
        )
    if b.chance(0.6):
        rows(b, shared)
    small = b.table(b.rng.choice(["small", "dim"]))
    text = b.rng.choice(["v > 60", "v % 3 = 0", "k % 2 = 0", "v = 7", "k > 50", "k <> 3", "10 div (k - 3) < 5"])
    consumers = {
        "filter": lambda: b.keep_columns("filter", shared, "{a}.where({where})", where=text),
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
        "distinct": lambda: b.keep_columns("distinct", shared, "{a}.distinct()") if shared.is_plain else None,
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
    for consumer in b.rng.sample(list(consumers), b.rng.randint(1, 4)):
        output = consumers[consumer]()
        if output is not None:
            rows(b, output)
    if not b.results:
        rows(b, shared)
    b.rng.shuffle(b.results)


@template("not deterministic, or by an order", 3)
def orders(b: Builder) -> None:
    kind = b.rng.choice(["first", "first", "zip", "now", "cte", "range", "random zip", "number"])
    if kind == "first":
        r = b.python(
            "source: parquet",
            [],
            [Column("k", "long", 330), ("v", "long")],
            600,
            "table({name}).selectExpr('k', 'id as v')",
            name=b.rng.choice(["facts", "large", "pairs"]),
        )
        big = (
            joins.join(
                b, r, b.table("small"), join_type="join", pairs=[(r.column("k"), Column("k", "long", 1))], hint=""
            )
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
    elif kind in {"zip", "random zip"}:
        name = b.rng.choice(["facts", "large", "pairs"])
        columns = b.rng.sample(["s", "x", "d", "a", "st", "id"], 3)
        number = "monotonically_increasing_id()" if kind == "zip" else "concat(spark_partition_id(), '-', rand(5))"
        left = b.python(
            "numbered",
            [],
            [("n", "long"), Column("k", "long", 99)],
            600,
            "table({name}).selectExpr({columns})",
            name=name,
            columns=[f"{number} as n", "k"],
        )
        right = b.python(
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
                [left, right],
                [("k", "long")],
                600,
                "select {columns} from {a} a join {b} b on a.n = b.n",
                columns=["a.k", "b.v", *(f"b.{c}" for c in columns)],
            ),
        )
    elif kind == "number":
        source = b.python("range", [], [("id", "long")], 500, "spark.range(0, 500, 1, 4)")
        numbered = b.python(
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
            b.sql(
                "aggregate",
                [numbered],
                [("k", "long")],
                500,
                "select id % 7 as k, max(n) as n from {a} group by id % 7",
            ),
        )
    elif kind == "now":
        shared = by_k(b, b.table("small"))
        output = b.python(
            "project",
            [shared],
            [*shared.columns, ("now", "ts")],
            shared.rows,
            "{a}.selectExpr('*', 'current_timestamp() as now')",
        )
        for text in ("{a}.where('k > 5')", "{a}.groupBy('now').count()", "{a}.select('k', 'now')"):
            consumer = b.python("current time", [output], [("now", "ts")], 97, text)
            b.results.append({"of": consumer.index, "kind": "rows", "once": "now"})
    elif kind == "cte":
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
        output = b.python(
            "numbered",
            [r],
            [("k", "long"), ("v", "long"), ("p", "int")],
            r.rows,
            f"{{a}}.repartitionByRange({n}, {order}).selectExpr('k', 'v', 'spark_partition_id() as p')",
        )
        if b.chance(0.5):
            output = b.sql(
                "aggregate",
                [output],
                [("p", "int")],
                n,
                "select p, count(*) as n, min(v) as low, max(v) as high from {a} group by p",
            )
        rows(b, output)


@template("recursion and limits", 1.2)
def recursion(b: Builder) -> None:
    if b.chance(0.6):
        output = None
        while output is None:
            output = joins.recursion(b, b.table(b.rng.choice(["small", "dim"])))
        if b.chance(0.4):
            output = group(b, output) or output
        rows(b, output)
        return
    r = b.table(b.rng.choice(["facts", "pairs"]))
    output = b.python("select", [r], [r.column("k"), r.column("v")], r.rows, "{a}.select('k', 'v')")
    output = b.keep_columns(
        "mapInPandas over a sort",
        output,
        "{a}.orderBy({order}).mapInPandas(f.same, 'k bigint, v bigint')",
        order=["v", "k"],
    )
    n = b.rng.choice([1, 9])
    rows(
        b,
        b.sql(
            "unordered limit",
            [output],
            [("n", "long")],
            1,
            f"select count(*) as n, max(v) is not null as m from (select * from {{a}} limit {n})",
        ),
    )


@template("databases", 0.7)
def databases(b: Builder) -> None:
    name = b.rng.choice(SQLITE_NAMES)
    output = b.python(
        "source: sqlite",
        [],
        [Column(name, "long", 200), ("v", "long"), ("s", "str")],
        600,
        "table.lite({name})",
        name=name,
    )
    if b.chance(0.5):
        output = b.sql(
            "aggregate",
            [output],
            [("s", "str"), ("n", "long")],
            5,
            f"select s, count(*) as n, count({name}) as m, sum(v) as t from {{a}} group by s",
        )
    elif b.chance(0.5):
        output = b.sql(
            "aggregate",
            [output],
            [("k", "long")],
            400,
            f"select {name} as k, count(*) as n, sum(v) as t from {{a}} group by {name}",
        )
    rows(b, output)
