"""Writing into real databases: all or nothing, once, and by key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from penstock.connectors import JdbcSink
from penstock.errors import JobError, SinkError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from penstock import Environment
    from tests.services import MariaDb, Postgres


KINDS = ["postgres", "mariadb", "sqlite"]
ROWS = 5000


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def rows_of(server: Any, table: Any) -> Any:
    return server.sql(f"select count(*), count(distinct id), sum(v) from {table}").replace("\t", "|").replace(".0", "")


def numbers(spark: SparkSession, start: int = 0, partitions: int = 6) -> Any:
    return spark.range(start, start + ROWS, 1, partitions).selectExpr(
        "cast(id as int) as id", "id * 2 as v", "concat('x', id) as s"
    )


def write(env: Environment, df: DataFrame, server: Any, table: Any, **options: Any) -> Any:
    env.write(df, JdbcSink(server.url, table, server.properties, **options))
    return env.execute(table)


def tables(server: Any, like: Any) -> Any:
    listing = {
        "postgresql": "select tablename from pg_tables where tablename like '{}'",
        "mysql": "select table_name from information_schema.tables where table_name like '{}'",
        "sqlite": "select name from sqlite_master where name like '{}'",
    }
    return server.sql(listing[server.url.split(":")[1]].format(like)).split()


def left_behind(server: Any) -> Any:
    return [name for name in tables(server, "penstock%") if name != "penstock_commits"]


def test_append_overwrite_and_upsert(env: Environment, spark: SparkSession, server: Any) -> None:
    server.sql("drop table if exists written")
    write(env, numbers(spark), server, "written")
    assert rows_of(server, "written") == f"{ROWS}|{ROWS}|{ROWS * (ROWS - 1)}"
    write(env, numbers(spark, ROWS), server, "written")
    assert rows_of(server, "written").startswith(f"{2 * ROWS}|{2 * ROWS}|")
    write(env, numbers(spark), server, "written", mode="overwrite")
    assert rows_of(server, "written").startswith(f"{ROWS}|{ROWS}|")
    server.sql("create unique index by_id on written (id)")
    changed = numbers(spark, ROWS // 2).withColumn("v", F.lit(1).cast("bigint")).withColumnRenamed("id", "ID")
    write(env, changed, server, "written", mode="upsert", key=["ID"])
    kept = sum(2 * i for i in range(ROWS // 2))
    assert rows_of(server, "written") == f"{ROWS + ROWS // 2}|{ROWS + ROWS // 2}|{kept + ROWS}"
    assert left_behind(server) == []


@pytest.mark.parametrize(
    ("table", "key", "words"),
    [
        ("id int primary key, v bigint", "id", None),
        ("id int, v bigint, unique (id, v)", ("v", "ID"), None),
        ("id int primary key, v bigint, w int unique", "id", None),
        ("id serial, w int unique, v bigint", "w", "the rows for table keyed have no column w"),
        ("id int, v bigint", "id", "no unique index on exactly id"),
        ("id int, v bigint, unique (id, v)", "id", "no unique index on exactly id"),
        ("id varchar(9) not null, v bigint, unique (id(3))", "id", "no unique index on exactly id"),
        ("id int primary key, v bigint, unique (v, id)", "id", None),
        ("id int primary key, v bigint unique", "id", "it has a unique index on v"),
        ("id int primary key, v varchar(9), unique (v(3))", "id", "it has a unique index on v"),
        ("id int primary key, v bigint, w int not null default 0 unique", "id", "it has a unique index on w"),
        ("id int primary key, v bigint, w int as (v % 2) unique", "id", "it has a unique index on w"),
        ("id int primary key, v bigint, w int auto_increment unique", "id", None),
    ],
)
def test_an_upsert_replaces_rows_of_its_key_only(
    env: Environment, spark: SparkSession, mariadb: MariaDb, table: str, key: Any, words: str | None
) -> None:
    """MariaDB goes by any unique index, whatever key is named; where that could be another, nothing is written."""
    mariadb.sql(f"drop table if exists keyed; create table keyed ({table}); insert into keyed (id, v) values (1, 99)")
    rows = spark.sql("select 1 as id, 99L as v union all select 2, 3")
    if words is None:
        write(env, rows, mariadb, "keyed", mode="upsert", key=key)
        assert mariadb.sql("select id, v from keyed order by id").split() == ["1", "99", "2", "3"]
        return
    with pytest.raises(SinkError, match=words):
        write(env, rows, mariadb, "keyed", mode="upsert", key=key)
    env._outputs.take()
    assert mariadb.sql("select count(*) from keyed") == "1"


@pytest.mark.parametrize(
    ("strict", "words"),
    [(True, "Field 'w' doesn't have a default value"), (False, "it has a unique index on w")],
)
def test_a_column_that_a_lax_mariadb_fills_with_zero(
    env: Environment, spark: SparkSession, mariadb: MariaDb, strict: bool, words: str
) -> None:
    """All rows would be equal in it, and replace each other; if it is strict, it refuses such rows itself."""
    mariadb.sql("drop table if exists keyed; create table keyed (id int primary key, v int, w int not null unique)")
    mode = "STRICT_TRANS_TABLES" if strict else ""
    url = f"{mariadb.url}{'&' if '?' in mariadb.url else '?'}sessionVariables=sql_mode='{mode}'&jdbcCompliantTruncation=false"
    env.write(
        spark.range(5).selectExpr("id", "id as v"), JdbcSink(url, "keyed", mariadb.properties, "upsert", key="id")
    )
    with pytest.raises((JobError, SinkError), match=words):
        env.execute()
    env._outputs.take()
    assert mariadb.sql("select count(*) from keyed") == "0"


def test_rows_without_the_key_are_refused(env: Environment, spark: SparkSession, server: Any) -> None:
    server.sql("drop table if exists keyed")
    server.sql("create table keyed (id int primary key, v int)")
    with pytest.raises(SinkError, match="the rows for table keyed have no column id"):
        write(env, spark.sql("select 5 as v"), server, "keyed", mode="upsert", key="id")
    env._outputs.take()


def test_a_token_is_written_once(env: Environment, spark: SparkSession, server: Any) -> None:
    server.sql("drop table if exists once")
    for _ in range(2):
        write(env, numbers(spark), server, "once", token="monday")
    assert rows_of(server, "once").startswith(f"{ROWS}|{ROWS}|")
    write(env, numbers(spark, ROWS), server, "once", token="tuesday")
    assert rows_of(server, "once").startswith(f"{2 * ROWS}|{2 * ROWS}|")


def test_the_properties_tell_the_number_of_tasks(env: Environment, spark: SparkSession, server: Any) -> None:
    server.sql("drop table if exists of_three")
    properties = {**server.properties, "sink.parallelism": "3"}
    env.write(numbers(spark), JdbcSink(server.url, "of_three", properties))
    env.execute()
    assert env.last_job.vertices[-1].tasks == 3
    assert rows_of(server, "of_three").startswith(f"{ROWS}|{ROWS}|")


def test_a_failed_job_leaves_nothing(env: Environment, spark: SparkSession, server: Any) -> None:
    server.sql("drop table if exists never")
    broken = numbers(spark).withColumn("v", F.expr("if(id = 4321, raise_error('bad row'), v)"))
    with pytest.raises(JobError, match="bad row"):
        write(env, broken, server, "never")
    assert left_behind(server) == []
    assert tables(server, "never") == []


def test_a_task_that_wrote_twice_counts_once(env: Environment, spark: SparkSession, postgres: Postgres) -> None:
    """Rows that another attempt of a task has committed are there when the job commits."""
    from penstock.connectors.jdbc.postgres import PostgresDialect

    postgres.sql("""
        drop table if exists target; create table target (id int, v int);
        drop table if exists staged; create table staged (id int, v int, penstock_task int, penstock_attempt bigint);
    """)
    for attempt, task in enumerate((0, 0, 1, 1, 1)):
        postgres.sql(
            f"insert into staged select i, i, {task}, {attempt} from generate_series({task} * 10, {task} * 10 + 9) i"
        )
    postgres.sql(PostgresDialect().copy("staged", "target", ["id", "v"], [], ("penstock_task", "penstock_attempt")))
    assert postgres.sql("select count(*), count(distinct id) from target") == "20|20"


@pytest.mark.thorough
@pytest.mark.parametrize(("cap", "most"), [(1, 1), (None, 2)])
def test_connections_are_capped(
    make_env: Callable[..., Environment], spark: SparkSession, postgres: Postgres, cap: int | None, most: int
) -> None:
    """The server counts the tasks' connections, and the one that Spark's writer has in the driver meanwhile."""
    env = make_env()
    with postgres.connections() as counted:
        slowly = numbers(spark, partitions=6).withColumn("s", F.expr("sha2(repeat(s, 60000), 512)"))
        write(env, slowly, postgres, "capped", max_connections=cap, mode="overwrite")
    assert rows_of(postgres, "capped").startswith(f"{ROWS}|{ROWS}|")
    assert counted.most == most + 1
    assert counted.opened >= (6 if cap is None else 1) + 2  # before and after the tasks', one of the driver


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mode": "merge"}, "mode 'merge' is not known"),
        ({"mode": "upsert"}, "upsert needs a key"),
        ({"key": ["id"]}, "upsert needs a key"),
        ({"url": "jdbc:oracle:thin:@h:1/x"}, "PostgreSQL, MySQL"),
    ],
)
def test_bad_arguments(options: dict[str, Any], words: str) -> None:
    given = {"url": "jdbc:postgresql://h/d", "table": "t"} | options
    with pytest.raises(SinkError, match=words):
        JdbcSink(**given)


def test_bad_targets(env: Environment, spark: SparkSession, postgres: Postgres) -> None:
    with pytest.raises(SinkError, match="password authentication failed") as raised:
        env.write(numbers(spark), JdbcSink(postgres.url, "t", postgres.properties | {"password": "not-this"}))
        env.execute()
    assert "not-this" not in str(raised.value)
    env._outputs.take()
    with pytest.raises(SinkError, match="upsert needs a table"):
        env.write(numbers(spark), JdbcSink(postgres.url, "no_such", postgres.properties, mode="upsert", key=["id"]))
        env.execute()
    env._outputs.take()
