"""A growing log is read incrementally: each line once, as soon as it is complete."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.history.event_log import parse_events
from penstock.history.logs import LogReader
from penstock.history.record import JobRecord
from tests.history.records import events, record

LINES = [json.dumps(event).encode() + b"\n" for event in events()]
WHOLE = b"".join(LINES)


class Folder:
    """A folder with a log whose contents the test sets; it counts the bytes that are read."""

    def __init__(self) -> None:
        self.data = b""
        self.bytes_read = 0

    def read(self, _: str, start: int, length: int) -> bytes:
        part = self.data[start : start + length]
        self.bytes_read += len(part)
        return part


def reader(data: bytes) -> tuple[Any, LogReader]:
    folder: Any = Folder()
    folder.data = data
    return folder, LogReader(folder, "x.jsonl")


def test_each_line_is_read_once() -> None:
    folder, log = reader(b"")
    for line in LINES:
        folder.data += line
        log.read(len(folder.data))
    assert log.read(len(folder.data)) == record()
    assert folder.bytes_read == len(WHOLE)


@pytest.mark.parametrize("step", [1, 7, 100, 5000])
def test_incomplete_lines(step: int) -> None:
    folder, log = reader(b"")
    for end in range(0, len(WHOLE) + step, step):
        folder.data = WHOLE[:end]
        job = log.read(len(folder.data))
        expected = JobRecord()
        expected.apply_all(list(parse_events(folder.data)))
        assert job == expected
    assert job == record()


def test_bytes_beyond_the_size_are_read_next_time() -> None:
    _, log = reader(WHOLE)
    size = len(LINES[0]) + 5
    assert log.read(size).nodes == {}
    assert log.read(len(WHOLE)) == record()


def test_rewritten_log() -> None:
    folder, log = reader(WHOLE)
    log.read(len(WHOLE))
    folder.data = LINES[0]
    assert log.read(len(LINES[0])).state == "CREATED"


@pytest.mark.parametrize("text", [b"", b"\n", b"null\n", b"7", b'"x"', b'{"type":', b"\xff\xfe{}"])
def test_invalid_events_are_skipped(text: bytes) -> None:
    assert list(parse_events(text)) == []


def test_events_of_newer_releases_are_skipped() -> None:
    job = JobRecord()
    job.apply({"type": "unheard of", "at": 1.0})
    assert job == JobRecord()
