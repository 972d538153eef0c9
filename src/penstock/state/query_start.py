"""Starts and restarts of a query with unchanged settings, after recovery of interrupted rescales."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.spark.bridge.session import session_settings
from penstock.spark.io.filesystem import Folder
from penstock.spark.plans.dataframes import with_settings
from penstock.spark.state.streaming_queries import log_empty_batch, written_folder
from penstock.state.checkpoint import Checkpoint
from penstock.state.journal import FOLDER, Journal, Phase, check_not_rewound, rescale_lock
from penstock.state.rescale import is_over, publish, try_discard, undo

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from penstock.spark.bridge.jvm import Bridge

_LOG = "_spark_metadata"
_ENTRY = re.compile(r"(\d+)(\.compact)?")


def complete_sink_log(bridge: Bridge, checkpoint: Checkpoint, folder: str) -> list[int]:
    """Add an empty entry to the log of a file sink for each batch that was a rescale, and return these batches.

    A rescale becomes a batch that never reaches the sink, so the log would miss it. Then Spark would fail permanently
    when it next compacts the log (by default every tenth batch).
    """
    log = Folder(bridge, folder).child(_LOG)
    if not log.exists() or checkpoint.batch is None:
        return []
    entries = [match for name, _, _ in log.entries() if (match := _ENTRY.fullmatch(name))]
    logged = {int(entry[1]) for entry in entries}
    if not logged:
        return []
    # The last compaction contains all older entries.
    first = max((int(entry[1]) for entry in entries if entry[2]), default=min(logged))
    missing = [batch for batch in range(first + 1, checkpoint.batch + 1) if batch not in logged]
    rescales = [batch for batch in missing if _is_rescale(checkpoint, batch)]
    for batch in rescales:
        log_empty_batch(bridge, str(log), batch)
    return rescales


def _is_rescale(checkpoint: Checkpoint, batch: int) -> bool:
    """Whether a batch has another number of key groups than its predecessor; only a rescale changes it."""
    if not checkpoint.folder.child(f"offsets/{batch - 1}").exists():
        return False
    return checkpoint.offsets(batch).max_parallelism != checkpoint.offsets(batch - 1).max_parallelism


@dataclass(frozen=True)
class QueryStart:
    """The parameters of a query's first start, with which it is restarted."""

    bridge: Bridge
    writer: DataStreamWriter
    location: str
    settings: dict[str, str]
    """The settings of the session at the first start."""

    def checkpoint(self) -> Checkpoint:
        """Return the current checkpoint of the query."""
        return Checkpoint(self.bridge, self.location)

    def start(self) -> StreamingQuery:
        """Start the query with the current settings of the session."""
        checkpoint = recover_rescale(self.bridge, self.location)
        folder = None if checkpoint is None else written_folder(self.bridge, self.writer)
        if checkpoint is not None and folder is not None:
            complete_sink_log(self.bridge, checkpoint, folder)
        return self.writer.start()

    def restart(self) -> StreamingQuery:
        """Start the query with the settings of its first start, and restore those of the session afterwards."""
        now = session_settings(self.bridge)
        changed = {key for key in now.keys() | self.settings.keys() if now.get(key) != self.settings.get(key)}
        with with_settings(self.bridge.spark, {key: self.settings.get(key) for key in changed}):
            return self.start()


def recover_rescale(bridge: Bridge, location: str) -> Checkpoint | None:
    """Finish or undo an interrupted rescale, and return the checkpoint; None if there is no checkpoint yet.

    Raise `StateError` if another live process works on that rescale, or the logs were rewound to a batch before a
    complete rescale.
    """
    if not Folder(bridge, location).child("offsets").exists():
        return None
    checkpoint = Checkpoint(bridge, location)
    check_not_rewound(checkpoint)
    if not checkpoint.folder.child(FOLDER).exists():
        return checkpoint
    with rescale_lock(bridge, checkpoint.folder):
        journal = Journal.load(checkpoint.folder)
        if journal is None or is_over(checkpoint, journal):
            try_discard(checkpoint.folder)  # files of a process that died before its journal, or after it
        else:
            (publish if journal.phase is Phase.PUBLISHING else undo)(checkpoint, journal)
    return Checkpoint(bridge, location)
