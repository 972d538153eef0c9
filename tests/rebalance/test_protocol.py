"""The handshake and the frames: only peers with the secret of this stage are accepted, and replays are rejected."""

from __future__ import annotations

import os
from typing import Any

import pytest

from penstock.errors import RebalanceError
from penstock.rebalance import protocol
from penstock.rebalance.protocol import FrameKind

SECRET, OTHER = b"s" * 32, b"o" * 32


def shake(
    writers_secret: Any = SECRET, readers_secret: Any = SECRET, writer: int = 3, reader: int = 1, replayed: Any = None
) -> Any:
    nonce, own = os.urandom(16), os.urandom(16)
    answer = replayed or protocol.hello(writers_secret, nonce, own, writer, reader)
    accepted = protocol.check_hello(readers_secret, nonce, answer, reader)
    trusted = accepted is not None and protocol.is_proof(writers_secret, nonce, own, writer, reader, accepted[1])
    return accepted, trusted, answer


def test_both_sides_know_the_secret() -> None:
    accepted, trusted, _ = shake()
    assert accepted[0] == 3
    assert trusted


@pytest.mark.parametrize("secrets", [(OTHER, SECRET), (SECRET, OTHER)])
def test_a_wrong_secret_on_either_side(secrets: Any) -> None:
    accepted, trusted, _ = shake(*secrets)
    assert accepted is None
    assert not trusted


def test_a_replayed_answer_is_rejected() -> None:
    _, _, answer = shake()
    accepted, _, _ = shake(replayed=answer)
    assert accepted is None


def test_an_answer_for_another_reader_is_rejected() -> None:
    nonce, own = os.urandom(16), os.urandom(16)
    answer = protocol.hello(SECRET, nonce, own, 3, 1)
    assert protocol.check_hello(SECRET, nonce, answer, 2) is None


def test_a_reader_that_repeats_the_writers_proof_is_rejected() -> None:
    nonce, own = os.urandom(16), os.urandom(16)
    answer = protocol.hello(SECRET, nonce, own, 3, 1)
    assert not protocol.is_proof(SECRET, nonce, own, 3, 1, answer[-32:])


@pytest.mark.parametrize(
    ("kind", "rows", "size"), [(FrameKind.SCHEMA, 0, 120), (FrameKind.BATCH, 7, 1 << 20), (FrameKind.END, 0, 0)]
)
def test_frames(kind: Any, rows: int, size: Any) -> None:
    header = protocol.frame_header(kind, rows, size)
    assert len(header) == protocol.HEADER_BYTES
    assert protocol.read_frame_header(header) == (kind, rows, size)


@pytest.mark.parametrize(
    "header", [bytes(13), b"\xff" * 13, protocol.frame_header(FrameKind.BATCH, 1, 0), b"GET / HTTP/1."]
)
def test_broken_frames(header: Any) -> None:
    with pytest.raises(RebalanceError, match="invalid"):
        protocol.read_frame_header(header)
