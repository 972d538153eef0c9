"""Tables of Spark's catalogue, written by Penstock and by Spark: the same rows, folders and definitions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.connectors import FileSink, TableSink
from penstock.errors import JobError, PenstockError
from penstock.spark import session_catalog
from penstock.spark.dataframes import with_settings
from penstock.spark.jvm import Bridge
from tests.equality import assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock import Environment

ROWS = "select id, id % 3 as k, cast(id as string) as t from range(30)"
MORE = f"select cast(t as string) as t, cast(id + 100 as int) as id, cast(k as int) as k from ({ROWS})"
DYNAMIC = "spark.sql.sources.partitionOverwriteMode"


def definition(spark: SparkSession, name: str) -> Any:
    """Return all that the catalogue knows of a table, but for its name and its times."""
    told = [tuple(row) for row in spark.sql(f"describe extended {name}").collect()]
    skipped = {"Table", "Created Time", "Last Access", "Created By", "Owner"}
    word = name.rpartition(".")[2]
    bridge = Bridge(spark)
    raw = session_catalog.catalog_of(bridge).getTableRawMetadata(session_catalog.identifier_of(bridge, name))
    facts = [tuple(str(one).replace(word, "NAME") for one in row) for row in told if row[0] not in skipped]
    return facts, json.loads(raw.schema().json()), raw.tracksPartitionsInCatalog()


def folders(spark: SparkSession, name: str) -> Any:
    place = next(
        row.data_type for row in spark.sql(f"describe extended {name}").collect() if row.col_name == "Location"
    )
    root = Path(str(place).removeprefix("file:"))
    files = (path for path in root.rglob("*") if path.is_file() and path.suffix != ".crc" and path.name != "_SUCCESS")
    found = {str(path.parent.relative_to(root)) for path in files}
    return found, sorted(one.name for one in root.glob(".penstock*")), (root / "_SUCCESS").exists()


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


def created(by: Any = (), kind: str | None = None) -> Any:
    """Return how Penstock and how Spark make a table."""

    def plainly(df: DataFrame, name: str) -> None:
        writer = df.write if kind is None else df.write.format(kind)
        (writer.partitionBy(*by) if by else writer).saveAsTable(name)

    return lambda name: TableSink(name, partition_by=by, format=kind), plainly


def added(mode: str) -> Any:
    def plainly(df: DataFrame, name: str) -> None:
        columns = df.sparkSession.table(name).columns
        df.select(*columns).write.insertInto(name, overwrite=mode == "overwrite")

    return lambda name: TableSink(name, mode=mode), plainly


STEPS: dict[str, list[Any]] = {
    "a new table": [(ROWS, created())],
    "a new table of json": [(ROWS, created(kind="json"))],
    "a new table with partitions": [(ROWS, created(["k"]))],
    "a new table with a partition column by another case, not the last": [(ROWS, created(["ID"]))],
    "append by a partition column of another case": [
        (ROWS, created(["k"])),
        (MORE, (lambda name: TableSink(name, mode="append", partition_by="K"), added("append")[1])),
    ],
    "append": [(ROWS, created()), (MORE, added("append"))],
    "append to partitions": [
        (ROWS, created(["k"])),
        (MORE.replace("cast(k as int)", "cast(k + 2 as int)"), added("append")),
    ],
    "overwrite": [(ROWS, created()), (MORE, added("overwrite"))],
    "overwrite all partitions": [(ROWS, created(["k"])), (f"select * from ({MORE}) where k = 1", added("overwrite"))],
}


@pytest.mark.parametrize(("case", "dynamic"), [*((case, False) for case in STEPS), ("overwrite all partitions", True)])
def test_tables_are_as_spark_makes_them(
    env: Environment, spark: SparkSession, tables: Any, case: str, dynamic: bool
) -> None:
    for step, (query, (sink, plainly)) in enumerate(STEPS[case]):
        with with_settings(spark, {DYNAMIC: "dynamic" if dynamic and step else "static"}):
            env.write(spark.sql(query), sink(tables[0]))
            env.execute()
            plainly(spark.sql(query), tables[1])
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
    "insert into one partition, left to Spark": [
        f"create table NAME using parquet partitioned by (k) as {ROWS}",
        "insert into NAME partition (k = 9) select id, t from range(3) join (select 'x' as t)",
    ],
    "with": [
        f"create table NAME using parquet as {ROWS}",
        "with q as (select 1L, 2L, 'y') insert into NAME select * from q",
    ],
    "left to Spark": [
        f"create table NAME using parquet partitioned by (k) clustered by (id) into 2 buckets as {ROWS}",
        "insert into NAME values (7, 'x', 8)",
    ],
    "overwrite of one partition, left to Spark": [
        f"create table NAME using parquet partitioned by (k) as {ROWS}",
        "insert overwrite NAME partition (k = 1) select id, t from range(3) join (select 'x' as t)",
    ],
}


@pytest.mark.parametrize("case", STATEMENTS)
def test_statements(env: Environment, spark: SparkSession, tables: Any, case: str) -> None:
    ours, plain = tables
    for statement in STATEMENTS[case]:
        before = env.last_job
        answer = env.sql(statement.replace("NAME", ours))
        assert answer.columns == []
        left = "left to Spark" in case and ("partitioned by (k) as" not in statement)
        assert (env.last_job is before) is left
        spark.sql(statement.replace("NAME", plain))
    assert_same_tables(spark, tables)


def test_a_statement_that_reads_runs_nothing(env: Environment, spark: SparkSession) -> None:
    before = env.last_job
    assert env.sql("select :x as insert", x=3).collect()[0]["insert"] == 3
    assert env.last_job is before


def test_all_sinks_or_none(env: Environment, spark: SparkSession, tables: Any, tmp_path: Path) -> None:
    """The second sink cannot commit, as somebody has taken its folder: the table is not made either."""
    ours, _ = tables
    taken = tmp_path / "taken"

    class Taken(FileSink):
        def open(self, session: SparkSession) -> Any:
            job = super().open(session)
            write = job.write

            def taking(df: DataFrame) -> None:
                write(df)
                taken.mkdir()

            job.write = taking  # type: ignore[method-assign]
            return job

    env.write(spark.sql(ROWS), TableSink(ours, partition_by="k"))
    env.write(spark.sql(ROWS), Taken(str(taken)))
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
    ("make", "message"),
    [
        (lambda name: TableSink(name), "exists already"),
        (lambda name: TableSink(name, mode="append", partition_by="t"), "is partitioned by no column, not by t"),
        (lambda name: TableSink("a b"), "could not be planned"),
        (lambda name: TableSink("a.b.c.d"), "leads to spark_catalog.a.b.c.d"),
        (lambda name: TableSink("sinks.view", mode="append"), "cannot be written by TableSink"),
        (lambda name: TableSink("sinks.new", partition_by="nope"), "partition column 'nope'"),
    ],
)
def test_what_is_refused_at_once(env: Environment, spark: SparkSession, tables: Any, make: Any, message: str) -> None:
    spark.sql(f"create table {tables[0]} using parquet as {ROWS}")
    spark.sql(f"create view sinks.view as select * from {tables[0]}")
    env.write(spark.sql(ROWS), make(tables[0]))
    with pytest.raises(PenstockError, match=message) as refused:
        env.execute()
    assert not isinstance(refused.value, JobError)
    assert __file__ in str(refused.value.line)


def test_ignore_writes_nothing(env: Environment, spark: SparkSession, tables: Any) -> None:
    spark.sql(f"create table {tables[0]} using parquet as {ROWS}")
    env.write(spark.sql(MORE), TableSink(tables[0], mode="ignore"))
    env.execute()
    assert spark.table(tables[0]).count() == 30


@pytest.mark.parametrize(
    "arguments", [{}, {"n": 3}, {"n": 0}, {"truncate": False}, {"truncate": 5}, {"vertical": True}]
)
def test_show(env: Environment, spark: SparkSession, capsys: Any, arguments: Any) -> None:
    df = spark.range(0, 30, 1, 3).selectExpr("id", "repeat('long ', 9) as text", "array(id) as many").orderBy("id")
    df.show(**arguments)
    plain = capsys.readouterr().out
    env.show(df, **arguments)
    assert capsys.readouterr().out == plain


@pytest.mark.parametrize("threshold", ["0", "64 mb"])
def test_a_table_is_overwritten_by_rows_read_from_it(
    make_env: Any, spark: SparkSession, tables: Any, threshold: str
) -> None:
    """Whether Spark runs the query as one, or Penstock step by step."""
    env = make_env(**{"execution.batch.adaptive.whole__query__threshold": threshold})
    spark.sql(f"create table {tables[0]} using parquet as {ROWS}")
    kept = spark.table(tables[0]).where("k = 1")
    expected = kept.collect()
    env.write(kept, TableSink(tables[0], mode="overwrite"))
    env.execute()
    assert_same_rows(spark.table(tables[0]).collect(), expected)


@pytest.mark.thorough
def test_a_token_that_a_table_holds_is_written_once(env: Environment, spark: SparkSession, tables: Any) -> None:
    """As of a folder: a rerun is safe, also in the mode that refuses a table that is there."""
    for _ in range(2):
        env.write(spark.sql(ROWS), TableSink(tables[0], token="monday"))
        env.execute()
        assert spark.table(tables[0]).count() == 30
    with pytest.raises(PenstockError, match="exists already"):
        env.write(spark.sql(ROWS), TableSink(tables[0], token="tuesday"))
        env.execute()


def test_the_catalogue_s_name_in_capital_letters(env: Environment, spark: SparkSession, tables: Any) -> None:
    env.write(spark.sql(ROWS), TableSink(f"SPARK_CATALOG.{tables[0]}"))
    env.execute()
    assert spark.table(tables[0]).count() == 30


def test_a_table_below_a_symbolic_link_keeps_the_link_in_its_place(
    env: Environment, spark: SparkSession, tmp_path: Path, tables: Any
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for name in tables:
        place = f"file:{tmp_path}/link/{name.rpartition('.')[2]}"
        statement = f"create table {name} using parquet location '{place}' as {ROWS}"
        (env if name == tables[0] else spark).sql(statement)
        told = {row.col_name: row.data_type for row in spark.sql(f"describe extended {name}").collect()}
        assert told["Location"] == place
        assert spark.table(name).count() == 30
