"""SQL statements that write tables, as a job or by Spark, give the rows and table definitions of plain Spark."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.connectors import FileSink, TableSink
from penstock.connectors.core import sink_checks
from penstock.connectors.core.base import SinkJob
from penstock.errors import JobError, PenstockError, SinkError
from penstock.spark.io import table_partitions
from penstock.spark.io.filesystem import HadoopPath
from penstock.spark.plans.dataframes import with_settings
from tests.connectors.tables.test_tables import ROWS, assert_same_tables, partitions
from tests.support.equality import assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock import Environment

CREATE = f"create table NAME using parquet as {ROWS}"
BY_K = f"create table NAME using parquet partitioned by (k) as {ROWS}"
EXTERNAL = "create table NAME (id bigint, p int) using parquet partitioned by (p) location 'LOCATION'"
TEXTS = "create table NAME_from (c char(5), v varchar(3), n int comment 'a number', s string) using parquet"

UNMANAGED = {"spark.sql.hive.manageFilesourcePartitions": "false"}
NOT_EMPTY = {"spark.sql.legacy.allowNonEmptyLocationInCTAS": "true"}
JOB, SPARK = True, False

CASES: dict[str, list[tuple[str, bool]]] = {
    # statements, and whether each runs as a job or in Spark
    "a script": [(CREATE, JOB), ("begin insert into NAME values (7, 8, 'x'); end", SPARK)],
    "a script that creates a table": [(f"begin {CREATE}; end", SPARK)],
    "a string": [(CREATE, JOB), ("execute immediate 'insert into NAME values (7, 8, \\'x\\')'", SPARK)],
    "two inserts of a query": [
        (CREATE, JOB),
        ("from range(5) insert into NAME select id, id, 'a' insert into NAME select id, id, 'b'", SPARK),
    ],
    "a name in quotes": [("create table identifier('NAME') using parquet as select 1 as a", JOB)],
    "a partition with its own location": [
        (EXTERNAL, SPARK),
        ("alter table NAME add partition (p=1) location 'LOCATION_archive'", SPARK),
        ("insert into NAME values (7, 1), (8, 2)", SPARK),
    ],
    "a partition that was renamed": [
        (EXTERNAL, SPARK),
        ("insert into NAME values (7, 1)", JOB),
        ("alter table NAME partition (p=1) rename to partition (p=2)", SPARK),
        ("insert into NAME values (8, 2), (9, 1)", SPARK),
    ],
    "partitions with odd values": [
        ("create table NAME using parquet partitioned by (s) as select 1 as a, 'x/y=z %:' as s", JOB),
        ("insert into NAME values (2, null), (3, 'x/y=z %:'), (4, '')", JOB),
        ("insert overwrite NAME values (5, null), (6, 'a b')", JOB),
    ],
    "partitions of an overwrite": [
        (BY_K, JOB),
        ("alter table NAME add partition (k=17)", SPARK),
        ("insert overwrite NAME values (1, 'x', 1), (2, 'y', 5)", JOB),
    ],
    "char and varchar": [
        (TEXTS, SPARK),
        ("insert into NAME_from values ('a', 'b', 1, 'c')", JOB),
        ("create table NAME using parquet as select * from NAME_from", JOB),
        ("insert into NAME values ('abcde', 'xyz', 1, 'c')", JOB),
    ],
    "char by partition": [
        (TEXTS, SPARK),
        ("insert into NAME_from values ('a', 'b', 1, 'c'), ('a', 'x', 2, 'd')", JOB),
        ("create table NAME using parquet partitioned by (v) as select s, v, n from NAME_from", JOB),
    ],
    "a collation for all": [("create table NAME using parquet default collation UNICODE as select 'a' as t", SPARK)],
    "a column with a collation": [("create table NAME using parquet as select 'a' collate UNICODE as t", JOB)],
    "a partition column by another case": [
        ("create table NAME using parquet partitioned by (K) as select id % 3 as k, id from range(9)", JOB)
    ],
    "a table with its own location": [("create table NAME using parquet location 'LOCATION' as select 1 as a", JOB)],
}
SETTINGS = {
    "partitions with rows, without a success file": (
        {"spark.sql.sources.partitionOverwriteMode": "dynamic"},
        [(EXTERNAL, SPARK), ("insert overwrite NAME values (7, 1), (8, 9)", JOB)],
    ),
    "unmanaged partitions": (UNMANAGED, [(BY_K, JOB), ("insert into NAME values (7, 'x', 1), (8, 'y', 9)", JOB)]),
    "unmanaged partitions of a table with managed ones": (
        UNMANAGED,
        [(EXTERNAL, SPARK), ("insert overwrite NAME values (7, 1), (8, 9)", JOB)],
    ),
}


def run(env: Environment, spark: SparkSession, tables: Any, folder: Path, steps: list[tuple[str, bool]]) -> None:
    ours, plain = tables
    for statement, is_job in steps:
        before = env.last_job
        env.sql(statement.replace("NAME", ours).replace("LOCATION", str(folder / "ours")))
        assert (env.last_job is not before) is is_job, statement
        spark.sql(statement.replace("NAME", plain).replace("LOCATION", str(folder / "plain")))
    assert_same_tables(spark, tables)


@pytest.fixture(autouse=True)
def drop_source_tables(spark: SparkSession, tables: Any) -> Iterator[None]:
    yield
    for name in tables:
        spark.sql(f"drop table if exists {name}_from")


@pytest.mark.parametrize("case", CASES)
def test_statements_write_the_same_table_as_plain_spark(
    env: Environment, spark: SparkSession, tables: Any, tmp_path: Path, case: str
) -> None:
    run(env, spark, tables, tmp_path, CASES[case])


@pytest.mark.thorough
@pytest.mark.parametrize("case", SETTINGS)
def test_statements_with_settings_write_the_same_table_as_plain_spark(
    env: Environment, spark: SparkSession, tables: Any, tmp_path: Path, case: str
) -> None:
    settings, steps = SETTINGS[case]
    with with_settings(spark, settings):
        run(env, spark, tables, tmp_path, steps)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("settings", "files", "is_job"), [({}, [], JOB), (NOT_EMPTY, ["old"], SPARK), (NOT_EMPTY, [], JOB)]
)
def test_a_table_is_created_in_an_existing_folder(
    env: Environment, spark: SparkSession, tables: Any, tmp_path: Path, settings: Any, files: Any, is_job: bool
) -> None:
    for name in ("ours", "plain"):
        (tmp_path / name).mkdir()
        for file in files:
            (tmp_path / name / file).touch()
    with with_settings(spark, settings):
        run(
            env,
            spark,
            tables,
            tmp_path,
            [("create table NAME using parquet location 'LOCATION' as select 1 as a", is_job)],
        )


def test_spark_refuses_to_create_a_table_in_a_folder_with_files(
    env: Environment, spark: SparkSession, tables: Any, tmp_path: Path
) -> None:
    (tmp_path / "old").touch()
    before = env.last_job
    with pytest.raises(Exception, match="non-empty"):
        env.sql(f"create table {tables[0]} using parquet location '{tmp_path}' as select 1 as a")
    assert env.last_job is before


@pytest.mark.thorough
def test_a_failed_create_leaves_an_empty_folder(env: Environment, spark: SparkSession, tables: Any) -> None:
    folder = Path(str(spark.conf.get("spark.sql.warehouse.dir")).removeprefix("file:")) / "sinks.db" / "ours"
    folder.mkdir(parents=True)
    try:
        with pytest.raises(JobError):
            env.sql(f"create table {tables[0]} using parquet as select raise_error('no') as a from range(3)")
        assert list(folder.iterdir()) == []
        assert not spark.catalog.tableExists(tables[0])
        env.sql(f"create table {tables[0]} using parquet as {ROWS}")
        assert spark.table(tables[0]).count() == 30
    finally:
        shutil.rmtree(folder)


@pytest.mark.thorough
def test_a_table_with_a_read_only_parent_folder_is_written_by_spark(
    env: Environment, spark: SparkSession, tables: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark needs write access only to the table's folder."""
    env.sql(f"create table {tables[0]} using parquet location '{tmp_path / 'a' / 't'}' as {ROWS}")
    access = sink_checks.os.access
    monkeypatch.setattr(sink_checks.os, "access", lambda path, mode: path != str(tmp_path / "a") and access(path, mode))
    before = env.last_job
    env.sql(f"insert into {tables[0]} values (7, 8, 'x')")
    assert env.last_job is before
    assert spark.table(tables[0]).count() == 31
    env.write(spark.sql(ROWS), TableSink(tables[0], mode="append"))
    with pytest.raises(SinkError, match="cannot be written"):
        env.execute()
    assert env.last_job is before


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("attribute", "value"), [("volumes_below", lambda self: ["/mnt/volume"]), ("name", property(lambda self: ""))]
)
def test_a_table_that_penstock_cannot_overwrite_is_written_by_spark(
    env: Environment, spark: SparkSession, tables: Any, monkeypatch: pytest.MonkeyPatch, attribute: str, value: Any
) -> None:
    """A mounted volume below the table, and a table at the root of a bucket."""
    env.sql(BY_K.replace("NAME", tables[0]))
    before = env.last_job
    monkeypatch.setattr(HadoopPath, attribute, value)
    env.sql(f"insert overwrite {tables[0]} values (7, 'x', 8)")
    assert env.last_job is before
    assert [tuple(row) for row in spark.table(tables[0]).collect()] == [(7, "x", 8)]


