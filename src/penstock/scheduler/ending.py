"""How a job ends: once, and either by a commit or by a cancellation."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from penstock.errors import JobCancelledError

if TYPE_CHECKING:
    from collections.abc import Sequence


class Ending:
    """Decides between those who would end a job; safe to use from several threads.

    Parameters
    ----------
    name
        The job's name.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._is_settled = False
        self.cancelled = ""
        """Why the job was cancelled, empty if it was not, or too late."""
        self.asked = ""
        """Why anybody asked to cancel it, be it too late."""
        self.has_committed = False
        """Whether the commit has begun: what was written then becomes visible, whatever else happens."""

    def cancel(self, reason: str) -> bool:
        """Ask for the end; return whether this is the first to ask, and the job has not ended yet."""
        with self._lock:
            if self._is_settled or self.asked:
                return False
            self.asked = reason
            if not self.has_committed:
                self.cancelled = reason
            return True

    def begin_commit(self) -> None:
        """Pass the point from which on nothing can be taken back.

        Raises
        ------
        JobCancelledError
            If the job was cancelled, or has ended: work that was left behind makes nothing visible when it wakes up.
        """
        with self._lock:
            self._check()
            self.has_committed = True

    def check(self) -> None:
        """Do nothing, unless the job was cancelled.

        Raises
        ------
        JobCancelledError
            If it was.
        """
        with self._lock:
            self._check()

    def _check(self) -> None:
        if self.cancelled or self._is_settled:
            raise self.error()

    def settle(self) -> bool:
        """Take the right to say how the job ended; only the first to ask has it."""
        with self._lock:
            if self._is_settled:
                return False
            self._is_settled = True
            return True

    def error(self, left_behind: Sequence[str] = ()) -> JobCancelledError:
        """Return the error of a job that was cancelled.

        Parameters
        ----------
        left_behind
            What hangs, and on which thread.
        """
        message, hint = f"job {self._name!r} was cancelled", None
        if left_behind:
            message += f", and what hangs was left behind: {'; '.join(left_behind)}"
            hint = "what was left behind makes nothing visible when it wakes up"
        if self.has_committed:
            hint = "its sinks had already begun to commit and may continue: look at the targets"
        return JobCancelledError(message, cause=self.asked, hint=hint)
