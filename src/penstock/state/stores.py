"""Choice of the reader of a checkpoint's state stores, by the release of Spark and the store's provider."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.spark.row_state import RowSession
from penstock.spark.snapshot_state import IN_MEMORY, SnapshotSession
from penstock.spark.state_store import StateSession, has_offline_tools
from penstock.state.layout import ENCODING, JOIN_FORMAT, PROVIDER

if TYPE_CHECKING:
    from penstock.spark.jvm import Bridge
    from penstock.state.checkpoint import Checkpoint

_JOIN_FORMAT = 2
"""Spark's default."""


def open_stores(bridge: Bridge, checkpoint: Checkpoint, batch: int) -> StateSession:
    """Return the reader of the state that a checkpoint has after a batch."""
    conf, format_version = checkpoint.offsets(batch).conf, checkpoint.commit(batch).format_version
    if not has_offline_tools(bridge):
        return RowSession(bridge, format_version, conf, conf.get(ENCODING, "unsaferow"))
    if conf.get(PROVIDER) == IN_MEMORY:
        return SnapshotSession(bridge, format_version, int(conf.get(JOIN_FORMAT, _JOIN_FORMAT)))
    return StateSession(bridge, format_version)
