"""What Spark says of each batch of a query, as files in its checkpoint: `penstock stream advise` reads them.

The same listener tells Penstock's stream readers what each batch took, see `told_times`.

One small file for each batch, as Spark's own logs have it: every file system can write and remove files, and few can
append to one.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from pyspark.sql.streaming.listener import StreamingQueryListener

from penstock.connectors.kafka.told_times import Teller
from penstock.errors import first_line
from penstock.spark.filesystem import Folder
from penstock.spark.jobs import cluster_cores

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

    from penstock.spark.jvm import Bridge

log = logging.getLogger("penstock.state")

PROGRESS = "_penstock_progress"
"""The folder in a checkpoint."""
KEPT = 100
"""Batches that are kept, as many as Spark keeps of its own logs."""
OURS = "penstock"
"""The key of what Penstock adds to an event of Spark."""


def record_progress(bridge: Bridge, query_id: str, checkpoint: str) -> None:
    """Record the progress of a query in its checkpoint from now on, whenever the session runs it."""
    recorder = _RECORDERS.get(bridge.spark)
    if recorder is None:
        recorder = _RECORDERS[bridge.spark] = _Recorder()
        bridge.spark.streams.addListener(recorder)
    recorder.folders[query_id] = Folder(bridge, checkpoint).child(PROGRESS), cluster_cores(bridge)


class _Recorder(StreamingQueryListener):
    """Hears of all queries of a session; a session has one of them, as it calls each for every event."""

    def __init__(self) -> None:
        self.folders: dict[str, tuple[Folder, int]] = {}
        """For each query the folder that is written to, and the cores of the cluster."""
        self._teller = Teller()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Write what Spark says of a batch."""
        if "addBatch" not in event.progress.durationMs:
            return  # no batch ran
        batch, progress = event.progress.batchId, json.loads(event.progress.json)
        self._teller.tell(progress)  # before anything slow: the next batch may begin at once
        found = self.folders.get(str(event.progress.id))
        if found is None:
            return
        folder, cores = found
        text = json.dumps({**progress, OURS: {"cores": cores}}, separators=(",", ":"))
        try:
            folder.make()
            folder.child(f"{batch}.json").write(text.encode(), overwrite=True)
            folder.child(f"{batch - KEPT}.json").delete()
        except Exception as error:  # noqa: BLE001 - file systems of Hadoop raise errors of their own
            log.warning("the progress of %s cannot be written any more: %s", folder.parent, first_line(error))
            del self.folders[str(event.progress.id)]

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Forget what was told to the readers of this run. The query may be started again, and then has new ones."""
        self._teller.forget(str(event.id))


_RECORDERS: WeakKeyDictionary[SparkSession, _Recorder] = WeakKeyDictionary()
