"""Databases with error-prone names, types and settings: Penstock reads and writes the same rows as plain Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from penstock.commit import Access, Commit
from penstock.config.options import DYNAMIC_FILTERING_EXACT_KEYS, DYNAMIC_FILTERING_SELECTIVITY
from penstock.connectors import JdbcSink
from penstock.connectors.jdbc.source import JdbcScan
from penstock.errors import JobError, SinkError
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.io.jdbc import JdbcTarget
from tests.connectors.jdbc.test_sink import leftover_tables, numbers
from tests.support.equality import assert_as_plain_spark, assert_same_rows
from tests.support.outcomes import mostly_slow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock import Environment
    from tests.support.services import MariaDb, Postgres, Sqlite


pytestmark = pytest.mark.usefixtures("interpreted")
SMALL_SPLITS = {"execution.batch.adaptive.auto__parallelism.avg__data__volume__per__task": "8 kb"}
ROWS = 3000
SERIES = f"WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS - 1}) "
WITH_NULLS = "case when i % 3 = 0 then null else i end"


def read_by_spark(spark: SparkSession, server: Any, table: Any) -> Any:
    return spark.read.format("jdbc").options(url=server.url, dbtable=table, **server.properties).load()


def same_rows(env: Environment, df: DataFrame) -> Any:
    return assert_as_plain_spark(env, df)


# -- reading in splits -----------------------------------------------------------------------------------------------------

TABLES = {
    # name: columns and their values, the end of the statement, whether it is read in several splits
    "a column rowid": ("rowid int, v int", f"{WITH_NULLS}, i", "", True),
    "a column _rowid_": ("_rowid_ int, v int", f"{WITH_NULLS}, i", "", True),
    "a column oid": ("oid int, v int", f"{WITH_NULLS}, i", "", True),
    "a column ROWID of texts": ("ROWID text, v int", f"'x' || ({WITH_NULLS}), i", "", True),
    "two of these names": ("rowid int, oid int", f"{WITH_NULLS}, i", "", True),
    "all of these names": ("rowid int, oid int, _rowid_ int", f"{WITH_NULLS}, i, {WITH_NULLS}", "", False),
    "a quoted column": ('"RowId" int, v int', f"{WITH_NULLS}, i", "", True),
    "a key named rowid": ("rowid integer primary key, v int", "i * 5 - 700, i", "", True),
    "a text key named rowid": ("rowid text primary key, v int", f"'x' || ({WITH_NULLS}), i", "", True),
    "without row ids": ("k text primary key, v int", "'k' || i, i", "without rowid", False),
    "without row ids, but a column": (
        "k text primary key, rowid int",
        f"'k' || i, {WITH_NULLS}",
        "without\n rowid",
        False,
    ),
    "strict": ("rowid int, v int", f"{WITH_NULLS}, i", "strict", True),
    "negative ids": ("k integer primary key, v int", "i - 2000, i", "", True),
    "far apart": ("k integer primary key, v int", "i * i * 1000000007, i", "", True),
    "a generated column": ("v int, rowid int as (nullif(v % 3, 0))", "i", "", True),
}


@pytest.mark.thorough
@pytest.mark.parametrize("case", TABLES)
def test_sqlite_tables_with_unusual_row_ids_are_read_once(
    make_env: Callable[..., Environment], spark: SparkSession, sqlite: Sqlite, case: str
) -> None:
    columns, values, suffix, is_split = TABLES[case]
    name = f'"{case}"'
    names = "v" if case == "a generated column" else ", ".join(part.split()[0] for part in columns.split(", "))
    sqlite.sql(
        f"create table {name} ({columns}) {suffix}; insert into {name} ({names}) {SERIES} select {values} from n"
    )
    env = make_env(**SMALL_SPLITS)
    assert len(same_rows(env, read_by_spark(spark, sqlite, name))) == ROWS
    assert (env.last_job.vertices[0].tasks > 1) == is_split


@pytest.mark.parametrize(
    ("conditions", "wrong_rows"),
    [(["v < 100", "v > 100"], 1), (["v <= 100", "v >= 100"], 1), (["v < 9", "v < 10", "v >= 10"], 9)],
)
def test_splits_that_do_not_read_each_row_once_fail_the_job(
    monkeypatch: pytest.MonkeyPatch,
    make_env: Callable[..., Environment],
    spark: SparkSession,
    sqlite: Sqlite,
    conditions: list[str],
    wrong_rows: int,
) -> None:
    sqlite.sql(f"drop table if exists gaps; create table gaps (v int); insert into gaps {SERIES} select i from n")

    def divide(self: Any, parallelism: int) -> int:
        self._conditions = conditions
        return len(conditions)

    monkeypatch.setattr(JdbcScan, "divide", divide)
    with pytest.raises(JobError, match=rf"the splits of gaps would not read {wrong_rows} of its rows exactly once"):
        make_env(**SMALL_SPLITS).collect(read_by_spark(spark, sqlite, "gaps"))


@pytest.mark.thorough
@pytest.mark.parametrize("table", ['"dot.t"', "MIXED_case", "seen", "`Ticks`"])
def test_unusual_table_names_of_sqlite(
    make_env: Callable[..., Environment], spark: SparkSession, sqlite: Sqlite, table: str
) -> None:
    """A name with a dot is not a qualified name, and names are case-insensitive."""
    created = {"MIXED_case": "mixed_CASE", "seen": "to_see"}.get(table, table)
    sqlite.sql(
        f"drop table if exists t; create table t (a int); create table {created} (rowid int, v int); insert into {created} {SERIES} select {WITH_NULLS}, i from n"
    )
    if table == "seen":
        sqlite.sql("create view seen as select * from to_see")
    assert len(same_rows(make_env(**SMALL_SPLITS), read_by_spark(spark, sqlite, table))) == ROWS


@pytest.mark.parametrize("kind", ["postgres", "sqlite", "mariadb"])
@pytest.mark.parametrize("predicate", ["v < 100", "v < 100 or v is null", "k is null"])
def test_a_single_user_predicate_filters_all_splits(
    request: pytest.FixtureRequest, make_env: Callable[..., Environment], spark: SparkSession, kind: str, predicate: str
) -> None:
    server = request.getfixturevalue(kind)
    server.sql(
        f"drop table if exists sliced; create table sliced (id int primary key, k int, v int); insert into sliced (id, k, v) {SERIES if kind != 'mariadb' else ''}"
        + (
            f"select i, {WITH_NULLS}, i from n"
            if kind != "mariadb"
            else f"select seq, if(seq % 3 = 0, null, seq), seq from seq_0_to_{ROWS - 1}"
        )
    )
    df = spark.read.jdbc(server.url, "sliced", predicates=[predicate], properties=server.properties)
    assert len(same_rows(make_env(**SMALL_SPLITS), df)) < ROWS


@pytest.mark.parametrize("pages", [True, False])
@pytest.mark.parametrize(
    "table", ["child_with_nulls", "pairs", "numbers", "days", "uuids", "padded", "floats", "small", "times", "decimals"]
)
def test_splits_of_postgres_tables_read_each_row_once(
    make_env: Callable[..., Environment],
    spark: SparkSession,
    postgres: Postgres,
    monkeypatch: pytest.MonkeyPatch,
    table: str,
    pages: bool,
) -> None:
    if not pages:
        monkeypatch.setattr("penstock.connectors.jdbc.postgres._TID_SCAN_VERSION", 1 << 30)
    if postgres.sql("select to_regclass('child_with_nulls') is null") == "t":
        series = f"generate_series(0, {ROWS - 1}) i"
        postgres.sql(f"""
            create table child_with_nulls (k int not null, v int); insert into child_with_nulls select i, i from {series};
            create table grandchild () inherits (child_with_nulls);
            alter table grandchild alter k drop not null; insert into grandchild select {WITH_NULLS}, i from {series};
            create type pair as (a int, b int);
            create table pairs as select (case i % 3 when 0 then null else i end, case i % 2 when 0 then null else i end)::pair::text as t, i as v from {series};
            create table numbers as select {WITH_NULLS} as k, i as v from {series};
            create table days as select case i % 9 when 0 then 'infinity'::date when 1 then null else '2026-01-01'::date + i end as k from {series};
            create table uuids as select md5(i::text)::uuid as k from {series};
            create table padded as select ('x' || i % 50)::char(9) as k from {series};
            create table floats as select case i % 5 when 0 then 'nan'::float8 when 1 then null else i / 7.0 end as k from {series};
            create table small as select {WITH_NULLS}::smallint as k from {series};
            create table times as select '2026-03-29 00:00:00+00'::timestamptz + i * interval '7 min' as k from {series};
            create table decimals as select (i / 8.0)::numeric(12,4) as k from {series};
            analyze;
        """)
    df = read_by_spark(spark, postgres, table)
    rows = same_rows(make_env(**SMALL_SPLITS), df)
    assert len(rows) == (2 * ROWS if table == "child_with_nulls" else ROWS)


def test_mariadb_keys_with_special_characters_are_read_once(
    make_env: Callable[..., Environment], spark: SparkSession, mariadb: MariaDb
) -> None:
    mariadb.sql(f"""
        create table odd_texts (k varchar(40) primary key, v int);
        insert into odd_texts select concat(elt(seq % 6 + 1, char(92), char(39), '%', 'x', ' ', 'Z'), seq), seq from seq_0_to_{ROWS - 1};
        analyze table odd_texts
    """)
    assert len(same_rows(make_env(**SMALL_SPLITS), read_by_spark(spark, mariadb, "odd_texts"))) == ROWS


# -- dynamic filters in the database ---------------------------------------------------------------------------------------

POSTGRES_TYPES = {
    "e": ("mood", "(array['sad', 'ok', 'glad'])[i % 3 + 1]::mood"),
    "u": ("uuid", "md5((i % 50)::text)::uuid"),
    "j": ("json", "('{\"a\": ' || i % 50 || '}')::json"),
    "jb": ("jsonb", "('{\"a\": ' || i % 50 || '}')::jsonb"),
    "b": ("bit(8)", "(i % 50)::bit(8)"),
    "vb": ("bit varying(8)", "(i % 50)::bit(8)::bit varying(8)"),
    "ip": ("inet", "('10.0.0.' || i % 50)::inet"),
    "mac": ("macaddr", "('08:00:2b:01:02:' || lpad(to_hex(i % 50), 2, '0'))::macaddr"),
    "x": ("xml", "('<a>' || i % 50 || '</a>')::xml"),
    "n": ("name", "('n' || i % 50)::name"),
    "iv": ("interval", "i % 50 * interval '1 day'"),
    "ts": ("tsvector", "('w' || i % 50)::tsvector"),
    "pt": ("point", "point(i % 50, 1)"),
    "r": ("int4range", "int4range(i % 50, i % 50 + 3)"),
    "f4": ("real", "(i % 50) / 10.0::real"),
    "f8": ("double precision", "case i % 50 when 1 then 'nan' when 2 then 'infinity' else (i % 50) / 10.0::float8 end"),
    "num": ("numeric", "(i % 50) * 1e-21"),
    "dec": ("numeric(10,2)", "(i % 50) / 4.0"),
    "wide": ("numeric(38,0)", "(i % 50) * 1e30"),
    "c": ("char(6)", "'c' || i % 50"),
    "v": ("varchar(9)", "'v' || i % 50"),
    "t": ("text", "(array['a', 'B', 'b', 'Z', 'z', '_', 'É', 'a\\b', '''', ''])[i % 10 + 1]"),
    "icu": ('text collate "en-x-icu"', "(array['a', 'B', 'b', 'Z', 'z', '_', 'É', 'A', '-', '0'])[i % 10 + 1]"),
    "i2": ("smallint", "i % 50"),
    "i4": ("int", "nullif(i % 50, 7)"),
    "i8": ("bigint", "(i % 50) * 1000000007::bigint"),
    "o": ("oid", "i % 50"),
    "bo": ("boolean", "i % 2 = 0"),
    "d": ("date", "case i % 50 when 1 then 'infinity'::date else '1500-03-01'::date + i % 50 end"),
    "tz": ("timestamptz", "'2026-03-29 00:30:00+00'::timestamptz + i % 50 * interval '20 min'"),
    "tm": ("timestamp", "'2026-03-29 00:30:00'::timestamp + i % 50 * interval '20 min'"),
}
MARIADB_TYPES = {
    "e": ("enum('sad','ok','glad')", "elt(seq % 3 + 1, 'sad', 'ok', 'glad')"),
    "s": ("set('a','b')", "elt(seq % 3 + 1, 'a', 'b', 'a,b')"),
    "f4": ("float", "seq % 50 / 10"),
    "f8": ("double", "seq % 50 / 10"),
    "c": ("char(6)", "concat('c', seq % 50)"),
    "v": ("varchar(9) collate utf8mb4_general_ci", "elt(seq % 8 + 1, 'a', 'A', 'B', 'b ', 'Z', '_', 'É', '\\\\x')"),
    "l": ("varchar(9) character set latin1", "concat('l', seq % 50)"),
    "i": ("int", "nullif(seq % 50, 7)"),
    "ub": ("bigint unsigned", "18446744073709551615 - seq % 50"),
    "de": ("decimal(10,2)", "seq % 50 / 4"),
    "t1": ("tinyint(1)", "seq % 2"),
    "bi": ("bit(1)", "seq % 2"),
    "y": ("year", "2000 + seq % 50"),
    "d": ("date", "date'2026-01-01' + interval seq % 50 day"),
    "dt": ("datetime(6)", "timestamp'2026-03-29 00:30:00' + interval seq % 50 * 20 minute"),
    "bn": ("varbinary(9)", "concat('b', seq % 50)"),
    "uu": ("uuid", "concat('00000000-0000-0000-0000-0000000000', lpad(seq % 50, 2, '0'))"),
    "i6": ("inet6", "concat('::', seq % 50)"),
    "js": ("json", "concat('{\"a\": ', seq % 50, '}')"),
}
SQLITE_TYPES = {
    "i": ("int", "case i % 5 when 0 then 1.5 when 1 then 'x' else i % 50 end"),
    "t": ("text", "case i % 3 when 0 then i % 50 else 't' || i % 50 end"),
    "r": ("real", "(i % 50) / 10.0"),
    "d": ("decimal(10,2)", "(i % 50) / 4.0"),
    "k": ("integer primary key", "i"),
    "nc": ("varchar(9) collate nocase", "substr('aAbBcC', i % 6 + 1, 1)"),
}
KEYS = [
    *[("postgres", column, "values") for column in POSTGRES_TYPES],
    *[("mariadb", column, "values") for column in MARIADB_TYPES],
    *[("sqlite", column, "values") for column in SQLITE_TYPES],
    *[("postgres", column, "bounds") for column in ("dec", "num", "f4", "c", "t", "icu", "i4", "i8", "tz", "u")],
    *[("mariadb", column, "bounds") for column in ("f4", "v", "l", "ub", "de", "dt")],
    *[("sqlite", column, "bounds") for column in ("i", "nc")],
]


@pytest.fixture(scope="module")
def typed(request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A function that maps the kind of a server to the server with its table `typed`, and a Parquet copy of the table."""
    tables = {}

    def create(kind: Any) -> Any:
        if kind not in tables:
            server = request.getfixturevalue(kind)
            types = {"postgres": POSTGRES_TYPES, "mariadb": MARIADB_TYPES, "sqlite": SQLITE_TYPES}[kind]
            columns = ", ".join(f"{name} {type_name}" for name, (type_name, _) in types.items())
            values = ", ".join(value for _, value in types.values())
            create_type = "create type mood as enum ('sad', 'ok', 'glad');" if kind == "postgres" else ""
            rows = {"postgres": "from generate_series(0, 599) i", "mariadb": "from seq_0_to_599", "sqlite": "from n"}[
                kind
            ]
            series = SERIES.replace(str(ROWS - 1), "599") if kind == "sqlite" else ""
            server.sql(
                f"{create_type} create table typed ({columns}); insert into typed {series} select {values} {rows}"
            )
            copy = str(tmp_path_factory.mktemp(kind) / "copy")
            read_by_spark(spark, server, "typed").coalesce(1).write.parquet(copy)
            tables[kind] = server, copy
        return tables[kind]

    return create


