"""The marker file in a checkpoint, which names the process that runs its query."""

from __future__ import annotations

import json
import logging
import time
import uuid
from dataclasses import asdict
from typing import TYPE_CHECKING

from penstock.commit.claims import LEASE, Lease, is_young, remove_lease
from penstock.commit.owner import Owner
from penstock.errors import StateError
from penstock.spark.io.filesystem import Folder
from penstock.spark.state.state_store import running_queries
from penstock.state.journal import rescale_lock
from penstock.state.requests import Requests

if TYPE_CHECKING:
    from penstock.commit import Access
    from penstock.spark.bridge.jvm import Bridge

MARKER = "_penstock_query.json"
_POLL_INTERVAL = 1.0
"""Seconds between two checks of a process on another machine that may be dead."""

log = logging.getLogger("penstock.state")


class Mark:
    """The marker of this process in a checkpoint whose query it runs; kept alive by a lease until it is removed."""

    def __init__(self, access: Access, checkpoint: Folder) -> None:
        self._access = access
        self._file = checkpoint.child(MARKER)
        self._previous = self._file.read_if_exists()
        self._content = json.dumps(asdict(Owner.me()) | {"start": uuid.uuid4().hex}).encode()
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
        if self._previous is None or Owner.from_json(self._previous) != Owner.me():
            self.remove()
            return
        self._lease.end()
        if self._file.read_if_exists() == self._content:
            self._file.write(self._previous, overwrite=True)


def marked_process(checkpoint: Folder) -> Owner | None:
    """Return the process that a checkpoint's marker names, dead or alive; None if there is no marker."""
    content = checkpoint.child(MARKER).read_if_exists()
    return None if content is None else Owner.from_json(content)


def other_process(access: Access, checkpoint: Folder) -> Owner | None:
    """Return the process that a checkpoint's marker names if it is another process that may be alive; else None.

    A process of another machine or container counts as dead once its lease has expired.
    """
    process = marked_process(checkpoint)
    if process is None or process == Owner.me():
        return None
    is_alive = process.is_alive()
    if is_alive is None and process.host != Owner.me().host:
        is_alive = is_young(access, str(checkpoint.child(MARKER)))
    return None if is_alive is False else process


def local_query_names(bridge: Bridge, checkpoint: Folder) -> list[str]:
    """Return the names of all queries on a checkpoint that this application runs."""
    return [name for location, name in running_queries(bridge) if str(Folder(bridge, location)) == str(checkpoint)]


def mark_checkpoint(access: Access, checkpoint: Folder, *, keep_requests: bool = False) -> Mark:
    """Mark a checkpoint whose query this process is about to start.

    If the marker of a process on another machine exists, wait until its lease expires, as the process may have died.
    Raise `StateError` if a live process runs the query or changes its key groups, or the checkpoint cannot be written
    to.

    `keep_requests` says whether this process already runs the query and serves requests, which must not be removed.
    """
    _wait_for_remote_process(access, checkpoint)
    with rescale_lock(access.bridge, checkpoint):
        other = other_process(access, checkpoint)
        if other is not None:
            raise StateError.already_running(str(checkpoint), str(other), str(checkpoint.child(MARKER)))
        if not keep_requests:
            Requests(checkpoint).clear()
        return Mark(access, checkpoint)


def _wait_for_remote_process(access: Access, checkpoint: Folder) -> None:
    deadline = time.monotonic() + LEASE
    is_logged = False
    while (other := other_process(access, checkpoint)) is not None and other.host != Owner.me().host:
        if time.monotonic() > deadline:
            return
        if not is_logged:
            log.warning("%s ran the query on %s; waiting up to %.0f s whether it lives", other, checkpoint, LEASE)
            is_logged = True
        time.sleep(_POLL_INTERVAL)
