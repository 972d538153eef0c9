"""Rows that Spark's tasks send to a service: its limit holds for the job, and the tasks follow from it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.connectors import FileSink, HttpSink
from penstock.decisions import DecisionKind
from penstock.errors import JobError, PenstockError, SinkError
from tests.stages import stages

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from penstock import Environment
    from tests.connectors.http.service import Service

JOB = Path(__file__).parents[2] / "jobs" / "sent.py"


@pytest.fixture
def service(start: Callable[..., Service]) -> Service:
    return start()


def decided(env: Environment, kind: DecisionKind) -> Any:
    return [decision for decision in env.last_job.decisions if decision.kind is kind][-1]


def test_the_tasks_follow_from_the_limit_and_from_what_was_measured(
    env: Environment, spark: SparkSession, start: Any, tmp_path: Path
) -> None:
    service = start(delay=0.05, _500=17, _400=21)
    df = spark.range(0, 50, 1, 3).selectExpr("id", "cast(null as string) as nothing", "id % 2 = 0 as even")
    env.write(df, HttpSink(service.url, max_requests_per_second=45, dead_letters=str(tmp_path / "dead"), backoff=0.02))
    env.execute()
    tasks = decided(env, DecisionKind.VERTEX_PARALLELISM)
    assert tasks.chosen in {3, 4}, "45 a second of a twentieth of a second each: more than two at a time"
    assert "and at most 45 are sent in a second, so more tasks would only wait; 2 of them can run" in tasks.reason
    (ran,) = [stage for stage in stages(spark, env.last_job, "Sink") if stage.tasks == tasks.chosen]
    assert ran.tasks == tasks.chosen
    assert service.rows() == [number for number in range(50) if number % 21]
    assert service.most_in_a_second() <= 45
    requests = service.requests()
    assert requests[0]["rows"][0].keys() == {"id", "nothing", "even"}
    assert len({one["key"] for one in requests}) == 50
    told = decided(env, DecisionKind.SINK_STAGE)
    assert told.chosen == f"{len(requests)} requests"
    assert told.reason.startswith("47 rows taken, 3 requests repeated, 3 dead letters, ")
    assert told.reason.endswith(" a second, of 45 that are allowed")
    dead = spark.read.parquet(str(tmp_path / "dead")).collect()
    assert sorted((json.loads(row.row)["id"], row.status, row.error, row.attempts) for row in dead) == [
        (0, 400, "this row is not for us", 2),
        (21, 400, "this row is not for us", 1),
        (42, 400, "this row is not for us", 1),
    ]


@pytest.mark.parametrize("by", ["the sink", "the call", "the option"])
def test_the_users_number_of_tasks(make_env: Any, spark: SparkSession, service: Service, by: str) -> None:
    env = make_env(**({"sink.parallelism": 3} if by == "the option" else {}))
    sink = HttpSink(service.url, parallelism=3 if by == "the sink" else None)
    env.write(spark.range(20), sink, **({"parallelism": 3} if by == "the call" else {}))
    env.execute()
    assert decided(env, DecisionKind.VERTEX_PARALLELISM).reason == "parallelism is set to 3"
    assert [stage.tasks for stage in stages(spark, env.last_job, "Sink")] == [3]
    assert service.rows() == list(range(20))


@pytest.mark.thorough
def test_sorted_rows_come_in_their_order(env: Environment, spark: SparkSession, service: Service) -> None:
    env.write(spark.range(30).orderBy("id", ascending=False).coalesce(1), HttpSink(service.url, batch_size=4))
    env.execute()
    assert [row["id"] for one in service.requests() for row in one["rows"]] == list(range(29, -1, -1))


@pytest.mark.thorough
def test_no_rows(env: Environment, spark: SparkSession, service: Service, tmp_path: Path) -> None:
    env.write(spark.range(0), HttpSink(service.url, dead_letters=str(tmp_path / "dead")))
    env.execute()
    assert service.requests() == []
    assert not (tmp_path / "dead").exists()


def test_a_refused_row_that_nobody_keeps_fails_the_job(
    env: Environment, spark: SparkSession, start: Any, tmp_path: Path
) -> None:
    service = start(_400=7)
    df = spark.range(1, 500)
    env.write(df, FileSink(str(tmp_path / "other")))
    env.write(df, HttpSink(service.url, headers={"Authorization": "Bearer wicket"}))
    with pytest.raises((JobError, SinkError), match=r"(?s)does not take a row.*status 400.*dead_letters"):
        env.execute()
    assert not (tmp_path / "other").exists()
    assert len(service.requests()) < 300
    assert {one["token"] for one in service.requests()} == {"Bearer wicket"}
    assert "wicket" not in repr(HttpSink(service.url, headers={"Authorization": "Bearer wicket"}))


@pytest.mark.thorough
def test_dead_letters_are_added_when_the_job_commits_and_not_before(
    env: Environment, spark: SparkSession, start: Any, tmp_path: Path
) -> None:
    service, dead = start(_400=5), tmp_path / "dead"
    sink = HttpSink(service.url, dead_letters=str(dead), idempotency_key=["ID"])
    env.write(spark.range(20), sink)
    env.execute()
    assert spark.read.parquet(str(dead)).count() == 4
    env.write(spark.range(20), sink)
    env.write(spark.range(5).selectExpr("raise_error('no')"), FileSink(str(tmp_path / "other")))
    with pytest.raises(PenstockError):
        env.execute()
    assert spark.read.parquet(str(dead)).count() == 4
    env.write(spark.range(20), sink)
    env.execute()
    assert spark.read.parquet(str(dead)).count() == 8
    keys = {(one["rows"][0]["id"], one["key"]) for one in service.requests()}
    assert len(keys) == 20, "keys of columns hold in any run"


def test_compared_with_plain_spark(spark: SparkSession, start: Any) -> None:
    from penstock import Environment

    service = start()
    env = Environment(spark, progress=False, verify="rows")
    env.write(spark.range(40), HttpSink(service.url))
    env.execute()
    assert service.rows() == list(range(40))


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no address": ({"url": "host/rows"}, "no address of a service"),
    "a method": ({"method": "GET"}, "method 'GET'.*give POST or PUT"),
    "no rows in a request": ({"batch_size": 0}, "batch_size 0 .*is not valid"),
    "no attempts": ({"attempts": True}, "attempts True .*is not valid"),
    "a limit of nothing": ({"max_requests_per_second": 0}, "max_requests_per_second 0 .*above 0"),
    "a limit that is no number": ({"max_requests_per_second": "10"}, "max_requests_per_second '10'"),
    "no time for an answer": ({"timeout": float("nan")}, "timeout nan"),
    "tasks": ({"parallelism": 0}, "invalid parallelism"),
    "headers": ({"headers": "x"}, "a mapping of options"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_refused(case: str) -> None:
    given, words = BAD[case]
    with pytest.raises(PenstockError, match=rf"(?s){words}"):
        HttpSink(**{"url": "http://h/rows", **given})


def test_what_is_refused_of_rows_before_anything_runs(env: Environment, spark: SparkSession, service: Service) -> None:
    env.write(spark.range(3), HttpSink(service.url, idempotency_key="order"))
    with pytest.raises(PenstockError, match=r"column .*order"):
        env.execute()
    assert service.requests() == []


def said_by_job(service: Service, dies: str) -> dict[str, str]:
    command = [sys.executable, JOB, service.url, dies]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    lines = [line for line in done.stdout.splitlines() if line.startswith("SAID ")]
    assert lines, done.stderr[-4000:]
    said: dict[str, str] = json.loads(lines[0].removeprefix("SAID "))
    return said


@pytest.mark.slow
def test_a_worker_that_dies_with_the_first_rows_loses_no_equal_row(start: Any) -> None:
    service = start()
    said = said_by_job(service, "first")
    taken = Counter(service.rows())
    assert set(taken) == set(range(4))
    assert min(taken.values()) >= 250
    assert taken.total() == 1_005, "the five rows of the attempt that died come twice, and no other"
    assert "1 task ran twice, whose rows may have come twice" in said["reason"]


@pytest.mark.slow
def test_a_worker_that_dies_loses_no_row(start: Any) -> None:
    service = start(delay=0.01)
    said = said_by_job(service, "second")
    rows = service.rows()
    assert set(rows) == set(range(400))
    assert 400 < len(rows) <= 800, "at least once"
    assert service.most_in_a_second() <= 100
    assert "1 task ran twice, whose rows may have come twice" in said["reason"]
    assert said["chosen"] == f"{len(service.requests())} requests"
    keys: dict[int, set[str]] = {}
    for one in service.requests():
        keys.setdefault(one["rows"][0]["id"], set()).add(one["key"])
    assert all(len(found) == 1 for found in keys.values()), "a service that looks at keys takes each row once"
