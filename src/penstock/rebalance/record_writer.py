"""Flow control of the channels of a writer, and the choice between them (FLINK-31655). Pure.

Limits are in seconds of the consumer's work, capped in bytes. Bytes alone would not do: narrow rows would all fit into
the queue of a slow consumer. The consumer's pace is unknown before its first acknowledgement.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from penstock.errors import RebalanceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MIN_ROWS = 32
MAX_ROWS = 10_000
_GROWTH = 4
_SMOOTHING = 0.5
_HORIZON = 0.1
"""How many seconds of the consumer's work may be in flight."""
_SLICE = 0.05
"""How many seconds of the consumer's work a batch should have."""


class ChannelCredit:
    """The writer's view of a channel: what is in flight, and the pace of the consumer.

    At most `max_bytes` are in flight; a batch may be larger only if it is a single row.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
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
        credit = min(self._max_bytes, self.pace * self._row_bytes * _HORIZON)
        return self.bytes + self.next_rows(self._row_bytes) * self._row_bytes > credit

    def next_rows(self, row_bytes: float) -> int:
        """Return the number of rows of the next batch."""
        return max(1, min(self._rows, int(self._max_bytes / max(row_bytes, 1e-9))))

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
        slice_rows = int(self.pace * _SLICE)
        self._rows = max(MIN_ROWS, min(MAX_ROWS, slice_rows, self._rows * _GROWTH))


class AdaptiveLoadBasedRecordWriter:
    """Chooses channels in turn by their load.

    Of the next `max_traverse_size` channels in the ring, the first empty channel is chosen at once; else the channel
    with the fewest buffers, then the fewest bytes, then the first. With equal loads that is round robin. Full channels
    are skipped. If all compared channels are full, the writer checks the rest before it waits. Raise `RebalanceError`
    if there is no channel, or fewer than 2 are to be compared.
    """

    def __init__(self, channels: int, max_traverse_size: int) -> None:
        if channels < 1:
            raise RebalanceError(f"a writer has {channels} channels", hint="give it at least one")
        if max_traverse_size < 2:
            raise RebalanceError.bad_traverse_size(max_traverse_size)
        self._channels = channels
        self._window = min(max_traverse_size, channels)
        self._current = -1

    def choose(self, loads: Sequence[ChannelCredit]) -> int | None:
        """Return the channel for the next records, None if all are full."""
        ring = [(self._current + step) % self._channels for step in range(1, self._channels + 1)]
        chosen = self._least_loaded(ring[: self._window], loads)
        if chosen is None:
            chosen = self._least_loaded(ring[self._window :], loads)
        if chosen is not None:
            self._current = chosen
        return chosen

    def _least_loaded(self, channels: Iterable[int], loads: Sequence[ChannelCredit]) -> int | None:
        best: int | None = None
        for channel in channels:
            load = loads[channel]
            if load.buffers == 0:
                return channel
            is_less = best is None or (load.buffers, load.bytes) < (loads[best].buffers, loads[best].bytes)
            if is_less and not load.full:
                best = channel
        return best
