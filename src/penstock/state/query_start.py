"""Starting a query, again and again as it was started first, with its checkpoint in order."""

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
from penstock.state.past_rescales import check_not_gone_back
from penstock.state.rescale import is_over, publish, tidy, undo
from penstock.state.turn import my_turn

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from penstock.spark.jvm import Bridge


@dataclass(frozen=True)
class QueryStart:
    """All that it takes to start a query again as it was started first.

    Parameters
    ----------
    bridge
        The bridge of the query's session.
    writer
        The query, with its checkpoint.
    location
        The checkpoint.
    settings
        The settings of the session when the query was started first.
    """

    bridge: Bridge
    writer: DataStreamWriter
    location: str
    settings: dict[str, str]

    def first(self) -> StreamingQuery:
        """Start it with the session as it is."""
        self._settle()
        return self.writer.start()

    def again(self) -> StreamingQuery:
        """Start it with the settings that it was started with; the session gets its own back."""
        now = session_settings(self.bridge)
        changed = {key for key in now.keys() | self.settings.keys() if now.get(key) != self.settings.get(key)}
        with with_settings(self.bridge.spark, {key: self.settings.get(key) for key in changed}):
            return self.first()

    def _settle(self) -> None:
        """Finish or undo a rescale that was stopped, and tell a log of files of earlier rescales."""
        found = settled(self.bridge, self.location)
        if found is None:
            return
        folder = written_folder(self.bridge, self.writer)
        if folder is not None:
            complete_sink_log(self.bridge, found, folder)


def settled(bridge: Bridge, location: str) -> Checkpoint | None:
    """Return a checkpoint after a rescale of it that was stopped is finished or undone; None if there is none yet.

    Raises
    ------
    StateError
        If another process that lives works on that rescale, or the logs were taken back over a complete one.
    """
    if not Folder(bridge, location).child("offsets").exists():
        return None
    found = Checkpoint(bridge, location)
    check_not_gone_back(found)
    if not found.folder.child(FOLDER).exists():
        return found
    with my_turn(bridge, found.folder):
        journal = Journal.load(found.folder)
        if journal is None or is_over(found, journal):
            tidy(found.folder)  # what a process left that died before its journal, or after it
        else:
            (publish if journal.phase is Phase.PUBLISHING else undo)(found, journal)
    return Checkpoint(bridge, location)
