"""Running streaming queries: stopping a query between batches, handles of its runs, and properties of its sink."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.query import StreamingQuery
from pyspark.util import InheritableThread

from penstock.spark.bridge.jvm import Bridge, class_name, option, root_cause

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter


_STREAMING = "org.apache.spark.sql.execution.streaming."
_POLL_SECONDS = 0.02
"""Seconds between two checks of a stopping query: short compared to a rescale, which takes at least a second."""
_START_TIMEOUT_MILLISECONDS = 60_000
"""Time for a query to open its sources."""


class _StopOutcome(Enum):
    """What ``QueryEnd.java`` has done to stop a query."""

    RUNS = "it runs"
    """The query was not stopped, as its batch has not ended yet."""
    ENDS = "it ends"
    """The query ends before its next batch, without an interrupt."""
    WOKEN = "it was woken, and ends"
    """The query was interrupted while it waited for its next batch."""
    ENDED = "it had ended"
    """The query was stopped by something else."""


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
    """Whether a later run can continue with the sink's rows: an in-memory table of appended or updated rows is lost."""
    folder: str | None
    """The folder of a sink that writes files and a log of batches; None for other sinks."""


def stream_execution(query: StreamingQuery) -> Any:
    """Return the ``StreamExecution`` of a query."""
    inner: Any = query._jsq
    return inner.streamingQuery() if class_name(inner) == "StreamingQueryWrapper" else inner


def sink_facts(query: StreamingQuery) -> SinkFacts:
    """Return the properties of a running query's sink."""
    execution = stream_execution(query)
    sink = execution.sink()
    sink_class = class_name(sink)
    is_complete = str(execution.outputMode().toString()) == "Complete"
    folder = re.fullmatch(r"FileSink\[(.*)\]", str(sink.toString())) if sink_class == "FileStreamSink" else None
    return SinkFacts(sink_class != "MemorySink" or is_complete, folder[1] if folder else None)


def output_path(bridge: Bridge, writer: DataStreamWriter) -> str | None:
    """Return the path that a query will write to, None if it has none."""
    path = option(bridge.invoke(writer._jwrite, "extraOptions").get("path"))
    return None if path is None else str(path)


def stop_after_batch(bridge: Bridge, query: StreamingQuery) -> bool:
    """Stop a query without interrupting a batch; return whether it had stopped before, or something else stopped it.

    If something else stops the query in its last milliseconds, that may not be detected. A query that would have ended
    after this batch anyway counts as stopped by this call.
    """
    execution = stream_execution(query)
    active, terminated = (bridge.companion(_full_name(bridge, f"runtime.{name}")) for name in ("ACTIVE", "TERMINATED"))
    lock, state, thread = execution.awaitProgressLock(), execution.state(), execution.queryExecutionThread()
    outcome = _StopOutcome.RUNS
    while outcome is _StopOutcome.RUNS and thread.isAlive():
        outcome = _StopOutcome(bridge.helper("QueryEnd").end(lock, state, active, terminated, thread))
    while thread.isAlive():
        time.sleep(_POLL_SECONDS)
    is_interrupted = outcome is _StopOutcome.ENDS and bool(thread.isInterrupted())  # something else interrupted it
    return is_interrupted or outcome in (_StopOutcome.ENDED, _StopOutcome.RUNS)


def failure_of(query: StreamingQuery) -> str | None:
    """Return why a query failed, None if it has not failed."""
    error = query.exception()
    return None if error is None else root_cause(error)


def wait_until_started(query: StreamingQuery) -> str | None:
    """Wait until a query has opened its sources; return why it failed, None if it has not failed."""
    try:
        stream_execution(query).awaitInitialization(_START_TIMEOUT_MILLISECONDS)
    except Exception as error:  # noqa: BLE001 - a source may raise any class
        return failure_of(query) or root_cause(error)
    return failure_of(query)


def log_empty_batch(bridge: Bridge, log_folder: str, batch: int) -> None:
    """Add an entry for a batch without files to the log of a file sink, which needs an entry for each batch."""
    name, status = (_full_name(bridge, f"sinks.{simple}") for simple in ("FileStreamSinkLog", "SinkFileStatus"))
    log = bridge.find(name)(1, bridge.session._handle, log_folder, bridge.none)
    log.add(batch, bridge.new_array(status, []))


def _full_name(bridge: Bridge, name: str) -> str:
    """Return the full name of a streaming class; `name` includes the subpackage that it has since Spark 4.1."""
    return _STREAMING + (name if bridge.version >= (4, 1) else name.rpartition(".")[2])


def start_with_local_properties(name: str, target: Callable[[], object]) -> None:
    """Start a daemon thread whose Spark jobs have the local properties of this thread, such as the scheduler pool."""
    InheritableThread(target=target, name=name, daemon=True).start()
