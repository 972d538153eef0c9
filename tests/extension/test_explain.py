"""The explanation of a delegated query, which is computed only for `explain`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from penstock.extension import runner
from penstock.scheduler.job import RECENT
from tests.support.equality import assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def explained(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the queries that Python has explained."""
    numbers: list[int] = []
    explain = runner.JobRunner.explain
    monkeypatch.setattr(
        runner.JobRunner, "explain", lambda self, query: (numbers.append(query.number), explain(self, query))[1]
    )
    return numbers


def query(spark: SparkSession) -> DataFrame:
    return spark.range(100).groupBy((F.col("id") % 3).alias("k")).count().orderBy("k")


def plan_text(df: DataFrame, mode: str) -> str:
    execution = df._jdf.queryExecution()
    jvm: Any = df.sparkSession._jvm
    return str(jvm.PythonSQLUtils.explainString(execution, mode))


@pytest.mark.parametrize("mode", ["simple", "extended", "cost"])
def test_the_plan_is_below_the_query(served: SparkSession, explained: list[int], mode: str) -> None:
    text = plan_text(query(served), mode).partition("== Physical Plan ==")[2]
    assert text.index("Penstock") < text.index(":- Sort") < text.index("+- Plan before it runs")
    graph = text[text.index("+- Plan before it runs") :]
    assert "shuffled by" in graph
    assert "decided once the inputs of its step are measured" in graph
    assert len(explained) == 1
    assert list(RECENT) == []


def test_explain_statement(served: SparkSession, explained: list[int]) -> None:
    (row,) = served.sql("EXPLAIN SELECT id % 3, count(*) FROM range(9) GROUP BY 1").collect()
    assert "+- Plan before it runs" in row[0]
    assert len(explained) == 1


def test_formatted_mode_shows_only_the_query(served: SparkSession, explained: list[int]) -> None:
    assert "Penstock" in plan_text(query(served), "formatted")
    assert explained == []


@pytest.mark.parametrize(
    "act",
    [
        lambda df: df.collect(),
        lambda df: df.show(),
        lambda df: df.cache().count(),
        lambda df: str(df._jdf.queryExecution()),
    ],
    ids=["collect", "show", "cache", "text"],
)
def test_other_actions_explain_nothing(
    served: SparkSession, explained: list[int], act: Callable[[DataFrame], Any]
) -> None:
    act(query(served))
    served.catalog.clearCache()
    assert explained == []


def test_a_declined_query_is_not_explained(served: SparkSession, explained: list[int]) -> None:
    served.conf.set("spark.penstock.execution.batch.adaptive.whole-query-threshold", "1g")
    try:
        assert "Penstock" not in plan_text(served.range(9).groupBy("id").count(), "simple")
    finally:
        served.conf.unset("spark.penstock.execution.batch.adaptive.whole-query-threshold")
    assert explained == []


def test_an_error_shows_the_query_only(served: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("a defect")

    monkeypatch.setattr(runner, "plan_query", fail)
    text = plan_text(query(served), "simple")
    assert "+- Sort" in text
    assert "Plan before it runs" not in text


def test_rows_are_the_same_afterwards(served: SparkSession) -> None:
    df = query(served)
    df.explain()
    expected = [(0, 34), (1, 33), (2, 33)]
    assert_same_rows(df.collect(), expected)
    df.explain()
    assert_same_rows(df.collect(), expected)
    assert len(RECENT) == 1
