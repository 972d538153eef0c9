"""Running streaming queries: ending them between batches, replacing the run of a handle, and properties of sinks."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.query import StreamingQuery
from pyspark.util import InheritableThread

from penstock.spark.bridge.jvm import Bridge, class_name, option, root_cause

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.streaming.readwriter import DataStreamWriter


_STREAMING = "org.apache.spark.sql.execution.streaming."
_POLL_SECONDS = 0.02
"""Seconds between two checks of a query that ends: short compared to a rescale, which takes at least a second."""
_START_MILLISECONDS = 60_000
"""Milliseconds that a query has to open its sources."""


class _EndState(Enum):
    """The state that ``QueryEnd.java`` reports."""

    RUNS = "it runs"
    """It has not finished its batch yet."""
    ENDS = "it ends"
    WOKEN = "it was woken, and ends"
    """It was interrupted while it waited for its next batch."""
    ENDED = "it had ended"


class ReplaceableQuery(StreamingQuery):
    """A handle of a streaming query whose run can be replaced by the query's next run."""

    def __init__(self, run: StreamingQuery) -> None:
        super().__init__(run._jsq)

    def replace(self, run: StreamingQuery) -> None:
        """Refer to another run from now on."""
        self._jsq = run._jsq


@dataclass(frozen=True, slots=True)
class SinkFacts:
    """Properties of a query's sink that matter for a restart."""

    survives_restart: bool
    """Whether a later run can continue with it: an in-memory table of appended or updated rows is lost."""
    folder: str | None
    """The folder of a sink that writes files and logs each batch; None for other sinks."""


def executing(query: StreamingQuery) -> Any:
    """Return the ``StreamExecution`` of a query."""
    inner: Any = query._jsq
    return inner.streamingQuery() if class_name(inner) == "StreamingQueryWrapper" else inner


def sink_facts(query: StreamingQuery) -> SinkFacts:
    """Return the properties of a running query's sink."""
    execution = executing(query)
    sink = execution.sink()
    kind = class_name(sink)
    complete = str(execution.outputMode().toString()) == "Complete"
    folder = re.fullmatch(r"FileSink\[(.*)\]", str(sink.toString())) if kind == "FileStreamSink" else None
    return SinkFacts(kind != "MemorySink" or complete, folder[1] if folder else None)


def written_folder(bridge: Bridge, writer: DataStreamWriter) -> str | None:
    """Return the path that a query will write to, None if it has none."""
    path = option(bridge.invoke(writer._jwrite, "extraOptions").get("path"))
    return None if path is None else str(path)


def end_after_batch(bridge: Bridge, query: StreamingQuery) -> bool:
    """End a query without interrupting a batch; return whether it had ended already, or something else ended it.

    A stop in its last milliseconds may go unnoticed. A query that would have ended after this batch anyway counts as
    ended by this call.
    """
    execution = executing(query)
    active, terminated = (bridge.companion(_class_name(bridge, f"runtime.{name}")) for name in ("ACTIVE", "TERMINATED"))
    lock, state, thread = execution.awaitProgressLock(), execution.state(), execution.queryExecutionThread()
    state_of_end = _EndState.RUNS
    while state_of_end is _EndState.RUNS and thread.isAlive():
        state_of_end = _EndState(bridge.helper("QueryEnd").end(lock, state, active, terminated, thread))
    while thread.isAlive():
        time.sleep(_POLL_SECONDS)
    is_interrupted = state_of_end is _EndState.ENDS and bool(thread.isInterrupted())  # also readable after its end
    return is_interrupted or state_of_end in (_EndState.ENDED, _EndState.RUNS)


def failure_of(query: StreamingQuery) -> str | None:
    """Return why a query failed, None if it did not."""
    error = query.exception()
    return None if error is None else root_cause(error)


def wait_until_started(query: StreamingQuery) -> str | None:
    """Wait until a query has opened its sources; return why it failed, None if it did not."""
    try:
        executing(query).awaitInitialization(_START_MILLISECONDS)
    except Exception as error:  # noqa: BLE001 - a source may raise any class
        return failure_of(query) or root_cause(error)
    return failure_of(query)


def log_empty_batch(bridge: Bridge, log_folder: str, batch: int) -> None:
    """Record in the log of a file sink, which needs an entry for each batch, that a batch wrote no files."""
    name, status = (_class_name(bridge, f"sinks.{simple}") for simple in ("FileStreamSinkLog", "SinkFileStatus"))
    log = bridge.find(name)(1, bridge.session._handle, log_folder, bridge.none)
    log.add(batch, bridge.new_array(status, []))


def _class_name(bridge: Bridge, name: str) -> str:
    """Return the full name of a streaming class from its name with the subpackage since Spark 4.1."""
    return _STREAMING + (name if bridge.version >= (4, 1) else name.rpartition(".")[2])


def start_inheriting(name: str, target: Callable[[], object]) -> None:
    """Start a daemon thread whose Spark jobs have the local properties of this thread, such as the scheduler pool."""
    InheritableThread(target=target, name=name, daemon=True).start()
