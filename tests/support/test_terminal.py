"""The emulated terminal shows the same lines however the output is split."""

from __future__ import annotations

import pytest

from tests.support.terminal import Screen

TEXT = "abc two\r\x1b[3P\x1b[C\x1b[12Cthere\x1b]0;title\x07\x1b[K\r\nsecond"


@pytest.mark.parametrize("size", range(1, 9))
def test_split_control_sequences_have_the_same_effect(size: int) -> None:
    whole, chunks = Screen(), Screen()
    whole.feed(TEXT)
    for start in range(0, len(TEXT), size):
        chunks.feed(TEXT[start : start + size])
    assert chunks.lines == whole.lines == [" two         there", "second"]
