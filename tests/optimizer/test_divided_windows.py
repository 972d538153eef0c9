"""Windows with a hot key on real Spark: the rows of plain Spark, and the stages that ran."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from penstock import with_parallelism
from tests.support.equality import assert_as_plain_spark
from tests.support.paths import TESTS
from tests.support.stages import stages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock import Environment

MAPPERS, ROWS = 8, 3000
SKEW = "table.optimizer.skewed__join__optimization"
VOLUME = "execution.batch.adaptive.auto__parallelism.avg__data__volume__per__task"
FORCED = {f"{SKEW}.skewed__threshold": "60 kb", VOLUME: "64 kb", f"{SKEW}.strategy": "FORCED"}
WINDOWED = """(select k, v, id, rank() over w as ranking, sum(v) over w as total, row_number() over w as number
    from clicks window w as (partition by k order by v desc, id))"""


@pytest.fixture(scope="module", autouse=True)
def clicks(spark: SparkSession) -> None:
    """Create rows with a hot key for nine tenths of them, and twenty other keys."""
    columns = "if(pmod(hash(id, 1), 10) < 9, 7, id % 20) as k", "pmod(hash(id), 2000) as v", "id"
    spark.range(0, MAPPERS * ROWS, 1, MAPPERS).selectExpr(*columns).createOrReplaceTempView("clicks")
    spark.range(40).selectExpr("id % 20 as k").createOrReplaceTempView("more")


def run(env: Environment, query: str) -> tuple[Any, list[Any]]:
    """Run a query, compare its rows with plain Spark's, and return the job and its decisions about skew."""
    assert_as_plain_spark(env, env.spark.sql(query))
    job = env.last_job
    return job, [decision for decision in job.decisions if decision.kind.value == "skew"]


def test_a_hot_key_is_computed_by_several_tasks(spark: SparkSession, make_env: Callable[..., Environment]) -> None:
    job, (decision,) = run(make_env(**FORCED), f"select * from {WINDOWED}")
    assert decision.chosen == "1 of 12 partitions divided by the order of the window"
    chunks = decision.outcome["pieces"]
    assert chunks >= 4
    assert decision.outcome["bytes divided"] == decision.figures["largest"]
    sampled, written, summed, computed = stages(spark, job, "Window")
    hot = written.shuffle_written
    assert 0.9 * MAPPERS * ROWS < hot < MAPPERS * ROWS
    assert sampled.shuffle_read == written.shuffle_read == summed.shuffle_read == hot
    assert summed.tasks == chunks
    assert max(summed.shuffle_read_per_task) < 2 * hot / chunks
    assert computed.shuffle_read == MAPPERS * ROWS
    assert computed.tasks == decision.outcome["tasks"] > chunks
    assert sorted(computed.shuffle_read_per_task[-chunks:]) == sorted(summed.shuffle_read_per_task)
    assert max(computed.shuffle_read_per_task) < 2 * hot / chunks


@pytest.mark.thorough
@pytest.mark.parametrize(
    "query",
    [
        f"select k, max(ranking), count(*), sum(total) from {WINDOWED} group by k",
        f"select k, total, min(number) from {WINDOWED} group by k, total having min(number) > 23",
        f"select id, ranking, v from {WINDOWED} order by k, ranking, id limit 1000",
        f"select k, id, dense_rank() over (partition by ranking % 5 order by id) as other from {WINDOWED}",
        f"select ranking, count(*) from (select k, ranking from {WINDOWED} union all select k, v from clicks) group by ranking",
    ],
    ids=["aggregate", "aggregate by more", "sort", "another window", "union"],
)
def test_operators_after_a_divided_window_return_the_rows_of_spark(
    make_env: Callable[..., Environment], query: str
) -> None:
    _, decisions = run(make_env(**FORCED), query)
    assert any("pieces" in decision.outcome for decision in decisions)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (f"select k, lag(v) over (partition by k order by id) from {WINDOWED}", "needs all rows of a key in one task"),
        (
            f"select /*+ merge(w) */ w.k, sum(ranking) from {WINDOWED} w join more on w.k = more.k group by w.k",
            "needs all rows of a key in one task",
        ),
        (
            "select k, ntile(4) over (partition by k order by id) from clicks",
            "ntile needs all rows of a key in one task",
        ),
    ],
    ids=["lag after it", "join after it", "ntile"],
)
def test_windows_that_need_whole_keys_are_not_divided(
    make_env: Callable[..., Environment], query: str, reason: str
) -> None:
    _, decisions = run(make_env(**FORCED), query)
    assert any(decision.chosen == "not split" and reason in decision.reason for decision in decisions)
    assert not any("pieces" in decision.outcome for decision in decisions)


