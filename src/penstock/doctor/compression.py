"""Decompression of event logs: the codecs of Spark, and gzip. Spark has its own formats of LZ4 and Snappy streams."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from penstock.errors import DoctorError

_CHUNK = 1 << 16
"""Bytes per read. Small chunks lose little of a log whose end is missing."""
_MAX_BLOCK = 1 << 28
"""No block of Spark's streams is as large; a larger size means that the file is damaged."""
_LZ4_BLOCK = b"LZ4Block"
_LZ4_HEADER = struct.Struct("<8sBiii")  # magic, token, compressed bytes, bytes, checksum
_LZ4_RAW = 0x10
_SNAPPY = b"\x82SNAPPY\x00"
_SNAPPY_HEADER_BYTES = len(_SNAPPY) + 8  # two numbers of versions follow
_FRAMES = {b"\x28\xb5\x2f\xfd": "zstd", b"\x1f\x8b": "gzip", b"\x04\x22\x4d\x18": "lz4", b"BZh": "bz2"}
_UNSUPPORTED = {
    b"ZV": "LZF",
    b"PK\x03\x04": "zip",
}


class Truncated(Exception):  # noqa: N818 - not an error: an application that runs has an incomplete log
    """The compressed stream ends, or is damaged, before its end."""


def chunks(path: Path) -> Iterator[bytes]:
    """Yield the decompressed content of a file; raise `Truncated` after the readable content of an incomplete one."""
    with path.open("rb") as file:
        start = file.read(16)
        file.seek(0)
        for magic, name in _UNSUPPORTED.items():
            if start.startswith(magic):
                raise DoctorError.unsupported_compression(str(path), name)
        if start.startswith(_LZ4_BLOCK):
            yield from _lz4_blocks(file)
        elif start.startswith(_SNAPPY):
            yield from _snappy_blocks(file)
        else:
            codec = next((name for magic, name in _FRAMES.items() if start.startswith(magic)), None)
            yield from _plain(file) if codec is None else _frames(file, codec)


def _plain(file: BinaryIO) -> Iterator[bytes]:
    while chunk := file.read(_CHUNK):
        yield chunk


def _frames(file: BinaryIO, codec: str) -> Iterator[bytes]:
    with pa.CompressedInputStream(pa.PythonFile(file, "r"), codec) as stream:
        while True:
            try:
                chunk = stream.read(_CHUNK)
            except OSError as error:  # pyarrow's error for an incomplete or damaged stream
                raise Truncated(str(error)) from error
            if not chunk:
                return
            yield chunk


def _lz4_blocks(file: BinaryIO) -> Iterator[bytes]:
    """Decompress a ``LZ4BlockOutputStream``: blocks with a header each; an empty block ends a part of the stream."""
    while header := file.read(_LZ4_HEADER.size):
        magic, token, compressed_bytes, size, _ = (
            _LZ4_HEADER.unpack(header) if len(header) == _LZ4_HEADER.size else (b"", 0, 0, 0, 0)
        )
        if magic != _LZ4_BLOCK:
            raise Truncated("a block of LZ4 has no header")
        block = _block(file, compressed_bytes, size)
        if block:
            yield block if token & 0xF0 == _LZ4_RAW else _decompress("lz4_raw", block, size)


def _snappy_blocks(file: BinaryIO) -> Iterator[bytes]:
    """Decompress a ``SnappyOutputStream``: blocks that begin with their size; headers may repeat."""
    while size_bytes := file.read(4):
        if _SNAPPY.startswith(size_bytes):
            file.read(_SNAPPY_HEADER_BYTES - 4)
            continue
        compressed_bytes = int.from_bytes(size_bytes, "big") if len(size_bytes) == 4 else -1
        block = _block(file, compressed_bytes, 0)
        yield _decompress("snappy", block, _snappy_size(block))


def _block(file: BinaryIO, compressed_bytes: int, size: int) -> bytes:
    if not (0 <= compressed_bytes <= _MAX_BLOCK and 0 <= size <= _MAX_BLOCK):
        raise Truncated("a block has an impossible size")
    block = file.read(compressed_bytes)
    if len(block) < compressed_bytes:
        raise Truncated("the last block is incomplete")
    return block


def _decompress(codec: str, block: bytes, size: int) -> bytes:
    try:
        return bytes(pa.Codec(codec).decompress(block, decompressed_size=size, asbytes=True))
    except OSError as error:
        raise Truncated(str(error)) from error


def _snappy_size(block: bytes) -> int:
    """Return the decompressed size of a block, which the block begins with, 7 bits per byte."""
    size = shift = 0
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            return size if size <= _MAX_BLOCK else 0
        shift += 7
    return 0
