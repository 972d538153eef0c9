"""Retention of event logs by age and total size. The log of a running job is never removed."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import first_line
from penstock.history.event_log import SUFFIX
from penstock.history.record import END_STATES
from penstock.history.summaries import LogHeader

if TYPE_CHECKING:
    from penstock.history.event_log import LogFolder

log = logging.getLogger("penstock.history")

_LOG_NAME = re.compile(r"\d{8}T\d{6}-[0-9a-f]{12}" + re.escape(SUFFIX))
"""The names of event logs; other files in the folder are not touched."""
_CLEANUP_INTERVAL = 600.0
"""Minimum seconds between two clean-ups of a folder: listing an object store takes seconds and costs money."""

_NEXT_CLEANUP: dict[str, float] = {}
"""The earliest monotonic time of each folder's next clean-up, by path; several `Environment`s may share a folder."""
_CLEANUP_LOCK = threading.Lock()

_Entry = tuple[str, int, float]
"""The name of a log, its bytes, and its modification time in seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """The maximum time since the last line of a log, and the maximum size of all logs together; None for no limit."""

    max_age_seconds: float | None = None
    max_bytes: int | None = None

    def expired(self, entries: Sequence[_Entry], now: float) -> list[_Entry]:
        """Return the logs beyond the limits at the time `now` (seconds since the epoch), oldest first."""
        expired, total = [], 0
        for entry in sorted(entries, reverse=True):  # newest first: names begin with the start time
            _, size, modified = entry
            total += size
            is_too_old = self.max_age_seconds is not None and now - modified > self.max_age_seconds
            if is_too_old or (self.max_bytes is not None and total > self.max_bytes):
                expired.append(entry)
        return expired[::-1]


class Retention:
    """The clean-up of a folder of event logs; `path` identifies the folder in this process."""

    def __init__(self, folder: LogFolder, limits: RetentionLimits, path: str) -> None:
        self._folder = folder
        self._limits = limits
        self._path = path

    def apply_in_background(self) -> None:
        """Remove expired logs on a background thread, if there are limits and no recent clean-up; log errors."""
        now = time.monotonic()
        if self._limits == RetentionLimits():
            return
        with _CLEANUP_LOCK:
            if now < _NEXT_CLEANUP.get(self._path, 0.0):
                return
            _NEXT_CLEANUP[self._path] = now + _CLEANUP_INTERVAL
        threading.Thread(target=self._apply_and_log, name="penstock-retention", daemon=True).start()

    def apply(self, *, dry_run: bool = False) -> list[_Entry]:
        """Remove expired logs and return them, or with `dry_run` only return them; skip logs that cannot be removed."""
        logs = [entry for entry in self._folder.entries() if _LOG_NAME.fullmatch(entry[0])]
        return [entry for entry in self._limits.expired(logs, time.time()) if self._remove(entry, dry_run=dry_run)]

    def _remove(self, entry: _Entry, *, dry_run: bool) -> bool:
        """Remove a log; return whether it was removed, or with `dry_run` whether it would be."""
        try:
            if self._must_stay(entry):
                return False
            if not dry_run:
                self._folder.remove(entry[0])
        except Exception as error:  # noqa: BLE001 - file systems of Hadoop raise their own exception classes
            log.warning("the event log %s cannot be removed: %s", entry[0], first_line(error))
            return False
        return True

    def _must_stay(self, entry: _Entry) -> bool:
        """Whether a log must not be removed: its job may still run, or another driver has removed the log."""
        name, size, modified = entry
        try:
            header = LogHeader.of(self._folder, name, size)
        except FileNotFoundError:  # another driver has removed it
            return True
        # The driver of an empty log may be about to write to it.
        return header is None or header.current_summary(modified).state not in END_STATES

    def _apply_and_log(self) -> None:
        try:
            removed = self.apply()
        except Exception as error:  # noqa: BLE001 - file systems of Hadoop raise their own exception classes
            log.warning("old event logs cannot be removed: %s", first_line(error))
        else:
            log.info("%d old event logs were removed", len(removed))
