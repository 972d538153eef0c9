"""Files that Penstock and Spark write in each mode have the same folders, rows and order, or the same errors."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never

import pytest

from penstock.connectors import FileSink
from penstock.spark.plans.dataframes import with_settings
from tests.support.equality import assert_same_rows
from tests.support.outcomes import mostly_slow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock import Environment


pytestmark = pytest.mark.usefixtures("interpreted")
DYNAMIC = {"spark.sql.sources.partitionOverwriteMode": "dynamic"}
STATIC = {"spark.sql.sources.partitionOverwriteMode": "static"}
OPTION = "partitionOverwriteMode"
DAYS = "select id, id % 3 as day from range(90)"
SINGLE_DAY = "select id + 1000 as id, 1L as day from range(7)"


def step(query: str, mode: str = "error", by: Any = (), conf: Any = None, kind: str = "parquet", **options: Any) -> Any:
    return query, mode, by, conf or {}, kind, options


# Each case is a sequence of writes to the same path.
WRITES = {
    "dynamic replaces partitions with rows": [step(DAYS, by=["day"]), step(SINGLE_DAY, "overwrite", ["day"], DYNAMIC)],
    "static replaces all": [step(DAYS, by=["day"]), step(SINGLE_DAY, "overwrite", ["day"], STATIC)],
    "the option wins over the session": [
        step(DAYS, by=["day"]),
        step(SINGLE_DAY, "overwrite", ["day"], STATIC, **{OPTION: "dynamic"}),
    ],
    "the option's case does not matter": [
        step(DAYS, by=["day"]),
        step(SINGLE_DAY, "overwrite", ["day"], PARTITIONoverwriteMODE="DYNAMIC"),
    ],
    "static as an option": [
        step(DAYS, by=["day"]),
        step(SINGLE_DAY, "overwrite", ["day"], DYNAMIC, **{OPTION: "static"}),
    ],
    "an unknown overwrite mode": [
        step(DAYS, by=["day"]),
        step(SINGLE_DAY, "overwrite", ["day"], **{OPTION: "sometimes"}),
    ],
    "dynamic without partitions": [step(DAYS), step(SINGLE_DAY, "overwrite", (), DYNAMIC)],
    "dynamic of two levels": [
        step("select id, id % 2 as a, id % 3 as b from range(60)", by=["a", "b"]),
        step("select 7L as id, 1L as a, 2L as b", "overwrite", ["a", "b"], DYNAMIC),
    ],
    "dynamic with no rows": [
        step(DAYS, by=["day"]),
        step("select * from (" + SINGLE_DAY + ") where id < 0", "overwrite", ["day"], DYNAMIC),
    ],
    "dynamic of a new path": [step(DAYS, "overwrite", ["day"], DYNAMIC)],
    "dynamic adds partitions": [
        step(DAYS, by=["day"]),
        step("select id, id + 2 as day from range(3)", "overwrite", ["day"], DYNAMIC),
    ],
    "dynamic of nulls and empty texts": [
        step("select id, if(id % 2 = 0, null, 'x') as s from range(20)", by=["s"]),
        step("select 1L as id, '' as s", "overwrite", ["s"], DYNAMIC),
    ],
    "dynamic, csv": [step(DAYS, by=["day"], kind="csv"), step(SINGLE_DAY, "overwrite", ["day"], DYNAMIC, kind="csv")],
    "dynamic append only appends": [step(DAYS, by=["day"]), step(SINGLE_DAY, "append", ["day"], DYNAMIC)],
    "overwrite with no rows": [
        step(DAYS, by=["day"]),
        step("select * from (" + DAYS + ") where id < 0", "overwrite", ["day"]),
    ],
    "an underscore in front": [
        step("select id, id % 3 as _p from range(30)", by=["_p"]),
        step("select id, id % 4 as _p from range(30)", "append", ["_p"]),
    ],
    "underscores, two levels": [
        step("select id, id % 3 as _p, id % 2 as _q from range(30)", by=["_p", "_q"]),
        step("select id, id % 4 as _p, id % 3 as _q from range(30)", "append", ["_p", "_q"]),
    ],
    "underscore, dynamic": [
        step("select id, id % 3 as _p from range(30)", by=["_p"]),
        step("select 5L as id, 1L as _p", "overwrite", ["_p"], DYNAMIC),
    ],
    "underscore second": [step("select id, id % 3 as p, id % 2 as _q from range(30)", by=["p", "_q"])] * 1
    + [step("select id, id % 3 as p, id % 2 as _q from range(9)", "append", ["p", "_q"])],
    "an odd name": [
        step("select id, id % 3 as `a=b c` from range(30)", by=["`a=b c`"]),
        step("select id, id % 3 as `a=b c` from range(9)", "append", ["`a=b c`"]),
    ],
    "odd values": [
        step(
            "select 1 as id, explode(array('a/b', 'c=d', 'e:f', ' ', '%41', 'ä', '{x}', 'q*', null, '')) as s", by=["s"]
        ),
        step(
            "select 2 as id, explode(array('a/b', 'c=d', 'e:f', ' ', '%41', 'ä', '{x}', 'q*', null, '')) as s",
            "append",
            ["s"],
        ),
        step("select 3 as id, explode(array('a/b', '%41', '{x}')) as s", "overwrite", ["s"], DYNAMIC),
    ],
    "append by other columns": [
        step("select id, id % 3 as a, id % 2 as b from range(9)", by=["a"]),
        step("select id, id % 3 as a, id % 2 as b from range(9)", "append", ["b"]),
    ],
    "ignore an existing folder": [step(DAYS, by=["day"]), step(SINGLE_DAY, "ignore", ["day"])],
    "ignore a missing folder": [step(DAYS, "ignore", ["day"])],
    "error for an existing folder": [step(DAYS), step(DAYS, "error")],
    "no rows": [step("select * from range(0)"), step("select * from range(0)", "append")],
    "no rows by partition": [
        step("select id, id as p from range(0)", by=["p"]),
        step("select id, id as p from range(3)", "append", ["p"]),
    ],
    "another case of a partition column": [
        step("select id, id % 3 as Day from range(9)", by=["dAY"]),
        step("select id, id % 3 as day from range(9)", "append", ["day"]),
    ],
    "a partition column that is not there": [step("select id from range(9)", by=["day"])],
    "only partition columns": [step("select id from range(9)", by=["id"])],
    "the same column twice": [step("select id, id % 2 as p from range(9)", by=["p", "p"])],
    "two columns with the same name": [step("select id, id as ID from range(9)")],
    "times and a zone": [
        step(
            "select id, timestamp'2026-03-29 01:30:00' + make_interval(0,0,0,0,id) as t from range(4)",
            by=["t"],
            conf={"spark.sql.session.timeZone": "Europe/Berlin"},
        ),
        step(
            "select id, timestamp'2026-03-29 01:30:00' + make_interval(0,0,0,0,id) as t from range(4)",
            "append",
            ["t"],
            {"spark.sql.session.timeZone": "Asia/Tokyo"},
        ),
    ],
    "dates and decimals": [
        step(
            "select id, date'2026-01-01' + cast(id % 2 as int) as d, cast(id % 2 as decimal(5,2)) as n, id % 2 = 0 as b from range(8)",
            by=["d", "n", "b"],
        )
    ],
    "doubles": [
        step("select id, explode(array(0.1d, 1e300d, double('nan'), -0.0d, 0.0d)) as f from range(2)", by=["f"])
    ],
    "texts of a single column": [
        step("select cast(id as string) as value, id % 2 as p from range(9)", by=["p"], kind="text")
    ],
    "texts of two columns": [step("select cast(id as string) as a, 'b' as b from range(9)", kind="text")],
    "an interval": [step("select interval 1 day as i, make_interval(1) as j")],
    "a void column": [step("select null as v, 1 as i")],
    "nested nulls, json": [step("select id, named_struct('a', if(id = 1, null, id)) as s from range(3)", kind="json")],
    "empty texts, csv": [step("select id, if(id % 2 = 0, '', null) as s from range(4)", kind="csv", header="true")],
    "records for each file": [step("select id, id % 2 as p from range(40)", by=["p"], maxRecordsPerFile="5")],
    "padded texts": [step("select id, cast(id as string) || ' ' as s from range(3)", by=["s"])],
}


def folders(path: Any) -> Any:
    return (
        sorted(str(folder.relative_to(path)) for folder in path.rglob("*") if folder.is_dir())
        if path.exists()
        else None
    )


def rows(spark: SparkSession, path: Any, kind: Any, options: Any = None) -> Any:
    try:
        return spark.read.options(**options or {}).format(kind).load(str(path)).collect()
    except Exception as error:
        return type(error).__name__, getattr(error, "getCondition", lambda: None)()


def error_of(work: Any) -> Any:
    try:
        work()
    except Exception as error:
        return error
    return None


def write_by_spark(df: DataFrame, path: Any, mode: Any, by: Any, kind: Any, options: Any) -> None:
    writer = df.write.format(kind).mode(mode).options(**options)
    (writer.partitionBy(*by) if by else writer).save(str(path))


def compare_writes(env: Environment, spark: SparkSession, tmp_path: Path, steps: Any, **sink_options: Any) -> None:
    ours, plain = tmp_path / "ours", tmp_path / "plain"
    for query, mode, by, conf, kind, options in steps:
        with with_settings(spark, conf):
            by = [name.strip("`") for name in by]  # noqa: PLW2901

            def write() -> None:
                env.write(
                    spark.sql(query),  # noqa: B023
                    FileSink(str(ours), kind, mode=mode, partition_by=by, options=options, **sink_options),  # noqa: B023
                )
                env.execute()

            with ThreadPoolExecutor(1) as executor:  # both write at the same time, to different paths
                plain_writer = executor.submit(
                    error_of,
                    lambda: write_by_spark(spark.sql(query), plain, mode, by, kind, options),  # noqa: B023
                )
                error = error_of(write)
            expected_error = plain_writer.result()
            env._outputs.take()
        assert (error is None) == (expected_error is None), f"{error!r} instead of {expected_error!r}"
        assert folders(ours) == folders(plain)
        actual, expected = rows(spark, ours, kind, options), rows(spark, plain, kind, options)
        if isinstance(expected, tuple) or isinstance(actual, tuple):
            assert actual == expected
        else:
            assert_same_rows(actual, expected)
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".penstock")]


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    ("mode", "by", "options", "conf", "expected"),
    [
        ("overwrite", ["day"], {}, {}, False),
        ("overwrite", ["day"], {}, DYNAMIC, True),
        ("overwrite", ["day"], {OPTION: "static"}, DYNAMIC, False),
        ("overwrite", ["day"], {OPTION.upper(): "Dynamic"}, STATIC, True),
        ("overwrite", [], {OPTION: "dynamic"}, DYNAMIC, False),
        ("append", ["day"], {OPTION: "dynamic"}, DYNAMIC, False),
    ],
)
def test_dynamic_overwrite_is_chosen_as_in_spark(
    spark: SparkSession, mode: str, by: Any, options: Any, conf: Any, *, expected: bool
) -> None:
    with with_settings(spark, conf):
        assert FileSink("out", mode=mode, partition_by=by, options=options)._replaces_partitions(spark) == expected


@pytest.mark.parametrize("case", WRITES)
def test_writes_give_the_same_files_as_plain_spark(
    env: Environment, spark: SparkSession, tmp_path: Path, case: str
) -> None:
    compare_writes(env, spark, tmp_path, WRITES[case])


@pytest.mark.thorough
@pytest.mark.parametrize(
    "case",
    [
        "dynamic replaces partitions with rows",
        "dynamic of two levels",
        "dynamic of nulls and empty texts",
        "an underscore in front",
        "underscores, two levels",
        "odd values",
        "an odd name",
        "times and a zone",
        "doubles",
        "dates and decimals",
        "padded texts",
    ],
)
def test_compacted_writes_give_the_same_rows_as_plain_spark(
    env: Environment, spark: SparkSession, tmp_path: Path, case: str
) -> None:
    compare_writes(env, spark, tmp_path, WRITES[case], auto_compaction=True)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["col:on", "per%cent", "a b", "\u00e9;"])
def test_folders_with_special_characters_are_written(
    env: Environment, spark: SparkSession, tmp_path: Path, name: str
) -> None:
    path = str(tmp_path / name)
    for mode in ("error", "overwrite", "append"):
        env.write(spark.range(20), FileSink(path, mode=mode))
        env.execute()
    assert spark.read.parquet(path).count() == 40
    assert os.listdir(tmp_path) == [name]


def test_a_failed_dynamic_overwrite_changes_no_partition(env: Environment, spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "out")
    spark.sql(DAYS).write.partitionBy("day").parquet(path)
    with with_settings(spark, DYNAMIC):
        env.write(
            spark.sql("select if(id = 3, raise_error('no'), id) as id, id % 2 as day from range(6)"),
            FileSink(path, mode="overwrite", partition_by=["day"]),
        )
        assert "no" in str(error_of(env.execute))
    assert_same_rows(spark.read.parquet(path).collect(), spark.sql(DAYS).collect())
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.thorough
def test_a_failed_partition_commit_restores_the_old_rows(env: Environment, spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "out")
    spark.sql(DAYS).write.partitionBy("day").parquet(path)

    def fail(partition: Any) -> Never:
        raise ValueError("no")

    with with_settings(spark, DYNAMIC):
        env.write(
            spark.sql("select 100 as id, 1 as day"),
            FileSink(path, mode="overwrite", partition_by=["day"], partition_commit=[fail]),
        )
        assert "no" in str(error_of(env.execute))
    assert_same_rows(spark.read.parquet(path).collect(), spark.sql(DAYS).collect())
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.thorough
def test_partition_commit_of_columns_with_a_leading_underscore(
    env: Environment, spark: SparkSession, tmp_path: Path
) -> None:
    committed = []
    sink = FileSink(
        str(tmp_path / "out"),
        partition_by=["_p", "q"],
        partition_commit=[lambda partition: committed.append(dict(partition.values))],
    )
    env.write(spark.sql("select id, id % 2 as _p, concat('a=', id % 2) as q from range(8)"), sink)
    env.execute()
    assert sorted(committed, key=str) == [{"_p": "0", "q": "a=0"}, {"_p": "1", "q": "a=1"}]


# -- the user's order ----------------------------------------------------------------------------------------------------

ORDERS = {
    "local": (lambda df: df.sortWithinPartitions("p", "v"), ["p"]),
    "local, other order": (lambda df: df.sortWithinPartitions("p", df.v.desc()), ["p"]),
    "local, after an exchange": (lambda df: df.repartition(3, "p").sortWithinPartitions("p", "v"), ["p"]),
    "local, without partitions": (lambda df: df.sortWithinPartitions("v"), []),
    "local, below a projection": (
        lambda df: df.sortWithinPartitions("p", "v").selectExpr("v", "p", "v + 1 as w"),
        ["p"],
    ),
    "local, below a filter": (lambda df: df.sortWithinPartitions("p", "v").where("v % 7 <> 0"), ["p"]),
    "local, two levels": (lambda df: df.sortWithinPartitions("p", "q", "v"), ["p", "q"]),
    "local, texts": (lambda df: df.selectExpr("v", "concat('t', p) as s").sortWithinPartitions("s", "v"), ["s"]),
    "local, after a grouping": (lambda df: df.groupBy("p", "v").count().sortWithinPartitions("p", "v"), ["p"]),
    "global": (lambda df: df.orderBy("p", "v"), ["p"]),
    "global, descending": (lambda df: df.orderBy("p", df.v.desc()), ["p"]),
    "global, without partitions": (lambda df: df.orderBy("v"), []),
    "local, cached": (lambda df: df.sortWithinPartitions("p", "v").cache(), ["p"]),
    "local, of a join": (
        lambda df: df.join(df.sparkSession.range(5).withColumnRenamed("id", "p"), "p").sortWithinPartitions("p", "v"),
        ["p"],
    ),
}


@pytest.mark.parametrize("parallelism", mostly_slow([None, 3]))
@pytest.mark.parametrize("case", ORDERS)
def test_files_have_the_users_order(
    env: Environment, spark: SparkSession, tmp_path: Path, case: str, parallelism: Any
) -> None:
    """The rows of each file have the user's order."""
    sort, by = ORDERS[case]
    source = tmp_path / "in"
    spark.range(0, 4000, 1, 4).selectExpr("(id * 7919) % 4001 as v", "id % 5 as p", "id % 2 as q").write.parquet(
        str(source)
    )
    df = sort(spark.read.parquet(str(source)))
    descending = "desc" in case or "other" in case
    write_by_spark(df, tmp_path / "plain", "error", by, "json", {})
    env.write(df, FileSink(str(tmp_path / "ours"), "json", partition_by=by), parallelism=parallelism)
    env.execute()
    df.unpersist()
    assert_same_rows(rows(spark, tmp_path / "ours", "json"), rows(spark, tmp_path / "plain", "json"))
    for root in ("plain", "ours"):
        for file in (tmp_path / root).rglob("part-*"):
            values = [
                int(line.partition('"v":')[2].split(",")[0].split("}")[0]) for line in file.read_text().splitlines()
            ]
            assert values == sorted(values, reverse=descending), f"{root}: {file}"


