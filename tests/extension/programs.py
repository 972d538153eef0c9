"""Programs that say nothing of Penstock, each a function of a session and an empty folder; they return what they saw."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark.sql import Observation, Row
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


def ratings(spark: SparkSession) -> DataFrame:
    rows = [(u, i, float((u * 7 + i * 3) % 5 + 1)) for u in range(20) for i in range(15) if (u + i) % 3]
    return spark.createDataFrame(rows, "user int, item int, rating double")


def points(spark: SparkSession, folder: Path) -> DataFrame:
    path = str(folder / "points")
    df = spark.range(0, 300, 1, 4).select(
        "id",
        *(F.expr(f"pmod(hash(id, {i}), 1000) / 1000d").alias(f"x{i}") for i in range(4)),
        F.expr("id % 3").alias("label"),
    )
    df.write.parquet(path)
    return spark.read.parquet(path)


def vectors(df: DataFrame) -> DataFrame:
    from pyspark.ml.feature import VectorAssembler

    return VectorAssembler(inputCols=["x0", "x1", "x2", "x3"], outputCol="features").transform(df)


def rounded(rows: list[Row]) -> list[Any]:
    return sorted(tuple(round(v, 6) if isinstance(v, float) else v for v in row) for row in rows)


def als(spark: SparkSession, folder: Path) -> Any:
    from pyspark.ml.recommendation import ALS

    df = ratings(spark)
    model = ALS(rank=3, maxIter=3, seed=7, userCol="user", itemCol="item", ratingCol="rating").fit(df)
    predicted = model.transform(df).select("user", "item", F.round("prediction", 4).alias("p")).collect()
    best = model.recommendForAllUsers(2).select("user", F.col("recommendations.item")).orderBy("user").collect()
    return rounded(predicted), [(row[0], tuple(row[1])) for row in best]


def forest(spark: SparkSession, folder: Path) -> Any:
    from pyspark.ml import Pipeline
    from pyspark.ml.classification import RandomForestClassifier
    from pyspark.ml.evaluation import MulticlassClassificationEvaluator
    from pyspark.ml.feature import StandardScaler, StringIndexer

    train, test = vectors(points(spark, folder)).randomSplit([0.7, 0.3], seed=3)
    stages = [
        StringIndexer(inputCol="label", outputCol="y", stringOrderType="alphabetAsc"),
        StandardScaler(inputCol="features", outputCol="scaled"),
        RandomForestClassifier(featuresCol="scaled", labelCol="y", numTrees=5, seed=5),
    ]
    predicted = Pipeline(stages=stages).fit(train).transform(test)
    score = MulticlassClassificationEvaluator(labelCol="y").evaluate(predicted)
    return rounded(predicted.select("id", "prediction").collect()), round(score, 6)


def kmeans(spark: SparkSession, folder: Path) -> Any:
    from pyspark.ml.clustering import KMeans

    df = vectors(points(spark, folder))
    model = KMeans(k=3, seed=11, maxIter=5).fit(df)
    return rounded(model.transform(df).select("id", "prediction").collect()), [
        [round(float(x), 6) for x in center] for center in model.clusterCenters()
    ]


def cross_validation(spark: SparkSession, folder: Path) -> Any:
    from pyspark.ml.evaluation import RegressionEvaluator
    from pyspark.ml.regression import LinearRegression
    from pyspark.ml.tuning import CrossValidator, ParamGridBuilder

    df = vectors(points(spark, folder))
    regression = LinearRegression(labelCol="label")
    grid = ParamGridBuilder().addGrid(regression.regParam, [0.0, 0.5]).build()
    evaluator = RegressionEvaluator(labelCol="label")
    validator = CrossValidator(
        estimator=regression, estimatorParamMaps=grid, evaluator=evaluator, numFolds=2, seed=1, parallelism=2
    )
    return [round(float(x), 6) for x in validator.fit(df).avgMetrics]


def split_of_files(spark: SparkSession, folder: Path) -> Any:
    """The parts of a random split make up the whole, and are the same each time, whatever is done with them."""
    parts = points(spark, folder).randomSplit([0.5, 0.5], seed=1)
    seen = [sorted(row.id for row in part.collect()) for part in parts]
    counted = [part.groupBy("label").count().agg(F.sum("count")).first()[0] for part in parts]
    joined = parts[0].join(parts[1], "id").count()
    return seen, counted, joined, sum(counted)


def split_of_shuffled(spark: SparkSession, folder: Path) -> Any:
    grouped = points(spark, folder).groupBy("id").agg(F.sum("x0").alias("s"))
    parts = grouped.randomSplit([0.3, 0.7], seed=1)
    seen = [row.id for part in parts for row in part.collect()]
    counted = [part.count() for part in parts]
    return len(seen), sorted(seen) == list(range(300)), sum(counted), parts[0].join(parts[1], "id").count()


def sample_with_seed(spark: SparkSession, folder: Path) -> Any:
    df = points(spark, folder)
    return [
        sorted(row.id for row in df.sample(fraction=0.3, seed=2).collect()),
        df.sample(fraction=0.3, seed=2).groupBy("label").count().orderBy("label").collect(),
        df.sample(True, 0.3, seed=2).groupBy("label").count().orderBy("label").collect(),
        df.sampleBy("label", {0: 0.5, 1: 0.2}, seed=2).groupBy("label").count().orderBy("label").collect(),
        df.withColumn("r", F.rand(5)).groupBy("label").agg(F.round(F.sum("r"), 6)).orderBy("label").collect(),
        df.withColumn("m", F.monotonically_increasing_id()).groupBy("label").agg(F.max("m")).orderBy("label").collect(),
    ]


def numbers_of_partitions(spark: SparkSession, folder: Path) -> Any:
    """Plain Spark keeps the numbers that a program names."""
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
    found: dict[str, Any] = {name: frame.rdd.getNumPartitions() for name, frame in frames.items()}
    found["ids"] = sorted(row[0] for row in df.repartition(8).select(F.spark_partition_id()).distinct().collect())
    found["ids of one"] = [row[0] for row in grouped.coalesce(1).select(F.spark_partition_id()).distinct().collect()]
    found["ids by"] = (
        df.repartition(7, "label")
        .select("label", F.spark_partition_id().alias("p"))
        .distinct()
        .orderBy("label")
        .collect()
    )
    df.repartition(5).write.parquet(str(folder / "five"))
    found["files"] = len(list((folder / "five").glob("part-*")))
    grouped.coalesce(1).write.csv(str(folder / "one"))
    found["one file"] = len(list((folder / "one").glob("part-*")))
    df.orderBy("id").coalesce(1).write.csv(str(folder / "sorted"))
    found["sorted file"] = [
        line.split(",")[0] for part in (folder / "sorted").glob("part-*") for line in part.read_text().splitlines()
    ]
    spark.catalog.clearCache()
    return found


def sort_within_partitions(spark: SparkSession, folder: Path) -> Any:
    df = points(spark, folder).repartition(4, "label").sortWithinPartitions("id")
    return sorted(df.rdd.mapPartitions(lambda rows: [[row.id for row in rows]]).collect())


def cache_from_threads(spark: SparkSession, folder: Path) -> Any:
    cached = points(spark, folder).groupBy("label").agg(F.sum("x0").alias("s"), F.count("*").alias("n")).cache()
    other = cached.join(spark.range(3).withColumnRenamed("id", "label"), "label").cache()
    found: list[Any] = [None] * 4

    def ask(place: int) -> None:
        found[place] = (other if place % 2 else cached).select("label", "n").orderBy("label").collect()

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    both = cached.union(other).groupBy("label").count().orderBy("label").collect()
    spark.catalog.clearCache()
    return found, both


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
    """A stateful query keeps its state over a restart; batch queries run beside it and inside it."""
    source, batches = folder / "source", []
    static = points(spark, folder).groupBy("label").count()

    def add(first: int) -> None:
        spark.range(first, first + 10).withColumn("k", F.expr("id % 3")).coalesce(1).write.mode("append").json(
            str(source)
        )

    def each(batch: DataFrame, number: int) -> None:
        joined = batch.join(static.withColumnRenamed("count", "known"), batch.k == static.label)
        batches.append([tuple(row) for row in joined.select("k", "n", "known").orderBy("k").collect()])
        batch.groupBy().agg(F.sum("n").alias("total")).write.mode("append").parquet(str(folder / "totals"))

    for first in (0, 10, 20):
        add(first)
        counts = spark.readStream.schema("id long, k long").json(str(source)).groupBy("k").agg(F.count("*").alias("n"))
        query = (
            counts.writeStream.outputMode("complete")
            .option("checkpointLocation", str(folder / "checkpoint"))
            .foreachBatch(each)
            .trigger(availableNow=True)
            .start()
        )
        beside = static.orderBy("label").collect()
        query.awaitTermination()
        batches.append([tuple(row) for row in beside])
    memory = spark.readStream.schema("id long, k long").json(str(source)).groupBy("k").count()
    query = (
        memory.writeStream.format("memory").queryName("kept").outputMode("complete").trigger(availableNow=True).start()
    )
    query.awaitTermination()
    kept = spark.table("kept").groupBy().agg(F.sum("count")).collect()
    return batches, kept, spark.read.parquet(str(folder / "totals")).orderBy("total").collect()


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
    found = spark.table("bucketed").select("label", "n").orderBy("label").collect()
    spark.sql("DROP TABLE bucketed")
    return joined, found, spark.read.parquet(path).select("label", "n").orderBy("label").collect()


def observations(spark: SparkSession, folder: Path) -> Any:
    seen = Observation("seen")
    df = points(spark, folder).observe(seen, F.count(F.lit(1)).alias("n"), F.max("id").alias("last"))
    return df.groupBy("label").count().orderBy("label").collect(), seen.get


def several_ends(spark: SparkSession, folder: Path) -> Any:
    df = points(spark, folder).groupBy("label").agg(F.count("*").alias("n")).orderBy("label")
    return [
        df.take(2), df.tail(1), df.first(), df.head(2), df.isEmpty(), df.limit(2).count(), df.offset(1).collect(),
        list(df.toLocalIterator()), list(df.toLocalIterator(prefetchPartitions=True)), df.toPandas().to_dict("list"),
        df.toArrow().to_pydict(), df.rdd.map(tuple).collect(), df.limit(0).collect(),
        df.describe("n").collect(), df.summary("count", "max").collect(), df.stat.crosstab("label", "n").orderBy("label_n").collect(),
        df.approxQuantile("n", [0.5], 0.0), df.stat.freqItems(["label"]).first()[0], df.collect(), df.collect(),
        df.inputFiles()[0].endswith(".parquet"), df.rdd.zipWithIndex().count(), df.dropDuplicates(["n"]).count(),
    ]  # fmt: skip


def objects(spark: SparkSession, folder: Path) -> Any:
    """Readers of DataFrames of text, and Scala's typed functions, end in objects instead of rows."""
    lines = points(spark, folder).groupBy("label").count().select(F.to_json(F.struct("label", "count")).alias("value"))
    read = spark.read.schema("label long, count long").json(lines)
    typed = lines._jdf.toDF().rdd().count()
    return read.orderBy("label").collect(), read.groupBy().sum("count").collect(), typed


def pandas_frames(spark: SparkSession, folder: Path) -> Any:
    df = points(spark, folder)
    frame = df.orderBy("id").pandas_api()
    numbered = df.groupBy("label").count().orderBy("label").pandas_api()
    found = frame.groupby("label")["x0"].mean().round(6).sort_index().to_dict()
    return found, numbered.to_pandas().to_dict("list"), frame.head(3).to_pandas().index.tolist(), len(frame)


PROGRAMS: dict[str, Callable[[SparkSession, Path], Any]] = {
    program.__name__: program
    for program in (
        als, forest, kmeans, cross_validation, split_of_files, split_of_shuffled, sample_with_seed, numbers_of_partitions,
        sort_within_partitions, cache_from_threads, python_functions, streams, writes, observations, several_ends, objects,
        pandas_frames,
    )
}  # fmt: skip
