"""The authenticated channel between tasks and the driver, over real sockets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from penstock.base import channel
from penstock.base.channel import NONCE_BYTES, ChannelServer, Seal, ServerAddress, TaskChannel, UntrustedPeerError


async def echo(task: TaskChannel) -> None:
    while True:
        task.send(await task.receive())


@pytest.fixture
def address() -> Iterator[ServerAddress]:
    server = ChannelServer("penstock-test", "127.0.0.1", echo)
    yield ServerAddress("127.0.0.1", server.port, server.secret)
    server.close()


def test_messages_arrive_in_both_directions(address: ServerAddress) -> None:
    with closing(address.open(5, 5)) as task:
        for message in (b"first", b"", b"x" * channel.MAX_REQUEST_BYTES):
            task.send(message)
            assert task.receive() == message


def test_a_wrong_secret_is_refused(address: ServerAddress) -> None:
    with pytest.raises(UntrustedPeerError, match="another process responds"):
        replace(address, secret=b"wrong").open(5)


def test_a_message_that_is_too_long_ends_the_connection(address: ServerAddress) -> None:
    with closing(address.open(5, 5)) as task, pytest.raises((OSError, EOFError)):
        task.send(b"x" * (channel.MAX_REQUEST_BYTES + 1))
        task.receive()
    with pytest.raises(ValueError, match="at most 7"):
        channel.read_length(b"\0\0\0\x08", 7)


def split(sealed: bytes) -> tuple[bytes, bytes]:
    return sealed[4 : -channel.PROOF_BYTES], sealed[-channel.PROOF_BYTES :]


def test_changed_replayed_reordered_and_returned_messages_are_rejected() -> None:
    secret, server_nonce, nonce = (os.urandom(NONCE_BYTES) for _ in range(3))

    def create_seals() -> tuple[Seal, Seal]:
        return channel.create_seals(secret, server_nonce, nonce)

    sender, receiver = create_seals()[0], create_seals()[0]
    first, second = split(sender.seal(b"first")), split(sender.seal(b"second"))
    receiver.check(*first)
    for wrong in (first, (b"changed", second[1])):
        with pytest.raises(UntrustedPeerError):
            receiver.check(*wrong)
    with pytest.raises(UntrustedPeerError):
        create_seals()[0].check(*second)
    with pytest.raises(UntrustedPeerError):
        create_seals()[1].check(*first)
