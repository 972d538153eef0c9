"""Errors of a query are those of plain Spark; if Penstock itself fails, Spark runs the query."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import IllegalArgumentException
from pyspark.sql import functions as F

import penstock
from penstock.events import ExecutionState
from penstock.extension import runner
from penstock.scheduler.job import RECENT, RUN_BY_SPARK
from penstock.spark.plans.dataframes import with_settings
from tests.conftest import OFF

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.usefixtures("interpreted")


def broken(value: int) -> int:
    if value != 50:
        return value
    raise ValueError(f"no {value}")


def missing_file(spark: SparkSession, folder: Path) -> Any:
    spark.range(100).write.mode("overwrite").parquet(str(folder))
    df = spark.read.parquet(str(folder))
    for file in folder.glob("part-*"):
        file.unlink()
    return df.groupBy("id").count().collect()


def grouped_by_third(spark: SparkSession, value: Any) -> Any:
    return spark.range(100).groupBy((F.col("id") % 3).alias("k")).agg(F.sum(value)).collect()


FAILING: dict[str, Callable[[SparkSession, Path], Any]] = {
    "divided by zero in a shuffle stage": lambda spark, _: grouped_by_third(spark, F.expr("10 div (id - 50)")),
    "divided by zero in the last stage": lambda spark, _: (
        spark.range(100).groupBy("id").count().select(F.expr("1 div (id - 50)")).collect()
    ),
    "cast": lambda spark, _: grouped_by_third(spark, F.expr("cast(if(id = 50, 'x', id) as int)")),
    "raise_error": lambda spark, _: grouped_by_third(spark, F.raise_error(F.lit("raised"))),
    "python function": lambda spark, _: grouped_by_third(spark, F.udf(lambda value: broken(value), "long")("id")),
    "missing file": missing_file,
    "unknown column": lambda spark, _: spark.range(10).select("nope").collect(),
}


def error_of(run: Callable[[], Any]) -> tuple[type, str | None, str]:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever Spark raises
        run()
    error = caught.value
    condition = error.getCondition() if hasattr(error, "getCondition") else None
    return type(error), condition, str(error).splitlines()[0]


@pytest.mark.parametrize("case", FAILING, ids=str)
def test_an_error_is_that_of_plain_spark(spark: SparkSession, tmp_path: Path, case: str) -> None:
    expected = error_of(lambda: FAILING[case](spark, tmp_path / "without"))
    with penstock.enabled(spark, config=OFF):
        actual = error_of(lambda: FAILING[case](spark, tmp_path / "with"))
    assert actual[:2] == expected[:2]
    assert not [
        decision for job in RECENT for decision in job.decisions if decision.chosen == RUN_BY_SPARK
    ]  # the query ran once
    if case not in {"missing file", "unknown column"}:  # their messages contain the path or column ids
        assert actual[2] == expected[2]


def test_a_failure_of_penstock_falls_back_to_spark(
    served: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("a defect")

    monkeypatch.setattr(runner, "plan_query", fail)
    df = served.range(100).groupBy((F.col("id") % 3).alias("k")).count()
    assert sorted(df.collect()) == [(0, 34), (1, 33), (2, 33)]
    (decision,) = [decision for decision in RECENT[-1].decisions if decision.chosen == RUN_BY_SPARK]
    assert "a defect" in decision.reason
    assert "a defect" in caplog.text
    assert RECENT[-1].ended is not None


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        (
            "sink.paralelism",
            "3",
            "unknown option 'sink.paralelism' in the Spark configuration\n  hint:  did you mean 'sink",
        ),
        (
            "sink.parallelism",
            "many",
            "option 'sink.parallelism' is 'many' in the Spark configuration\n  hint:  use a who",
        ),
    ],
)
def test_a_wrong_option_of_the_session_is_an_error(served: SparkSession, key: str, value: str, expected: str) -> None:
    with (
        with_settings(served, {f"spark.penstock.{key}": value}),
        pytest.raises(IllegalArgumentException, match=f"^{re.escape(expected)}"),
    ):
        grouped_by_third(served, "id")
    assert RECENT[-1].state is ExecutionState.FAILED
    assert not RECENT[-1].decisions


def test_spark_runs_queries_while_the_file_of_options_is_missing(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text("")
    with penstock.enabled(spark, config=OFF, config_file=str(file)):
        file.unlink()
        assert sorted(grouped_by_third(spark, "id")) == [(0, 1683), (1, 1617), (2, 1650)]
    (decision,) = [decision for decision in RECENT[-1].decisions if decision.chosen == RUN_BY_SPARK]
    assert "penstock.toml" in decision.reason


def test_an_error_of_a_plan_of_penstock_falls_back_to_spark(
    served: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        with penstock.enabled(served):
            served.conf.set("spark.penstock.enabled", "false")
            served.sql("select raise_error('of the plan')").collect()

    monkeypatch.setattr(runner, "plan_query", fail)
    assert sorted(grouped_by_third(served, "id")) == [(0, 1683), (1, 1617), (2, 1650)]
    (decision,) = [decision for decision in RECENT[-1].decisions if decision.chosen == RUN_BY_SPARK]
    assert "of the plan" in decision.reason
    assert RECENT[-1].ended is not None


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_a_fallback_is_planned_like_plain_spark(
    served: SparkSession, monkeypatch: pytest.MonkeyPatch, adaptive: str
) -> None:
    """The settings of the session apply, not those of a job."""

    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("a defect")

    def parts() -> int:
        return served.range(100).groupBy((F.col("id") % 3).alias("k")).count().rdd.getNumPartitions()

    settings = {
        "spark.sql.adaptive.enabled": adaptive,
        "spark.sql.shuffle.partitions": "7",
        "spark.penstock.execution.batch.adaptive.auto-parallelism.max-parallelism": "4",  # so that the query is delegated without AQE, too
    }
    with with_settings(served, settings):
        with with_settings(served, {"spark.penstock.enabled": "false"}):
            expected = parts()
        monkeypatch.setattr(runner, "plan_query", fail)
        assert parts() == expected
    assert RUN_BY_SPARK in {decision.chosen for decision in RECENT[-1].decisions}
    assert expected == (1 if adaptive == "true" else 7)


def cached(df: DataFrame) -> Any:
    df.cache()
    try:
        return df.count(), sorted(df.collect())
    finally:
        df.unpersist(blocking=True)


LATE_FALLBACKS: dict[str, Callable[[DataFrame], Any]] = {
    "rows": lambda df: sorted(df.collect()),
    "collected twice": lambda df: (sorted(df.collect()), sorted(df.collect())),
    "limit": lambda df: df.orderBy("k").limit(2).collect(),
    "cached": cached,
    "subquery": lambda df: df.sparkSession.sql(
        "SELECT count(*) FROM {df} WHERE n > (SELECT min(n) FROM {df})", df=df
    ).collect(),
    "rdd": lambda df: sorted(df.rdd.map(tuple).collect()),
    "iterator": lambda df: sorted(df.toLocalIterator()),
}


@pytest.mark.parametrize("case", LATE_FALLBACKS)
def test_a_query_that_cannot_start_falls_back_to_spark(
    served: SparkSession, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """If no thread can be started, the JVM runs the query with Spark, without Python."""

    def grouped() -> DataFrame:
        return served.range(100).groupBy((F.col("id") % 3).alias("k")).agg(F.count("*").alias("n"))

    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("can't start new thread")

    expected = LATE_FALLBACKS[case](grouped())
    monkeypatch.setattr(runner, "start_thread", fail)
    assert LATE_FALLBACKS[case](grouped()) == expected
    (decision,) = [decision for decision in RECENT[-1].decisions if decision.chosen == RUN_BY_SPARK]
    assert "no thread could be started" in decision.reason
    assert RECENT[-1].ended is not None
