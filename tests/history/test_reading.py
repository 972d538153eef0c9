"""A log is read as it grows: each line once, and a line that is not complete yet when it is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.history.reading import LogReader, events_of
from penstock.history.record import JobRecord
from tests.history.records import events, record

LINES = [json.dumps(event).encode() + b"\n" for event in events()]
WHOLE = b"".join(LINES)


class Folder:
    """A folder with one log, of which the test tells how far it is written; it counts the bytes that were read."""

    def __init__(self) -> None:
        self.data = b""
        self.read_so_far = 0

    def read(self, _: str, start: int, length: int) -> bytes:
        part = self.data[start : start + length]
        self.read_so_far += len(part)
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
    assert folder.read_so_far == len(WHOLE)


@pytest.mark.parametrize("step", [1, 7, 100, 5000])
def test_lines_that_are_torn_while_they_are_written(step: int) -> None:
    folder, log = reader(b"")
    for end in range(0, len(WHOLE) + step, step):
        folder.data = WHOLE[:end]
        found = log.read(len(folder.data))
        whole = JobRecord()
        whole.apply_all(list(events_of(folder.data)))
        assert found == whole
    assert found == record()


def test_what_is_written_after_the_size_was_asked_for_is_read_the_next_time() -> None:
    _, log = reader(WHOLE)
    size = len(LINES[0]) + 5
    assert log.read(size).nodes == {}
    assert log.read(len(WHOLE)) == record()


def test_a_log_that_was_written_anew() -> None:
    folder, log = reader(WHOLE)
    log.read(len(WHOLE))
    folder.data = LINES[0]
    assert log.read(len(LINES[0])).state == "CREATED"


@pytest.mark.parametrize("text", [b"", b"\n", b"null\n", b"7", b'"x"', b'{"type":', b"\xff\xfe{}"])
def test_what_is_no_event_is_passed_over(text: bytes) -> None:
    assert list(events_of(text)) == []


def test_events_of_a_newer_release_are_passed_over() -> None:
    made = JobRecord()
    made.apply({"type": "unheard of", "at": 1.0})
    assert made == JobRecord()