@pytest.fixture
def other(spark: SparkSession) -> Iterator[str]:
    """A JDBC catalog, which is the current catalog."""
    prefix = "spark.sql.catalog.other"
    spark.conf.set(prefix, "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog")
    spark.conf.set(f"{prefix}.url", "jdbc:derby:memory:other;create=true")
    spark.conf.set(f"{prefix}.driver", "org.apache.derby.iapi.jdbc.AutoloadedDriver")
    spark.sql("use other.APP")
    yield "other"
    spark.sql("use spark_catalog.default")


@pytest.mark.thorough
def test_tables_are_written_while_another_catalog_is_current(
    env: Environment, spark: SparkSession, tables: Any, other: str
) -> None:
    spark.sql("use spark_catalog.default")
    ours, plain = (f"spark_catalog.{name}" for name in tables)
    for name in tables:
        spark.sql(BY_K.replace("NAME", name))
    spark.sql("use other.APP")
    row = "select 7L as id, 'x' as t, 9L as k"
    env.sql(f"insert into {ours} {row}")
    spark.sql(f"insert into {plain} {row}")
    env.sql(f"insert overwrite {ours} select id + 1, t, k + 1 from {plain}")
    rows = spark.sql(f"select id + 1 as id, t, k + 1 as k from {plain}").collect()
    assert_same_rows(spark.table(ours).collect(), rows)
    env.write(spark.sql(row), TableSink(ours, mode="append"))
    env.execute()
    env.sql(f"drop table {plain}")
    env.write(spark.sql(ROWS), TableSink(plain, partition_by="k"))
    env.execute()
    assert len(partitions(spark, plain)) == 3
    assert len(partitions(spark, ours)) == 5


