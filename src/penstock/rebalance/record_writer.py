"""Chooses the channel for the next records: the least loaded of a few (FLINK-31655). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.errors import RebalanceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class ChannelLoad(NamedTuple):
    """The batches in flight in a channel.

    Parameters
    ----------
    buffers
        How many batches were sent and are not consumed yet.
    full
        Whether the channel accepts nothing more for now; never true for an empty channel.
    """

    buffers: int
    bytes: int
    full: bool = False


class AdaptiveLoadBasedRecordWriter:
    """Chooses channels in turn by their load.

    Of the next `max_traverse_size` channels in the ring, the first empty channel is chosen at once; else the channel
    with the fewest buffers, then the fewest bytes, then the first. With equal loads that is round robin. Full channels
    are skipped. If all compared channels are full, the writer checks the rest before it waits.

    Raises
    ------
    RebalanceError
        If there is no channel, or fewer than 2 are to be compared.
    """

    def __init__(self, channels: int, max_traverse_size: int) -> None:
        if channels < 1:
            raise RebalanceError(f"a writer has {channels} channels", hint="give it at least one")
        if max_traverse_size < 2:
            raise RebalanceError.bad_traverse_size(max_traverse_size)
        self._channels = channels
        self._window = min(max_traverse_size, channels)
        self._current = -1

    def choose(self, loads: Sequence[ChannelLoad]) -> int | None:
        """Return the channel for the next records, None if all are full."""
        ring = [(self._current + step) % self._channels for step in range(1, self._channels + 1)]
        chosen = self._least_loaded(ring[: self._window], loads)
        if chosen is None:
            chosen = self._least_loaded(ring[self._window :], loads)
        if chosen is not None:
            self._current = chosen
        return chosen

    def _least_loaded(self, channels: Iterable[int], loads: Sequence[ChannelLoad]) -> int | None:
        best: int | None = None
        for channel in channels:
            load = loads[channel]
            if load.buffers == 0:
                return channel
            if not load.full and (
                best is None or (load.buffers, load.bytes) < (loads[best].buffers, loads[best].bytes)
            ):
                best = channel
        return best
