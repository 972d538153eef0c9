"""Commits in forked child processes that die or fail at a chosen step."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import threading
import traceback
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from penstock.commit import Access, Commit
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.io.filesystem import HadoopPath
from penstock.spark.io.jdbc import JdbcConnection, JdbcTarget

FOLDER_STEPS = ("move_to", "delete", "write", "touch", "make", "exchange", "copy_to", "remove_if_empty")
JDBC_STEPS = ("run", "begin", "commit")
STEPS = []
"""Methods of client libraries that change targets or journals, besides those of folders and databases."""
with contextlib.suppress(ImportError):
    import deltalake

    from penstock.connectors.delta import commit as delta_commit

    STEPS += [(deltalake.DeltaTable, "create_write_transaction"), (delta_commit, "create_table")]
with contextlib.suppress(ImportError):
    import confluent_kafka  # noqa: F401

    from penstock.connectors.kafka import commit as topics

    STEPS += [(topics.PreparedKafka, "commit"), (topics.PreparedKafkaParts, "_write_receipt"), (topics, "write_part")]
with contextlib.suppress(ImportError):
    from pyiceberg.catalog.sql import SqlCatalog

    STEPS += [(SqlCatalog, "commit_table"), (SqlCatalog, "create_namespace_if_not_exists")]


class Injected(OSError):
    """An injected error instead of a step."""


@dataclass
class Stop:
    """The step before or after which a commit is stopped; ``how`` is kill, error, or interrupt (Ctrl-C)."""

    step: int | None = None
    after: bool = False
    how: str = "kill"
    seen: list[str] = field(default_factory=list)

    def die(self, name: str) -> None:
        if self.how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "interrupt":
            raise KeyboardInterrupt
        raise Injected(f"injected at step {self.step}, {name}")

    def around(self, owner: Any, name: Any) -> Any:
        original = getattr(owner, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            if self.depth or threading.get_ident() != self.thread:
                return original(*args, **kwargs)
            self.seen.append(name)
            here = len(self.seen) - 1 == self.step
            if here and not self.after:
                self.die(name)
            self.depth += 1
            try:
                result = original(*args, **kwargs)
            finally:
                self.depth -= 1
            if here and self.after:
                self.die(name)
            return result

        return original, counted

    depth: int = 0
    thread: int = 0

    @contextlib.contextmanager
    def armed(self) -> Iterator[None]:
        self.thread, self.depth = threading.get_ident(), 0
        patched = []
        for owner, name in [
            *((HadoopPath, name) for name in FOLDER_STEPS),
            *((JdbcConnection, name) for name in JDBC_STEPS),
            *STEPS,
        ]:
            original, counted = self.around(owner, name)
            patched.append((owner, name, original))
            setattr(owner, name, counted)
        try:
            yield
        finally:
            for owner, name, original in patched:
                setattr(owner, name, original)


@dataclass(frozen=True)
class End:
    """The outcome of a child process."""

    killed: bool
    result: Any = None
    error: str | None = None


def commit(
    spark: SparkSession, sinks: Any, stop: Stop | None = None, job: str = "j", write: Any = lambda sink, job: None
) -> None:
    """Recover, open, write and commit like a job; `stop` applies only to the commit."""
    bridge = Bridge(spark)
    secrets = {address: values for sink in sinks for address, values in sink.secrets.items()}
    for sink in sinks:
        sink.recover(Access(bridge, dict(secrets)))
    jobs = [sink.open(spark) for sink in sinks]
    for sink, sink_job in zip(sinks, jobs, strict=True):
        write(sink, sink_job)
    committing = Commit(Access(bridge), f"{job}{os.urandom(4).hex()}", job, jobs)
    with stop.armed() if stop is not None else contextlib.nullcontext():
        try:
            committing.run()
            committing.finish()
        except BaseException as error:
            committing.fail(error)
            raise


def in_child(spark: SparkSession, work: Any) -> End:
    """Fork, run the work in the child with its own connections, and return its outcome and result."""
    read, write = os.pipe()
    connections_read, connections_write = os.pipe()
    newest = _newest_handle(spark)
    pid = os.fork()
    if pid == 0:
        code = 0
        try:
            os.close(read)
            _reconnect()
            _report_connections(connections_write)
            os.write(write, pickle.dumps(End(False, work())))
        except BaseException as error:
            text = "".join(traceback.format_exception(error))
            os.write(write, pickle.dumps(End(False, None, text[-6000:])))
        finally:
            os._exit(code)
    os.close(write)
    os.close(connections_write)
    outcome, connections = _read_all(read), _read_all(connections_read)
    _, status = os.waitpid(pid, 0)
    _close(spark, connections.decode().split())
    _release_handles(spark, newest)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return End(True)
    return pickle.loads(outcome)


def _newest_handle(spark: SparkSession) -> int:
    """Return the id of the newest object that the JVM has returned to Python; 0 without a JVM."""
    if not isinstance(spark, SparkSession):
        return 0
    return int(spark._jvm.java.lang.Object()._target_id.removeprefix("o"))


def _release_handles(spark: SparkSession, after: int) -> None:
    """Release the objects that the JVM has returned to a child, which cannot release them itself once it is dead."""
    if not after:
        return
    client = spark.sparkContext._gateway._gateway_client
    for number in range(after + 1, _newest_handle(spark)):
        client.garbage_collect_object(f"o{number}", enqueue=False)


def _reconnect() -> None:
    """Replace the parent's connections to the JVM; keep references to them, so that they are not closed.

    Even a child that needs no JVM would write to them, as py4j reports each object that the collector frees.
    """
    if SparkContext._gateway is None:
        return
    client = SparkContext._gateway._gateway_client
    client._of_parent = (getattr(client, "_of_parent", None), client.deque, client.thread_connection)
    client.deque, client.thread_connection = deque(), threading.local()


def _read_all(pipe: int) -> bytes:
    content = b""
    while part := os.read(pipe, 65536):
        content += part
    os.close(pipe)
    return content


def _report_connections(pipe: int) -> None:
    """Report the JVM's connections to databases, so that the parent closes them: really they die with the driver."""
    connect = JdbcTarget.connect

    def reported(target: Any) -> Any:
        connection = connect(target)
        os.write(pipe, f"{connection._handle._target_id}\n".encode())
        return connection

    JdbcTarget.connect = reported  # type: ignore[assignment]


def _close(spark: SparkSession, ids: list[str]) -> None:
    for handle in ids:
        with contextlib.suppress(Py4JError):  # the child has closed it
            JavaObject(handle, spark.sparkContext._gateway._gateway_client).close()
