"""Flow control of the channels from a writer to its consumers, and their selection (FLINK-31655). No Spark, no I/O.

Limits are in seconds of the consumer's work, capped in bytes. A limit in bytes alone would let thousands of small rows
wait for a slow consumer. Until its first acknowledgement, a consumer's pace is unknown, so it gets a single batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from penstock.errors import RebalanceError

MIN_ROWS = 32  # of a batch, unless its rows are too large
MAX_ROWS = 10_000  # of a batch
_MAX_GROWTH = 4
"""Maximum number of rows of a batch, as a multiple of the rows of the batch before."""
_NEWEST_WEIGHT = 0.5
"""Weight of the newest batch in the average pace."""
_MAX_IN_FLIGHT_SECONDS = 0.1
"""Maximum of the consumer's work in flight, in seconds."""
_BATCH_SECONDS = 0.05
"""Target of the consumer's work in a batch, in seconds."""


class ChannelCredit:
    """The writer's view of a channel: what is in flight, and the pace of the consumer.

    At most about `max_bytes` are in flight, estimated from the average size of rows; a single row may be larger.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._in_flight: deque[tuple[int, int, float]] = deque()  # rows, bytes and sending time of batches
        self._last_ack = 0.0
        self._batch_rows = MIN_ROWS
        self._row_bytes = 0.0
        self.bytes_in_flight = 0
        self.rows_sent = 0
        self.bytes_sent = 0
        self.pace = 0.0
        """Rows that the consumer processes per second, 0 before its first acknowledgement."""

    @property
    def batches_in_flight(self) -> int:
        """The number of batches in flight."""
        return len(self._in_flight)

    @property
    def is_full(self) -> bool:
        """Whether the next batch must wait: a batch is in flight, and the pace is unknown or the credit too small."""
        if not self._in_flight:
            return False
        if not self.pace:
            return True
        credit = min(self._max_bytes, self.pace * self._row_bytes * _MAX_IN_FLIGHT_SECONDS)
        return self.bytes_in_flight + self.next_rows(self._row_bytes) * self._row_bytes > credit

    def next_rows(self, row_bytes: float) -> int:
        """Return the number of rows of the next batch, whose rows have `row_bytes` on average."""
        return max(1, min(self._batch_rows, int(self._max_bytes / max(row_bytes, 1e-9))))

    def on_sent(self, rows: int, size: int, now: float) -> None:
        """Record that a batch was sent."""
        self._in_flight.append((rows, size, now))
        self.bytes_in_flight += size
        self.rows_sent += rows
        self.bytes_sent += size
        self._row_bytes = max(size / rows, 1e-9)

    def on_ack(self, now: float) -> None:
        """Record that the consumer has processed the oldest batch in flight."""
        rows, size, sent = self._in_flight.popleft()
        self.bytes_in_flight -= size
        seconds = max(now - max(sent, self._last_ack), 1e-6)
        self._last_ack = now
        # Average the seconds per row, not the rows per second: a slow batch must weigh more than a fast batch.
        newest, average = seconds / rows, 1 / self.pace if self.pace else seconds / rows
        self.pace = 1 / (_NEWEST_WEIGHT * newest + (1 - _NEWEST_WEIGHT) * average)
        target_rows = int(self.pace * _BATCH_SECONDS)
        self._batch_rows = max(MIN_ROWS, min(MAX_ROWS, target_rows, self._batch_rows * _MAX_GROWTH))


class LoadBasedChannelSelector:
    """Selects the channel for the next batch: the least loaded of the next few channels.

    Compares the `max_traverse_size` channels that follow the last selected channel. The first channel without a batch
    in flight is selected at once. Otherwise, among those that are not full, the channel with the fewest batches in
    flight is selected, then the fewest bytes, then the first. With equal loads, this is round robin. If all are full,
    the remaining channels are compared. Raise `RebalanceError` without channels, or if `max_traverse_size` is below 2.
    """

    def __init__(self, channels: int, max_traverse_size: int) -> None:
        if channels < 1:
            raise RebalanceError(f"a writer has {channels} channels", hint="a writer needs at least one")
        if max_traverse_size < 2:
            raise RebalanceError.bad_traverse_size(max_traverse_size)
        self._channels = channels
        self._window = min(max_traverse_size, channels)
        self._current = -1

    def select(self, channel_credits: Sequence[ChannelCredit]) -> int | None:
        """Return the channel for the next batch, None if all channels are full."""
        ring = [(self._current + step) % self._channels for step in range(1, self._channels + 1)]
        chosen = self._least_loaded(ring[: self._window], channel_credits)
        if chosen is None:
            chosen = self._least_loaded(ring[self._window :], channel_credits)
        if chosen is not None:
            self._current = chosen
        return chosen

    def _least_loaded(self, channels: Iterable[int], channel_credits: Sequence[ChannelCredit]) -> int | None:
        best: int | None = None
        least = 0, 0
        for channel in channels:
            credit = channel_credits[channel]
            if credit.batches_in_flight == 0:
                return channel
            load = credit.batches_in_flight, credit.bytes_in_flight
            if (best is None or load < least) and not credit.is_full:
                best, least = channel, load
        return best
