"""Whatever hangs: a job that is cancelled ends within two seconds, and what never answers fails it in time."""

import gc
import os
import signal
import threading
import time

import pytest
from pyspark.sql.types import StructType

from penstock import Environment
from penstock.connectors import FileSink, JdbcSource
from penstock.connectors.base import Sink, SinkJob, Source
from penstock.connectors.split_source import SplitSource
from penstock.decisions import DecisionKind
from penstock.errors import JobCancelledError, PenstockError
from penstock.optimizer import StreamGraphOptimizationStrategy
from penstock.scheduler.job import Job
from tests.conftest import OFF
from tests.silence import Proxy, Silent, ask


pytestmark = pytest.mark.alone


class Hang:
    """Something that hangs until it is let go."""

    def __init__(self, spark):
        self._spark = spark
        self._free = threading.Event()
        self._latch = spark._jvm.java.util.concurrent.CountDownLatch(1)
        self.server = Silent()
        self.came = threading.Event()

    def in_python(self):
        self.came.set()
        self._free.wait(300)

    def in_the_jvm(self):
        self.came.set()
        getattr(self._latch, "await")()

    def on_a_socket(self):
        self.came.set()
        try:
            ask(self.server.port)
        except ConnectionError:
            pass

    def let_go(self):
        self._free.set()
        self._latch.countDown()
        self.server.close()


@pytest.fixture
def hang(spark):
    made = Hang(spark)
    yield made
    made.let_go()


class Inferring(Source):
    """Rows whose source hangs when it is asked for its parallelism."""

    name = "orders"

    def __init__(self, call):
        self._call = call

    def read(self, spark):
        return spark.range(100).selectExpr("id % 5 as id")

    def infer_parallelism(self, context):
        del context
        self._call()
        return 2


class Enumerating(SplitSource):
    """Rows whose source hangs when it is asked for its splits."""

    name = "orders"

    def __init__(self, call):
        self._call = call

    @property
    def schema(self):
        return StructType.fromDDL("id long")

    def infer_parallelism(self, context):
        del context
        return 2

    def enumerate_splits(self, context):
        del context
        self._call()
        return [1, 2]

    def read_split(self, split, columns):
        del split, columns
        return iter(())

    def __reduce__(self):  # tasks have no use for what hangs
        return Enumerating, (None,)


class Noting(Sink):
    """A sink that notes what it did, and does something before that."""

    name = "notes"

    def __init__(self, **calls):
        self.calls = calls
        self.did = []

    def open(self, spark):
        del spark
        return _NotingJob(self)


class _NotingJob(SinkJob):
    def __init__(self, sink):
        self._sink = sink

    def _do(self, what):
        self._sink.calls.get(what, lambda: None)()
        self._sink.did.append(what)

    def write(self, df):
        df.collect()
        self._do("write")

    def commit(self):
        self._do("commit")

    def abort(self):
        self._do("abort")


class Thinking(StreamGraphOptimizationStrategy):
    """A strategy that does something when the first vertex has finished."""

    def __init__(self, call):
        self._call = call

    def initialize(self, context):
        pass

    def on_operators_finished(self, finished, context):
        del finished, context
        self._call()
        return False


def sleeping(batches):
    for batch in batches:
        time.sleep(300)
        yield batch


def counted(df):
    return df.groupBy("id").count()


def numbers(spark):
    return counted(spark.range(100).selectExpr("id % 5 as id"))