@pytest.mark.parametrize("name", ["ours", "sinks.ours", "other.sinks.ours", "other.ours"])
def test_a_table_name_of_another_catalog_is_an_error(
    env: Environment, spark: SparkSession, tables: Any, other: str, name: str
) -> None:
    before = env.last_job
    env.write(spark.sql(ROWS), TableSink(name, mode="append"))
    with pytest.raises(SinkError, match="the name refers to other") as raised:
        env.execute()
    assert env.last_job is before
    assert __file__ in str(raised.value.line)


@pytest.mark.thorough
def test_a_statement_is_parsed_with_the_settings_of_its_session(
    env: Environment, spark: SparkSession, tables: Any
) -> None:
    """The active session and the session of the environment have different settings."""

    from penstock import Environment

    lenient = spark.newSession()
    lenient.conf.set("spark.sql.ansi.enabled", "false")
    lenient.conf.set("spark.sql.caseSensitive", "true")
    lenient_env = Environment(lenient, config={"execution.batch.adaptive.whole-query-threshold": 0}, progress=False)
    sessions = spark._jvm.org.apache.spark.sql.classic.SparkSession  # type: ignore[union-attr]
    sessions.setActiveSession(spark._jsparkSession)
    with with_settings(spark, {"spark.sql.ansi.enabled": "true"}):
        lenient_env.sql(f"create table {tables[0]} using parquet as select cast('x' as int) as a, 1/0 as b")
    lenient.sql(f"create table {tables[1]} using parquet as select cast('x' as int) as a, 1/0 as b")
    assert_same_tables(spark, tables)


