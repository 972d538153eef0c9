"""How much a channel may hold, and how long its batches are: measured in time, capped in bytes. Pure.

A bound in bytes alone would not do: narrow rows would all fit into the queues of a slow consumer. What a channel holds
must be what its consumer works off in a moment, and nothing is known of that before its first acknowledgement.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

MIN_ROWS = 32
MAX_ROWS = 10_000
_GROWTH = 4
_SMOOTHING = 0.5


@dataclass(frozen=True, slots=True)
class CreditLimits:
    """What bounds channels.

    Parameters
    ----------
    bytes
        The most that one channel holds; a single batch may be larger only if a single row is.
    horizon
        Seconds of the consumer's work that may wait in a channel.
    slice
        Seconds of its work that one batch should be.
    """

    bytes: int
    horizon: float = 0.1
    slice: float = 0.05


class ChannelCredit:
    """What a writer knows of one of its channels.

    Parameters
    ----------
    limits
        The bounds.
    """

    def __init__(self, limits: CreditLimits) -> None:
        self._limits = limits
        self._waiting: deque[tuple[int, int, float]] = deque()
        self._last_ack = 0.0
        self._rows = MIN_ROWS
        self._row_bytes = 0.0
        self.bytes = 0
        self.rows_sent = 0
        self.bytes_sent = 0
        self.pace = 0.0
        """Rows the consumer takes in a second, 0 before its first acknowledgement."""

    @property
    def buffers(self) -> int:
        """How many batches wait."""
        return len(self._waiting)

    @property
    def full(self) -> bool:
        """Whether another batch has to wait: there is one, and together they are more than the channel's credit."""
        if not self._waiting:
            return False
        if not self.pace:
            return True
        credit = min(self._limits.bytes, self.pace * self._row_bytes * self._limits.horizon)
        return self.bytes + self.next_rows(self._row_bytes) * self._row_bytes > credit

    def next_rows(self, row_bytes: float) -> int:
        """Return how many rows the next batch should have.

        Parameters
        ----------
        row_bytes
            What a row takes, on average.
        """
        return max(1, min(self._rows, int(self._limits.bytes / max(row_bytes, 1e-9))))

    def on_sent(self, rows: int, size: int, now: float) -> None:
        """Note that a batch was sent."""
        self._waiting.append((rows, size, now))
        self.bytes += size
        self.rows_sent += rows
        self.bytes_sent += size
        self._row_bytes = max(size / rows, 1e-9)

    def on_ack(self, now: float) -> None:
        """Note that the consumer is done with the batch that was sent first."""
        rows, size, sent = self._waiting.popleft()
        self.bytes -= size
        seconds = max(now - max(sent, self._last_ack), 1e-6)
        self._last_ack = now
        # Seconds for a row are averaged, not rows a second: one slow batch must count more than one fast one.
        new, old = seconds / rows, 1 / self.pace if self.pace else seconds / rows
        self.pace = 1 / (_SMOOTHING * new + (1 - _SMOOTHING) * old)
        wanted = int(self.pace * self._limits.slice)
        self._rows = max(MIN_ROWS, min(MAX_ROWS, wanted, self._rows * _GROWTH))
