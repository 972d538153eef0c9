"""Programs without any reference to Penstock: functions of a session and an empty folder that return their results."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark.sql import Observation
from pyspark.sql import functions as F

from tests.extension.learning import points, rounded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def numbers_of_partitions(spark: SparkSession, folder: Path) -> Any:
    """The numbers of partitions that a program requests."""
    df = points(spark, folder)
    grouped = df.groupBy("label").count()
    frames = {
        "repartition": df.repartition(8),
        "repartition by": df.repartition(7, "label"),
        "repartition of a group": grouped.repartition(5),
        "range": df.repartitionByRange(3, "id"),
        "coalesce": grouped.coalesce(1),
        "coalesce after repartition": df.repartition(8).coalesce(3),
        "coalesce of many": spark.range(0, 100, 1, 16).coalesce(6),
        "cached": df.repartition(6).cache(),
        "checkpoint": df.repartition(6, "id").localCheckpoint(),
        "filter of repartition": df.repartition(6).filter("id > 5").select("id"),
        "limit": df.limit(10),
        "union": df.repartition(2).union(df.repartition(3)),
    }
    results: dict[str, Any] = {name: frame.rdd.getNumPartitions() for name, frame in frames.items()}
    results["ids"] = sorted(row[0] for row in df.repartition(8).select(F.spark_partition_id()).distinct().collect())
    results["ids of a single partition"] = [
        row[0] for row in grouped.coalesce(1).select(F.spark_partition_id()).distinct().collect()
    ]
    results["ids by"] = (
        df.repartition(7, "label")
        .select("label", F.spark_partition_id().alias("p"))
        .distinct()
        .orderBy("label")
        .collect()
    )
    df.repartition(5).write.parquet(str(folder / "five"))
    results["files"] = len(list((folder / "five").glob("part-*")))
    grouped.coalesce(1).write.csv(str(folder / "single"))
    results["single file"] = len(list((folder / "single").glob("part-*")))
    df.orderBy("id").coalesce(1).write.csv(str(folder / "sorted"))
    results["sorted file"] = [
        line.split(",")[0] for part in (folder / "sorted").glob("part-*") for line in part.read_text().splitlines()
    ]
    spark.catalog.clearCache()
    return results


def sort_within_partitions(spark: SparkSession, folder: Path) -> Any:
    df = points(spark, folder).repartition(4, "label").sortWithinPartitions("id")
    return sorted(df.rdd.mapPartitions(lambda rows: [[row.id for row in rows]]).collect())


def cache_from_threads(spark: SparkSession, folder: Path) -> Any:
    cached = points(spark, folder).groupBy("label").agg(F.sum("x0").alias("s"), F.count("*").alias("n")).cache()
    other = cached.join(spark.range(3).withColumnRenamed("id", "label"), "label").cache()
    results: list[Any] = [None] * 4

    def query(index: int) -> None:
        results[index] = (other if index % 2 else cached).select("label", "n").orderBy("label").collect()

    threads = [threading.Thread(target=query, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    both = cached.union(other).groupBy("label").count().orderBy("label").collect()
    spark.catalog.clearCache()
    return results, both


def python_functions(spark: SparkSession, folder: Path) -> Any:
    df = points(spark, folder)
    double = F.udf(lambda x: x * 2, "long")
    spark.udf.register("triple", lambda x: x * 3, "long")

    @F.pandas_udf("double")  # type: ignore[call-overload]
    def mean(xs: pd.Series) -> float:
        return float(xs.mean())

    def batches(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            yield frame[["id"]]

    seen = spark.sparkContext.accumulator(0)
    df.groupBy("label").count().foreach(lambda row: seen.add(row["count"]))
    df.createOrReplaceTempView("points")
    return [
        seen.value,
        df.groupBy(double("label").alias("d")).count().orderBy("d").collect(),
        spark.sql("SELECT triple(label) t, count(*) FROM points GROUP BY 1 ORDER BY 1").collect(),
        rounded(df.groupBy("label").agg(mean("x0").alias("m")).collect()),
        df.mapInPandas(batches, "id long").groupBy((F.col("id") % 2).alias("k")).count().orderBy("k").collect(),
        df.mapInPandas(batches, "id long", barrier=True).count(),
        rounded(df.groupBy("label").applyInPandas(lambda f: f.head(0).assign(label=[]), df.schema).collect()),
    ]


def streams(spark: SparkSession, folder: Path) -> Any:
    """A stateful query keeps its state across restarts; batch queries run next to it and inside it."""
    source, batches = folder / "source", []
    static = points(spark, folder).groupBy("label").count()

    def add(first: int) -> None:
        spark.range(first, first + 10).withColumn("k", F.expr("id % 3")).coalesce(1).write.mode("append").json(
            str(source)
        )

    def process_batch(batch: DataFrame, number: int) -> None:
        joined = batch.join(static.withColumnRenamed("count", "static_count"), batch.k == static.label)
        batches.append([tuple(row) for row in joined.select("k", "n", "static_count").orderBy("k").collect()])
        batch.groupBy().agg(F.sum("n").alias("total")).write.mode("append").parquet(str(folder / "totals"))

    for first in (0, 10, 20):
        add(first)
        counts = spark.readStream.schema("id long, k long").json(str(source)).groupBy("k").agg(F.count("*").alias("n"))
        query = (
            counts.writeStream.outputMode("complete")
            .option("checkpointLocation", str(folder / "checkpoint"))
            .foreachBatch(process_batch)
            .trigger(availableNow=True)
            .start()
        )
        beside = static.orderBy("label").collect()
        query.awaitTermination()
        batches.append([tuple(row) for row in beside])
    memory = spark.readStream.schema("id long, k long").json(str(source)).groupBy("k").count()
    query = (
        memory.writeStream.format("memory")
        .queryName("memory_counts")
        .outputMode("complete")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    total = spark.table("memory_counts").groupBy().agg(F.sum("count")).collect()
    return batches, total, spark.read.parquet(str(folder / "totals")).orderBy("total").collect()


def writes(spark: SparkSession, folder: Path) -> Any:
    df = points(spark, folder)
    grouped = df.groupBy("label").agg(F.sum("x0").alias("s"), F.count("*").alias("n"))
    path = str(folder / "out")
    grouped.write.partitionBy("label").parquet(path)
    grouped.filter("label = 1").write.mode("overwrite").option("partitionOverwriteMode", "dynamic").partitionBy(
        "label"
    ).parquet(path)
    spark.sql("DROP TABLE IF EXISTS bucketed")
    grouped.write.bucketBy(3, "label").sortBy("n").saveAsTable("bucketed")
    spark.sql(
        "INSERT INTO bucketed SELECT label + 10, sum(x1), count(*) FROM parquet.`{}` GROUP BY label".format(
            folder / "points"
        )
    )
    joined = spark.table("bucketed").alias("a").join(spark.table("bucketed").alias("b"), "label").count()
    bucketed = spark.table("bucketed").select("label", "n").orderBy("label").collect()
    spark.sql("DROP TABLE bucketed")
    return joined, bucketed, spark.read.parquet(path).select("label", "n").orderBy("label").collect()


def observations(spark: SparkSession, folder: Path) -> Any:
    seen = Observation("seen")
    df = points(spark, folder).observe(seen, F.count(F.lit(1)).alias("n"), F.max("id").alias("last"))
    return df.groupBy("label").count().orderBy("label").collect(), seen.get


def several_ends(spark: SparkSession, folder: Path) -> Any:
    df = points(spark, folder).groupBy("label").agg(F.count("*").alias("n")).orderBy("label")
    return [
        df.take(2),
        df.tail(1),
        df.first(),
        df.head(2),
        df.isEmpty(),
        df.limit(2).count(),
        df.offset(1).collect(),
        list(df.toLocalIterator()),
        list(df.toLocalIterator(prefetchPartitions=True)),
        df.toPandas().to_dict("list"),
        df.toArrow().to_pydict(),
        df.rdd.map(tuple).collect(),
        df.limit(0).collect(),
        df.describe("n").collect(),
        df.summary("count", "max").collect(),
        df.stat.crosstab("label", "n").orderBy("label_n").collect(),
        df.approxQuantile("n", [0.5], 0.0),
        df.stat.freqItems(["label"]).first()[0],
        df.collect(),
        df.collect(),
        df.inputFiles()[0].endswith(".parquet"),
        df.rdd.zipWithIndex().count(),
        df.dropDuplicates(["n"]).count(),
    ]


def objects(spark: SparkSession, folder: Path) -> Any:
    """Readers of DataFrames of text, and Scala's typed functions, return JVM objects instead of rows."""
    lines = points(spark, folder).groupBy("label").count().select(F.to_json(F.struct("label", "count")).alias("value"))
    read = spark.read.schema("label long, count long").json(lines)
    typed = lines._jdf.toDF().rdd().count()
    return read.orderBy("label").collect(), read.groupBy().sum("count").collect(), typed


def pandas_frames(spark: SparkSession, folder: Path) -> Any:
    df = points(spark, folder)
    frame = df.orderBy("id").pandas_api()
    numbered = df.groupBy("label").count().orderBy("label").pandas_api()
    means = frame.groupby("label")["x0"].mean().round(6).sort_index().to_dict()
    return means, numbered.to_pandas().to_dict("list"), frame.head(3).to_pandas().index.tolist(), len(frame)


PROGRAMS: dict[str, Callable[[SparkSession, Path], Any]] = {
    program.__name__: program
    for program in (
        numbers_of_partitions,
        sort_within_partitions,
        cache_from_threads,
        python_functions,
        streams,
        writes,
        observations,
        several_ends,
        objects,
        pandas_frames,
    )
}