class CreatesTableAndFails(FileSink):
    """A sink that fails in the prepare phase, after another program has created a table."""

    statement = ""

    def open(self, spark: SparkSession) -> SinkJob:
        job, statement = super().open(spark), self.statement

        def prepare() -> Any:
            spark.sql(statement)
            raise RuntimeError("not prepared")

        job.prepare = prepare  # type: ignore[method-assign]
        return job


@pytest.mark.parametrize("clause", ["", "location 'LOCATION'"])
def test_a_failed_job_does_not_drop_a_table_of_another_program(
    env: Environment, spark: SparkSession, tables: Any, tmp_path: Path, clause: str
) -> None:
    failing = CreatesTableAndFails(str(tmp_path / "failing"))
    clause = clause.replace("LOCATION", str(tmp_path / "theirs"))
    object.__setattr__(failing, "statement", f"create table {tables[0]} using parquet {clause} as select 42 as theirs")
    env.write(spark.sql(ROWS), TableSink(tables[0]))
    env.write(spark.sql(ROWS), failing)
    with pytest.raises(PenstockError, match="not prepared"):
        env.execute()
    assert [tuple(row) for row in spark.table(tables[0]).collect()] == [(42,)]


class Conflicting(FileSink):
    """A sink that cannot commit, because its folder is created while the job runs."""

    def open(self, spark: SparkSession) -> SinkJob:
        job, path = super().open(spark), Path(self.path)
        write = job.write

        def write_and_create_folder(df: DataFrame) -> None:
            write(df)
            path.mkdir()

        job.write = write_and_create_folder  # type: ignore[method-assign]
        return job


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_rollback_restores_the_partitions_of_the_catalog(
    env: Environment, spark: SparkSession, tables: Any, tmp_path: Path, mode: str
) -> None:
    """An unregistered folder stays unregistered, and a partition without a folder stays registered."""
    ours, _ = tables
    spark.sql(BY_K.replace("NAME", ours))
    folder = Path(str(spark.conf.get("spark.sql.warehouse.dir")).removeprefix("file:")) / "sinks.db" / "ours"
    shutil.copytree(folder / "k=1", folder / "k=7")
    spark.sql(f"alter table {ours} add partition (k=8)")
    before = partitions(spark, ours), sorted(map(tuple, spark.table(ours).collect()))
    env.write(spark.sql("select 1L as id, 'x' as t, explode(array(1L, 9L)) as k"), TableSink(ours, mode=mode))
    env.write(spark.sql(ROWS), Conflicting(str(tmp_path / "taken")))
    with pytest.raises(PenstockError, match="taken"):
        env.execute()
    assert before == (partitions(spark, ours), sorted(map(tuple, spark.table(ours).collect())))
    assert "k=7" not in before[0]


TWICE: dict[str, list[Any]] = {
    "two appends to a new folder": [lambda p, t: FileSink(f"{p}/a", mode="append")] * 2,
    "an append into a folder that another sink creates": [
        lambda p, t: FileSink(f"{p}/a", mode="append"),
        lambda p, t: FileSink(f"{p}/a/b", mode="append"),
    ],
    "two appends to a new table": [lambda p, t: TableSink(t, mode="append")] * 2,
    "a table by two names": [
        lambda p, t: TableSink("sinks.there", mode="append"),
        lambda p, t: TableSink("spark_catalog.sinks.there", mode="overwrite"),
    ],
}


@pytest.mark.parametrize("case", TWICE)
def test_two_sinks_with_the_same_location_are_an_error(
    env: Environment, spark: SparkSession, tables: Any, tmp_path: Path, case: str
) -> None:
    spark.sql(f"create table sinks.there using parquet as {ROWS}")
    before = env.last_job
    for sink in TWICE[case]:
        env.write(spark.sql(ROWS), sink(tmp_path, tables[0]))
    with pytest.raises(SinkError, match="write to the same location"):
        env.execute()
    assert env.last_job is before


@pytest.mark.thorough
def test_partitions_are_registered_in_a_single_command(
    env: Environment, spark: SparkSession, tables: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark.sql("create table sinks.ours (id bigint, k bigint) using parquet partitioned by (k)")
    commands = []
    active_session = table_partitions.active_session
    monkeypatch.setattr(
        table_partitions, "active_session", lambda session: commands.append(1) or active_session(session)
    )
    env.write(spark.range(40).selectExpr("id", "id as k").coalesce(1), TableSink(tables[0], mode="append"))
    env.execute()
    assert len(commands) == 1
    assert len(partitions(spark, tables[0])) == 40
