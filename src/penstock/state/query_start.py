"""Starts and restarts of a query with unchanged settings, after recovery of interrupted rescales."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.spark.dataframes import with_settings
from penstock.spark.filesystem import Folder
from penstock.spark.session import session_settings
from penstock.spark.streaming_queries import written_folder
from penstock.state.checkpoint import Checkpoint
from penstock.state.file_sink import complete_sink_log
from penstock.state.journal import FOLDER, Journal, Phase
from penstock.state.past_rescales import check_not_rewound
from penstock.state.rescale import is_over, publish, try_discard, undo
from penstock.state.rescale_lock import rescale_lock

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from penstock.spark.jvm import Bridge


@dataclass(frozen=True)
class QueryStart:
    """The parameters of a query's first start, with which it is restarted.

    Parameters
    ----------
    settings
        The settings of the session at the first start.
    """

    bridge: Bridge
    writer: DataStreamWriter
    location: str
    settings: dict[str, str]

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

    Raises
    ------
    StateError
        If another live process works on that rescale, or the logs were rewound to a batch before a complete rescale.
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
