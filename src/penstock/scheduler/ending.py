"""Arbitration between the commit and the cancellation of a job."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from penstock.errors import JobCancelledError

if TYPE_CHECKING:
    from collections.abc import Sequence


class Ending:
    """Decides whether a job ends with a commit or a cancellation, and only once; thread-safe."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._is_settled = False
        self.cancelled = ""
        """The reason of the cancellation; empty if the job was not cancelled, or too late."""
        self.requested_reason = ""
        """The reason of the request to cancel, even if it came too late; empty without a request."""
        self.has_committed = False
        """Whether the commit has begun; it can no longer be undone then."""

    def cancel(self, reason: str) -> bool:
        """Request cancellation; return whether this is the first request, and the job has not ended."""
        with self._lock:
            if self._is_settled or self.requested_reason:
                return False
            self.requested_reason = reason
            if not self.has_committed:
                self.cancelled = reason
            return True

    def begin_commit(self) -> None:
        """Mark the beginning of the commit, which cannot be undone.

        Raise `JobCancelledError` if the job was cancelled or has ended: threads that were left running must not make
        anything visible.
        """
        with self._lock:
            self._check()
            self.has_committed = True

    def check(self) -> None:
        """Raise `JobCancelledError` if the job was cancelled."""
        with self._lock:
            self._check()

    def _check(self) -> None:
        if self.cancelled or self._is_settled:
            raise self.error()

    def settle(self) -> bool:
        """Claim the right to set the final state; only the first caller gets it."""
        with self._lock:
            if self._is_settled:
                return False
            self._is_settled = True
            return True

    def error(self, running: Sequence[str] = ()) -> JobCancelledError:
        """Return the error of a cancelled job."""
        message, hint = f"job {self._name!r} was cancelled", None
        if running:
            message += f", and these threads were left running: {'; '.join(running)}"
            hint = "threads that were left running cannot make anything visible"
        if self.has_committed:
            hint = "its sinks had already begun to commit and may continue: check the targets"
        return JobCancelledError(message, cause=self.requested_reason, hint=hint)
