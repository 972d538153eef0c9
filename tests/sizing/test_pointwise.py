from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.sizing.pointwise import readers_of, writers_of

COUNTS = st.integers(1, 40)


@pytest.mark.parametrize(
    ("writers", "readers", "expected"),
    [
        (2, 4, [[0, 1], [2, 3]]),
        (2, 6, [[0, 1, 2], [3, 4, 5]]),
        (1, 3, [[0, 1, 2]]),
        (3, 3, [[0], [1], [2]]),
        (4, 2, [[0], [0], [1], [1]]),
        (6, 2, [[0], [0], [0], [1], [1], [1]]),
        # not multiples: the first writers have an extra reader, the last readers an extra writer
        (2, 3, [[0, 1], [2]]),
        (2, 5, [[0, 1, 2], [3, 4]]),
        (3, 4, [[0, 1], [2], [3]]),
        (4, 6, [[0, 1], [2], [3, 4], [5]]),
        (3, 2, [[0], [1], [1]]),
        (6, 4, [[0], [1], [1], [2], [3], [3]]),
        (5, 3, [[0], [1], [1], [2], [2]]),
    ],
)
def test_groups(writers: int, readers: int, expected: Any) -> None:
    assert [list(readers_of(writer, writers, readers)) for writer in range(writers)] == expected


@given(COUNTS, COUNTS)
def test_every_task_has_a_neighbour_and_groups_do_not_overlap(writers: Any, readers: Any) -> None:
    pairs = [(writer, reader) for writer in range(writers) for reader in readers_of(writer, writers, readers)]
    assert {writer for writer, _ in pairs} == set(range(writers))
    assert {reader for _, reader in pairs} == set(range(readers))
    assert len(pairs) == max(writers, readers)


@given(COUNTS, COUNTS)
def test_both_sides_agree(writers: Any, readers: Any) -> None:
    writers, readers = max(writers, readers), min(writers, readers)
    from_writers = [(writer, reader) for writer in range(writers) for reader in readers_of(writer, writers, readers)]
    assert from_writers == [
        (writer, reader) for reader in range(readers) for writer in writers_of(reader, writers, readers)
    ]
