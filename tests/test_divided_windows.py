"""Windows with a hot key, from end to end: rows as plain Spark's, and what ran, by Spark's finished stages."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from penstock import with_parallelism
from tests.equality import assert_as_plain_spark
from tests.stages import stages

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from penstock import Environment

MAPPERS, ROWS = 8, 3000
SKEW = "table.optimizer.skewed__join__optimization"
VOLUME = "execution.batch.adaptive.auto__parallelism.avg__data__volume__per__task"
FORCED = {f"{SKEW}.skewed__threshold": "60 kb", VOLUME: "64 kb", f"{SKEW}.strategy": "FORCED"}
WINDOWED = """(select k, v, id, rank() over w as place, sum(v) over w as total, row_number() over w as number
    from clicks window w as (partition by k order by v desc, id))"""


@pytest.fixture(scope="module", autouse=True)
def clicks(spark: SparkSession) -> None:
    """Rows of which nine tenths have one key, others one of twenty."""
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
    pieces = decision.outcome["pieces"]
    assert pieces >= 4
    assert decision.outcome["bytes divided"] == decision.figures["largest"]
    sampled, written, summed, computed = stages(spark, job, "Window")
    hot = written.shuffle_written
    assert 0.9 * MAPPERS * ROWS < hot < MAPPERS * ROWS
    assert sampled.shuffle_read == written.shuffle_read == summed.shuffle_read == hot
    assert summed.tasks == pieces
    assert max(summed.read_per_task) < 2 * hot / pieces
    assert computed.shuffle_read == MAPPERS * ROWS
    assert computed.tasks == decision.outcome["tasks"] > pieces
    assert sorted(computed.read_per_task[-pieces:]) == sorted(summed.read_per_task)
    assert max(computed.read_per_task) < 2 * hot / pieces


@pytest.mark.thorough
@pytest.mark.parametrize(
    "query",
    [
        f"select k, max(place), count(*), sum(total) from {WINDOWED} group by k",
        f"select k, total, min(number) from {WINDOWED} group by k, total having min(number) > 23",
        f"select id, place, v from {WINDOWED} order by k, place, id limit 1000",
        f"select k, id, dense_rank() over (partition by place % 5 order by id) as other from {WINDOWED}",
        f"select place, count(*) from (select k, place from {WINDOWED} union all select k, v from clicks) group by place",
    ],
    ids=["aggregate", "aggregate by more", "sort", "another window", "union"],
)
def test_what_follows_gets_the_right_rows(make_env: Callable[..., Environment], query: str) -> None:
    _, decisions = run(make_env(**FORCED), query)
    assert any("pieces" in decision.outcome for decision in decisions)


@pytest.mark.parametrize(
    ("query", "why"),
    [
        (f"select k, lag(v) over (partition by k order by id) from {WINDOWED}", "needs all rows of a key in one task"),
        (
            f"select /*+ merge(w) */ w.k, sum(place) from {WINDOWED} w join more on w.k = more.k group by w.k",
            "needs all rows of a key in one task",
        ),
        (
            "select k, ntile(4) over (partition by k order by id) from clicks",
            "ntile needs all rows of a key in one task",
        ),
    ],
    ids=["lag after it", "join after it", "ntile"],
)
def test_rows_that_must_stay_together(make_env: Callable[..., Environment], query: str, why: str) -> None:
    _, decisions = run(make_env(**FORCED), query)
    assert any(decision.chosen == "not split" and why in decision.reason for decision in decisions)
    assert not any("pieces" in decision.outcome for decision in decisions)


@pytest.mark.thorough
def test_an_order_with_one_place(spark: SparkSession, make_env: Callable[..., Environment]) -> None:
    """All rows of the hot key would be in one piece."""
    job, (decision,) = run(make_env(**FORCED), "select id, rank() over (partition by k order by k % 5) from clicks")
    assert decision.outcome["instead"] == "its partitions are not split"
    assert decision.outcome["split"] == 0
    assert "its order divides its rows too unevenly" in decision.outcome["because"]
    *_, computed = stages(spark, job, "Window")
    assert max(computed.read_per_task) > 0.9 * MAPPERS * ROWS
    (tasks,) = (one for one in job.decisions if "skewed keys are split" in one.reason)
    assert tasks.kind.value == "vertex parallelism"
    assert tasks.outcome["instead"] == "its tasks read whole partitions"
    assert tasks.outcome["because"] == decision.outcome["because"]


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        ("select k, noisy(v) as v, id from clicks", "PythonUDF"),
        ("select k, v + floor(rand(3)) as v, id from clicks", "Rand"),
    ],
)
def test_rows_that_may_be_others_when_they_are_made_again(
    spark: SparkSession, make_env: Callable[..., Environment], rows: str, what: str
) -> None:
    """The carries of pieces would be those of other rows, if files were lost."""
    spark.udf.register("noisy", F.udf(lambda value: value + 0 * random.random(), "double").asNondeterministic())
    env = make_env(**FORCED)
    env.collect(spark.sql(f"select k, id, rank() over (partition by k order by v, id) as place from ({rows})"))
    job = env.last_job
    assert job is not None
    (decision,) = (decision for decision in job.decisions if decision.kind.value == "skew")
    assert decision.chosen == "not split"
    assert f"{what} may give other rows if lost files of a shuffle are made again" in decision.reason


def after_a_loss(kind: str, folder: Path) -> Any:
    """Return what became of a divided window whose files were lost before its last tasks."""
    job = Path(__file__).parent / "jobs" / "lost_window.py"
    environment = {**os.environ, "SPARK_LOCAL_DIRS": str(folder)}
    command = [sys.executable, str(job), kind]
    told = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    return json.loads(told.splitlines()[-1])


@pytest.mark.slow
def test_pieces_are_made_again(tmp_path: Path) -> None:
    found = after_a_loss("stable", tmp_path)
    assert found["pieces"] >= 4
    assert (found["rows"], found["right"], found["error"]) == (MAPPERS * ROWS, True, "")


@pytest.mark.slow
def test_a_piece_that_has_other_rows_fails(tmp_path: Path) -> None:
    found = after_a_loss("unstable", tmp_path)
    assert found["pieces"] >= 4
    assert found["rows"] == 0
    assert "rows that were lost came out otherwise when they were made again" in found["error"]


def test_two_cores_are_too_few(make_env: Callable[..., Environment]) -> None:
    _, (decision,) = run(make_env(**{**FORCED, f"{SKEW}.strategy": "AUTO"}), f"select * from {WINDOWED}")
    assert decision.chosen == "not split"
    assert "not worth it with 2 cores" in decision.reason


@pytest.mark.thorough
@pytest.mark.parametrize("tasks", [1, 2, 5])
def test_a_number_of_tasks_that_was_given(
    spark: SparkSession, make_env: Callable[..., Environment], tasks: int
) -> None:
    env = make_env(**FORCED)
    df = with_parallelism(spark.sql(f"select * from {WINDOWED}"), tasks)
    assert_as_plain_spark(env, df)
    job = env.last_job
    assert job is not None
    *_, computed = stages(spark, job, "Window")
    assert computed.tasks == tasks