@pytest.mark.thorough
def test_a_window_with_few_order_values_falls_back(spark: SparkSession, make_env: Callable[..., Environment]) -> None:
    """All rows of the hot key would be in a single chunk."""
    job, (decision,) = run(make_env(**FORCED), "select id, rank() over (partition by k order by k % 5) from clicks")
    assert decision.outcome["instead"] == "its partitions are not split"
    assert decision.outcome["split"] == 0
    assert "its order divides its rows too unevenly" in decision.outcome["because"]
    *_, computed = stages(spark, job, "Window")
    assert max(computed.shuffle_read_per_task) > 0.9 * MAPPERS * ROWS
    (tasks,) = (decision for decision in job.decisions if "skewed keys are split" in decision.reason)
    assert tasks.kind.value == "vertex parallelism"
    assert tasks.outcome["instead"] == "its tasks read whole partitions"
    assert tasks.outcome["because"] == decision.outcome["because"]


@pytest.mark.parametrize(
    ("rows", "expression"),
    [
        ("select k, noisy(v) as v, id from clicks", "PythonUDF"),
        ("select k, v + floor(rand(3)) as v, id from clicks", "Rand"),
    ],
)
def test_nondeterministic_rows_are_not_divided(
    spark: SparkSession, make_env: Callable[..., Environment], rows: str, expression: str
) -> None:
    """After a loss of files, the carried values of chunks would not match the recomputed rows."""
    spark.udf.register("noisy", F.udf(lambda value: value + 0 * random.random(), "double").asNondeterministic())
    env = make_env(**FORCED)
    env.collect(spark.sql(f"select k, id, rank() over (partition by k order by v, id) as ranking from ({rows})"))
    job = env.last_job
    assert job is not None
    (decision,) = (decision for decision in job.decisions if decision.kind.value == "skew")
    assert decision.chosen == "not split"
    assert f"{expression} may return other rows if Spark recomputes lost shuffle files" in decision.reason


def outcome_after_loss(kind: str, folder: Path) -> Any:
    """Return the outcome of a divided window whose files were lost before its last tasks."""
    job = TESTS / "jobs" / "lost_window.py"
    environment = {**os.environ, "SPARK_LOCAL_DIRS": str(folder)}
    command = [sys.executable, str(job), kind]
    output = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    return json.loads(output.splitlines()[-1])


@pytest.mark.slow
def test_lost_chunks_are_recomputed(tmp_path: Path) -> None:
    outcome = outcome_after_loss("stable", tmp_path)
    assert outcome["pieces"] >= 4
    assert (outcome["rows"], outcome["right"], outcome["error"]) == (MAPPERS * ROWS, True, "")


@pytest.mark.slow
def test_a_chunk_recomputed_with_other_rows_fails_the_job(tmp_path: Path) -> None:
    outcome = outcome_after_loss("unstable", tmp_path)
    assert outcome["pieces"] >= 4
    assert outcome["rows"] == 0
    assert "lost rows were recomputed with a different result" in outcome["error"]


def test_windows_are_not_divided_with_two_cores(make_env: Callable[..., Environment]) -> None:
    _, (decision,) = run(make_env(**{**FORCED, f"{SKEW}.strategy": "AUTO"}), f"select * from {WINDOWED}")
    assert decision.chosen == "not split"
    assert "not worth it with 2 cores" in decision.reason


@pytest.mark.thorough
@pytest.mark.parametrize("tasks", [1, 2, 5])
def test_with_parallelism_sets_the_tasks_of_a_divided_window(
    spark: SparkSession, make_env: Callable[..., Environment], tasks: int
) -> None:
    env = make_env(**FORCED)
    df = with_parallelism(spark.sql(f"select * from {WINDOWED}"), tasks)
    assert_as_plain_spark(env, df)
    job = env.last_job
    assert job is not None
    *_, computed = stages(spark, job, "Window")
    assert computed.tasks == tasks
