"""The log of a file sink, which must have an entry for every batch of its query.

A rescale becomes a batch that never reaches the sink, so the log would miss it. Then Spark would fail permanently when
it next compacts the log (by default every tenth batch).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penstock.spark.filesystem import Folder
from penstock.spark.streaming_queries import log_empty_batch

if TYPE_CHECKING:
    from penstock.spark.jvm import Bridge
    from penstock.state.checkpoint import Checkpoint

_LOG = "_spark_metadata"
_ENTRY = re.compile(r"(\d+)(\.compact)?")


def complete_sink_log(bridge: Bridge, checkpoint: Checkpoint, folder: str) -> list[int]:
    """Add an empty entry for each batch that was a rescale, and return these batches."""
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
