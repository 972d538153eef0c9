"""The protocol between a writer and a reader of an adaptive exchange. No I/O.

A connection begins with a handshake in which each side proves that it knows the stage's secret: the reader sends a
nonce; the writer sends its index, another nonce, and a proof over both nonces; the reader sends its proof. Then the
writer sends frames. The reader sends a byte as the acknowledgement of each consumed batch, and of the end frame. It is
an error if a connection is lost before the end frame and all acknowledgements have arrived.
"""

from __future__ import annotations

import hmac
import struct
from enum import IntEnum

from penstock.base.channel import NONCE_BYTES, PROOF_BYTES, prove
from penstock.errors import RebalanceError

_HELLO_FORMAT = f"!I{NONCE_BYTES}s{PROOF_BYTES}s"  # the index of the writer, its nonce, and its proof
HELLO_BYTES = struct.calcsize(_HELLO_FORMAT)
_HEADER_FORMAT = "!BIQ"  # the kind of the frame, the rows and the bytes of its body
HEADER_BYTES = struct.calcsize(_HEADER_FORMAT)
ACK = b"\x06"
_MAX_FRAME_BYTES = 1 << 34


class FrameKind(IntEnum):
    """The content of a frame."""

    SCHEMA = 1
    BATCH = 2
    END = 3


def frame_header(kind: FrameKind, rows: int, size: int) -> bytes:
    """Return the header that precedes a frame's bytes."""
    return struct.pack(_HEADER_FORMAT, kind, rows, size)


def read_frame_header(header: bytes) -> tuple[FrameKind, int, int]:
    """Return the kind, rows and bytes of a frame; raise `RebalanceError` if the header is invalid."""
    kind, rows, size = struct.unpack(_HEADER_FORMAT, header)
    if kind not in set(FrameKind) or size > _MAX_FRAME_BYTES or (size == 0) != (kind == FrameKind.END):
        raise RebalanceError("a frame of the exchange is invalid", cause=f"kind {kind}, {size} bytes")
    return FrameKind(kind), rows, size


def _proof(secret: bytes, role: bytes, reader_nonce: bytes, writer_nonce: bytes, writer: int, reader: int) -> bytes:
    return prove(secret, role, reader_nonce, writer_nonce, struct.pack("!II", writer, reader))


def hello(secret: bytes, reader_nonce: bytes, writer_nonce: bytes, writer: int, reader: int) -> bytes:
    """Return a writer's answer to a reader's nonce."""
    proof = _proof(secret, b"writer", reader_nonce, writer_nonce, writer, reader)
    return struct.pack(_HELLO_FORMAT, writer, writer_nonce, proof)


def check_hello(secret: bytes, reader_nonce: bytes, answer: bytes, reader: int) -> tuple[int, bytes] | None:
    """Return the index of the writer that answered, and the reader's proof; None if the writer has a wrong secret."""
    writer, writer_nonce, proof = struct.unpack(_HELLO_FORMAT, answer)
    if not hmac.compare_digest(proof, _proof(secret, b"writer", reader_nonce, writer_nonce, writer, reader)):
        return None
    return writer, _proof(secret, b"reader", reader_nonce, writer_nonce, writer, reader)


def is_proof(secret: bytes, reader_nonce: bytes, writer_nonce: bytes, writer: int, reader: int, proof: bytes) -> bool:
    """Whether a proof shows that the reader knows the secret, too."""
    expected = _proof(secret, b"reader", reader_nonce, writer_nonce, writer, reader)
    return hmac.compare_digest(proof, expected)
