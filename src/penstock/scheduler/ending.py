"""Decides between the commit and the cancellation of a job."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from penstock.errors import JobCancelledError


class EndArbiter:
    """Decides exactly once whether a job (`name`) ends with a commit or a cancellation. Thread-safe."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.RLock()
        self._has_ended = False
        self.effective_cancel_reason = ""
        """The reason for the cancellation; empty if the job was not cancelled, or if the request came too late."""
        self.cancel_request_reason = ""
        """The reason for the request to cancel, even if it came too late; empty without a request."""
        self.commit_has_begun = False
        """Whether the commit has begun, so that the job cannot be cancelled any more."""

    def cancel(self, reason: str) -> bool:
        """Request cancellation; return whether this is the first request, and the job has not ended."""
        with self._lock:
            if self._has_ended or self.cancel_request_reason:
                return False
            self.cancel_request_reason = reason
            if not self.commit_has_begun:
                self.effective_cancel_reason = reason
            return True

    def begin_commit(self) -> None:
        """Record that the commit begins, after which the job cannot be cancelled.

        Raise `JobCancelledError` if the job was cancelled or has ended: no thread may make rows visible then.
        """
        with self._lock:
            self.raise_if_cancelled()
            self.commit_has_begun = True

    def raise_if_cancelled(self) -> None:
        """Raise `JobCancelledError` if the job was cancelled or has ended."""
        with self._lock:
            if self.effective_cancel_reason or self._has_ended:
                raise self.cancel_error()

    def claim_end(self) -> bool:
        """Claim the right to set the final state; return True for the first caller only."""
        with self._lock:
            if self._has_ended:
                return False
            self._has_ended = True
            return True

    def cancel_error(self, running: Sequence[str] = ()) -> JobCancelledError:
        """Return the error of a cancelled job; `running` describes its threads that still run."""
        message, hint = f"job {self._name!r} was cancelled", None
        if running:
            message += f", and these threads were left running: {'; '.join(running)}"
            hint = "threads that were left running cannot make anything visible"
        if self.commit_has_begun:
            hint = "its sinks had already begun to commit and may continue: check the targets"
        return JobCancelledError(message, cause=self.cancel_request_reason, hint=hint)
