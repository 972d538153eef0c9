"""The protocol between a writer and a reader. Pure.

A connection begins with a handshake in which each side proves that it knows the stage's secret: the reader sends a
nonce; the writer sends its number, a nonce of its own, and a proof over both nonces; the reader sends its proof. Then
frames go from writer to reader, and acknowledgements (a byte for every batch consumed) back. A connection that
is lost before the end frame and all acknowledgements is an error.
"""

from __future__ import annotations

import hmac
import struct
from enum import IntEnum

from penstock.base.channel import NONCE_BYTES, PROOF_BYTES, prove
from penstock.errors import RebalanceError

_HELLO = f"!I{NONCE_BYTES}s{PROOF_BYTES}s"
HELLO_BYTES = struct.calcsize(_HELLO)
_FRAME = "!BIQ"
FRAME_BYTES = struct.calcsize(_FRAME)
ACK = b"\x06"
_LARGEST = 1 << 34


class FrameKind(IntEnum):
    """The content of a frame."""

    SCHEMA = 1
    BATCH = 2
    END = 3


def frame_header(kind: FrameKind, rows: int, size: int) -> bytes:
    """Return the header that precedes a frame's bytes."""
    return struct.pack(_FRAME, kind, rows, size)


def read_frame_header(header: bytes) -> tuple[FrameKind, int, int]:
    """Return the kind, rows and bytes of a frame; raise `RebalanceError` if the header is invalid."""
    kind, rows, size = struct.unpack(_FRAME, header)
    if kind not in set(FrameKind) or size > _LARGEST or (size == 0) != (kind == FrameKind.END):
        raise RebalanceError("a frame of the exchange is broken", cause=f"kind {kind}, {size} bytes")
    return FrameKind(kind), rows, size


def _proof(secret: bytes, role: bytes, reader_nonce: bytes, writer_nonce: bytes, writer: int, reader: int) -> bytes:
    return prove(secret, role, reader_nonce, writer_nonce, struct.pack("!II", writer, reader))


def hello(secret: bytes, reader_nonce: bytes, writer_nonce: bytes, writer: int, reader: int) -> bytes:
    """Return a writer's answer to a reader's nonce."""
    proof = _proof(secret, b"writer", reader_nonce, writer_nonce, writer, reader)
    return struct.pack(_HELLO, writer, writer_nonce, proof)


def check_hello(secret: bytes, reader_nonce: bytes, answer: bytes, reader: int) -> tuple[int, bytes] | None:
    """Return the writer that answered, and the reader's proof for it; None if it does not know the secret."""
    writer, writer_nonce, proof = struct.unpack(_HELLO, answer)
    if not hmac.compare_digest(proof, _proof(secret, b"writer", reader_nonce, writer_nonce, writer, reader)):
        return None
    return writer, _proof(secret, b"reader", reader_nonce, writer_nonce, writer, reader)


def check_reader(
    secret: bytes, reader_nonce: bytes, writer_nonce: bytes, writer: int, reader: int, proof: bytes
) -> bool:
    """Whether a reader knows the secret too."""
    expected = _proof(secret, b"reader", reader_nonce, writer_nonce, writer, reader)
    return hmac.compare_digest(proof, expected)
