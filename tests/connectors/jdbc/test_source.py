"""Tables of real databases: splits read each row once, are balanced, and as many tasks run as were decided."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from penstock.connectors import JdbcSource, SourceProvider
from penstock.errors import ConfigError, JobError, PenstockError, SourceError
from tests.support.equality import assert_as_plain_spark, assert_same_rows
from tests.support.stages import stages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock import Environment
    from tests.support.services import MariaDb, Postgres, Sqlite


VOLUME = {"execution.batch.adaptive.auto__parallelism.avg__data__volume__per__task": "256 kb"}
ROWS = 60_000
PAD = "0123456789" * 4
# The key of row i: uniform, or with nine of ten rows in a hundredth of the range.
UNIFORM, SKEWED = "i", "case when i % 10 = 0 then i * 1000 else i end"


def numbers(name: str) -> str:
    return f"WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS - 1}) "


@pytest.fixture(scope="module")
def pg(postgres: Postgres) -> Any:
    series = f"generate_series(0, {ROWS - 1}) i"
    postgres.sql(f"""
        create table uniform as select {UNIFORM} as id, i % 7 as g, '{PAD}'::text as pad from {series};
        create table skewed (id int primary key, g int, pad text);
        insert into skewed select {SKEWED}, i % 7, '{PAD}' from {series} on conflict do nothing;
        create table empty (id int, g int, pad text);
        create table parted (id int, g int, pad text) partition by range (id);
        create table parted_a partition of parted for values from (0) to ({ROWS // 10});
        create table parted_b partition of parted for values from ({ROWS // 10}) to ({ROWS});
        create table parted_none partition of parted for values from ({ROWS}) to ({2 * ROWS});
        insert into parted select {UNIFORM}, i % 7, '{PAD}' from {series};
        create table nulls as select nullif(i % 3, 0) * i as id, i % 7 as g, '{PAD}'::text as pad from {series};
        create table texts (id text primary key, g int, pad text);
        insert into texts select md5(i::text), i % 7, '{PAD}' from {series};
        create view a_view as select * from uniform;
        create table "Odd Name" as select i as "The Id", i % 7 as g, '{PAD}'::text as pad from {series};
        create index on uniform (id);
        analyze;
    """)
    return postgres


@pytest.fixture(scope="module")
def maria(mariadb: MariaDb) -> Any:
    mariadb.sql(f"""
        set max_recursive_iterations = 1000000;
        create table uniform (id int primary key, g int, pad varchar(60));
        insert into uniform {numbers("u")} select {UNIFORM}, i % 7, '{PAD}' from n;
        create table skewed (id int primary key, g int, pad varchar(60));
        insert ignore into skewed {numbers("s")} select {SKEWED}, i % 7, '{PAD}' from n;
        create table texts (id varchar(40) primary key, g int, pad varchar(60));
        insert into texts {numbers("t")} select md5(i), i % 7, '{PAD}' from n;
        create table empty (id int primary key, g int, pad varchar(60));
        create table keyless (id int, g int, pad varchar(60));
        insert into keyless select * from uniform;
        analyze table uniform; analyze table skewed; analyze table texts; analyze table keyless;
    """)
    return mariadb


@pytest.fixture(scope="module")
def lite(sqlite: Sqlite) -> Any:
    sqlite.sql(f"""
        create table uniform (id integer primary key, g int, pad text);
        insert into uniform {numbers("u")} select {UNIFORM}, i % 7, '{PAD}' from n;
        create table skewed (id integer primary key, g int, pad text);
        insert or ignore into skewed {numbers("s")} select {SKEWED}, i % 7, '{PAD}' from n;
        create table keyless (id text primary key, g int, pad text) without rowid;
        insert into keyless {numbers("k")} select 'k' || i, i % 7, '{PAD}' from n;
        create table empty (id integer primary key, g int, pad text)
    """)
    return sqlite


def servers(request: Any, kind: Any) -> Any:
    return request.getfixturevalue({"postgres": "pg", "mariadb": "maria", "sqlite": "lite"}[kind])


def read_by_spark(spark: SparkSession, server: Any, table: Any) -> Any:
    return spark.read.format("jdbc").options(url=server.url, dbtable=table, **server.properties).load()


CASES = [
    *[("postgres", table, 6, 1.5) for table in ("uniform", "skewed", "parted", "nulls", "texts", '"Odd Name"')],
    ("mariadb", "uniform", 6, 1.5),
    ("mariadb", "skewed", 6, 2.0),
    ("mariadb", "texts", 6, 2.0),
    ("sqlite", "uniform", 6, 1.5),
    ("sqlite", "skewed", 6, 2.0),
]


@pytest.mark.parametrize(("kind", "table", "min_tasks", "balance"), CASES)
def test_an_unpartitioned_read_is_split_into_balanced_tasks(
    request: pytest.FixtureRequest,
    make_env: Callable[..., Environment],
    spark: SparkSession,
    kind: Any,
    table: Any,
    min_tasks: Any,
    balance: Any,
) -> None:
    server = servers(request, kind)
    df = read_by_spark(spark, server, table)
    assert df.rdd.getNumPartitions() == 1
    env = make_env(**VOLUME)
    key = df.columns[0]
    sums = df.groupBy("g").agg(F.count("*"), F.sum(F.xxhash64(key, "pad").cast("decimal(38,0)")), F.count(key))
    assert_as_plain_spark(env, sums)
    source = env.last_job.vertices[0]
    (reading,) = [stage for stage in stages(spark, env.last_job, table) if stage.input_records]
    assert reading.tasks == source.parallelism >= min_tasks
    assert sum(reading.input_per_task) == df.count()
    assert max(reading.input_per_task) <= balance * sum(reading.input_per_task) / reading.tasks
    assert "statistics" in source.reason


@pytest.mark.thorough
@pytest.mark.parametrize("table", ["uniform", "skewed", "nulls", "texts"])
def test_histograms_give_the_splits_without_tid_range_scans(
    pg: Any, make_env: Callable[..., Environment], spark: SparkSession, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    monkeypatch.setattr("penstock.connectors.jdbc.postgres._TID_SCAN_VERSION", 1 << 30)
    df = read_by_spark(spark, pg, table)
    sums = df.groupBy("g").agg(F.count("*"), F.sum(F.xxhash64("id", "pad").cast("decimal(38,0)")), F.count("id"))
    env = make_env(**VOLUME)
    assert_as_plain_spark(env, sums)
    source = env.last_job.vertices[0]
    assert "histogram" in source.reason
    (reading,) = [stage for stage in stages(spark, env.last_job, table) if stage.input_records]
    assert reading.tasks == source.parallelism >= 3
    if table != "nulls":  # a third of its keys are null, and bounds cannot divide these
        assert max(reading.input_per_task) <= 2 * sum(reading.input_per_task) / reading.tasks


def test_a_database_without_statistics_is_read_in_a_single_split(
    pg: Any, make_env: Callable[..., Environment], spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.connectors.jdbc.postgres._TABLE_QUERY", "SELECT no_such_function(?)")
    df = read_by_spark(spark, pg, "uniform").groupBy("g").count()
    env = make_env(**VOLUME)
    assert_as_plain_spark(env, df)
    assert "no statistics" in env.last_job.vertices[0].reason
    assert env.last_job.vertices[0].tasks == 1


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kind", "table", "reason"),
    [
        ("postgres", "empty", ""),
        ("postgres", "(select * from uniform where g = 1) q", "a single split, as it is not a table"),
        ("postgres", "a_view", "a single split"),
        ("postgres", "uniform as u", "a single split, as it is not a table"),
        ("mariadb", "empty", ""),
        ("mariadb", "keyless", "no primary key"),
        ("sqlite", "keyless", "no row ids"),
        ("sqlite", "empty", ""),
    ],
)
def test_a_read_that_cannot_be_split_has_a_reason(
    request: pytest.FixtureRequest,
    make_env: Callable[..., Environment],
    spark: SparkSession,
    kind: str,
    table: str,
    reason: str,
) -> None:
    server = servers(request, kind)
    df = read_by_spark(spark, server, table).groupBy("g").count()
    env = make_env(**VOLUME)
    assert_as_plain_spark(env, df)
    source = env.last_job.vertices[0]
    assert source.parallelism == 1
    assert reason in source.reason


@pytest.mark.thorough
def test_filters_reduce_the_number_of_splits(
    pg: Any, make_env: Callable[..., Environment], spark: SparkSession
) -> None:
    env = make_env(**VOLUME)
    selective = read_by_spark(spark, pg, "uniform").where("id < 100").groupBy("g").count()
    assert_as_plain_spark(env, selective)
    assert env.last_job.vertices[0].parallelism == 1
    unselective = read_by_spark(spark, pg, "uniform").where("g < 3").groupBy("g").agg(F.count("pad"))
    assert_as_plain_spark(env, unselective)
    assert 2 < env.last_job.vertices[0].parallelism < 12


def test_a_user_predicate_applies_in_every_split(
    pg: Any, make_env: Callable[..., Environment], spark: SparkSession
) -> None:
    env = make_env(**VOLUME)
    read = spark.read.jdbc(pg.url, "uniform", predicates=["g = 1 or g > 2"], properties=pg.properties)
    assert_as_plain_spark(env, read.groupBy("g").agg(F.count("pad"), F.sum("id")))
    assert env.last_job.vertices[0].tasks > 1


def test_pruned_columns_reduce_the_number_of_splits(
    pg: Any, make_env: Callable[..., Environment], spark: SparkSession
) -> None:
    env = make_env(**VOLUME)
    df = read_by_spark(spark, pg, "uniform").groupBy("g").count()
    assert_as_plain_spark(env, df)
    assert env.last_job.vertices[0].parallelism < 4


def test_partition_options_of_the_user_are_unchanged(
    pg: Any, make_env: Callable[..., Environment], spark: SparkSession
) -> None:
    env = make_env(**VOLUME)
    options = {"partitionColumn": "id", "lowerBound": "0", "upperBound": str(ROWS), "numPartitions": "3"}
    df = (
        spark.read.format("jdbc")
        .options(url=pg.url, dbtable="uniform", **pg.properties, **options)
        .load()
        .groupBy("g")
        .count()
    )
    assert_as_plain_spark(env, df)
    assert env.last_job.vertices[0].tasks == 3


@pytest.mark.parametrize(
    ("options", "config", "expected"),
    [
        ({"scan.parallelism": "3"}, {}, 3),
        ({}, {"scan.parallelism": 4}, 4),
        ({"scan.parallelism": "3"}, {"scan.parallelism": 4}, 3),
        ({"scan.infer-parallelism.max": "2"}, {}, 2),
        ({"scan.infer-parallelism.enabled": "false"}, {"parallelism.default": 5}, 5),
        ({}, {"parallelism.default": 5}, 5),
        ({"scan.infer-parallelism.max": "6"}, {"parallelism.default": 5}, 6),
        ({"scan.max-connections": "1"}, {}, 1),
    ],
)
def test_parallelism_options_of_table_and_job(
    pg: Any, make_env: Callable[..., Environment], spark: SparkSession, options: Any, config: Any, expected: int
) -> None:
    env = make_env(**VOLUME, **{key.replace("-", "__"): value for key, value in config.items()})
    read = spark.read.format("jdbc").options(url=pg.url, dbtable="uniform", **pg.properties, **options).load()
    df = read.groupBy("g").agg(F.count("pad"), F.sum("id"))
    assert_as_plain_spark(env, df)
    source = env.last_job.vertices[0]
    assert source.parallelism == source.tasks == expected, source.reason


@pytest.mark.thorough
@pytest.mark.parametrize(("cap", "max_task_connections"), [("1", 1), (None, 2)])
def test_max_connections_limits_the_connections_of_tasks(
    pg: Any, make_env: Callable[..., Environment], spark: SparkSession, cap: str | None, max_task_connections: int
) -> None:
    """The server counts the connections of the tasks, and that of the driver, which exports the snapshot for them."""
    options = {} if cap is None else {"scan.max-connections": cap}
    df = spark.read.format("jdbc").options(url=pg.url, dbtable="uniform", **pg.properties, **options).load()
    env = make_env(**VOLUME)
    df = df.withColumn("s", F.expr("sha2(repeat(pad, 500), 512)")).groupBy("g").agg(F.max("s"), F.sum("id"))
    with pg.connections() as counted:
        rows = env.collect(df)
    assert_same_rows(rows, df.collect())
    tasks = env.last_job.vertices[0].tasks
    assert (tasks == 1) is (cap == "1")
    assert counted.max_concurrent == max_task_connections + (tasks > 1)  # a single task needs no shared snapshot
    assert counted.opened >= tasks + 1


@pytest.mark.parametrize(
    ("options", "fragments"),
    [
        ({"scan.parallelism": "0"}, ["scan.parallelism", "'0'", "uniform"]),
        ({"scan.parallelism": "-1"}, ["scan.parallelism", "'-1'", "uniform"]),
        ({"scan.infer-parallelism.max": "many"}, ["many", "uniform"]),
        ({"scan.paralelism": "3"}, ["scan.paralelism", "scan.parallelism"]),
    ],
)
def test_bad_options_are_errors(
    pg: Any, env: Environment, spark: SparkSession, options: dict[str, Any], fragments: list[str]
) -> None:
    df = spark.read.format("jdbc").options(url=pg.url, dbtable="uniform", **pg.properties, **options).load()
    with pytest.raises(ConfigError) as raised:
        env.count(df)
    for fragment in fragments:
        assert fragment in str(raised.value)


@pytest.mark.thorough
def test_all_splits_read_the_same_snapshot(pg: Any, make_env: Callable[..., Environment], spark: SparkSession) -> None:
    """Rows are updated, inserted and deleted during the reads; every transaction preserves the count and the sum."""
    pg.sql(
        "create table accounts as select i as id, 100::bigint as amount, repeat('x', 500) as pad from generate_series(1, 20000) i"
    )
    pg.sql("create index on accounts (id); analyze accounts")
    env = make_env(**VOLUME)
    stop = threading.Event()
    writes = []

    def write() -> None:
        while not stop.is_set():
            pg.sql("""
                begin;
                update accounts set amount = amount - 7 where id % 97 = 3; update accounts set amount = amount + 7 where id % 97 = 3;
                update accounts set id = -id where id % 53 = 5;
                delete from accounts where id = (select max(id) from accounts);
                insert into accounts select (select max(id) + 1 from accounts), 100, repeat('x', 500);
                commit
            """)
            writes.append(1)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(4):
            df = read_by_spark(spark, pg, "accounts").agg(
                F.count("*"), F.sum("amount"), F.countDistinct(F.abs("id")), F.min(F.length("pad"))
            )
            (row,) = env.collect(df)
            assert env.last_job.vertices[0].parallelism >= 8
            assert tuple(row) == (20_000, 2_000_000, 20_000, 500)
    finally:
        stop.set()
        writer.join()
    assert len(writes) > 3
    assert pg.sql("select count(*) from pg_stat_activity where state like 'idle in transaction%'") == "0"


def test_keys_of_a_finished_join_side_are_pushed_down(
    pg: Any, make_env: Callable[..., Environment], spark: SparkSession, tmp_path: Path
) -> None:
    env = make_env(**VOLUME)
    spark.range(0, ROWS, 500).selectExpr("cast(id as int) as k", "id % 5000 as m").write.parquet(str(tmp_path / "keys"))
    keys = spark.read.parquet(str(tmp_path / "keys")).where("m = 0").select("k")
    df = (
        read_by_spark(spark, pg, "uniform")
        .join(keys, F.col("id") == F.col("k"))
        .groupBy("g")
        .agg(F.count("pad"), F.sum("id"))
    )
    assert_as_plain_spark(env, df)
    # The last of these stages reads the table; the keys are fetched before.
    reading = [stage for stage in stages(spark, env.last_job, "uniform") if stage.input_records][-1]
    assert (reading.input_records, reading.tasks) == (12, 1)


def test_a_jdbc_source_can_be_read_directly(pg: Any, make_env: Callable[..., Environment]) -> None:
    env = make_env(**VOLUME)
    source = JdbcSource(pg.url, "uniform", pg.properties)
    assert pg.password not in repr(source)
    assert env.count(env.read(source)) == ROWS
    assert env.count(env.read(source, parallelism=3)) == ROWS


@pytest.mark.parametrize(
    ("changes", "fragments"),
    [
        ({"table": "no_such_table"}, ["no_such_table", "does not exist"]),
        ({"password": "wrong-secret"}, ["password authentication failed"]),
        ({"url": "jdbc:postgresql://127.0.0.1:1/postgres?password=hidden-secret"}, ["127.0.0.1:1", "refused", "***"]),
    ],
)
def test_connection_errors_name_the_cause_and_mask_secrets(
    pg: Any, env: Environment, changes: dict[str, Any], fragments: list[str]
) -> None:
    arguments = {"url": pg.url, "table": "uniform"} | {k: v for k, v in changes.items() if k != "password"}
    properties = pg.properties | {k: v for k, v in changes.items() if k == "password"}
    with pytest.raises(SourceError) as raised:
        env.read(JdbcSource(properties=properties, **arguments))
    for fragment in fragments:
        assert fragment in str(raised.value)
    for secret in ("wrong-secret", "hidden-secret", pg.password):
        assert secret not in str(raised.value)


@pytest.mark.parametrize("arguments", [{"parallelism": 0}, {"parallelism": -1}, {"max_connections": 0}])
def test_bad_parallelism_is_an_error(arguments: dict[str, Any]) -> None:
    with pytest.raises(PenstockError, match="invalid parallelism"):
        JdbcSource("jdbc:postgresql://h/d", "t", **arguments)


def test_a_mariadb_url_that_spark_would_misread_is_an_error() -> None:
    with pytest.raises(SourceError, match="permitMysqlScheme"):
        JdbcSource("jdbc:mariadb://h/d", "t")


def test_a_table_that_is_dropped_after_planning_fails_the_job(pg: Any, env: Environment, spark: SparkSession) -> None:
    pg.sql("create table passing as select * from uniform")
    df = read_by_spark(spark, pg, "passing").groupBy("g").count()
    pg.sql("drop table passing")
    with pytest.raises(JobError, match='relation "passing" does not exist'):
        env.collect(df)


def test_options_of_a_catalog_table_apply(pg: Any, make_env: Callable[..., Environment], spark: SparkSession) -> None:
    properties = ", ".join(f"{key} '{value}'" for key, value in pg.properties.items())
    spark.sql(
        f"create table ddl_uniform using jdbc options (url '{pg.url}', dbtable 'uniform', {properties}, `scan.parallelism` '3')"
    )
    try:
        env = make_env(**VOLUME)
        df = env.sql("select g, count(pad), sum(id) from ddl_uniform group by g")
        assert_as_plain_spark(env, df)
        assert env.last_job.vertices[0].tasks == 3
        assert pg.password not in env.last_job.vertices[0].vertex.name
    finally:
        spark.sql("drop table ddl_uniform")


def test_a_provider_fixes_the_parallelism(pg: Any, make_env: Callable[..., Environment]) -> None:
    env = make_env(**VOLUME)
    source = JdbcSource(pg.url, "uniform", pg.properties)
    df = env.read(SourceProvider(source, 4)).groupBy("g").agg(F.count("pad"))
    assert sum(row[1] for row in env.collect(df)) == ROWS
    first = env.last_job.vertices[0]
    assert (first.parallelism, first.tasks) == (4, 4)
    assert "fixed by the connector at 4" in first.reason
