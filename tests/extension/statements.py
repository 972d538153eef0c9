"""More programs: SQL statements, settings, sessions, functions with side effects, and custom sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter, InputPartition, WriterCommitMessage

from penstock.spark.plans.dataframes import with_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def accumulators(spark: SparkSession, folder: Path) -> Any:
    """Functions are called once per row."""
    calls = [spark.sparkContext.accumulator(0) for _ in range(3)]

    def counted(index: int) -> Any:
        def count(x):  # type: ignore[no-untyped-def]  # hints would make it a function of another kind
            calls[index].add(1)
            return x % 5

        return F.udf(count, "long")

    df = spark.range(0, 100, 1, 4)
    df.groupBy(counted(0)("id").alias("k")).count().collect()
    left = df.select(counted(1)("id").alias("k"), "id")
    left.join(df.withColumnRenamed("id", "k"), "k").count()
    df.repartition(4, "id").select(counted(2)("id").alias("k")).agg(F.max("k")).collect()
    return [accumulator.value for accumulator in calls]


def without_adaptive_execution(spark: SparkSession, folder: Path) -> Any:
    """Without AQE, the number of partitions after each shuffle, and so of files, is predictable."""
    df = spark.range(0, 100, 1, 4).withColumn("k", F.col("id") % 7)
    with with_settings(spark, {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "3"}):
        grouped = df.groupBy("k").count()
        grouped.write.parquet(str(folder / "out"))
        ids = grouped.select("k", F.spark_partition_id().alias("p")).orderBy("k").collect()
        joined = df.join(df.withColumnRenamed("id", "other").hint("merge"), "k")
        return grouped.rdd.getNumPartitions(), joined.rdd.getNumPartitions(), len(list(folder.glob("out/part-*"))), ids


def statements(spark: SparkSession, folder: Path) -> Any:
    spark.range(0, 100, 1, 4).selectExpr("id", "id % 7 as k", "id % 3 as m").createOrReplaceTempView("numbers")
    outcomes: list[Any] = []
    for text in (
        "CREATE TABLE stored USING parquet PARTITIONED BY (m) AS SELECT k, sum(id) AS s, m FROM numbers GROUP BY k, m",
        "ANALYZE TABLE stored COMPUTE STATISTICS FOR ALL COLUMNS",
        "INSERT OVERWRITE stored PARTITION (m = 1) SELECT k, count(*) FROM numbers GROUP BY k",
        "INSERT INTO stored SELECT k, max(id), 5 FROM numbers GROUP BY k HAVING k > (SELECT avg(k) FROM numbers)",
        "SELECT m, count(*), sum(s) FROM stored GROUP BY m ORDER BY m",
        "DECLARE OR REPLACE VARIABLE most BIGINT",
        "SET VAR most = (SELECT max(s) FROM stored)",
        "SELECT k FROM stored WHERE s = most ORDER BY k",
        "EXECUTE IMMEDIATE 'SELECT k, count(*) FROM numbers WHERE id > ? GROUP BY k ORDER BY k' USING 50",
        "SELECT * FROM (SELECT k, m, id FROM numbers) PIVOT (sum(id) FOR m IN (0, 1, 2)) ORDER BY k",
        "SELECT k, m, grouping_id(), sum(id) FROM numbers GROUP BY CUBE (k, m) ORDER BY 3, 1, 2",
        "SELECT k, s FROM stored QUALIFY row_number() OVER (PARTITION BY m ORDER BY s DESC, k) = 1 ORDER BY k, s",
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 6) SELECT sum(n) FROM r",
        "SELECT a.k, b.t FROM numbers a, LATERAL (SELECT sum(id) AS t FROM numbers WHERE k = a.k) b WHERE a.id < 5 ORDER BY 1",
        "FROM numbers |> AGGREGATE count(*) AS n GROUP BY m |> ORDER BY m",
        "CREATE OR REPLACE TEMPORARY VIEW grouped AS SELECT k, count(*) AS n FROM numbers GROUP BY k",
        "CACHE TABLE held AS SELECT k, n FROM grouped WHERE n > 14",
        "SELECT sum(n) FROM held JOIN grouped USING (k, n)",
        "UNCACHE TABLE held",
        "DROP VIEW held",
        f"INSERT OVERWRITE DIRECTORY '{folder}/dir' USING csv SELECT k, sum(id) FROM numbers GROUP BY k",
        f"SELECT count(*) FROM csv.`{folder}/dir`",
        (
            "BEGIN DECLARE total BIGINT DEFAULT 0; "
            "FOR row AS SELECT k, count(*) AS n FROM numbers GROUP BY k DO SET total = total + row.n; END FOR; SELECT total; END"
        ),
        "CREATE TABLE counted (k BIGINT, n BIGINT) USING parquet",
        (
            "FROM numbers INSERT INTO counted SELECT k, count(*) WHERE k < 3 GROUP BY k "
            "INSERT INTO counted SELECT k, max(id) WHERE k > 4 GROUP BY k"
        ),
        "SELECT k, n FROM counted ORDER BY k, n",
        "DROP TABLE counted",
        "DROP TABLE stored",
    ):
        try:
            outcomes.append([tuple(row) for row in spark.sql(text).collect()])
        except Exception as error:
            outcomes.append((type(error), str(error)))
    with_arguments = spark.sql("SELECT k, count(*) FROM numbers WHERE id > :least GROUP BY k ORDER BY k", {"least": 90})
    return (
        outcomes,
        with_arguments.collect(),
        spark.sql("SELECT m, sum(id) FROM {t} GROUP BY m ORDER BY m", t=with_numbers(spark)).collect(),
    )


def with_numbers(spark: SparkSession) -> Any:
    return spark.table("numbers")


class Evens(DataSource):
    """A source of numbers in three partitions; its sink counts the rows of each task."""

    @classmethod
    def name(cls) -> str:
        return "evens"

    def schema(self) -> str:
        return "n long, part int"

    def reader(self, schema: Any) -> DataSourceReader:
        return EvensReader()

    def writer(self, schema: Any, overwrite: bool) -> DataSourceWriter:
        return CountingWriter(self.options["path"])


class EvensReader(DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return [InputPartition(index) for index in range(3)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, int]]:
        return ((2 * n, partition.value) for n in range(10))


class CountingWriter(DataSourceWriter):
    def __init__(self, path: str) -> None:
        self.path = path

    def write(self, iterator: Any) -> WriterCommitMessage:
        message = WriterCommitMessage()
        message.rows = sum(1 for _ in iterator)
        return message

    def commit(self, messages: list[Any]) -> None:
        from pathlib import Path

        Path(self.path).write_text(str(sum(message.rows for message in messages if message)))


def own_source(spark: SparkSession, folder: Path) -> Any:
    spark.dataSource.register(Evens)
    df = spark.read.format("evens").load()
    grouped = df.groupBy("n").agg(F.count("*").alias("c"))
    grouped.write.format("evens").mode("append").save(str(folder / "count"))
    return [
        df.rdd.getNumPartitions(),
        df.orderBy("part", "n").collect(),
        grouped.orderBy("n").collect(),
        (folder / "count").read_text(),
    ]


def other_sessions(spark: SparkSession, folder: Path) -> Any:
    """Each session has its own views, functions and settings, which apply to its queries."""
    results = []
    for zone in ("UTC", "Asia/Tokyo"):
        session = spark.newSession()
        session.conf.set("spark.sql.session.timeZone", zone)
        session.range(10).selectExpr("timestamp_seconds(id * 7200) as t").createOrReplaceTempView("times")
        session.udf.register("add", lambda x, zone=zone: f"{zone} {x}")
        results.append(
            session.sql("SELECT add(date(t)) d, count(*), min(string(t)) FROM times GROUP BY 1 ORDER BY 1").collect()
        )
    clone = spark.newSession()
    clone.conf.set("spark.sql.ansi.enabled", "false")
    results.append(clone.range(5).groupBy(F.expr("10 div (id - 3)").alias("d")).count().orderBy("d").collect())
    return results


STATEMENTS: dict[str, Callable[[SparkSession, Path], Any]] = {
    program.__name__: program
    for program in (accumulators, without_adaptive_execution, statements, own_source, other_sessions)
}
