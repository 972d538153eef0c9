import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.splits import count_splits, split_size_for

MB = 1 << 20


@pytest.mark.parametrize(
    ("sizes", "can_split", "split", "count"),
    [
        ([100 * MB], True, 16 * MB, 7),
        ([100 * MB], False, 16 * MB, 1),
        ([1 * MB] * 8, True, 16 * MB, 2),  # opening a file counts as 4 MB
        ([], True, 16 * MB, 0),
        ([0, 0], True, 16 * MB, 0),
        ([32 * MB, 1], True, 16 * MB, 3),
    ],
)
def test_count_splits(sizes, can_split, split, count):
    assert count_splits(sizes, [can_split] * len(sizes), split) == count


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=20), st.integers(1, 40), st.integers(0, 1000))
def test_the_split_size_gives_as_many_as_wanted_or_the_most_below(sizes, wanted, open_cost):
    split = split_size_for(sizes, [True] * len(sizes), wanted, open_cost)
    count = count_splits(sizes, [True] * len(sizes), split, open_cost)
    assert 1 <= count <= wanted
    if len(sizes) == 1:
        assert count == min(wanted, sizes[0]) or sizes[0] < wanted**2  # few bytes cannot be dealt out evenly


def test_files_that_cannot_be_cut():
    assert count_splits([50, 50], [False] * 2, split_size_for([50, 50], [False] * 2, 9, 0), 0) == 2
