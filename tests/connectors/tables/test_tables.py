"""Tables of Spark's catalog have the same rows, folders and definitions as if Spark had written them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.connectors import FileSink, TableSink
from penstock.errors import JobError, PenstockError
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.io import session_catalog
from penstock.spark.plans.dataframes import with_settings
from tests.support.equality import assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock import Environment

ROWS = "select id, id % 3 as k, cast(id as string) as t from range(30)"
MORE = f"select cast(t as string) as t, cast(id + 100 as int) as id, cast(k as int) as k from ({ROWS})"
DYNAMIC = "spark.sql.sources.partitionOverwriteMode"


def definition(spark: SparkSession, name: str) -> Any:
    """Return the catalog's description of a table without its name and times."""
    description = [tuple(row) for row in spark.sql(f"describe extended {name}").collect()]
    skipped = {"Table", "Created Time", "Last Access", "Created By", "Owner"}
    word = name.rpartition(".")[2]
    bridge = Bridge(spark)
    raw = session_catalog.catalog_of(bridge).getTableRawMetadata(session_catalog.identifier_of(bridge, name))
    facts = [tuple(str(cell).replace(word, "NAME") for cell in row) for row in description if row[0] not in skipped]
    return facts, json.loads(raw.schema().json()), raw.tracksPartitionsInCatalog()


def folders(spark: SparkSession, name: str) -> Any:
    """Return the folders with files, Penstock's temporary folders, and whether there is a success file."""
    location = next(
        row.data_type for row in spark.sql(f"describe extended {name}").collect() if row.col_name == "Location"
    )
    root = Path(str(location).removeprefix("file:"))
    files = (path for path in root.rglob("*") if path.is_file() and path.suffix != ".crc" and path.name != "_SUCCESS")
    parents = {str(path.parent.relative_to(root)) for path in files}
    return parents, sorted(path.name for path in root.glob(".penstock*")), (root / "_SUCCESS").exists()


def partitions(spark: SparkSession, name: str) -> Any:
    try:
        return sorted(row.partition for row in spark.sql(f"show partitions {name}").collect())
    except Exception as error:
        return type(error).__name__


def assert_same_tables(spark: SparkSession, tables: Any) -> None:
    ours, plain = tables
    assert_same_rows(spark.table(ours).collect(), spark.table(plain).collect())
    assert definition(spark, ours) == definition(spark, plain)
    assert folders(spark, ours) == folders(spark, plain)
    assert partitions(spark, ours) == partitions(spark, plain)


def create(by: Any = (), kind: str | None = None) -> Any:
    """Return functions that create a table with Penstock and with Spark."""

    def write_by_spark(df: DataFrame, name: str) -> None:
        writer = df.write if kind is None else df.write.format(kind)
        (writer.partitionBy(*by) if by else writer).saveAsTable(name)

    return lambda name: TableSink(name, partition_by=by, format=kind), write_by_spark


def write_to(mode: str) -> Any:
    """Return functions that write to an existing table with Penstock and with Spark."""

    def write_by_spark(df: DataFrame, name: str) -> None:
        columns = df.sparkSession.table(name).columns
        df.select(*columns).write.insertInto(name, overwrite=mode == "overwrite")

    return lambda name: TableSink(name, mode=mode), write_by_spark


STEPS: dict[str, list[Any]] = {
    "a new table": [(ROWS, create())],
    "a new table of json": [(ROWS, create(kind="json"))],
    "a new table with partitions": [(ROWS, create(["k"]))],
    "a new table with a partition column by another case, not the last": [(ROWS, create(["ID"]))],
    "append by a partition column of another case": [
        (ROWS, create(["k"])),
        (MORE, (lambda name: TableSink(name, mode="append", partition_by="K"), write_to("append")[1])),
    ],
    "append": [(ROWS, create()), (MORE, write_to("append"))],
    "append to partitions": [
        (ROWS, create(["k"])),
        (MORE.replace("cast(k as int)", "cast(k + 2 as int)"), write_to("append")),
    ],
    "overwrite": [(ROWS, create()), (MORE, write_to("overwrite"))],
    "overwrite all partitions": [(ROWS, create(["k"])), (f"select * from ({MORE}) where k = 1", write_to("overwrite"))],
}


