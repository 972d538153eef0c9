"""What goes over a connection between a writer and a reader. Pure.

A connection begins with a handshake in which each side proves that it knows the stage's secret: the reader sends a
nonce, the writer its number, a nonce of its own and a proof over both, the reader its proof. Then frames go one way,
and acknowledgements (a byte for every batch consumed) the other. A connection that is lost before the end frame and all
acknowledgements is an error, never an end.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from enum import IntEnum

from penstock.errors import RebalanceError

NONCE_BYTES = 16
_PROOF_BYTES = 32
_HELLO = f"!I{NONCE_BYTES}s{_PROOF_BYTES}s"
HELLO_BYTES = struct.calcsize(_HELLO)
PROOF_BYTES = _PROOF_BYTES
_FRAME = "!BIQ"
FRAME_BYTES = struct.calcsize(_FRAME)
ACK = b"\x06"
_LARGEST = 1 << 34


class FrameKind(IntEnum):
    """What a frame holds."""

    SCHEMA = 1
    BATCH = 2
    END = 3


def frame_header(kind: FrameKind, rows: int, size: int) -> bytes:
    """Return what goes before a frame's bytes."""
    return struct.pack(_FRAME, kind, rows, size)


def read_frame_header(header: bytes) -> tuple[FrameKind, int, int]:
    """Return the kind, rows and bytes of a frame.

    Raises
    ------
    RebalanceError
        If that is no header.
    """
    kind, rows, size = struct.unpack(_FRAME, header)
    if kind not in set(FrameKind) or size > _LARGEST or (size == 0) != (kind == FrameKind.END):
        raise RebalanceError("a frame of the exchange is broken", cause=f"kind {kind}, {size} bytes")
    return FrameKind(kind), rows, size


def _proof(secret: bytes, role: bytes, reader_nonce: bytes, writer_nonce: bytes, writer: int, reader: int) -> bytes:
    told = role + reader_nonce + writer_nonce + struct.pack("!II", writer, reader)
    return hmac.digest(secret, told, hashlib.sha256)


def hello(secret: bytes, reader_nonce: bytes, writer_nonce: bytes, writer: int, reader: int) -> bytes:
    """Return a writer's answer to a reader's nonce."""
    proof = _proof(secret, b"writer", reader_nonce, writer_nonce, writer, reader)
    return struct.pack(_HELLO, writer, writer_nonce, proof)


def check_hello(secret: bytes, reader_nonce: bytes, answer: bytes, reader: int) -> tuple[int, bytes] | None:
    """Return which writer has answered, and the reader's proof for it; None if it does not know the secret."""
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
