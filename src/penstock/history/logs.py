"""The event logs in a folder: all jobs as a list, and each job in full."""

from __future__ import annotations

import logging
import re
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from penstock.errors import HistoryError, first_line
from penstock.history.drivers import interrupt, is_alive
from penstock.history.event_log import SUFFIX
from penstock.history.reading import LogReader
from penstock.history.summaries import Written
from penstock.units import show_count

if TYPE_CHECKING:
    from penstock.history.event_log import LogFolder
    from penstock.history.record import JobRecord
    from penstock.history.summaries import Summary

log = logging.getLogger("penstock.history")

_ID = re.compile(r"[0-9a-f]{12}")
_STAMP = len("20261122T120000")
_KEPT = 32
"""Records that are kept in memory."""


class History:
    """The event logs in a folder.

    Parameters
    ----------
    folder
        The folder; subfolders are not looked at.

    Attributes
    ----------
    unread
        How many logs could not be read when all jobs were last listed.
    """

    def __init__(self, folder: LogFolder) -> None:
        self.unread = 0
        self._folder = folder
        self._known: dict[str, tuple[tuple[int, float], Written | None]] = {}
        self._readers: OrderedDict[str, LogReader] = OrderedDict()
        self._lock = threading.Lock()

    def _logs(self) -> list[tuple[str, int, float]]:
        return sorted((entry for entry in self._folder.entries() if entry[0].endswith(SUFFIX)), reverse=True)

    def stamp(self) -> list[tuple[str, int, float]]:
        """Return something that differs when any log has changed.

        Raises
        ------
        HistoryError
            If there is no such folder.
        """
        return self._logs()

    def summaries(self) -> list[Summary]:
        """Return all jobs, newest first; of each log only its first and last lines are read, and only when it grew.

        Logs that cannot be read are left out; `unread` counts them.

        Raises
        ------
        HistoryError
            If there is no such folder.
        """
        found, seen, unread = [], {}, {}
        for name, size, modified in self._logs():
            known = self._known.get(name)
            if known is None or known[0] != (size, modified):
                try:
                    known = (size, modified), Written.of(self._folder, name, size)
                except FileNotFoundError:  # it was removed meanwhile
                    continue
                except Exception as error:  # noqa: BLE001 - file systems of Hadoop raise errors of their own
                    unread[name] = first_line(error)
                    continue
            seen[name] = known
            if known[1] is not None:
                found.append(known[1].now(modified))
        self._known = seen
        self._tell(unread)
        return found

    def _tell(self, unread: dict[str, str]) -> None:
        """Say how many logs cannot be read, if it is another number than before."""
        if unread and len(unread) != self.unread:
            name, why = next(iter(unread.items()))
            log.warning("%s cannot be read: %s: %s", show_count(len(unread), "event log"), name, why)
        self.unread = len(unread)

    def ids(self, prefix: str) -> list[str]:
        """Return the ids of the jobs that begin with a text, newest first.

        Raises
        ------
        HistoryError
            If there is no such folder.
        """
        found = (name[_STAMP + 1 :].removesuffix(SUFFIX) for name, _, _ in self._logs())
        return [job_id for job_id in found if _ID.fullmatch(job_id) and job_id.startswith(prefix.lower())]

    def record(self, job_id: str) -> JobRecord | None:
        """Return all that is known of a job, as a record that stays as it is; None where there is no log of it.

        Raises
        ------
        HistoryError
            If there is no such folder, or the log cannot be read.
        """
        if not _ID.fullmatch(job_id):
            return None
        found = next((one for one in self._logs() if one[0] == f"{one[0][:_STAMP]}-{job_id}{SUFFIX}"), None)
        if found is None:
            return None
        name, size, modified = found
        try:
            record = self._reader(name).read(size)
        except Exception as error:
            self._readers.pop(name, None)  # it may have stopped within a step
            raise HistoryError.unreadable(name, first_line(error)) from error
        if not record.is_ended and not is_alive(record.host, record.pid, modified):
            interrupt(record)
        return record

    def _reader(self, name: str) -> LogReader:
        with self._lock:
            reader = self._readers.setdefault(name, LogReader(self._folder, name))
            self._readers.move_to_end(name)
            while len(self._readers) > _KEPT:
                self._readers.popitem(last=False)
            return reader
