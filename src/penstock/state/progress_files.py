"""Progress of each batch of a query, as files in its checkpoint, which `penstock stream advise` reads.

The listener also reports batch durations to Penstock's stream readers; see `batch_duration_file`.

Each batch has its own small file, as in Spark's own logs, because few file systems can append to a file.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from pyspark.sql.streaming.listener import StreamingQueryListener

from penstock.connectors.kafka.streams.batch_duration_file import BatchDurationWriter
from penstock.errors import first_line
from penstock.spark.io.filesystem import Folder
from penstock.spark.run.jobs import cluster_cores

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

    from penstock.spark.bridge.jvm import Bridge

log = logging.getLogger("penstock.state")

PROGRESS = "_penstock_progress"
"""The folder in a checkpoint."""
RETAINED_BATCHES = 100
"""Number of batches whose files are retained, as many as Spark retains in its own logs."""
PENSTOCK_KEY = "penstock"
"""The key under which Penstock adds figures to an event of Spark."""


def record_progress(bridge: Bridge, query_id: str, checkpoint: str) -> None:
    """Start recording the progress of a query in its checkpoint, for all of its runs in the session."""
    recorder = _RECORDERS.get(bridge.spark)
    if recorder is None:
        recorder = _RECORDERS[bridge.spark] = _Recorder()
        bridge.spark.streams.addListener(recorder)
    recorder.folders[query_id] = Folder(bridge, checkpoint).child(PROGRESS), cluster_cores(bridge)


class _Recorder(StreamingQueryListener):
    """Listener for all queries of a session; a single listener, as Spark calls every listener for each event."""

    def __init__(self) -> None:
        self.folders: dict[str, tuple[Folder, int]] = {}
        """For each query, its progress folder and the cores of the cluster."""
        self._duration_writer = BatchDurationWriter()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Write the progress of a batch."""
        if "addBatch" not in event.progress.durationMs:
            return  # no batch ran
        batch, progress = event.progress.batchId, json.loads(event.progress.json)
        self._duration_writer.write(progress)  # before anything slow: the next batch may begin at once
        target = self.folders.get(str(event.progress.id))
        if target is None:
            return
        folder, cores = target
        text = json.dumps({**progress, PENSTOCK_KEY: {"cores": cores}}, separators=(",", ":"))
        try:
            folder.make()
            folder.child(f"{batch}.json").write(text.encode(), overwrite=True)
            folder.child(f"{batch - RETAINED_BATCHES}.json").delete()
        except Exception as error:  # noqa: BLE001 - file systems of Hadoop raise their own exception classes
            log.warning("the progress of %s is not recorded any more: %s", folder.parent, first_line(error))
            del self.folders[str(event.progress.id)]

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Remove the batch durations for the readers of this run; another run of the query has new readers."""
        self._duration_writer.remove(str(event.id))


_RECORDERS: WeakKeyDictionary[SparkSession, _Recorder] = WeakKeyDictionary()