@pytest.mark.parametrize(("case", "dynamic"), [*((case, False) for case in STEPS), ("overwrite all partitions", True)])
def test_written_tables_are_the_same_as_with_spark(
    env: Environment, spark: SparkSession, tables: Any, case: str, dynamic: bool
) -> None:
    for step, (query, (sink, write_by_spark)) in enumerate(STEPS[case]):
        with with_settings(spark, {DYNAMIC: "dynamic" if dynamic and step else "static"}):
            env.write(spark.sql(query), sink(tables[0]))
            env.execute()
            write_by_spark(spark.sql(query), tables[1])
    assert_same_tables(spark, tables)


STATEMENTS: dict[str, list[str]] = {
    "create as select": [f"create table NAME using parquet as {ROWS}"],
    "create with partitions": [f"create table NAME using orc partitioned by (k) as {ROWS}"],
    "insert by position": [f"create table NAME using parquet as {ROWS}", "insert into NAME values (7, 8, 'x')"],
    "insert by name": [
        f"create table NAME using parquet as {ROWS}",
        "insert into NAME by name select 'x' as t, 1L as k, 2L as id",
    ],
    "insert some columns": [f"create table NAME using parquet as {ROWS}", "insert into NAME (t, id) values ('x', 7)"],
    "insert overwrite": [
        f"create table NAME using parquet as {ROWS}",
        "insert overwrite NAME select id, id % 2, 'z' from range(4)",
    ],
    "insert into a single partition, by Spark": [
        f"create table NAME using parquet partitioned by (k) as {ROWS}",
        "insert into NAME partition (k = 9) select id, t from range(3) join (select 'x' as t)",
    ],
    "with": [
        f"create table NAME using parquet as {ROWS}",
        "with q as (select 1L, 2L, 'y') insert into NAME select * from q",
    ],
    "a bucketed table, by Spark": [
        f"create table NAME using parquet partitioned by (k) clustered by (id) into 2 buckets as {ROWS}",
        "insert into NAME values (7, 'x', 8)",
    ],
    "overwrite of a single partition, by Spark": [
        f"create table NAME using parquet partitioned by (k) as {ROWS}",
        "insert overwrite NAME partition (k = 1) select id, t from range(3) join (select 'x' as t)",
    ],
}


@pytest.mark.parametrize("case", STATEMENTS)
def test_statements_give_the_same_tables_as_spark(
    env: Environment, spark: SparkSession, tables: Any, case: str
) -> None:
    ours, plain = tables
    for statement in STATEMENTS[case]:
        before = env.last_job
        answer = env.sql(statement.replace("NAME", ours))
        assert answer.columns == []
        is_by_spark = "by Spark" in case and ("partitioned by (k) as" not in statement)
        assert (env.last_job is before) is is_by_spark
        spark.sql(statement.replace("NAME", plain))
    assert_same_tables(spark, tables)


def test_a_query_does_not_run_before_an_action(env: Environment, spark: SparkSession) -> None:
    before = env.last_job
    assert env.sql("select :x as insert", x=3).collect()[0]["insert"] == 3
    assert env.last_job is before


def test_no_table_is_created_if_another_sink_fails(
    env: Environment, spark: SparkSession, tables: Any, tmp_path: Path
) -> None:
    """The second sink cannot commit, because its folder exists. The table is not created either."""
    ours, _ = tables
    taken = tmp_path / "taken"

    class Conflicting(FileSink):
        def open(self, session: SparkSession) -> Any:
            job = super().open(session)
            write = job.write

            def write_and_create_folder(df: DataFrame) -> None:
                write(df)
                taken.mkdir()

            job.write = write_and_create_folder  # type: ignore[method-assign]
            return job

    env.write(spark.sql(ROWS), TableSink(ours, partition_by="k"))
    env.write(spark.sql(ROWS), Conflicting(str(taken)))
    with pytest.raises(PenstockError):
        env.execute()
    assert not spark.catalog.tableExists(ours)
    taken.rmdir()
    env.write(spark.sql(ROWS), TableSink(ours, partition_by="k"))
    env.write(spark.sql(ROWS), FileSink(str(taken)))
    env.execute()
    assert spark.table(ours).count() == spark.read.parquet(str(taken)).count() == 30
    assert len(partitions(spark, ours)) == 3


