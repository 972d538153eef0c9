"""Hot groups whose partial results hold their values, from end to end: what ran, by Spark's finished stages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.equality import assert_as_plain_spark
from tests.stages import stages

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from penstock import Environment

MAPPERS, ROWS = 24, 4000
SKEW = "table.optimizer.skewed__join__optimization"
VOLUME = "execution.batch.adaptive.auto__parallelism.avg__data__volume__per__task"
OPTIONS = {f"{SKEW}.skewed__threshold": "100 kb", VOLUME: "64 kb"}


def table(spark: SparkSession, hot: int = 9) -> DataFrame:
    """Rows of which tenths have one key, others one of twenty; ``v`` has 2000 values, ``id`` as many as there are rows."""
    columns = f"if(pmod(hash(id, 1), 10) < {hot}, 7, id % 20) as k", "pmod(hash(id), 2000) as v", "id"
    return spark.range(0, MAPPERS * ROWS, 1, MAPPERS).selectExpr(*columns)


def run(env: Environment, df: DataFrame) -> tuple[Any, list[Any]]:
    """Run a query, compare its rows with plain Spark's, and return the job and its decisions about skew."""
    assert_as_plain_spark(env, df)
    job = env.last_job
    return job, [decision for decision in job.decisions if decision.kind.value == "skew"]


def merging(spark: SparkSession, job: Any) -> list[tuple[int, int]]:
    """Return the tasks of each stage that read an exchange, and the partial results that they read."""
    return [(one.tasks, one.shuffle_read) for one in stages(spark, job, "Aggregate") if one.shuffle_read]


def test_partial_results_with_values_in_common_are_merged_in_pieces(
    spark: SparkSession, make_env: Callable[..., Environment]
) -> None:
    df = table(spark).groupBy("k").agg({"v": "median", "*": "count"}).where("k < 100")
    job, (decision,) = run(make_env(**OPTIONS), df)
    assert "merged in pieces before" in decision.chosen
    assert decision.outcome["pieces"] == 2
    assert decision.outcome["bytes merged"] < decision.outcome["bytes before"] / 4
    plain, decisions = run(make_env(**OPTIONS, **{f"{SKEW}.strategy": "NONE"}), df)
    assert not decisions
    ((tasks, everything),) = merging(spark, plain)
    (_, few), (pieces, hot), (final_tasks, final) = merging(spark, job)
    assert pieces == 2
    assert few == hot // 8, "three of 24 tasks were tried"
    assert final == everything - hot + 2 * hot // MAPPERS, "two partial results of each hot group, all of the others"
    assert final_tasks == tasks


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("hot", "function", "because"),
    [
        (9, "percentile(id, 0.5)", "have too few values in common"),
        (0, "percentile(v, 0.5)", None),
    ],
)
def test_they_are_merged_in_one_task_where_pieces_would_win_nothing(
    spark: SparkSession,
    make_env: Callable[..., Environment],
    hot: int,
    function: str,
    because: str | None,
) -> None:
    table(spark, hot).createOrReplaceTempView("hot_groups")
    df = spark.sql(f"select k, {function} from hot_groups group by k")
    job, decisions = run(make_env(**OPTIONS), df)
    assert len(decisions) == (because is not None)
    for decision in decisions:
        assert because in str(decision.outcome["because"])
        assert "pieces" not in decision.outcome
    *tried, _ = merging(spark, job)
    assert [tasks for tasks, _ in tried] == [1] * len(decisions), "one task has tried a few, if any"


@pytest.mark.thorough
@pytest.mark.parametrize("first", ["window", "aggregate"])
def test_beside_an_operator_that_needs_whole_groups_too(
    spark: SparkSession, make_env: Callable[..., Environment], first: str
) -> None:
    """Both are in one step and read alike, whichever comes first: no group may come in several tasks."""
    table(spark).where("id % 8 = 0").createOrReplaceTempView("hot_groups")
    table(spark).createOrReplaceTempView("more_groups")
    inputs = {
        "window": "(select k, sum(v) over (partition by k) as total from hot_groups)",
        "aggregate": "(select k, median(v) as middle, count(*) as n from more_groups group by k)",
    }
    one, other = sorted(inputs, key=lambda name: name != first)
    df = spark.sql(
        f"""select k, total, middle, n, count(*) as rows from
        (select /*+ merge(w) */ * from {inputs[one]} w join {inputs[other]} using (k)) group by all"""
    )
    job, decisions = run(make_env(**OPTIONS), df)
    (merged,) = [one for one in decisions if "merged in pieces before" in str(one.chosen)]
    assert merged.outcome["pieces"] == 2
    (both,) = [one for one in job.vertices if "Window" in one.vertex.name]
    assert "Aggregate" in both.vertex.name, "they are not in one step any more"