@pytest.mark.parametrize(("kind", "column", "filter_form"), mostly_slow(KEYS, 4))
def test_join_keys_of_every_type_match_as_in_spark(
    make_env: Callable[..., Environment], spark: SparkSession, typed: Any, kind: Any, column: Any, filter_form: Any
) -> None:
    """A join by a key of any type returns the same rows as plain Spark."""
    server, path = typed(kind)
    copy = spark.read.parquet(path)
    keys = copy.select(F.col(column).alias("key")).where(F.xxhash64(column) % 7 != 0).distinct()
    if dict(copy.dtypes)[column] == "string":
        keys = keys.union(spark.sql("select explode(array('no such value', 'B', '{')) as key"))
    exact = 10_000 if filter_form == "values" else 1
    env = make_env(**SMALL_SPLITS, **{DYNAMIC_FILTERING_SELECTIVITY.key: 1.0, DYNAMIC_FILTERING_EXACT_KEYS.key: exact})

    def count_matches(rows: Any) -> Any:
        return rows.join(keys, F.col(column) == F.col("key")).groupBy("key").agg(F.count("*"))

    rows = env.collect(count_matches(read_by_spark(spark, server, "typed").select(column)))
    assert_same_rows(rows, count_matches(copy.select(column)).collect())
    assert rows