@pytest.mark.parametrize(
    ("make_sink", "message"),
    [
        (lambda name: TableSink(name), "exists already"),
        (lambda name: TableSink(name, mode="append", partition_by="t"), "is partitioned by no column, not by t"),
        (lambda name: TableSink("a b"), "could not be planned"),
        (lambda name: TableSink("a.b.c.d"), "refers to spark_catalog.a.b.c.d"),
        (lambda name: TableSink("sinks.view", mode="append"), "cannot be written by TableSink"),
        (lambda name: TableSink("sinks.new", partition_by="nope"), "partition column 'nope'"),
    ],
)
def test_bad_targets_fail_before_the_job(
    env: Environment, spark: SparkSession, tables: Any, make_sink: Any, message: str
) -> None:
    spark.sql(f"create table {tables[0]} using parquet as {ROWS}")
    spark.sql(f"create view sinks.view as select * from {tables[0]}")
    env.write(spark.sql(ROWS), make_sink(tables[0]))
    with pytest.raises(PenstockError, match=message) as raised:
        env.execute()
    assert not isinstance(raised.value, JobError)
    assert __file__ in str(raised.value.line)


def test_mode_ignore_skips_an_existing_table(env: Environment, spark: SparkSession, tables: Any) -> None:
    spark.sql(f"create table {tables[0]} using parquet as {ROWS}")
    env.write(spark.sql(MORE), TableSink(tables[0], mode="ignore"))
    env.execute()
    assert spark.table(tables[0]).count() == 30


@pytest.mark.parametrize(
    "arguments", [{}, {"n": 3}, {"n": 0}, {"truncate": False}, {"truncate": 5}, {"vertical": True}]
)
def test_show_prints_the_same_as_spark(env: Environment, spark: SparkSession, capsys: Any, arguments: Any) -> None:
    df = spark.range(0, 30, 1, 3).selectExpr("id", "repeat('long ', 9) as text", "array(id) as many").orderBy("id")
    df.show(**arguments)
    plain = capsys.readouterr().out
    env.show(df, **arguments)
    assert capsys.readouterr().out == plain


@pytest.mark.parametrize("threshold", ["0", "64 mb"])
def test_a_table_can_be_overwritten_with_its_own_rows(
    make_env: Any, spark: SparkSession, tables: Any, threshold: str
) -> None:
    """Both as a single Spark query and as a job of several vertices."""
    env = make_env(**{"execution.batch.adaptive.whole__query__threshold": threshold})
    spark.sql(f"create table {tables[0]} using parquet as {ROWS}")
    selected = spark.table(tables[0]).where("k = 1")
    expected = selected.collect()
    env.write(selected, TableSink(tables[0], mode="overwrite"))
    env.execute()
    assert_same_rows(spark.table(tables[0]).collect(), expected)


@pytest.mark.thorough
def test_rows_of_a_token_are_written_once(env: Environment, spark: SparkSession, tables: Any) -> None:
    """A second run with the token is skipped, even in the mode that refuses an existing table."""
    for _ in range(2):
        env.write(spark.sql(ROWS), TableSink(tables[0], token="monday"))
        env.execute()
        assert spark.table(tables[0]).count() == 30
    with pytest.raises(PenstockError, match="exists already"):
        env.write(spark.sql(ROWS), TableSink(tables[0], token="tuesday"))
        env.execute()


def test_the_name_of_the_catalog_is_case_insensitive(env: Environment, spark: SparkSession, tables: Any) -> None:
    env.write(spark.sql(ROWS), TableSink(f"SPARK_CATALOG.{tables[0]}"))
    env.execute()
    assert spark.table(tables[0]).count() == 30


def test_the_location_of_a_table_keeps_a_symbolic_link(
    env: Environment, spark: SparkSession, tmp_path: Path, tables: Any
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for name in tables:
        location = f"file:{tmp_path}/link/{name.rpartition('.')[2]}"
        statement = f"create table {name} using parquet location '{location}' as {ROWS}"
        (env if name == tables[0] else spark).sql(statement)
        description = {row.col_name: row.data_type for row in spark.sql(f"describe extended {name}").collect()}
        assert description["Location"] == location
        assert spark.table(name).count() == 30
