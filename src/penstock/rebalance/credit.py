"""Flow control of a channel: how much may be in flight, and the size of batches. Pure.

Limits are in seconds of the consumer's work, capped in bytes. Bytes alone would not do: narrow rows would all fit into
the queue of a slow consumer. The consumer's pace is unknown before its first acknowledgement.
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
    """The limits of each channel.

    Parameters
    ----------
    bytes
        The maximum bytes in flight; a batch may be larger only if it is a single row.
    horizon
        Seconds of the consumer's work that may be in flight.
    slice
        Seconds of the consumer's work that a batch should have.
    """

    bytes: int
    horizon: float = 0.1
    slice: float = 0.05


class ChannelCredit:
    """The writer's view of a channel: what is in flight, and the pace of the consumer."""

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
        """Rows that the consumer processes per second, 0 before its first acknowledgement."""

    @property
    def buffers(self) -> int:
        """The number of batches in flight."""
        return len(self._waiting)

    @property
    def full(self) -> bool:
        """Whether the next batch must wait: a batch is in flight, and another would exceed the channel's credit."""
        if not self._waiting:
            return False
        if not self.pace:
            return True
        credit = min(self._limits.bytes, self.pace * self._row_bytes * self._limits.horizon)
        return self.bytes + self.next_rows(self._row_bytes) * self._row_bytes > credit

    def next_rows(self, row_bytes: float) -> int:
        """Return the number of rows of the next batch."""
        return max(1, min(self._rows, int(self._limits.bytes / max(row_bytes, 1e-9))))

    def on_sent(self, rows: int, size: int, now: float) -> None:
        """Record that a batch was sent."""
        self._waiting.append((rows, size, now))
        self.bytes += size
        self.rows_sent += rows
        self.bytes_sent += size
        self._row_bytes = max(size / rows, 1e-9)

    def on_ack(self, now: float) -> None:
        """Record that the consumer has processed the oldest batch in flight."""
        rows, size, sent = self._waiting.popleft()
        self.bytes -= size
        seconds = max(now - max(sent, self._last_ack), 1e-6)
        self._last_ack = now
        # Average the seconds per row, not the rows per second: a slow batch must weigh more than a fast batch.
        new, old = seconds / rows, 1 / self.pace if self.pace else seconds / rows
        self.pace = 1 / (_SMOOTHING * new + (1 - _SMOOTHING) * old)
        slice_rows = int(self.pace * self._limits.slice)
        self._rows = max(MIN_ROWS, min(MAX_ROWS, slice_rows, self._rows * _GROWTH))