# -- writing ---------------------------------------------------------------------------------------------------------------

LEVELS = ["NONE", "none", "READ_UNCOMMITTED", "READ_COMMITTED", "REPEATABLE_READ", "SERIALIZABLE"]


@pytest.mark.parametrize("kind", ["postgres", "mariadb", "sqlite"])
@pytest.mark.parametrize("level", mostly_slow(LEVELS))
def test_each_isolation_level_writes_all_rows(
    request: pytest.FixtureRequest, env: Environment, spark: SparkSession, kind: str, level: Any
) -> None:
    server = request.getfixturevalue(kind)
    server.sql("drop table if exists isolated")
    key = "isolationlevel" if level == "none" else "isolationLevel"
    properties = server.properties | {key: level.upper(), "batchsize": "50"}
    env.write(numbers(spark), JdbcSink(server.url, "isolated", properties))
    env.execute()
    assert_same_rows(
        read_by_spark(spark, server, "isolated").select("id", "v", "s").collect(), numbers(spark).collect()
    )
    assert leftover_tables(server) == []


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["postgres", "mariadb", "sqlite"])
@pytest.mark.parametrize("level", ["NONE", "READ_COMMITTED", "SERIALIZABLE"])
def test_rows_of_a_repeated_task_are_written_once(
    request: pytest.FixtureRequest,
    env: Environment,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    level: str,
) -> None:
    """Spark repeats a task if the message of its commit was lost. Here every task writes twice."""
    server = request.getfixturevalue(kind)
    server.sql("drop table if exists repeated")
    append = JdbcTarget.append

    def append_twice(self: Any, *arguments: Any) -> None:
        append(self, *arguments)
        append(self, *arguments)

    monkeypatch.setattr(JdbcTarget, "append", append_twice)
    env.write(
        numbers(spark),
        JdbcSink(server.url, "repeated", server.properties | {"isolationLevel": level, "batchsize": "50"}),
    )
    env.execute()
    assert_same_rows(
        read_by_spark(spark, server, "repeated").select("id", "v", "s").collect(), numbers(spark).collect()
    )


