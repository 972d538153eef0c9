"""Hot groups whose partial results contain their values, on real Spark: the stages that ran."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.equality import assert_as_plain_spark
from tests.support.stages import stages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock import Environment

MAPPERS, ROWS = 24, 4000
SKEW = "table.optimizer.skewed__join__optimization"
VOLUME = "execution.batch.adaptive.auto__parallelism.avg__data__volume__per__task"
OPTIONS = {f"{SKEW}.skewed__threshold": "100 kb", VOLUME: "64 kb"}


def table(spark: SparkSession, hot: int = 9) -> DataFrame:
    """Return rows with a hot key for `hot` tenths of them, and twenty other keys; ``v`` has 2000 values, ``id`` is unique."""
    columns = f"if(pmod(hash(id, 1), 10) < {hot}, 7, id % 20) as k", "pmod(hash(id), 2000) as v", "id"
    return spark.range(0, MAPPERS * ROWS, 1, MAPPERS).selectExpr(*columns)


def run(env: Environment, df: DataFrame) -> tuple[Any, list[Any]]:
    """Run a query, compare its rows with plain Spark's, and return the job and its decisions about skew."""
    assert_as_plain_spark(env, df)
    job = env.last_job
    return job, [decision for decision in job.decisions if decision.kind.value == "skew"]


def merge_stages(spark: SparkSession, job: Any) -> list[tuple[int, int]]:
    """Return the number of tasks, and of partial results read, of each stage that reads an exchange."""
    return [(stage.tasks, stage.shuffle_read) for stage in stages(spark, job, "Aggregate") if stage.shuffle_read]


def test_partial_results_with_common_values_are_merged_in_chunks(
    spark: SparkSession, make_env: Callable[..., Environment]
) -> None:
    df = table(spark).groupBy("k").agg({"v": "median", "*": "count"}).where("k < 100")
    job, (decision,) = run(make_env(**OPTIONS), df)
    assert "merged in chunks before" in decision.chosen
    assert decision.outcome["pieces"] == 2
    assert decision.outcome["bytes merged"] < decision.outcome["bytes before"] / 4
    plain, decisions = run(make_env(**OPTIONS, **{f"{SKEW}.strategy": "NONE"}), df)
    assert not decisions
    ((tasks, everything),) = merge_stages(spark, plain)
    (_, sampled), (chunks, hot), (final_tasks, final) = merge_stages(spark, job)
    assert chunks == 2
    assert sampled == hot // 8, "three of 24 tasks are sampled"
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
def test_hot_groups_are_merged_in_a_single_task_if_chunks_would_not_be_faster(
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
    *samples, _ = merge_stages(spark, job)
    assert [tasks for tasks, _ in samples] == [1] * len(decisions), "a single task merges the sample, if any"


@pytest.mark.thorough
@pytest.mark.parametrize("first", ["window", "aggregate"])
def test_hot_groups_are_merged_beside_an_operator_that_needs_whole_groups(
    spark: SparkSession, make_env: Callable[..., Environment], first: str
) -> None:
    """Both are in the same vertex and read the same ranges, so no group may be split over tasks."""
    table(spark).where("id % 8 = 0").createOrReplaceTempView("hot_groups")
    table(spark).createOrReplaceTempView("more_groups")
    inputs = {
        "window": "(select k, sum(v) over (partition by k) as total from hot_groups)",
        "aggregate": "(select k, median(v) as middle, count(*) as n from more_groups group by k)",
    }
    left, right = sorted(inputs, key=lambda name: name != first)
    df = spark.sql(
        f"""select k, total, middle, n, count(*) as rows from
        (select /*+ merge(w) */ * from {inputs[left]} w join {inputs[right]} using (k)) group by all"""
    )
    job, decisions = run(make_env(**OPTIONS), df)
    (merged,) = [decision for decision in decisions if "merged in chunks before" in str(decision.chosen)]
    assert merged.outcome["pieces"] == 2
    (both,) = [snapshot for snapshot in job.vertices if "Window" in snapshot.vertex.name]
    assert "Aggregate" in both.vertex.name, "they are not in the same vertex"
