"""Machine-learning programs, and the repeatable samples and splits that they rely on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession


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
    """The parts of a random split add up to all rows, and are the same in every action."""
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


LEARNING: dict[str, Callable[[SparkSession, Path], Any]] = {
    program.__name__: program
    for program in (als, forest, kmeans, cross_validation, split_of_files, split_of_shuffled, sample_with_seed)
}
