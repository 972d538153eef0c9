"""Hanging calls: cancelling a job takes at most two seconds, and sources.timeout fails a job without a response."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import StructType

from penstock import Environment
from penstock.connectors import FileSink, JdbcSource
from penstock.connectors.core.base import Sink, SinkJob, Source
from penstock.connectors.core.split_source import SplitSource
from penstock.decisions.log import DecisionKind
from penstock.errors import JobCancelledError, PenstockError
from penstock.optimizer import StreamGraphOptimizationStrategy
from penstock.scheduler.job import Job
from tests.conftest import OFF
from tests.support.silence import HangingProxy, SilentServer, send_request

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


pytestmark = [pytest.mark.alone, pytest.mark.hangs]


class Hang:
    """A call that hangs until it is released."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._free = threading.Event()
        self._latch = spark._jvm.java.util.concurrent.CountDownLatch(1)
        self.server = SilentServer()
        self.called = threading.Event()

    def in_python(self) -> None:
        self.called.set()
        self._free.wait(300)

    def in_the_jvm(self) -> None:
        self.called.set()
        getattr(self._latch, "await")()

    def on_a_socket(self) -> None:
        self.called.set()
        with contextlib.suppress(ConnectionError):
            send_request(self.server.port)

    def release(self) -> None:
        self._free.set()
        self._latch.countDown()
        self.server.close()


@pytest.fixture
def hang(spark: SparkSession) -> Iterator[Any]:
    hang = Hang(spark)
    yield hang
    hang.release()


class Inferring(Source):
    """A source that hangs when it infers its parallelism."""

    name = "orders"

    def __init__(self, call: Any) -> None:
        self._call = call

    def read(self, spark: SparkSession) -> Any:
        return spark.range(100).selectExpr("id % 5 as id")

    def infer_parallelism(self, context: Any) -> int:
        del context
        self._call()
        return 2


class Enumerating(SplitSource):
    """A source that hangs when it enumerates its splits."""

    name = "orders"

    def __init__(self, call: Any) -> None:
        self._call = call

    @property
    def schema(self) -> Any:
        return StructType.fromDDL("id long")

    def infer_parallelism(self, context: Any) -> int:
        del context
        return 2

    def enumerate_splits(self, context: Any) -> list[int]:
        del context
        self._call()
        return [1, 2]

    def read_split(self, split: Any, columns: Any) -> Any:
        del split, columns
        return iter(())

    def __reduce__(self) -> Any:  # the hanging call is not sent to tasks
        return Enumerating, (None,)


class RecordingSink(Sink):
    """A sink that records its calls, and runs a function before each."""

    name = "notes"

    def __init__(self, **calls: Any) -> None:
        self.calls = calls
        self.finished_calls: list[str] = []

    def open(self, spark: SparkSession) -> Any:
        del spark
        return _RecordingSinkJob(self)


class _RecordingSinkJob(SinkJob):
    def __init__(self, sink: Any) -> None:
        self._sink = sink

    def _do(self, call: Any) -> None:
        self._sink.calls.get(call, lambda: None)()
        self._sink.finished_calls.append(call)

    def write(self, df: DataFrame) -> None:
        df.collect()
        self._do("write")

    def commit(self) -> None:
        self._do("commit")

    def abort(self) -> None:
        self._do("abort")


class CallingStrategy(StreamGraphOptimizationStrategy):
    """A strategy that runs a function when the first vertex has finished."""

    def __init__(self, call: Any) -> None:
        self._call = call

    def initialize(self, context: Any) -> None:
        pass

    def on_operators_finished(self, finished: Any, context: Any) -> bool:
        del finished, context
        self._call()
        return False


def sleeping(batches: Any) -> Iterator[Any]:
    for batch in batches:
        time.sleep(300)
        yield batch


def count_by_id(df: DataFrame) -> Any:
    return df.groupBy("id").count()


def numbers(spark: SparkSession) -> Any:
    return count_by_id(spark.range(100).selectExpr("id % 5 as id"))


