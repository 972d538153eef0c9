"""Files of event logs: codecs, rolling logs, incomplete logs, and files that are not event logs."""

from __future__ import annotations

import bz2
import gzip
import itertools
import json
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.doctor.log_files import LogFiles
from penstock.errors import DoctorError

EVENTS: list[dict[str, Any]] = [{"Event": "SparkListenerLogStart", "Spark Version": "4.0.0"}]
EVENTS += [{"Event": "SparkListenerTaskEnd", "Stage ID": number} for number in range(2000)]
EVENTS += [{"Event": "SparkListenerApplicationEnd", "Timestamp": 5}]
TEXT = "".join(f"{json.dumps(event)}\n" for event in EVENTS).encode()
NAMES = [b"SparkListenerTaskEnd", b"SparkListenerApplicationEnd"]


def blocks(data: bytes, size: int = 8192) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


def lz4(data: bytes) -> bytes:
    """Return a stream of `LZ4BlockOutputStream`: compressed blocks, a raw block, and an empty block at the end."""
    first, *others = blocks(data)
    codec = pa.Codec("lz4_raw")
    parts = [(0x20, codec.compress(part, asbytes=True), len(part)) for part in others]
    parts = [(0x10, first, len(first)), *parts, (0x10, b"", 0)]
    return b"".join(
        struct.pack("<8sBiii", b"LZ4Block", token | 5, len(packed), size, 0) + packed for token, packed, size in parts
    )


def snappy(data: bytes) -> bytes:
    """Return two streams of `SnappyOutputStream`, each with its header."""
    header, codec = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1), pa.Codec("snappy")
    packed = [codec.compress(part, asbytes=True) for part in blocks(data)]
    streams = [struct.pack(">i", len(part)) + part for part in packed]
    return header + streams[0] + header + b"".join(streams[1:])


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


CODECS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "zstd": zstd,
    "lz4": lz4,
    "snappy": snappy,
    "gz": gzip.compress,
    "bz2": bz2.compress,
}


