"""Which event logs are kept: for a time, and up to a size. A log of a job that runs is always kept."""

from __future__ import annotations

import logging
import re
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import first_line
from penstock.history.event_log import SUFFIX
from penstock.history.record import ENDED
from penstock.history.summaries import Written

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.history.event_log import LogFolder

log = logging.getLogger("penstock.history")

_LOG = re.compile(r"\d{8}T\d{6}-[0-9a-f]{12}" + re.escape(SUFFIX))
"""The names of event logs; other files of the folder are none of ours."""
_PAUSE = 600.0
"""Seconds between two looks at a folder: on an object store, to list it takes seconds and costs money."""

_DUE: dict[str, float] = {}
"""When a folder is to be looked at next, by its place: there may be many environments that use it."""
_LOCK = threading.Lock()

_Entry = tuple[str, int, float]
"""The name of a log, its bytes, and when it was changed."""


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """How long logs are kept, and how many.

    Parameters
    ----------
    seconds
        Since the last line of a log; None for ever.
    size
        The bytes of all logs together; None for any number.
    """

    seconds: float | None = None
    size: int | None = None

    def beyond(self, entries: Sequence[_Entry], now: float) -> list[_Entry]:
        """Return the logs that are not to be kept, oldest first.

        Parameters
        ----------
        entries
            All logs.
        now
            Seconds since the epoch.
        """
        found, total = [], 0
        for entry in sorted(entries, reverse=True):  # names begin with the time
            _, size, modified = entry
            total += size
            is_old = self.seconds is not None and now - modified > self.seconds
            if is_old or (self.size is not None and total > self.size):
                found.append(entry)
        return found[::-1]


class Retention:
    """Removes the logs of a folder that are not to be kept.

    Parameters
    ----------
    folder
        The folder.
    limits
        What is kept.
    place
        How the folder is called, by which it is known in this process.
    """

    def __init__(self, folder: LogFolder, limits: RetentionLimits, place: str) -> None:
        self._folder = folder
        self._limits = limits
        self._place = place

    def apply_soon(self) -> None:
        """Remove logs on a thread of its own, unless that was done a moment ago; what fails is told in the log."""
        now = time.monotonic()
        if self._limits == RetentionLimits():
            return
        with _LOCK:
            if now < _DUE.get(self._place, 0.0):
                return
            _DUE[self._place] = now + _PAUSE
        threading.Thread(target=self._try, name="penstock-retention", daemon=True).start()

    def apply(self, *, is_trial: bool = False) -> list[_Entry]:
        """Remove logs; return those that were, or would be in a trial. One that cannot be removed keeps no other."""
        logs = [entry for entry in self._folder.entries() if _LOG.fullmatch(entry[0])]
        return [entry for entry in self._limits.beyond(logs, time.time()) if self._goes(entry, is_trial=is_trial)]

    def _goes(self, entry: _Entry, *, is_trial: bool) -> bool:
        try:
            if self._runs(entry):
                return False
            if not is_trial:
                self._folder.remove(entry[0])
        except Exception as error:  # noqa: BLE001 - file systems of Hadoop raise errors of their own
            log.warning("the event log %s cannot be removed: %s", entry[0], first_line(error))
            return False
        return True

    def _runs(self, entry: _Entry) -> bool:
        name, size, modified = entry
        try:
            written = Written.of(self._folder, name, size)
        except FileNotFoundError:  # another driver has removed it
            return True
        return written is None or written.now(modified).state not in ENDED  # its driver may be about to begin it

    def _try(self) -> None:
        try:
            found = self.apply()
        except Exception as error:  # noqa: BLE001 - file systems of Hadoop raise errors of their own
            log.warning("old event logs cannot be removed: %s", first_line(error))
        else:
            log.info("%d old event logs were removed", len(found))
