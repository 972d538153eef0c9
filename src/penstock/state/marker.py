"""The file in a checkpoint that names the process whose query runs on it."""

from __future__ import annotations

import json
import logging
import time
import uuid
from dataclasses import asdict
from typing import TYPE_CHECKING

from penstock.commit.lease import LEASE, Lease, is_young, remove_lease
from penstock.commit.owner import Owner
from penstock.errors import StateError
from penstock.spark.filesystem import Folder
from penstock.spark.state_store import running_queries
from penstock.state.requests import Requests
from penstock.state.turn import my_turn

if TYPE_CHECKING:
    from penstock.commit import Access
    from penstock.spark.jvm import Bridge

MARKER = "_penstock_query.json"
_LOOK = 1.0
"""Seconds between two looks at a process of another machine that may be dead."""

log = logging.getLogger("penstock.state")


class Mark:
    """Says that this process runs the query of a checkpoint, until it is removed.

    Parameters
    ----------
    access
        The session.
    checkpoint
        The folder of the checkpoint.
    """

    def __init__(self, access: Access, checkpoint: Folder) -> None:
        self._access = access
        self._file = checkpoint.child(MARKER)
        self._before = self._file.read_if_there()
        self._content = json.dumps(asdict(Owner.me()) | {"start": uuid.uuid4().hex}).encode()
        self._file.write(self._content, overwrite=True)
        self._lease = Lease(access, str(self._file))

    def remove(self) -> None:
        """Take it back; what another start of the query has written since stays."""
        self._lease.end()
        if self._file.read_if_there() == self._content:
            self._file.delete()
            remove_lease(self._access, str(self._file))

    def give_back(self) -> None:
        """Let the mark of the run before stand again: this process runs the query still, and did not start it anew."""
        if self._before is None or Owner.told(self._before) != Owner.me():
            self.remove()
            return
        self._lease.end()
        if self._file.read_if_there() == self._content:
            self._file.write(self._before, overwrite=True)


def marked(checkpoint: Folder) -> Owner | None:
    """Return the process that a checkpoint's marker names, dead or alive."""
    content = checkpoint.child(MARKER).read_if_there()
    return None if content is None else Owner.told(content)


def runs_elsewhere(access: Access, checkpoint: Folder) -> Owner | None:
    """Return the process that a checkpoint's marker names, if it is another one that may live.

    One of another machine or container is taken for dead once its lease is over.
    """
    found = marked(checkpoint)
    if found is None or found == Owner.me():
        return None
    alive = found.is_alive()
    if alive is None and found.host != Owner.me().host:
        alive = is_young(access, str(checkpoint.child(MARKER)))
    return None if alive is False else found


def running_here(bridge: Bridge, checkpoint: Folder) -> list[str]:
    """Return the names of the queries on a checkpoint that this application runs, however they were started."""
    return [name for location, name in running_queries(bridge) if str(Folder(bridge, location)) == str(checkpoint)]


def take_over(access: Access, checkpoint: Folder, *, again: bool = False) -> Mark:
    """Mark a checkpoint whose query this process is about to start.

    Where a process of another machine has left its mark, this waits until its lease is over: it may have died.
    Requests to this process stay where it runs the query already, and starts it `again`.

    Raises
    ------
    StateError
        If a process that lives runs the query, or changes its key groups, or the checkpoint cannot be written to.
    """
    _wait_for_strangers(access, checkpoint)
    with my_turn(access.bridge, checkpoint):
        other = runs_elsewhere(access, checkpoint)
        if other is not None:
            raise StateError.runs(str(checkpoint), str(other), str(checkpoint.child(MARKER)))
        if not again:
            Requests(checkpoint).clear()
        return Mark(access, checkpoint)


def _wait_for_strangers(access: Access, checkpoint: Folder) -> None:
    until = time.monotonic() + LEASE
    said = False
    while (other := runs_elsewhere(access, checkpoint)) is not None and other.host != Owner.me().host:
        if time.monotonic() > until:
            return
        if not said:
            log.warning("%s ran the query on %s; waiting up to %.0f s whether it lives", other, checkpoint, LEASE)
            said = True
        time.sleep(_LOOK)
