"""The terminal of the tests: what a person sees does not depend on the pieces in which it comes."""

from __future__ import annotations

import pytest

from tests.terminal import Screen

TEXT = "one two\r\x1b[3P\x1b[C\x1b[12Cthere\x1b]0;title\x07\x1b[K\r\nsecond"


@pytest.mark.parametrize("size", range(1, 9))
def test_codes_that_come_in_pieces(size: int) -> None:
    whole, pieces = Screen(), Screen()
    whole.feed(TEXT)
    for start in range(0, len(TEXT), size):
        pieces.feed(TEXT[start : start + size])
    assert pieces.lines == whole.lines == [" two         there", "second"]