# -- readers that are cached -----------------------------------------------------------------------------------------------


def cached_reader(spark: SparkSession, path: Any, query: Any) -> Any:
    match query:
        case "a frame":
            df = spark.read.parquet(path).cache()
        case "a filter":
            df = spark.read.parquet(path).where("id >= 0").cache()
        case "a table":
            spark.sql(f"create table if not exists cached_reader using parquet location '{path}'")
            df = spark.table("cached_reader").cache()
        case "a folder above":
            df = spark.read.option("recursiveFileLookup", "true").parquet(path.rpartition("/")[0]).cache()
        case "an aggregate":
            df = spark.read.parquet(path).groupBy("id").count().cache()
    df.count()
    return df


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize("query", ["a frame", "a filter", "a table", "a folder above", "an aggregate"])
def test_cached_readers_see_new_rows(
    env: Environment, spark: SparkSession, tmp_path: Path, query: str, mode: str
) -> None:
    counts = []
    for name in ("plain", "ours"):
        path = str(tmp_path / name / "t")
        spark.range(10).write.parquet(path)
        df = cached_reader(spark, path, query)
        new_rows = spark.range(100, 125)
        if name == "plain":
            new_rows.write.mode(mode).parquet(path)
        else:
            env.write(new_rows, FileSink(path, mode=mode))
            env.execute()
        counts.append(df.count())
        df.unpersist()
        spark.sql("drop table if exists cached_reader")
    assert counts[0] == counts[1]
    assert counts[0] == (10 if query == "a folder above" else 35 if mode == "append" else 25)


