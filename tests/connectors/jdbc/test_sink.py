"""Writes to real databases: atomic, once per token, and upserts by key."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from penstock.connectors import JdbcSink
from penstock.errors import JobError, SinkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock import Environment
    from tests.support.services import MariaDb, Postgres


KINDS = ["postgres", "mariadb", "sqlite"]
ROWS = 5000


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def summarize_rows(server: Any, table: Any) -> Any:
    return server.sql(f"select count(*), count(distinct id), sum(v) from {table}").replace("\t", "|").replace(".0", "")


def numbers(spark: SparkSession, start: int = 0, partitions: int = 6) -> Any:
    return spark.range(start, start + ROWS, 1, partitions).selectExpr(
        "cast(id as int) as id", "id * 2 as v", "concat('x', id) as s"
    )


def write(env: Environment, df: DataFrame, server: Any, table: Any, **options: Any) -> Any:
    env.write(df, JdbcSink(server.url, table, server.properties, **options))
    return env.execute(table)


def tables(server: Any, pattern: Any) -> Any:
    listing = {
        "postgresql": "select tablename from pg_tables where tablename like '{}'",
        "mysql": "select table_name from information_schema.tables where table_name like '{}'",
        "sqlite": "select name from sqlite_master where name like '{}'",
    }
    return server.sql(listing[server.url.split(":")[1]].format(pattern)).split()


def leftover_tables(server: Any) -> Any:
    return [name for name in tables(server, "penstock%") if name != "penstock_commits"]


def test_append_overwrite_and_upsert_write_the_expected_rows(
    env: Environment, spark: SparkSession, server: Any
) -> None:
    server.sql("drop table if exists written")
    write(env, numbers(spark), server, "written")
    assert summarize_rows(server, "written") == f"{ROWS}|{ROWS}|{ROWS * (ROWS - 1)}"
    write(env, numbers(spark, ROWS), server, "written")
    assert summarize_rows(server, "written").startswith(f"{2 * ROWS}|{2 * ROWS}|")
    write(env, numbers(spark), server, "written", mode="overwrite")
    assert summarize_rows(server, "written").startswith(f"{ROWS}|{ROWS}|")
    server.sql("create unique index by_id on written (id)")
    changed = numbers(spark, ROWS // 2).withColumn("v", F.lit(1).cast("bigint")).withColumnRenamed("id", "ID")
    write(env, changed, server, "written", mode="upsert", key=["ID"])
    unchanged_sum = sum(2 * i for i in range(ROWS // 2))
    assert summarize_rows(server, "written") == f"{ROWS + ROWS // 2}|{ROWS + ROWS // 2}|{unchanged_sum + ROWS}"
    assert leftover_tables(server) == []


@pytest.mark.parametrize(
    ("table", "key", "message"),
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
def test_an_upsert_needs_a_unique_index_on_exactly_its_key(
    env: Environment, spark: SparkSession, mariadb: MariaDb, table: str, key: Any, message: str | None
) -> None:
    """MariaDB upserts by any unique index, so another unique index that new rows could violate is an error."""
    mariadb.sql(f"drop table if exists keyed; create table keyed ({table}); insert into keyed (id, v) values (1, 99)")
    rows = spark.sql("select 1 as id, 99L as v union all select 2, 3")
    if message is None:
        write(env, rows, mariadb, "keyed", mode="upsert", key=key)
        assert mariadb.sql("select id, v from keyed order by id").split() == ["1", "99", "2", "3"]
        return
    with pytest.raises(SinkError, match=message):
        write(env, rows, mariadb, "keyed", mode="upsert", key=key)
    env._outputs.take()
    assert mariadb.sql("select count(*) from keyed") == "1"


@pytest.mark.parametrize(
    ("strict", "message"),
    [(True, "Field 'w' doesn't have a default value"), (False, "it has a unique index on w")],
)
def test_a_unique_column_that_mariadb_would_fill_with_zero_is_an_error(
    env: Environment, spark: SparkSession, mariadb: MariaDb, strict: bool, message: str
) -> None:
    """The rows would replace each other, because w would be 0 in all of them. In strict mode MariaDB refuses the rows."""
    mariadb.sql("drop table if exists keyed; create table keyed (id int primary key, v int, w int not null unique)")
    mode = "STRICT_TRANS_TABLES" if strict else ""
    url = f"{mariadb.url}{'&' if '?' in mariadb.url else '?'}sessionVariables=sql_mode='{mode}'&jdbcCompliantTruncation=false"
    env.write(
        spark.range(5).selectExpr("id", "id as v"), JdbcSink(url, "keyed", mariadb.properties, "upsert", key="id")
    )
    with pytest.raises((JobError, SinkError), match=message):
        env.execute()
    env._outputs.take()
    assert mariadb.sql("select count(*) from keyed") == "0"


def test_an_upsert_of_rows_without_the_key_column_is_an_error(
    env: Environment, spark: SparkSession, server: Any
) -> None:
    server.sql("drop table if exists keyed")
    server.sql("create table keyed (id int primary key, v int)")
    with pytest.raises(SinkError, match="the rows for table keyed have no column id"):
        write(env, spark.sql("select 5 as v"), server, "keyed", mode="upsert", key="id")
    env._outputs.take()


def test_rows_of_a_token_are_written_once(env: Environment, spark: SparkSession, server: Any) -> None:
    server.sql("drop table if exists once")
    for _ in range(2):
        write(env, numbers(spark), server, "once", token="monday")
    assert summarize_rows(server, "once").startswith(f"{ROWS}|{ROWS}|")
    write(env, numbers(spark, ROWS), server, "once", token="tuesday")
    assert summarize_rows(server, "once").startswith(f"{2 * ROWS}|{2 * ROWS}|")


def test_sink_parallelism_can_be_set_in_the_properties(env: Environment, spark: SparkSession, server: Any) -> None:
    server.sql("drop table if exists of_three")
    properties = {**server.properties, "sink.parallelism": "3"}
    env.write(numbers(spark), JdbcSink(server.url, "of_three", properties))
    env.execute()
    assert env.last_job.vertices[-1].tasks == 3
    assert summarize_rows(server, "of_three").startswith(f"{ROWS}|{ROWS}|")


def test_a_failed_job_leaves_no_tables(env: Environment, spark: SparkSession, server: Any) -> None:
    server.sql("drop table if exists never")
    failing = numbers(spark).withColumn("v", F.expr("if(id = 4321, raise_error('bad row'), v)"))
    with pytest.raises(JobError, match="bad row"):
        write(env, failing, server, "never")
    assert leftover_tables(server) == []
    assert tables(server, "never") == []


def test_rows_of_a_single_attempt_of_each_task_are_copied(
    env: Environment, spark: SparkSession, postgres: Postgres
) -> None:
    """The staging table has rows of several attempts of each task."""
    from penstock.connectors.jdbc.postgres import PostgresDialect

    postgres.sql("""
        drop table if exists target; create table target (id int, v int);
        drop table if exists staged; create table staged (id int, v int, penstock_task int, penstock_attempt bigint);
    """)
    for attempt, task in enumerate((0, 0, 1, 1, 1)):
        postgres.sql(
            f"insert into staged select i, i, {task}, {attempt} from generate_series({task} * 10, {task} * 10 + 9) i"
        )
    postgres.sql(
        PostgresDialect().copy_statement("staged", "target", ["id", "v"], [], ("penstock_task", "penstock_attempt"))
    )
    assert postgres.sql("select count(*), count(distinct id) from target") == "20|20"


@pytest.mark.thorough
@pytest.mark.parametrize(("cap", "max_task_connections"), [(1, 1), (None, 2)])
def test_max_connections_limits_the_connections_of_tasks(
    make_env: Callable[..., Environment],
    spark: SparkSession,
    postgres: Postgres,
    cap: int | None,
    max_task_connections: int,
) -> None:
    """The server counts the connections of the tasks and that of Spark's writer in the driver."""
    env = make_env()
    with postgres.connections() as counted:
        slow_rows = numbers(spark, partitions=6).withColumn("s", F.expr("sha2(repeat(s, 60000), 512)"))
        write(env, slow_rows, postgres, "capped", max_connections=cap, mode="overwrite")
    assert summarize_rows(postgres, "capped").startswith(f"{ROWS}|{ROWS}|")
    assert counted.max_concurrent == max_task_connections + 1
    assert counted.opened >= (6 if cap is None else 1) + 2  # the driver opens a connection before and after the tasks


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "merge"}, "mode 'merge' is not valid"),
        ({"mode": "upsert"}, "upsert needs a key"),
        ({"key": ["id"]}, "upsert needs a key"),
        ({"url": "jdbc:oracle:thin:@h:1/x"}, "PostgreSQL, MySQL"),
    ],
)
def test_bad_arguments_are_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SinkError, match=message):
        JdbcSink(**{"url": "jdbc:postgresql://h/d", "table": "t"} | options)


def test_a_wrong_password_and_an_upsert_into_a_missing_table_are_errors(
    env: Environment, spark: SparkSession, postgres: Postgres
) -> None:
    with pytest.raises(SinkError, match="password authentication failed") as raised:
        env.write(numbers(spark), JdbcSink(postgres.url, "t", postgres.properties | {"password": "not-this"}))
        env.execute()
    assert "not-this" not in str(raised.value)
    env._outputs.take()
    with pytest.raises(SinkError, match="upsert needs a table"):
        env.write(numbers(spark), JdbcSink(postgres.url, "no_such", postgres.properties, mode="upsert", key=["id"]))
        env.execute()
    env._outputs.take()