RUNS = {
    # the steps of two runs with the same token, each "run action"
    "sequential": "a open, a write, a commit, b open, b write, b commit",
    "concurrent": "a open, b open, a write, b write, a commit, b commit",
    "the second commits first": "a open, b open, a write, b write, b commit, a commit",
    "the second starts late": "a open, a write, b open, b write, a commit, b commit",
    "the second overtakes": "a open, a write, b open, b write, b commit, a commit",
    "the second aborts": "a open, a write, b open, b write, b abort, a commit",
    "the first aborts": "a open, a write, b open, b write, a abort, b commit",
    "the first disappears": "a open, a write, b open, b write, b commit",
    "the second writes after the end": "a open, b open, a write, a commit, b write, b commit",
    "a third run": "a open, a write, b open, b write, b commit, c open, c write, c commit",
}


@pytest.mark.parametrize("kind", ["postgres", "mariadb", "sqlite"])
@pytest.mark.parametrize("case", mostly_slow(RUNS))
def test_rows_of_a_token_are_written_once_by_any_of_its_runs(
    request: pytest.FixtureRequest, spark: SparkSession, kind: str, case: Any
) -> None:
    server = request.getfixturevalue(kind)
    server.sql("drop table if exists tokens")
    sink = JdbcSink(server.url, "tokens", server.properties, token=case)
    jobs = {}
    for step in RUNS[case].split(", "):
        run, action = step.split()
        match action:
            case "open":
                jobs[run] = sink.open(spark)
            case "write":
                jobs[run].write(numbers(spark, partitions=2))
            case "commit":
                committing = Commit(Access(Bridge(spark)), run, case, [jobs[run]])
                committing.run()
                committing.finish()
            case "abort":
                jobs[run].abort()
    assert_same_rows(read_by_spark(spark, server, "tokens").select("id", "v", "s").collect(), numbers(spark).collect())
    assert leftover_tables(server) == []


