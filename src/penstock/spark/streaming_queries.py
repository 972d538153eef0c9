"""Running streaming queries: ending one after its batch, giving a handle another run, what a sink keeps of batches.

Uses ``StreamExecution`` and ``FileStreamSinkLog`` of ``org.apache.spark.sql.execution.streaming``, or since Spark 4.1
of packages below it.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.query import StreamingQuery
from pyspark.util import InheritableThread

from penstock.spark.jvm import class_name, option, root_cause

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from penstock.spark.jvm import Bridge

_STREAMING = "org.apache.spark.sql.execution.streaming."
_LOOK = 0.02
"""Seconds between two looks at a query that ends: little against the second or more that a rescale takes."""
_INITIALISED = 60_000
"""Milliseconds that a query has to open its sources before it counts as started."""


class _Told(Enum):
    """What ``QueryEnd`` found."""

    RUNS = "it runs"
    """It has not come to the end of a batch yet."""
    ENDS = "it ends"
    WOKEN = "it was woken, and ends"
    """It was interrupted while it waited for the time of its next batch."""
    ENDED = "it had ended"


class ReplaceableQuery(StreamingQuery):
    """A handle of a streaming query that can be given the query's next run.

    Parameters
    ----------
    run
        Its first run.
    """

    def __init__(self, run: StreamingQuery) -> None:
        super().__init__(run._jsq)

    def replace(self, run: StreamingQuery) -> None:
        """From now on be the handle of another run."""
        self._jsq = run._jsq


@dataclass(frozen=True, slots=True)
class SinkFacts:
    """What matters of a query's sink when the query is to be started again."""

    survives_restart: bool
    """Whether a later run may go on with it: a table in memory of rows that were appended or updated is gone."""
    folder: str | None
    """The folder of a sink that writes files and logs the batch of each; None of any other."""


def executing(query: StreamingQuery) -> Any:
    """Return the ``StreamExecution`` of a query."""
    inner: Any = query._jsq
    return inner.streamingQuery() if class_name(inner) == "StreamingQueryWrapper" else inner


def sink_facts(query: StreamingQuery) -> SinkFacts:
    """Return the facts of a running query's sink."""
    execution = executing(query)
    sink = execution.sink()
    kind = class_name(sink)
    complete = str(execution.outputMode().toString()) == "Complete"
    folder = re.fullmatch(r"FileSink\[(.*)\]", str(sink.toString())) if kind == "FileStreamSink" else None
    return SinkFacts(kind != "MemorySink" or complete, folder[1] if folder else None)


def written_folder(bridge: Bridge, writer: DataStreamWriter) -> str | None:
    """Return the path that a query is asked to write to, if one is given."""
    path = option(bridge.invoke(writer._jwrite, "extraOptions").get("path"))
    return None if path is None else str(path)


def end_after_batch(bridge: Bridge, query: StreamingQuery) -> bool:
    """End a query without ever interrupting a batch: the one that runs is finished, and none follows.

    Returns
    -------
    bool
        Whether it had ended, or others ended it meanwhile; a stop in its last milliseconds may not be seen. A query
        that would have ended by itself after this batch counts as ended by this call.
    """
    execution = executing(query)
    active, terminated = (bridge.companion(_place(bridge, f"runtime.{state}")) for state in ("ACTIVE", "TERMINATED"))
    lock, state, thread = execution.awaitProgressLock(), execution.state(), execution.queryExecutionThread()
    told = _Told.RUNS
    while told is _Told.RUNS and thread.isAlive():
        told = _Told(bridge.helper("QueryEnd").end(lock, state, active, terminated, thread))
    while thread.isAlive():
        time.sleep(_LOOK)
    is_interrupted = told is _Told.ENDS and bool(thread.isInterrupted())  # it keeps that when it has ended
    return is_interrupted or told in (_Told.ENDED, _Told.RUNS)


def failure_of(query: StreamingQuery) -> str | None:
    """Return why a query ended, if it failed."""
    error = query.exception()
    return None if error is None else root_cause(error)


def wait_until_started(query: StreamingQuery) -> str | None:
    """Wait until a query has opened its sources; return why it could not."""
    try:
        executing(query).awaitInitialization(_INITIALISED)
    except Exception as error:  # noqa: BLE001 - of any class, from the query's sources
        return failure_of(query) or root_cause(error)
    return failure_of(query)


def log_empty_batch(bridge: Bridge, log_folder: str, batch: int) -> None:
    """Tell the log of a file sink that a batch wrote no files; it must have an entry for each."""
    name, status = (_place(bridge, f"sinks.{simple}") for simple in ("FileStreamSinkLog", "SinkFileStatus"))
    log = bridge.find(name)(1, bridge.session._handle, log_folder, bridge.none)
    log.add(batch, bridge.new_array(status, []))


def _place(bridge: Bridge, name: str) -> str:
    """Return the full name of a class, which is given with the package below Spark's for streaming."""
    return _STREAMING + (name if bridge.version >= (4, 1) else name.rpartition(".")[2])


def start_inheriting(name: str, target: Callable[[], object]) -> None:
    """Start a thread whose Spark jobs have the local properties of this one, such as the scheduler pool.

    The process ends without it.
    """
    thread = InheritableThread(target=target, name=name)
    thread.daemon = True
    thread.start()