def write(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def read(path: Path) -> tuple[int, LogFiles]:
    files = LogFiles(path)
    return len(list(files.events(NAMES))), files


@pytest.mark.parametrize("codec", CODECS)
def test_compressed_logs(tmp_path: Path, codec: str) -> None:
    count, files = read(write(tmp_path / f"app.{codec}", CODECS[codec](TEXT)))
    assert (count, files.is_truncated, files.damaged_lines) == (2001, False, 0)


@pytest.mark.parametrize("codec", ["zstd", "lz4", "snappy", "gz"])
def test_two_compressed_parts(tmp_path: Path, codec: str) -> None:
    """Spark continues a log with another compressed part."""
    assert read(write(tmp_path / "app", CODECS[codec](TEXT) + CODECS[codec](TEXT)))[0] == 4002


@pytest.mark.parametrize(
    ("codec", "removed", "events"),
    [
        ("plain", 5, range(2000, 2001)),  # only the last event is incomplete
        ("plain", 1, range(2001, 2002)),  # only the line break is missing
        ("lz4", 40, range(1500, 2001)),
        ("snappy", 5, range(1500, 2001)),
        ("zstd", 5, range(2002)),  # a zstd block may have 128 KiB, so the whole log
        ("gz", 12, range(2002)),
    ],
)
def test_incomplete_logs(tmp_path: Path, codec: str, removed: int, events: range) -> None:
    path = write(tmp_path / "app.inprogress", CODECS[codec](TEXT)[:-removed])
    try:
        count, files = read(path)
    except DoctorError as error:
        assert "has no events" in str(error)
        return
    assert count in events
    assert files.is_truncated is (removed > 1)


def test_damaged_lines_are_counted(tmp_path: Path) -> None:
    lines = TEXT.splitlines(keepends=True)
    lines[5:7] = [b'{"Event":"SparkListenerTaskEnd", "Stage\n', b"\x00\x01\n", b"\n"]
    count, files = read(write(tmp_path / "app", b"".join(lines)))
    assert (count, files.damaged_lines) == (1999, 2)


def test_plans_that_are_too_deep(tmp_path: Path) -> None:
    deep = b'{"Event":"SparkListenerTaskEnd","plan":' + b"[" * 200_000 + b"]" * 200_000 + b"}\n"
    count, files = read(write(tmp_path / "app", TEXT + deep))
    assert (count, files.damaged_lines) == (2001, 1)


LONG = 16 << 20
UNREAD = b'{"Event":"SparkListenerBlockUpdated","x":"' + b"x" * LONG + b'"}\n'


@pytest.mark.parametrize(
    ("data", "damaged"),
    [(TEXT + UNREAD + TEXT, 0), (TEXT + LONG * b"x" + b"\n" + TEXT, 1)],
    ids=["an event that is not read", "no event"],
)
def test_lines_that_are_not_read_use_no_memory(tmp_path: Path, data: bytes, damaged: int) -> None:
    path = write(tmp_path / "app", gzip.compress(data, 1))
    tracemalloc.start()
    try:
        count, files = read(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (count, files.damaged_lines, files.is_truncated) == (4002, damaged, False)
    assert peak < LONG / 4


def test_a_file_without_line_breaks_is_not_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small compressed file may have gigabytes."""
    monkeypatch.setattr("penstock.doctor.log_files.chunks", lambda _: itertools.repeat(bytes(1 << 16)))
    with pytest.raises(DoctorError, match="is not an event log of Spark"):
        read(write(tmp_path / "app", b"x"))


@pytest.mark.parametrize(("size", "count"), [(1 << 20, 1), (3 << 20, 0)])
def test_long_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, count: int) -> None:
    monkeypatch.setattr("penstock.doctor.log_files._MAX_LINE", 2 << 20)
    line = b'{"Event":"SparkListenerTaskEnd","x":"' + b"x" * size + b'"}\n'
    events, files = read(write(tmp_path / "app", TEXT + line))
    assert (events, files.damaged_lines) == (2001 + count, 1 - count)


@pytest.mark.parametrize(
    ("names", "read_names", "is_incomplete"),
    [
        (["events_1_app.zstd", "events_2_app.zstd", "events_10_app.zstd"], [0, 1, 2], False),
        (["events_2_app.zstd", "events_3_app.zstd"], [0, 1], True),
        (["events_2_app.zstd", "events_2_app.zstd.compact", "events_3_app.zstd"], [1, 2], True),
    ],
)
def test_rolling_logs(tmp_path: Path, names: Any, read_names: Any, is_incomplete: bool) -> None:
    folder = tmp_path / "eventlog_v2_app"
    for name in names:
        write(folder / name, zstd(TEXT))
    write(folder / "appstatus_app.inprogress", b"")
    count, files = read(folder)
    assert files.names == [names[position] for position in read_names]
    assert (count, files.is_incomplete) == (2001 * len(read_names), is_incomplete)


def test_a_folder_with_a_single_log(tmp_path: Path) -> None:
    write(tmp_path / "logs" / "eventlog_v2_app" / "events_1_app", TEXT)
    assert read(tmp_path / "logs")[0] == 2001


@pytest.mark.parametrize(
    ("files", "path", "texts"),
    [
        ({}, "nowhere", ("does not exist", "spark.eventLog.dir")),
        ({"a.csv": b"id,name\n1,x\n"}, "a.csv", ("is not an event log of Spark", "'id,name'")),
        ({"a.bin": bytes(range(9, 200))}, "a.bin", ("is not an event log of Spark",)),
        ({"a.jsonl": b'{"type": "job"}\n'}, "a.jsonl", ("is not an event log of Spark", "penstock history")),
        ({"a": b""}, "a", ("has no events", "wait until")),
        ({"a.lzf": b"ZV\x01\x00\x05"}, "a.lzf", ("compressed with LZF", "decompress the log")),
        ({"a.zip": b"PK\x03\x04rest"}, "a.zip", ("compressed with zip",)),
        ({"a": TEXT, "b": TEXT}, ".", ("has 2 entries", "a, b")),
        ({"eventlog_v2_x/appstatus_x": b""}, "eventlog_v2_x", ("has no events",)),
    ],
)
def test_files_that_are_not_logs(tmp_path: Path, files: Any, path: str, texts: Any) -> None:
    for name, data in files.items():
        write(tmp_path / name, data)
    with pytest.raises(DoctorError) as error:
        read(tmp_path / path)
    for text in texts:
        assert text in str(error.value)