LEDGER_KEYS = {
    # constraint in the user's own ledger table: whether it makes a token unique
    ", primary key (target, token)": True,
    ", unique (token)": True,
    "": False,
    ", day int, unique (target, token, day)": False,
}


@pytest.mark.parametrize("kind", ["postgres", "mariadb", "sqlite"])
@pytest.mark.parametrize("key", LEDGER_KEYS)
def test_a_token_needs_a_ledger_with_a_unique_key(
    request: pytest.FixtureRequest, spark: SparkSession, kind: str, key: str
) -> None:
    server = request.getfixturevalue(kind)
    server.sql("drop table if exists penstock_commits")
    server.sql(f"create table penstock_commits (target varchar(200) not null, token varchar(200) not null{key})")
    server.sql("create index penstock_plain on penstock_commits (token)")
    sink = JdbcSink(server.url, "tokens", server.properties, token="monday")
    try:
        if LEDGER_KEYS[key]:
            sink.open(spark)
        else:
            with pytest.raises(SinkError, match="has no unique key of target and token"):
                sink.open(spark)
        JdbcSink(server.url, "tokens", server.properties).open(spark)
    finally:
        server.sql("drop table penstock_commits")


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["postgres", "mariadb", "sqlite"])
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_cached_reader_sees_the_same_rows_as_after_a_write_by_spark(
    request: pytest.FixtureRequest, env: Environment, spark: SparkSession, kind: str, mode: str
) -> None:
    server = request.getfixturevalue(kind)
    counts = []
    for name in ("by_spark", "by_us"):
        server.sql(f"drop table if exists {name}; create table {name} (id int, v bigint, s varchar(9))")
        df = read_by_spark(spark, server, name).cache()
        assert df.count() == 0
        if name == "by_spark":
            numbers(spark).write.format("jdbc").options(url=server.url, dbtable=name, **server.properties).mode(
                mode
            ).save()
        else:
            env.write(numbers(spark), JdbcSink(server.url, name, server.properties, mode=mode))
            env.execute()
        counts.append(df.count())
        df.unpersist()
    assert counts[0] == counts[1]


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["postgres", "mariadb", "sqlite"])
def test_columns_are_matched_by_name(
    request: pytest.FixtureRequest, env: Environment, spark: SparkSession, kind: str
) -> None:
    """As in Spark's JDBC writer, order and case do not matter, and an unknown column is an error."""
    server = request.getfixturevalue(kind)
    server.sql("drop table if exists named; create table named (id int, v bigint, s varchar(9))")
    env.write(numbers(spark).selectExpr("s as S", "id as Id"), JdbcSink(server.url, "named", server.properties))
    env.execute()
    assert_same_rows(
        read_by_spark(spark, server, "named").collect(),
        numbers(spark).withColumn("v", F.lit(None).cast("bigint")).collect(),
    )
    env.write(numbers(spark).withColumn("more", F.lit(1)), JdbcSink(server.url, "named", server.properties))
    with pytest.raises(SinkError, match="more that the table does not have"):
        env.execute()
    env._outputs.take()