CASES = {
    # a way to hang, what the error says of it, and whether the default threshold is used
    "inference": (
        lambda env, hang: (counted(env.read(Inferring(hang.in_python))), Noting()),
        "asking orders for its parallelism (thread",
        OFF,
    ),
    "inference on a socket": (
        lambda env, hang: (counted(env.read(Inferring(hang.on_a_socket))), Noting()),
        "asking orders for its parallelism (thread",
        OFF,
    ),
    "inference in the JVM": (
        lambda env, hang: (counted(env.read(Inferring(hang.in_the_jvm))), Noting()),
        "asking orders for its parallelism (thread",
        OFF,
    ),
    "enumerator": (
        lambda env, hang: (counted(env.read(Enumerating(hang.in_python))), Noting()),
        "asking orders for its splits (thread",
        OFF,
    ),
    "a Python function": (
        lambda env, hang: (numbers(env.spark).mapInPandas(sleeping, "id long, count long"), Noting()),
        "",
        OFF,
    ),
    "a Python function of a small job": (
        lambda env, hang: (numbers(env.spark).mapInPandas(sleeping, "id long, count long"), Noting()),
        "",
        {},
    ),
    "a strategy": (lambda env, hang: (numbers(env.spark), Noting()), "running its vertices (thread", OFF),
    "a write": (lambda env, hang: (numbers(env.spark), Noting(write=hang.in_python)), "Sink: notes (thread", OFF),
    "a write in the JVM": (
        lambda env, hang: (numbers(env.spark), Noting(write=hang.in_the_jvm)),
        "Sink: notes (thread",
        OFF,
    ),
    "a write of a small job": (
        lambda env, hang: (numbers(env.spark), Noting(write=hang.in_python)),
        "running its vertices (thread",
        {},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_cancelled_within_two_seconds(spark, hang, case):
    make, says, config = CASES[case]
    strategies = [Thinking(hang.in_python)] if case == "a strategy" else []
    env = Environment(spark, config=config, progress=False, strategies=strategies)
    df, sink = make(env, hang)
    env.write(df, sink)
    job = env.execute_async(case)
    if case.startswith("a Python function"):
        wait_until(lambda: spark.sparkContext.statusTracker().getActiveJobsIds())
        time.sleep(1)
    else:
        assert hang.came.wait(30)
    started = time.monotonic()
    job.cancel()
    assert time.monotonic() - started < 0.2
    with pytest.raises(JobCancelledError) as found:
        job.wait(10)
    assert time.monotonic() - started < 2
    assert job.state == "CANCELED"
    assert says in str(found.value)
    left = [decision for decision in job.decisions if decision.kind is DecisionKind.CANCEL]
    assert [says in decision.reason for decision in left] == ([True] if says else [])
    assert all(vertex.state.is_terminal for vertex in job.vertices)
    other = Environment(spark, config=OFF, progress=False)
    assert other.count(numbers(spark)) == 5
    hang.let_go()
    wait_until(lambda: "abort" in sink.did)
    wait_until(lambda: not [t for t in threading.enumerate() if t.name.startswith(f"penstock-{job.id}")])
    assert "commit" not in sink.did
    assert job.state == "CANCELED"


def wait_until(there, seconds=15):
    until = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < until, "it does not come"
        time.sleep(0.05)


@pytest.mark.parametrize("way", ["in_python", "in_the_jvm"])
def test_a_commit_that_hangs(spark, env, hang, way):
    first, second = Noting(commit=getattr(hang, way)), Noting()
    env.write(numbers(spark), first)
    env.write(numbers(spark), second)
    job = env.execute_async("hanging commit")
    assert hang.came.wait(30)
    started = time.monotonic()
    job.cancel()
    with pytest.raises(JobCancelledError, match="making what the sinks wrote visible") as found:
        job.wait(10)
    assert time.monotonic() - started < 2
    assert "had already begun to commit" in str(found.value)
    assert "abort" not in first.did + second.did
    hang.let_go()  # half a commit would be worse than all of it
    wait_until(lambda: second.did == ["write", "commit"])
    assert job.state == "CANCELED"


def test_a_commit_that_ends_in_time_wins(spark, env):
    came = threading.Event()
    sink = Noting(commit=lambda: (came.set(), time.sleep(0.5)))
    env.write(numbers(spark), sink)
    job = env.execute_async("late")
    assert came.wait(30)
    job.cancel("too late")
    assert job.wait(10).state == "FINISHED"
    assert sink.did == ["write", "commit"]
    (said,) = [decision for decision in job.decisions if decision.kind is DecisionKind.CANCEL]
    assert said.chosen == "came too late"
    assert "too late" in said.reason


def test_cleaning_up_that_hangs(spark, env, hang):
    sink = Noting(write=lambda: 1 / 0, abort=hang.in_python)
    env.write(numbers(spark), sink)
    job = env.execute_async("hanging abort")
    assert hang.came.wait(30)
    started = time.monotonic()
    job.cancel()
    with pytest.raises(JobCancelledError, match="removing what the sinks wrote"):
        job.wait(10)
    assert time.monotonic() - started < 2


def test_interrupted_from_the_keyboard(spark, env, hang):
    df = counted(env.read(Inferring(hang.in_python)))

    def interrupt():
        hang.came.wait(30)
        pressed.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    pressed = []
    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        env.collect(df)
    assert time.monotonic() - pressed[0] < 2
    assert env.last_job.state == "CANCELED"
    assert "interrupted from the keyboard" in str(env.last_job.error)


@pytest.mark.parametrize("started", [False, True], ids=["before its thread runs", "before anyone waits"])
def test_interrupted_while_it_starts(env, spark, hang, monkeypatch, started):
    start = Job.start

    def interrupted(*given):
        if started:
            start(*given)
        raise KeyboardInterrupt

    monkeypatch.setattr(Job, "start", interrupted)
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        env.collect(counted(env.read(Inferring(hang.in_python))))
    assert time.monotonic() - begun < 8
    assert env.last_job.state == "CANCELED"
    assert "interrupted from the keyboard" in str(env.last_job.error)


def test_a_broker_that_never_answers_and_a_cancellation(spark, env):
    pytest.importorskip("confluent_kafka")
    from penstock.connectors.kafka import KafkaSource

    with Silent() as server:
        env.write(env.read(KafkaSource(f"127.0.0.1:{server.port}", "orders")), Noting())
        job = env.execute_async("silent broker")
        wait_until(lambda: server.connections)
        started = time.monotonic()
        job.cancel()
        with pytest.raises(JobCancelledError, match="asking orders for its parallelism"):
            job.wait(10)
        assert time.monotonic() - started < 2


def failed(env, df):
    """Return the message of a job's failure, and how long it took."""
    started = time.monotonic()
    with pytest.raises(PenstockError) as found:
        env.collect(df)
    return str(found.value), time.monotonic() - started


@pytest.fixture
def impatient(make_env):
    return make_env(**{"sources.timeout": "2 s"})


@pytest.mark.parametrize(
    ("source", "what"),
    [(Inferring, "asking orders for its parallelism"), (Enumerating, "asking orders for its splits")],
)
@pytest.mark.parametrize("way", ["in_python", "on_a_socket"])
def test_a_source_that_never_answers(impatient, hang, source, what, way):
    message, seconds = failed(impatient, counted(impatient.read(source(getattr(hang, way)))))
    for part in ("orders has not answered for 2 s", what, "sources.timeout"):
        assert part in message
    assert seconds < 16
    assert impatient.last_job.state == "FAILED"


def test_long_work_is_not_broken(spark, impatient):
    def work():
        until = time.monotonic() + 4
        while time.monotonic() < until:
            sum(range(1000))

    for call in (work, lambda: spark._jvm.java.lang.Thread.sleep(4000), lambda: [time.sleep(0.4) for _ in range(10)]):
        assert impatient.count(counted(impatient.read(Inferring(call)))) == 5


def test_a_broker_that_never_answers(impatient):
    pytest.importorskip("confluent_kafka")
    from penstock.connectors.kafka import KafkaSource

    with Silent() as server:
        message, seconds = failed(impatient, impatient.read(KafkaSource(f"127.0.0.1:{server.port}", "orders")))
    assert f"the broker at 127.0.0.1:{server.port} has not answered for 2 s" in message
    assert seconds < 16


@pytest.mark.parametrize("database", ["postgres", "mariadb"])
def test_a_database_that_stops_to_answer(request, spark, impatient, database):
    server = request.getfixturevalue(database)
    server.sql(
        "CREATE TABLE IF NOT EXISTS hanging (id int primary key); DELETE FROM hanging; INSERT INTO hanging VALUES (1), (2)"
    )
    with Proxy(server.port) as proxy:
        url = server.url.replace(f":{server.port}/", f":{proxy.port}/")
        df = impatient.read(JdbcSource(url, "hanging", server.properties))
        assert impatient.count(df) == 2
        proxy.hangs.set()
        message, seconds = failed(impatient, counted(df))
        assert "hanging has not answered for 2 s" in message
        assert "sources.timeout" in message
        assert seconds < 16
        proxy.hangs.clear()


@pytest.mark.parametrize("database", ["postgresql", "mysql"])
def test_a_database_that_never_answers(spark, impatient, database):
    properties = {"user": "u", "password": "p"}
    with Silent() as server:
        url = f"jdbc:{database}://127.0.0.1:{server.port}/d" + ("?permitMysqlScheme" if database == "mysql" else "")
        driver = "org.mariadb.jdbc.Driver" if database == "mysql" else "org.postgresql.Driver"
        started = time.monotonic()
        with pytest.raises(PenstockError):
            impatient.read(JdbcSource(url, "orders", properties | {"driver": driver}))
        assert time.monotonic() - started < 10


def test_files_appear_once_though_the_job_was_cancelled_before(spark, env, hang, tmp_path):
    target = str(tmp_path / "out")
    for attempt in range(2):
        env.write(numbers(spark), Noting(write=hang.in_python))
        env.write(numbers(spark), FileSink(target, mode="overwrite"))
        job = env.execute_async("twice")
        if attempt == 0:
            assert hang.came.wait(30)
            job.cancel()
            with pytest.raises(JobCancelledError):
                job.wait(10)
            assert not os.path.exists(target)
            hang.let_go()
        else:
            job.wait(60)
    gc.collect()
    assert spark.read.parquet(target).count() == 5
