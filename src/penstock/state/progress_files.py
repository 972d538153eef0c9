"""Files in a query's checkpoint with the progress of each batch, which `penstock stream advise` reads.

Each batch has its own small file, as in Spark's own logs, because few file systems can append to a file.

The listener that writes the files also reports batch durations to Penstock's stream readers; see `batch_duration_file`.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from pyspark.sql.streaming.listener import StreamingQueryListener

from penstock.connectors.kafka.streams.batch_duration_file import BatchDurationWriter
from penstock.errors import first_line
from penstock.spark.io.filesystem import HadoopPath
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

PROGRESS_FOLDER = "_penstock_progress"
"""The folder of the progress files in a checkpoint."""
RETAINED_BATCHES = 100
"""Number of batches whose files are retained; by default, Spark's own logs retain as many batches."""
PENSTOCK_KEY = "penstock"
"""The key of Penstock's values (the number of cores) in a progress file, which is otherwise Spark's progress event."""


def record_progress(bridge: Bridge, query_id: str, checkpoint: str) -> None:
    """Start recording the progress of a query in its checkpoint, for all of its runs in the session."""
    recorder = _RECORDERS.get(bridge.spark)
    if recorder is None:
        recorder = _RECORDERS[bridge.spark] = _Recorder()
        bridge.spark.streams.addListener(recorder)
    recorder.folders_and_cores[query_id] = HadoopPath(bridge, checkpoint).child(PROGRESS_FOLDER), cluster_cores(bridge)


class _Recorder(StreamingQueryListener):
    """Listener for all recorded queries of a session; a listener per query would get the events of all queries."""

    def __init__(self) -> None:
        self.folders_and_cores: dict[str, tuple[HadoopPath, int]] = {}
        """For each query, by id: its progress folder and the number of cores of the cluster."""
        self._duration_writer = BatchDurationWriter()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Write the progress of a batch."""
        if "addBatch" not in event.progress.durationMs:
            return  # no batch ran
        batch, progress = event.progress.batchId, json.loads(event.progress.json)
        self._duration_writer.write(progress)  # first, because a stream reader needs it when the next batch begins
        folder_and_cores = self.folders_and_cores.get(str(event.progress.id))
        if folder_and_cores is None:
            return  # `start_query` did not start this query, or an earlier write failed
        folder, cores = folder_and_cores
        text = json.dumps({**progress, PENSTOCK_KEY: {"cores": cores}}, separators=(",", ":"))
        try:
            folder.make()
            folder.child(f"{batch}.json").write(text.encode(), overwrite=True)
            folder.child(f"{batch - RETAINED_BATCHES}.json").delete()
        except Exception as error:  # noqa: BLE001 - file systems of Hadoop raise their own exception classes
            log.warning("the progress of %s is not recorded any more: %s", folder.parent, first_line(error))
            del self.folders_and_cores[str(event.progress.id)]

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Remove the files that report batch durations to the readers of this run; the next run has new readers."""
        self._duration_writer.remove(str(event.id))


_RECORDERS: WeakKeyDictionary[SparkSession, _Recorder] = WeakKeyDictionary()
"""The listener of each session."""
