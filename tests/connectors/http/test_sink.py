"""The HTTP sink with Spark: a rate limit for the whole job, which also decides the number of tasks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.connectors import FileSink, HttpSink
from penstock.decisions.log import DecisionKind
from penstock.errors import JobError, PenstockError, SinkError
from tests.support.paths import TESTS
from tests.support.stages import stages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock import Environment
    from tests.connectors.http.service import Service

JOB = TESTS / "jobs" / "http_rows.py"


@pytest.fixture
def service(start: Callable[..., Service]) -> Service:
    return start()


def last_decision(env: Environment, kind: DecisionKind) -> Any:
    return [decision for decision in env.last_job.decisions if decision.kind is kind][-1]


def test_the_number_of_tasks_follows_from_the_limit_and_the_measured_response_time(
    env: Environment, spark: SparkSession, start: Any, tmp_path: Path
) -> None:
    service = start(delay=0.05, _500=17, _400=21)
    df = spark.range(0, 50, 1, 3).selectExpr("id", "cast(null as string) as nothing", "id % 2 = 0 as even")
    env.write(df, HttpSink(service.url, max_requests_per_second=45, dead_letters=str(tmp_path / "dead"), backoff=0.02))
    env.execute()
    tasks = last_decision(env, DecisionKind.VERTEX_PARALLELISM)
    assert tasks.chosen in {3, 4}, "45 requests per second of 50 ms each need more than two tasks"
    assert "and at most 45 are sent in a second, so more tasks would only wait; 2 tasks can run" in tasks.reason
    assert [stage.tasks for stage in stages(spark, env.last_job, "Sink")].count(tasks.chosen) == 1
    assert service.rows() == [number for number in range(50) if number % 21]
    assert service.max_requests_in() <= 45
    requests = service.requests()
    assert requests[0]["rows"][0].keys() == {"id", "nothing", "even"}
    assert len({request["key"] for request in requests}) == 50
    summary = last_decision(env, DecisionKind.SINK_STAGE)
    assert summary.chosen == f"{len(requests)} requests"
    assert summary.reason.startswith("47 rows accepted, 3 requests retried, 3 dead letters, ")
    assert summary.reason.endswith(" a second, of 45 allowed")
    dead = spark.read.parquet(str(tmp_path / "dead")).collect()
    assert sorted((json.loads(row.row)["id"], row.status, row.error, row.attempts) for row in dead) == [
        (0, 400, "this row is not for us", 2),
        (21, 400, "this row is not for us", 1),
        (42, 400, "this row is not for us", 1),
    ]


@pytest.mark.parametrize("by", ["the sink", "the call", "the option"])
def test_the_user_can_set_the_number_of_tasks(make_env: Any, spark: SparkSession, service: Service, by: str) -> None:
    env = make_env(**({"sink.parallelism": 3} if by == "the option" else {}))
    sink = HttpSink(service.url, parallelism=3 if by == "the sink" else None)
    env.write(spark.range(20), sink, **({"parallelism": 3} if by == "the call" else {}))
    env.execute()
    assert last_decision(env, DecisionKind.VERTEX_PARALLELISM).reason == "parallelism is set to 3"
    assert [stage.tasks for stage in stages(spark, env.last_job, "Sink")] == [3]
    assert service.rows() == list(range(20))


@pytest.mark.thorough
def test_sorted_rows_are_sent_in_order(env: Environment, spark: SparkSession, service: Service) -> None:
    env.write(spark.range(30).orderBy("id", ascending=False).coalesce(1), HttpSink(service.url, batch_size=4))
    env.execute()
    assert [row["id"] for request in service.requests() for row in request["rows"]] == list(range(29, -1, -1))


@pytest.mark.thorough
def test_without_rows_there_are_no_requests_and_no_dead_letters(
    env: Environment, spark: SparkSession, service: Service, tmp_path: Path
) -> None:
    env.write(spark.range(0), HttpSink(service.url, dead_letters=str(tmp_path / "dead")))
    env.execute()
    assert service.requests() == []
    assert not (tmp_path / "dead").exists()


def test_without_dead_letters_a_refused_row_fails_the_job(
    env: Environment, spark: SparkSession, start: Any, tmp_path: Path
) -> None:
    service = start(_400=7)
    df = spark.range(1, 500)
    env.write(df, FileSink(str(tmp_path / "other")))
    env.write(df, HttpSink(service.url, headers={"Authorization": "Bearer wicket"}))
    with pytest.raises((JobError, SinkError), match=r"(?s)rejected a row.*status 400.*dead_letters"):
        env.execute()
    assert not (tmp_path / "other").exists()
    assert len(service.requests()) < 300
    assert {request["token"] for request in service.requests()} == {"Bearer wicket"}
    assert "wicket" not in repr(HttpSink(service.url, headers={"Authorization": "Bearer wicket"}))


@pytest.mark.thorough
def test_dead_letters_are_written_at_the_commit_of_the_job(
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
    keys = {(request["rows"][0]["id"], request["key"]) for request in service.requests()}
    assert len(keys) == 20, "keys of columns are the same in every run"


def test_verification_sends_no_row_twice(spark: SparkSession, start: Any) -> None:
    from penstock import Environment

    service = start()
    env = Environment(spark, progress=False, verify="rows")
    env.write(spark.range(40), HttpSink(service.url))
    env.execute()
    assert service.rows() == list(range(40))


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no address": ({"url": "host/rows"}, "not a valid URL of a service"),
    "a method": ({"method": "GET"}, "method 'GET'.*give POST or PUT"),
    "no rows in a request": ({"batch_size": 0}, "batch_size 0 .*is not valid"),
    "no attempts": ({"attempts": True}, "attempts True .*is not valid"),
    "a limit of 0": ({"max_requests_per_second": 0}, "max_requests_per_second 0 .*above 0"),
    "a limit that is not a number": ({"max_requests_per_second": "10"}, "max_requests_per_second '10'"),
    "a timeout that is not a number": ({"timeout": float("nan")}, "timeout nan"),
    "tasks": ({"parallelism": 0}, "invalid parallelism"),
    "headers": ({"headers": "x"}, "a mapping of options"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_are_errors(case: str) -> None:
    arguments, message = BAD[case]
    with pytest.raises(PenstockError, match=rf"(?s){message}"):
        HttpSink(**{"url": "http://h/rows", **arguments})


def test_a_missing_key_column_fails_before_any_request(env: Environment, spark: SparkSession, service: Service) -> None:
    env.write(spark.range(3), HttpSink(service.url, idempotency_key="order"))
    with pytest.raises(PenstockError, match=r"column .*order"):
        env.execute()
    assert service.requests() == []


def run_job(service: Service, dying_tasks: str) -> dict[str, str]:
    """Run the job in a subprocess, and return the decision of its sink."""
    command = [sys.executable, JOB, service.url, dying_tasks]
    process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    lines = [line for line in process.stdout.splitlines() if line.startswith("DECISION ")]
    assert lines, process.stderr[-4000:]
    decision: dict[str, str] = json.loads(lines[0].removeprefix("DECISION "))
    return decision


@pytest.mark.slow
def test_a_worker_that_dies_with_the_first_rows_loses_no_equal_row(start: Any) -> None:
    service = start()
    decision = run_job(service, "first")
    rows = Counter(service.rows())
    assert set(rows) == set(range(4))
    assert min(rows.values()) >= 250
    assert rows.total() == 1_005, "only the five rows of the attempt that died come twice"
    assert "tasks were started again 1 time, so rows may have been sent twice" in decision["reason"]


@pytest.mark.slow
def test_a_worker_that_dies_loses_no_row(start: Any) -> None:
    service = start(delay=0.01)
    decision = run_job(service, "second")
    rows = service.rows()
    assert set(rows) == set(range(400))
    assert 400 < len(rows) <= 800, "rows are delivered at least once"
    assert service.max_requests_in() <= 100
    assert "tasks were started again 1 time, so rows may have been sent twice" in decision["reason"]
    assert decision["chosen"] == f"{len(service.requests())} requests"
    keys: dict[int, set[str]] = {}
    for request in service.requests():
        keys.setdefault(request["rows"][0]["id"], set()).add(request["key"])
    assert all(len(keys_of_row) == 1 for keys_of_row in keys.values()), "a service can drop repeated rows by their keys"
