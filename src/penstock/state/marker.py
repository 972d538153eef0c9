"""The marker file in a checkpoint, which names the process that runs its query."""

from __future__ import annotations

import json
import logging
import time
import uuid
from dataclasses import asdict
from typing import TYPE_CHECKING

from penstock.commit.claims import LEASE_SECONDS, Lease, is_recent, remove_lease
from penstock.commit.owner import Owner
from penstock.errors import StateError
from penstock.spark.io.filesystem import HadoopPath
from penstock.spark.state.state_store import running_queries
from penstock.state.journal import rescale_lock
from penstock.state.requests import Requests

if TYPE_CHECKING:
    from penstock.commit import Access
    from penstock.spark.bridge.jvm import Bridge

MARKER_FILE = "_penstock_query.json"
_POLL_SECONDS = 1.0
"""Seconds between two checks whether a process on another machine is alive."""

log = logging.getLogger("penstock.state")


class QueryMarker:
    """The marker of this process in its query's checkpoint; its lease is renewed while it lives, until `remove`."""

    def __init__(self, access: Access, checkpoint: HadoopPath) -> None:
        self._access = access
        self._file = checkpoint.child(MARKER_FILE)
        self._previous = self._file.read_if_exists()
        self._content = json.dumps(asdict(Owner.current()) | {"start": uuid.uuid4().hex}).encode()
        self._file.write(self._content, overwrite=True)
        self._lease = Lease(access, str(self._file))

    def remove(self) -> None:
        """Remove the marker, unless another start of the query has replaced it."""
        self._lease.end()
        if self._file.read_if_exists() == self._content:
            self._file.delete()
            remove_lease(self._access, str(self._file))

    def restore_previous(self) -> None:
        """Restore the marker of the previous start if this process wrote it; otherwise remove this marker.

        Called when a start fails while this process still runs the query from an earlier start.
        """
        if self._previous is None or Owner.from_json(self._previous) != Owner.current():
            self.remove()
            return
        self._lease.end()
        if self._file.read_if_exists() == self._content:
            self._file.write(self._previous, overwrite=True)


def process_in_marker(checkpoint: HadoopPath) -> Owner | None:
    """Return the process that a checkpoint's marker names, dead or alive; None if there is no valid marker."""
    content = checkpoint.child(MARKER_FILE).read_if_exists()
    return None if content is None else Owner.from_json(content)


def other_process(access: Access, checkpoint: HadoopPath) -> Owner | None:
    """Return the process that a checkpoint's marker names; None without a marker, or for this or a dead process.

    A process of another machine or container counts as dead once its lease has expired.
    """
    process = process_in_marker(checkpoint)
    if process is None or process == Owner.current():
        return None
    is_alive = process.is_alive()
    if is_alive is None and process.host != Owner.current().host:
        is_alive = is_recent(access, str(checkpoint.child(MARKER_FILE)))
    return None if is_alive is False else process


def local_query_names(bridge: Bridge, checkpoint: HadoopPath) -> list[str]:
    """Return the names of the queries of this application that use a checkpoint."""
    return [name for location, name in running_queries(bridge) if str(HadoopPath(bridge, location)) == str(checkpoint)]


def write_marker(access: Access, checkpoint: HadoopPath, *, keep_requests: bool = False) -> QueryMarker:
    """Write the marker of this process, which is about to start the query of a checkpoint.

    If a process on another machine has written a marker, wait up to a minute for its lease to expire: it may have died.
    Raise `StateError` if a live process runs the query or changes its key groups, or the checkpoint is not writable.

    `keep_requests` says whether to keep pending rescale requests, because this process runs the query already.
    """
    _wait_for_remote_process(access, checkpoint)
    with rescale_lock(access.bridge, checkpoint):
        process = other_process(access, checkpoint)
        if process is not None:
            marker_file = checkpoint.child(MARKER_FILE)
            raise StateError(
                f"the query on {checkpoint} is running already, and was not started again",
                cause=f"{process} runs it",
                hint=f"stop it there first (if that process id now belongs to another program, delete {marker_file})",
            )
        if not keep_requests:
            Requests(checkpoint).clear()
        return QueryMarker(access, checkpoint)


def _wait_for_remote_process(access: Access, checkpoint: HadoopPath) -> None:
    deadline = time.monotonic() + LEASE_SECONDS
    is_logged = False
    while (process := other_process(access, checkpoint)) is not None and process.host != Owner.current().host:
        if time.monotonic() > deadline:
            return
        if not is_logged:
            text = "%s ran the query on %s; waiting up to %.0f s in case it is alive"
            log.warning(text, process, checkpoint, LEASE_SECONDS)
            is_logged = True
        time.sleep(_POLL_SECONDS)
