"""Commits run in forked children that die, or fail, at a given step of what they do to targets."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import threading
import traceback
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from penstock.commit import Access, Commit
from penstock.spark.filesystem import Folder
from penstock.spark.jdbc import JdbcConnection, JdbcTarget
from penstock.spark.jvm import Bridge

if TYPE_CHECKING:
    from collections.abc import Iterator


FOLDER_STEPS = ("move_to", "delete", "write", "touch", "make", "exchange", "copy_to", "remove_if_empty")
JDBC_STEPS = ("run", "begin", "commit")
STEPS = []
"""What changes targets, or journals, besides folders and databases: the clients of some."""
with contextlib.suppress(ImportError):
    import deltalake

    from penstock.connectors import delta_commit

    STEPS += [(deltalake.DeltaTable, "create_write_transaction"), (delta_commit, "create_table")]
with contextlib.suppress(ImportError):
    import confluent_kafka  # noqa: F401

    from penstock.connectors.kafka import parts
    from penstock.connectors.kafka.commit import PreparedKafka

    STEPS += [(PreparedKafka, "commit"), (parts.PreparedKafkaParts, "_tell"), (parts, "write_part")]
with contextlib.suppress(ImportError):
    from pyiceberg.catalog.sql import SqlCatalog

    STEPS += [(SqlCatalog, "commit_table"), (SqlCatalog, "create_namespace_if_not_exists")]


class Injected(OSError):
    """An error where a step should have been."""


@dataclass
class Stop:
    """Where a commit dies: before or after so many steps; ``how`` is kill, error, or interrupt (Ctrl-C)."""

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

    def around(self, place: Any, name: Any) -> Any:
        original = getattr(place, name)

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
        kept = []
        for place, name in [
            *((Folder, name) for name in FOLDER_STEPS),
            *((JdbcConnection, name) for name in JDBC_STEPS),
            *STEPS,
        ]:
            original, counted = self.around(place, name)
            kept.append((place, name, original))
            setattr(place, name, counted)
        try:
            yield
        finally:
            for place, name, original in kept:
                setattr(place, name, original)


@dataclass(frozen=True)
class End:
    """How a child has ended."""

    killed: bool
    result: Any = None
    error: str | None = None


def commit(
    spark: SparkSession, sinks: Any, stop: Stop | None = None, job: str = "j", write: Any = lambda sink, job: None
) -> None:
    """Do what a job does: recover, open, write, and commit; only the commit can be stopped."""
    bridge = Bridge(spark)
    secrets = {address: found for sink in sinks for address, found in sink.secrets.items()}
    for sink in sinks:
        sink.recover(Access(bridge, dict(secrets)))
    opened = [sink.open(spark) for sink in sinks]
    for sink, one in zip(sinks, opened, strict=True):
        write(sink, one)
    committing = Commit(Access(bridge), f"{job}{os.urandom(4).hex()}", job, opened)
    with stop.armed() if stop is not None else contextlib.nullcontext():
        try:
            committing.run()
            committing.finish()
        except BaseException as error:
            committing.fail(error)
            raise


def in_child(spark: SparkSession, work: Any) -> End:
    """Fork, do the work there with connections of its own, and return how it has ended, and with what result."""
    read, write = os.pipe()
    opened, opens = os.pipe()
    newest = _newest_handle(spark)
    pid = os.fork()
    if pid == 0:
        code = 0
        try:
            os.close(read)
            _reconnect()
            _tell_connections(opens)
            os.write(write, pickle.dumps(End(False, work())))
        except BaseException as error:
            text = "".join(traceback.format_exception(error))
            os.write(write, pickle.dumps(End(False, None, text[-6000:])))
        finally:
            os._exit(code)
    os.close(write)
    os.close(opens)
    told, connections = _all_of(read), _all_of(opened)
    _, status = os.waitpid(pid, 0)
    _close(spark, connections.decode().split())
    _release_handles(spark, newest)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return End(True)
    return pickle.loads(told)


def _newest_handle(spark: SparkSession) -> int:
    """Return the number by which Python knows the object that the JVM has given it last; 0 where there is no JVM."""
    if not isinstance(spark, SparkSession):
        return 0
    return int(spark._jvm.java.lang.Object()._target_id.removeprefix("o"))


def _release_handles(spark: SparkSession, after: int) -> None:
    """Let the JVM forget what it has given to a child: one that has died tells it no more, and memory would run out."""
    if not after:
        return
    client = spark.sparkContext._gateway._gateway_client
    for number in range(after + 1, _newest_handle(spark)):
        client.garbage_collect_object(f"o{number}", enqueue=False)


def _reconnect() -> None:
    """Leave the parent's connections to the JVM alone; what refers to them is kept, so that nothing is closed.

    A child that needs no JVM would write to them, too: it tells the JVM of each object that Python's collector removes.
    """
    if SparkContext._gateway is None:
        return
    client = SparkContext._gateway._gateway_client
    client._of_parent = (getattr(client, "_of_parent", None), client.deque, client.thread_connection)
    client.deque, client.thread_connection = deque(), threading.local()


def _all_of(pipe: int) -> bytes:
    told = b""
    while part := os.read(pipe, 65536):
        told += part
    os.close(pipe)
    return told


def _tell_connections(pipe: int) -> None:
    """Tell the parent of every connection of the JVM to a database: it lives on here, in earnest it dies with the driver."""
    connect = JdbcTarget.connect

    def told(target: Any) -> Any:
        connection = connect(target)
        os.write(pipe, f"{connection._handle._target_id}\n".encode())
        return connection

    JdbcTarget.connect = told  # type: ignore[assignment]


def _close(spark: SparkSession, ids: list[str]) -> None:
    for found in ids:
        with contextlib.suppress(Py4JError):  # closed by the child, and forgotten
            JavaObject(found, spark.sparkContext._gateway._gateway_client).close()