@pytest.mark.thorough
def test_cached_readers_see_dynamic_overwrites(env: Environment, spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    spark.sql(DAYS).write.partitionBy("day").parquet(path)
    df = spark.read.parquet(path).cache()
    assert df.count() == 90
    env.write(
        spark.sql(SINGLE_DAY), FileSink(path, mode="overwrite", partition_by=["day"], options={OPTION: "dynamic"})
    )
    env.execute()
    assert df.count() == 67
    df.unpersist()


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_job_can_write_to_the_path_that_it_reads(
    env: Environment, spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    """New rows are staged before old files are replaced, so the job reads the old files."""
    path = str(tmp_path / "t")
    spark.range(10).write.parquet(path)
    env.write(spark.read.parquet(path).selectExpr("id + 100 as id"), FileSink(path, mode=mode))
    env.execute()
    old_ids = list(range(10)) if mode == "append" else []
    assert sorted(row.id for row in spark.read.parquet(path).collect()) == old_ids + list(range(100, 110))


def test_an_overwrite_keeps_the_tokens_of_earlier_loads(env: Environment, spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    for token, rows in (("monday", 20), ("tuesday", 30), ("monday", 20)):
        env.write(spark.range(rows), FileSink(path, mode="overwrite", token=token))
        env.execute()
    assert spark.read.parquet(path).count() == 30


@pytest.mark.parametrize(
    ("sink_options", "reason"),
    [
        ({"mode": "append", "token": "2026-11"}, "the target already has the rows of token '2026-11'"),
        ({"mode": "ignore"}, "the folder exists, and the mode is ignore"),
    ],
)
def test_a_skipped_write_has_a_reason(
    env: Environment, spark: SparkSession, tmp_path: Path, sink_options: Any, reason: str
) -> None:
    for _ in range(2):
        env.write(spark.sql("select id from range(20)"), FileSink(str(tmp_path / "out"), **sink_options), parallelism=2)
        job = env.execute()
    (sink,) = (vertex for vertex in job.vertices if "Sink" in vertex.vertex.name)
    assert (sink.tasks, sink.parallelism, sink.reason) == (None, None, f"nothing is written: {reason}")
    assert f"nothing is written: {reason[:20]}" in str(job.table())
    assert spark.read.parquet(str(tmp_path / "out")).count() == 20
