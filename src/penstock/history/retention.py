"""Retention of event logs by age and total size. The log of a running job is never removed."""

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
from penstock.history.summaries import LogHeader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.history.event_log import LogFolder

log = logging.getLogger("penstock.history")

_LOG = re.compile(r"\d{8}T\d{6}-[0-9a-f]{12}" + re.escape(SUFFIX))
"""The names of event logs; other files in the folder are not touched."""
_PAUSE = 600.0
"""Seconds between two clean-ups of a folder: listing an object store takes seconds and costs money."""

_DUE: dict[str, float] = {}
"""When each folder is due, as several environments of the process may share it: monotonic time by path."""
_LOCK = threading.Lock()

_Entry = tuple[str, int, float]
"""The name of a log, its bytes, and its modification time."""


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """The maximum age since the last line of a log, and the maximum bytes of all logs together; None for no limit."""

    seconds: float | None = None
    size: int | None = None

    def expired(self, entries: Sequence[_Entry], now: float) -> list[_Entry]:
        """Return the logs beyond the limits, oldest first."""
        expired, total = [], 0
        for entry in sorted(entries, reverse=True):  # names begin with the start time
            _, size, modified = entry
            total += size
            is_old = self.seconds is not None and now - modified > self.seconds
            if is_old or (self.size is not None and total > self.size):
                expired.append(entry)
        return expired[::-1]


class Retention:
    """The clean-up of a folder of event logs, which its path identifies in this process."""

    def __init__(self, folder: LogFolder, limits: RetentionLimits, path: str) -> None:
        self._folder = folder
        self._limits = limits
        self._path = path

    def apply_soon(self) -> None:
        """Remove expired logs on a background thread, unless the folder was cleaned recently; errors are logged."""
        now = time.monotonic()
        if self._limits == RetentionLimits():
            return
        with _LOCK:
            if now < _DUE.get(self._path, 0.0):
                return
            _DUE[self._path] = now + _PAUSE
        threading.Thread(target=self._apply_logged, name="penstock-retention", daemon=True).start()

    def apply(self, *, is_trial: bool = False) -> list[_Entry]:
        """Remove expired logs despite single errors; return the removed logs, or with `is_trial` those to remove."""
        logs = [entry for entry in self._folder.entries() if _LOG.fullmatch(entry[0])]
        return [entry for entry in self._limits.expired(logs, time.time()) if self._remove(entry, is_trial=is_trial)]

    def _remove(self, entry: _Entry, *, is_trial: bool) -> bool:
        try:
            if self._is_running(entry):
                return False
            if not is_trial:
                self._folder.remove(entry[0])
        except Exception as error:  # noqa: BLE001 - file systems of Hadoop raise errors of their own
            log.warning("the event log %s cannot be removed: %s", entry[0], first_line(error))
            return False
        return True

    def _is_running(self, entry: _Entry) -> bool:
        name, size, modified = entry
        try:
            header = LogHeader.of(self._folder, name, size)
        except FileNotFoundError:  # removed by another driver
            return True
        # The driver of an empty log may be about to write to it.
        return header is None or header.now(modified).state not in ENDED

    def _apply_logged(self) -> None:
        try:
            removed = self.apply()
        except Exception as error:  # noqa: BLE001 - file systems of Hadoop raise errors of their own
            log.warning("old event logs cannot be removed: %s", first_line(error))
        else:
            log.info("%d old event logs were removed", len(removed))