CASES = {
    # the hanging job, a part of the error message, and the options
    "inference": (
        lambda env, hang: (count_by_id(env.read(Inferring(hang.in_python))), RecordingSink()),
        "asking orders for its parallelism (thread",
        OFF,
    ),
    "inference on a socket": (
        lambda env, hang: (count_by_id(env.read(Inferring(hang.on_a_socket))), RecordingSink()),
        "asking orders for its parallelism (thread",
        OFF,
    ),
    "inference in the JVM": (
        lambda env, hang: (count_by_id(env.read(Inferring(hang.in_the_jvm))), RecordingSink()),
        "asking orders for its parallelism (thread",
        OFF,
    ),
    "enumerator": (
        lambda env, hang: (count_by_id(env.read(Enumerating(hang.in_python))), RecordingSink()),
        "asking orders for its splits (thread",
        OFF,
    ),
    "a Python function": (
        lambda env, hang: (numbers(env.spark).mapInPandas(sleeping, "id long, count long"), RecordingSink()),
        "",
        OFF,
    ),
    "a Python function of a small job": (
        lambda env, hang: (numbers(env.spark).mapInPandas(sleeping, "id long, count long"), RecordingSink()),
        "",
        {},
    ),
    "a strategy": (lambda env, hang: (numbers(env.spark), RecordingSink()), "running its vertices (thread", OFF),
    "a write": (
        lambda env, hang: (numbers(env.spark), RecordingSink(write=hang.in_python)),
        "Sink: notes (thread",
        OFF,
    ),
    "a write in the JVM": (
        lambda env, hang: (numbers(env.spark), RecordingSink(write=hang.in_the_jvm)),
        "Sink: notes (thread",
        OFF,
    ),
    "a write of a small job": (
        lambda env, hang: (numbers(env.spark), RecordingSink(write=hang.in_python)),
        "running its vertices (thread",
        {},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_hanging_job_is_cancelled_within_two_seconds(spark: SparkSession, hang: Any, case: str) -> None:
    make, message, config = CASES[case]
    strategies = [CallingStrategy(hang.in_python)] if case == "a strategy" else []
    env = Environment(spark, config=config, progress=False, strategies=strategies)
    df, sink = make(env, hang)
    env.write(df, sink)
    job = env.execute_async(case)
    if case.startswith("a Python function"):
        wait_until(lambda: spark.sparkContext.statusTracker().getActiveJobsIds())
        time.sleep(1)
    else:
        assert hang.called.wait(30)
    started = time.monotonic()
    job.cancel()
    assert time.monotonic() - started < 0.2
    with pytest.raises(JobCancelledError) as cancelled:
        job.wait(10)
    assert time.monotonic() - started < 2
    assert job.state == "CANCELED"
    assert message in str(cancelled.value)
    cancellations = [decision for decision in job.decisions if decision.kind is DecisionKind.CANCEL]
    assert [message in decision.reason for decision in cancellations] == ([True] if message else [])
    assert all(vertex.state.is_terminal for vertex in job.vertices)
    other = Environment(spark, config=OFF, progress=False)
    assert other.count(numbers(spark)) == 5
    hang.release()
    wait_until(lambda: "abort" in sink.finished_calls)
    wait_until(lambda: not [t for t in threading.enumerate() if t.name.startswith(f"penstock-{job.id}")])
    assert "commit" not in sink.finished_calls
    assert job.state == "CANCELED"


def wait_until(condition: Any, seconds: int = 15) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "timeout"
        time.sleep(0.05)


@pytest.mark.parametrize("way", ["in_python", "in_the_jvm"])
def test_a_hanging_commit_is_cancelled_in_time_and_completed_later(
    spark: SparkSession, env: Environment, hang: Any, way: str
) -> None:
    first, second = RecordingSink(commit=getattr(hang, way)), RecordingSink()
    env.write(numbers(spark), first)
    env.write(numbers(spark), second)
    job = env.execute_async("hanging commit")
    assert hang.called.wait(30)
    started = time.monotonic()
    job.cancel()
    with pytest.raises(JobCancelledError, match="making what the sinks wrote visible") as cancelled:
        job.wait(10)
    assert time.monotonic() - started < 2
    assert "had already begun to commit" in str(cancelled.value)
    assert "abort" not in first.finished_calls + second.finished_calls
    hang.release()  # completing the commit is better than a partial commit
    wait_until(lambda: second.finished_calls == ["write", "commit"])
    assert job.state == "CANCELED"


def test_a_cancellation_during_a_short_commit_has_no_effect(spark: SparkSession, env: Environment) -> None:
    called = threading.Event()
    sink = RecordingSink(commit=lambda: (called.set(), time.sleep(0.5)))
    env.write(numbers(spark), sink)
    job = env.execute_async("late")
    assert called.wait(30)
    job.cancel("too late")
    assert job.wait(10).state == "FINISHED"
    assert sink.finished_calls == ["write", "commit"]
    (cancellation,) = [decision for decision in job.decisions if decision.kind is DecisionKind.CANCEL]
    assert cancellation.chosen == "came too late"
    assert "too late" in cancellation.reason


def test_a_hanging_abort_is_cancelled_within_two_seconds(spark: SparkSession, env: Environment, hang: Any) -> None:
    sink = RecordingSink(write=lambda: 1 / 0, abort=hang.in_python)
    env.write(numbers(spark), sink)
    job = env.execute_async("hanging abort")
    assert hang.called.wait(30)
    started = time.monotonic()
    job.cancel()
    with pytest.raises(JobCancelledError, match="removing what the sinks wrote"):
        job.wait(10)
    assert time.monotonic() - started < 2


def test_an_interrupt_from_the_keyboard_cancels_the_job(spark: SparkSession, env: Environment, hang: Any) -> None:
    df = count_by_id(env.read(Inferring(hang.in_python)))

    def interrupt() -> None:
        hang.called.wait(30)
        pressed.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    pressed: list[Any] = []
    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        env.collect(df)
    assert time.monotonic() - pressed[0] < 2
    assert env.last_job.state == "CANCELED"
    assert "interrupted from the keyboard" in str(env.last_job.error)


@pytest.mark.parametrize("started", [False, True], ids=["before its thread runs", "before the caller waits"])
def test_an_interrupt_during_the_start_cancels_the_job(
    env: Environment, spark: SparkSession, hang: Hang, monkeypatch: pytest.MonkeyPatch, started: bool
) -> None:
    start = Job.start

    def interrupted(*arguments: Any) -> None:
        if started:
            start(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(Job, "start", interrupted)
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        env.collect(count_by_id(env.read(Inferring(hang.in_python))))
    assert time.monotonic() - begun < 8
    assert env.last_job.state == "CANCELED"
    assert "interrupted from the keyboard" in str(env.last_job.error)


def test_a_job_with_a_silent_broker_is_cancelled_within_two_seconds(spark: SparkSession, env: Environment) -> None:
    pytest.importorskip("confluent_kafka")
    from penstock.connectors import KafkaSource

    with SilentServer() as server:
        env.write(env.read(KafkaSource(f"127.0.0.1:{server.port}", "orders")), RecordingSink())
        job = env.execute_async("silent broker")
        wait_until(lambda: server.connections)
        started = time.monotonic()
        job.cancel()
        with pytest.raises(JobCancelledError, match="asking orders for its parallelism"):
            job.wait(10)
        assert time.monotonic() - started < 2


def failed(env: Environment, df: DataFrame) -> Any:
    """Return the message of a job's failure, and the seconds until it."""
    started = time.monotonic()
    with pytest.raises(PenstockError) as error:
        env.collect(df)
    return str(error.value), time.monotonic() - started


@pytest.fixture
def timeout_env(make_env: Callable[..., Environment]) -> Any:
    return make_env(**{"sources.timeout": "2 s"})


@pytest.mark.parametrize(
    ("source", "activity"),
    [(Inferring, "asking orders for its parallelism"), (Enumerating, "asking orders for its splits")],
)
@pytest.mark.parametrize("way", ["in_python", "on_a_socket"])
def test_a_source_without_a_response_fails_the_job(
    timeout_env: Any, hang: Any, source: Any, activity: str, way: str
) -> None:
    message, seconds = failed(timeout_env, count_by_id(timeout_env.read(source(getattr(hang, way)))))
    for part in ("orders has not answered for 2 s", activity, "sources.timeout"):
        assert part in message
    assert seconds < 16
    assert timeout_env.last_job.state == "FAILED"


def test_long_computations_do_not_time_out(spark: SparkSession, timeout_env: Any) -> None:
    def work() -> None:
        until = time.monotonic() + 4
        while time.monotonic() < until:
            sum(range(1000))

    for call in (work, lambda: spark._jvm.java.lang.Thread.sleep(4000), lambda: [time.sleep(0.4) for _ in range(10)]):
        assert timeout_env.count(count_by_id(timeout_env.read(Inferring(call)))) == 5


def test_a_silent_broker_fails_the_job(timeout_env: Any) -> None:
    pytest.importorskip("confluent_kafka")
    from penstock.connectors import KafkaSource

    with SilentServer() as server:
        message, seconds = failed(timeout_env, timeout_env.read(KafkaSource(f"127.0.0.1:{server.port}", "orders")))
    assert f"the broker at 127.0.0.1:{server.port} has not answered for 2 s" in message
    assert seconds < 16


@pytest.mark.parametrize("database", ["postgres", "mariadb"])
def test_a_database_that_becomes_silent_fails_the_job(
    request: pytest.FixtureRequest, spark: SparkSession, timeout_env: Any, database: str
) -> None:
    server = request.getfixturevalue(database)
    server.sql(
        "CREATE TABLE IF NOT EXISTS hanging (id int primary key); DELETE FROM hanging; INSERT INTO hanging VALUES (1), (2)"
    )
    with HangingProxy(server.port) as proxy:
        url = server.url.replace(f":{server.port}/", f":{proxy.port}/")
        df = timeout_env.read(JdbcSource(url, "hanging", server.properties))
        assert timeout_env.count(df) == 2
        proxy.hangs.set()
        message, seconds = failed(timeout_env, count_by_id(df))
        assert "hanging has not answered for 2 s" in message
        assert "sources.timeout" in message
        assert seconds < 16
        proxy.hangs.clear()


@pytest.mark.parametrize("database", ["postgresql", "mysql"])
def test_a_silent_database_fails_the_job(spark: SparkSession, timeout_env: Any, database: str) -> None:
    properties = {"user": "u", "password": "p"}
    with SilentServer() as server:
        url = f"jdbc:{database}://127.0.0.1:{server.port}/d" + ("?permitMysqlScheme" if database == "mysql" else "")
        driver = "org.mariadb.jdbc.Driver" if database == "mysql" else "org.postgresql.Driver"
        started = time.monotonic()
        with pytest.raises(PenstockError):
            timeout_env.read(JdbcSource(url, "orders", properties | {"driver": driver}))
        assert time.monotonic() - started < 10


def test_a_job_after_a_cancelled_job_writes_its_files_once(
    spark: SparkSession, env: Environment, hang: Any, tmp_path: Path
) -> None:
    target = str(tmp_path / "out")
    for attempt in range(2):
        env.write(numbers(spark), RecordingSink(write=hang.in_python))
        env.write(numbers(spark), FileSink(target, mode="overwrite"))
        job = env.execute_async("twice")
        if attempt == 0:
            assert hang.called.wait(30)
            job.cancel()
            with pytest.raises(JobCancelledError):
                job.wait(10)
            assert not os.path.exists(target)
            hang.release()
        else:
            job.wait(60)
    gc.collect()
    assert spark.read.parquet(target).count() == 5
