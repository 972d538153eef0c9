"""The choice of channels, from tables of loads and the expected channels."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import RebalanceError
from penstock.rebalance.channel_selector import LoadBasedChannelSelector


class ChannelLoad(NamedTuple):
    """What a channel has in flight."""

    batches_in_flight: int
    bytes_in_flight: int
    is_full: bool = False


E, S, M, L = (0, 0), (1, 10), (2, 20), (3, 30)
# The traverse size, the channels as (batches, bytes) in flight, and the channels that are chosen in turn.
CHOICES = {
    "empty channels in turn": (2, [E, E, E, E], [0, 1, 2, 3, 0]),
    "equal loads in turn": (2, [S, S, S], [0, 1, 2, 0]),
    "the first empty channel at once": (4, [M, E, S, E], [1, 3, 1]),
    "fewest batches": (4, [L, M, S, L], [2, 2, 2]),
    "fewest batches before fewest bytes": (3, [(2, 1), (1, 99), (3, 1)], [1, 1]),
    "with equal batches, fewest bytes": (3, [(1, 9), (1, 7), (1, 8)], [1, 1]),
    "with equal loads, the first visited": (3, [(1, 7), (1, 7), (1, 7)], [0, 1, 2, 0]),
    "only the window is compared": (2, [M, L, S, E], [0, 2, 3, 0]),
    "the last channel used is visited last": (2, [S, L, L, L], [0, 1, 2, 0]),
    "the window is no larger than the ring": (9, [L, S], [1, 1]),
    "a single channel": (2, [M], [0, 0]),
    "six channels, all compared": (6, [L, L, M, L, S, L], [4, 4]),
}


@pytest.mark.parametrize("name", CHOICES)
def test_choices(name: str) -> None:
    traverse, loads, expected = CHOICES[name]
    selector = LoadBasedChannelSelector(len(loads), traverse)
    channels: list[Any] = [ChannelLoad(*load) for load in loads]
    assert [selector.select(channels) for _ in expected] == expected


FULL = ChannelLoad(1, 10, is_full=True)
FREE = ChannelLoad(1, 10)
WIDENED = {
    "full channels are skipped": (2, [FULL, FREE, FREE], [1, 2, 1]),
    "beyond the window": (2, [FULL, FULL, FULL, FREE], [3, 3]),
    "all full": (2, [FULL, FULL], [None, None]),
    "a full channel is not chosen": (2, [FULL, FULL, ChannelLoad(0, 0)], [2, 2]),
}


@pytest.mark.parametrize("name", WIDENED)
def test_all_channels_are_compared_before_waiting(name: str) -> None:
    traverse, loads, expected = WIDENED[name]
    selector = LoadBasedChannelSelector(len(loads), traverse)
    assert [selector.select(loads) for _ in expected] == expected


load_lists = st.lists(
    st.builds(ChannelLoad, st.integers(0, 3), st.integers(0, 5), st.just(value=False)), min_size=1, max_size=9
)


@given(st.lists(load_lists, min_size=1, max_size=6), st.integers(2, 12))
def test_the_least_loaded_channel_of_the_window_is_chosen(rounds: Any, traverse: Any) -> None:
    channels = min(map(len, rounds))
    selector = LoadBasedChannelSelector(channels, traverse)
    current = -1
    for loads in rounds:
        chosen = selector.select(loads[:channels])
        window = [(current + i) % channels for i in range(1, min(traverse, channels) + 1)]
        assert chosen in window
        empty = [c for c in window if loads[c].batches_in_flight == 0]
        best = empty[0] if empty else min(window, key=lambda c: (loads[c].batches_in_flight, loads[c].bytes_in_flight))
        assert chosen == best
        current = chosen


@pytest.mark.parametrize(("channels", "traverse"), [(0, 2), (3, 1), (3, 0), (3, -1)])
def test_bad_sizes(channels: int, traverse: int) -> None:
    with pytest.raises(RebalanceError):
        LoadBasedChannelSelector(channels, traverse)
