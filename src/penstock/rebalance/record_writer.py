"""Which channel gets the next records: the least loaded of a few (FLINK-31655). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.errors import RebalanceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class ChannelLoad(NamedTuple):
    """What waits in a channel.

    Parameters
    ----------
    buffers
        How many buffers were sent and are not consumed yet.
    bytes
        Their bytes.
    full
        Whether the channel takes nothing more for now; never true of an empty one.
    """

    buffers: int
    bytes: int
    full: bool = False


class AdaptiveLoadBasedRecordWriter:
    """Chooses channels one after the other.

    Of the next `max_traverse_size` channels in the ring, the first empty one is taken at once; else the one with the
    fewest buffers, of these the one with the fewest bytes, of these the first. With equal loads that is round robin.
    Full channels are passed over; before it would wait, the writer looks at all channels.

    Parameters
    ----------
    channels
        How many there are.
    max_traverse_size
        How many of them are compared.

    Raises
    ------
    RebalanceError
        If there is no channel, or fewer than 2 of several are to be compared.
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
        """Return the channel for the next records, None if all are full.

        Parameters
        ----------
        loads
            What waits in each channel now.
        """
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
