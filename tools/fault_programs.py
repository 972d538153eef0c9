"""Small programs for plain Spark: each of `FAULTS` has a seeded performance fault, those of `HEALTHY` have none."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd  # noqa: TC002 - PySpark reads the types of pandas functions
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

Run = Callable[[SparkSession, Path], object]
WITHOUT_AQE = {"spark.sql.adaptive.enabled": "false"}
WITHOUT_BROADCAST = {"spark.sql.autoBroadcastJoinThreshold": "-1"}
LITTLE_MEMORY = {"spark.memory.fraction": "0.03"}


@dataclass(frozen=True)
class Program:
    """A program, its settings of Spark, and the kind of its seeded fault; an empty kind means a healthy program."""

    name: str
    kind: str
    run: Run
    settings: dict[str, str] = field(default_factory=dict)


FAULTS: list[Program] = []
HEALTHY: list[Program] = []


def fault(kind: str, *settings: dict[str, str]) -> Callable[[Run], Run]:
    def register(run: Run) -> Run:
        merged = {key: value for part in settings for key, value in part.items()}
        FAULTS.append(Program(run.__name__, kind, run, merged))
        return run

    return register


def healthy(run: Run) -> Run:
    HEALTHY.append(Program(run.__name__, "", run))
    return run


def partitions(count: int) -> dict[str, str]:
    return {"spark.sql.shuffle.partitions": str(count)}


def slow(seconds: float, rows: int) -> Callable[[pd.Series], pd.Series]:
    """Return a pandas function that sleeps for `seconds` per `rows` rows."""

    def sleep(values: pd.Series) -> pd.Series:
        time.sleep(seconds * len(values) / rows)
        return values + 1

    return sleep


def wide(spark: SparkSession, rows: int, tasks: int = 4) -> DataFrame:
    columns = ("id", "id % 1000 as customer", "rand(7) as amount", "repeat(sha1(cast(id as string)), 3) as note")
    return spark.range(0, rows, 1, tasks).selectExpr(*columns)


@fault("skew", WITHOUT_AQE, WITHOUT_BROADCAST, partitions(16))
def skewed_join(spark: SparkSession, _: Path) -> object:
    rows = spark.range(450_000).selectExpr("if(id % 25 = 0, 0, id) as key", "id as value")
    joined = rows.alias("a").join(rows.alias("b"), "key").select(F.xxhash64("a.value", "b.value").alias("hash"))
    return joined.agg(F.max("hash")).collect()


@fault("skew", WITHOUT_AQE, partitions(12))
def skewed_pandas_groups(spark: SparkSession, _: Path) -> object:
    def process(group: pd.DataFrame) -> pd.DataFrame:
        time.sleep(len(group) / 3_000)
        return group

    rows = spark.range(60_000).selectExpr("if(id % 3 > 0, 0, id % 40) as key", "id")
    return rows.groupBy("key").applyInPandas(process, "key long, id long").agg(F.max("id")).collect()


@fault("skew")
def slow_partition(spark: SparkSession, _: Path) -> object:
    def process(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        context = TaskContext.get()
        time.sleep(8 if context and context.partitionId() == 20 else 0.05)
        yield from batches

    return spark.range(0, 80_000, 1, 24).mapInPandas(process, "id long").agg(F.max("id")).collect()


@fault("spill", WITHOUT_AQE, LITTLE_MEMORY, partitions(4))
def spilled_sort(spark: SparkSession, _: Path) -> None:
    wide(spark, 3_500_000).sort("amount").write.format("noop").mode("overwrite").save()


@fault("spill", LITTLE_MEMORY, {"spark.sql.adaptive.coalescePartitions.enabled": "false"}, partitions(4))
def spilled_window(spark: SparkSession, _: Path) -> None:
    window = Window.partitionBy("customer").orderBy("amount")
    wide(spark, 3_000_000).withColumn("rank", F.rank().over(window)).write.format("noop").mode("overwrite").save()


@fault("parallelism", WITHOUT_AQE, partitions(1500))
def tiny_shuffle_tasks(spark: SparkSession, _: Path) -> object:
    return spark.range(100_000).groupBy((F.col("id") % 100).alias("key")).count().collect()


@fault("parallelism", {"spark.master": "local[8]"})
def few_large_tasks(spark: SparkSession, _: Path) -> object:
    work = F.pandas_udf(slow(4, 20_000), LongType())  # type: ignore[call-overload]
    return spark.range(40_000).repartition(2).select(work("id").alias("id")).agg(F.max("id")).collect()


@fault("failures", {"spark.master": "local[4,4]"})
def failing_tasks(spark: SparkSession, _: Path) -> object:
    def process(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        context = TaskContext.get()
        time.sleep(2)
        if context and context.attemptNumber() < 2:
            raise OSError("the service did not answer")
        yield from batches

    return spark.range(0, 80_000, 1, 4).mapInPandas(process, "id long").agg(F.max("id")).collect()


@fault("broadcast", WITHOUT_BROADCAST, partitions(8))
def shuffled_small_side(spark: SparkSession, _: Path) -> object:
    customers = spark.range(1000).selectExpr("id as customer", "concat('name ', id) as name")
    joined = wide(spark, 4_000_000).join(customers, "customer")
    return joined.agg(F.max("name"), F.max("note"), F.max("amount")).collect()


@fault("broadcast", WITHOUT_AQE, partitions(8))
def overestimated_side(spark: SparkSession, _: Path) -> object:
    keys = (
        spark.range(20_000_000)
        .where("pmod(xxhash64(id), 100000) = 0")
        .selectExpr("pmod(id, 1000) as customer", "id as key")
    )
    joined = wide(spark, 4_000_000).join(keys.hint("merge"), "customer")
    return joined.agg(F.max("key"), F.max("note"), F.max("amount")).collect()


@fault("broadcast", WITHOUT_AQE)
def large_broadcast(spark: SparkSession, _: Path) -> object:
    return spark.range(100_000).join(F.broadcast(wide(spark, 2_000_000)), "id").agg(F.max("note")).collect()


@fault("small files")
def small_parquet_files(spark: SparkSession, data: Path) -> object:
    return spark.read.parquet(str(data / "small-parquet")).agg(F.max("value"), F.sum("id")).collect()


@fault("small files", WITHOUT_AQE)
def small_csv_files(spark: SparkSession, data: Path) -> object:
    rows = spark.read.csv(str(data / "small-csv"), header=True, schema="id long, value double")
    return rows.groupBy("id").agg(F.max("value")).agg(F.count("*")).collect()


@fault("single task")
def global_window(spark: SparkSession, _: Path) -> None:
    rows = wide(spark, 2_000_000).select("amount", "note", F.row_number().over(Window.orderBy("amount")).alias("rank"))
    rows.write.format("noop").mode("overwrite").save()


@fault("single task")
def coalesced_function(spark: SparkSession, _: Path) -> object:
    work = F.pandas_udf(slow(6, 100_000), LongType())  # type: ignore[call-overload]
    return spark.range(100_000).coalesce(1).select(work("id").alias("id")).agg(F.max("id")).collect()


@fault("single task", WITHOUT_AQE, partitions(8))
def single_pandas_group(spark: SparkSession, _: Path) -> object:
    def process(group: pd.DataFrame) -> pd.DataFrame:
        time.sleep(6)
        return group

    rows = spark.range(400_000).withColumn("key", F.lit(1) + F.col("id") * 0)
    return rows.groupBy("key").applyInPandas(process, "id long, key long").agg(F.max("id")).collect()


@fault("cartesian product", WITHOUT_BROADCAST)
def cartesian_product(spark: SparkSession, _: Path) -> object:
    left = spark.range(0, 30_000, 1, 4).selectExpr("id as a")
    right = spark.range(0, 30_000, 1, 2).selectExpr("id as b")
    return left.crossJoin(right).where("pmod(a * b, 1000003) = 1").agg(F.count("*")).collect()


@fault("cartesian product")
def nested_loop_join(spark: SparkSession, _: Path) -> object:
    prices = spark.range(10_000).selectExpr("id * 5 as low", "id * 5 + 4 as high")
    events = spark.range(0, 150_000, 1, 4).selectExpr("id as event")
    return events.join(prices, F.expr("event >= low and event <= high")).agg(F.max("low")).collect()


@fault("recomputation")
def repeated_function(spark: SparkSession, _: Path) -> object:
    work = F.pandas_udf(slow(2, 50_000), LongType())  # type: ignore[call-overload]
    rows = spark.range(0, 200_000, 1, 4).select(work("id").alias("score"))
    return [rows.agg(F.max("score")).collect(), rows.agg(F.min("score")).collect(), rows.agg(F.sum("score")).collect()]


@fault("recomputation", WITHOUT_AQE, partitions(8))
def repeated_join(spark: SparkSession, _: Path) -> object:
    sums = wide(spark, 1_000_000).groupBy("note").agg(F.sum("amount").alias("amount"))
    return [sums.agg(F.max("amount")).collect(), sums.where("amount > 0.5").count(), sums.agg(F.min("note")).collect()]


@healthy
def aggregate_files(spark: SparkSession, data: Path) -> object:
    return spark.read.parquet(str(data / "orders")).groupBy("customer").agg(F.sum("amount")).collect()


@healthy
def join_files(spark: SparkSession, data: Path) -> object:
    orders = spark.read.parquet(str(data / "orders"))
    customers = spark.read.parquet(str(data / "customers"))
    return orders.join(customers, "customer").groupBy("country").agg(F.sum("amount"), F.count("*")).collect()


@healthy
def cached_twice(spark: SparkSession, data: Path) -> object:
    rows = spark.read.parquet(str(data / "orders")).withColumn("hash", F.sha1(F.col("id").cast("string"))).cache()
    return [rows.agg(F.max("hash")).collect(), rows.where("customer = 5").count(), rows.agg(F.min("hash")).collect()]


@healthy
def even_function(spark: SparkSession, _: Path) -> object:
    work = F.pandas_udf(slow(4, 100_000), LongType())  # type: ignore[call-overload]
    return spark.range(0, 400_000, 1, 8).select(work("id").alias("id")).agg(F.max("id")).collect()


@healthy
def partitioned_window(spark: SparkSession, data: Path) -> object:
    window = Window.partitionBy("customer").orderBy("amount")
    rows = spark.read.parquet(str(data / "orders")).withColumn("rank", F.rank().over(window))
    return rows.where("rank <= 3").agg(F.count("*")).collect()


@healthy
def sort_and_write(spark: SparkSession, data: Path) -> object:
    target = str(data / "sorted")
    spark.read.parquet(str(data / "orders")).sort("amount").write.mode("overwrite").parquet(target)
    return spark.read.parquet(target).count()


@healthy
def statements(spark: SparkSession, data: Path) -> object:
    spark.read.parquet(str(data / "orders")).createOrReplaceTempView("orders")
    spark.sql("select count(distinct customer), max(amount) from orders").collect()
    return spark.sql("select customer from orders where amount > 0.99 union select 1").collect()


@healthy
def even_pandas_groups(spark: SparkSession, _: Path) -> object:
    def process(group: pd.DataFrame) -> pd.DataFrame:
        time.sleep(len(group) / 20_000)
        return group

    rows = spark.range(120_000).selectExpr("id % 64 as key", "id").repartition(16, "key")
    return rows.groupBy("key").applyInPandas(process, "key long, id long").agg(F.max("id")).collect()


@healthy
def small_queries(spark: SparkSession, data: Path) -> object:
    customers = spark.read.parquet(str(data / "customers"))
    return [customers.where(F.col("customer") == number).collect() for number in range(8)]


@healthy
def pairs_of_an_rdd(spark: SparkSession, _: Path) -> object:
    numbers = spark.sparkContext.parallelize(range(400_000), 8)
    return numbers.map(lambda number: (number % 100, number)).reduceByKey(lambda a, b: a + b).collect()
