"""Start and restart of a streaming query; both first finish or undo an interrupted rescale."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.spark.bridge.session import session_settings
from penstock.spark.io.filesystem import HadoopPath
from penstock.spark.plans.dataframes import with_settings
from penstock.spark.state.streaming_queries import log_empty_batch, output_path
from penstock.state.checkpoint import Checkpoint
from penstock.state.journal import STAGING_FOLDER, Journal, Phase, check_not_rewound, rescale_lock
from penstock.state.rescale import publish, rescale_ended, try_discard_staging, undo

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from penstock.spark.bridge.jvm import Bridge

_SINK_LOG = "_spark_metadata"  # a subfolder of the folder that a file sink writes to
_LOG_FILE = re.compile(r"(?P<batch>\d+)(?P<compact>\.compact)?")  # a compacted file has all older entries, too


def add_rescales_to_sink_log(bridge: Bridge, checkpoint: Checkpoint, sink_folder: str) -> list[int]:
    """Add an empty entry to a file sink's log for each rescale batch that the log lacks; return these batches.

    A rescale adds a batch to the query's logs, but the sink never gets this batch. Without an entry for it, Spark would
    fail permanently at the next compaction of the sink's log (by default every tenth batch).
    """
    log = HadoopPath(bridge, sink_folder).child(_SINK_LOG)
    if not log.exists() or checkpoint.finished_batch is None:
        return []
    log_files = [match for name, _, _ in log.entries() if (match := _LOG_FILE.fullmatch(name))]
    logged = {int(match["batch"]) for match in log_files}
    if not logged:
        return []
    # The log begins with the last compacted file, which has all older entries, or else with its oldest file.
    complete_until = max((int(match["batch"]) for match in log_files if match["compact"]), default=min(logged))
    missing = [batch for batch in range(complete_until + 1, checkpoint.finished_batch + 1) if batch not in logged]
    rescale_batches = [batch for batch in missing if _is_rescale(checkpoint, batch)]
    for batch in rescale_batches:
        log_empty_batch(bridge, str(log), batch)
    return rescale_batches


def _is_rescale(checkpoint: Checkpoint, batch: int) -> bool:
    """Whether a batch changes the number of key groups, so that it has no rows; False if the previous entry is gone."""
    if not checkpoint.folder.child(f"offsets/{batch - 1}").exists():
        return False
    return checkpoint.offset_entry(batch).max_parallelism != checkpoint.offset_entry(batch - 1).max_parallelism


@dataclass(frozen=True)
class QueryStart:
    """The parameters of a query's first start in this process; a rescale restarts the query with them."""

    bridge: Bridge
    writer: DataStreamWriter
    location: str
    """The path of the checkpoint."""
    settings: dict[str, str]
    """The settings of the session at the first start."""

    def checkpoint(self) -> Checkpoint:
        """Return the current checkpoint of the query."""
        return Checkpoint(self.bridge, self.location)

    def start(self) -> StreamingQuery:
        """Finish or undo an interrupted rescale, complete a file sink's log, and start with the session's settings."""
        checkpoint = recover_rescale(self.bridge, self.location)
        sink_folder = None if checkpoint is None else output_path(self.bridge, self.writer)
        if checkpoint is not None and sink_folder is not None:
            add_rescales_to_sink_log(self.bridge, checkpoint, sink_folder)
        return self.writer.start()

    def restart(self) -> StreamingQuery:
        """Start the query with the settings of its first start, and restore the session's settings afterwards."""
        current = session_settings(self.bridge)
        changed = {key for key in current.keys() | self.settings.keys() if current.get(key) != self.settings.get(key)}
        with with_settings(self.bridge.spark, {key: self.settings.get(key) for key in changed}):
            return self.start()


def recover_rescale(bridge: Bridge, location: str) -> Checkpoint | None:
    """Finish or undo an interrupted rescale, and return the checkpoint; None if there is no checkpoint yet.

    Raise `StateError` if another live process rescales, or the logs were rewound to a batch before a rescale.
    """
    if not HadoopPath(bridge, location).child("offsets").exists():
        return None
    checkpoint = Checkpoint(bridge, location)
    check_not_rewound(checkpoint)
    if not checkpoint.folder.child(STAGING_FOLDER).exists():
        return checkpoint
    with rescale_lock(bridge, checkpoint.folder):
        journal = Journal.load(checkpoint.folder)
        if journal is None or rescale_ended(checkpoint, journal):
            try_discard_staging(checkpoint.folder)  # left by a process that died before it removed the folder
        else:
            (publish if journal.phase is Phase.PUBLISHING else undo)(checkpoint, journal)  # undo: staging or aborting
    return Checkpoint(bridge, location)
