"""What processes of this machine send to each other at one of its addresses, read from outside, as a stranger could."""

from __future__ import annotations

import ctypes
import os
import random
import socket
import struct
import threading
from typing import Self

import pytest

_ETH_P_ALL = 3
_SO_ATTACH_FILTER, _SO_RCVBUFFORCE = 26, 33
_BUFFER = 256 << 20
"""Bytes that the kernel keeps until they are read; a busy machine reads late."""
_SOURCE, _DESTINATION = 26, 30
"""Where the addresses of an IPv4 packet are, behind the 14 bytes of an Ethernet header."""
_LARGEST_PACKET = 1 << 17


def spare_address() -> str:
    """Return a loopback address that no other program uses."""
    return f"127.{random.randint(64, 254)}.{random.randint(1, 254)}.{random.randint(2, 254)}"


def machine_address() -> str:
    """Return the address of this machine for others; what it sends to itself there crosses the loopback interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("198.51.100.1", 9))  # an address of examples; nothing is sent
        return str(probe.getsockname()[0])


class Wiretap:
    """Records what this machine sends to itself at an address while it is open. Used as a context.

    Parameters
    ----------
    address
        The address that the packets come from or go to.
    """

    def __init__(self, address: str) -> None:
        try:
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
        except PermissionError:
            message = "the packets of other processes cannot be read here: that needs root"
            if os.environ.get("ALL_TEST_SERVICES") == "1":
                pytest.fail(message)
            pytest.skip(message)
        self._program = _packets_of(address)
        filter_ = struct.pack("HL", len(self._program) // 8, ctypes.addressof(self._program))
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, filter_)
        self._socket.bind(("lo", 0))
        self._socket.settimeout(0.2)
        self._packets: list[bytes] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._record, name="wiretap")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._socket.close()

    def _record(self) -> None:
        while True:
            try:
                packet, (_, _, kind, *_) = self._socket.recvfrom(_LARGEST_PACKET)
            except TimeoutError:
                if self._is_over.is_set():
                    return
                continue
            if kind != socket.PACKET_OUTGOING:  # on the loopback interface, each comes a second time
                self._packets.append(packet)

    @property
    def recorded(self) -> bytes:
        """All packets so far, one after the other."""
        return b"".join(self._packets)


def _packets_of(address: str) -> ctypes.Array[ctypes.c_char]:
    """Return a filter for the kernel (classic BPF) that drops packets of other addresses before they are copied."""
    (number,) = struct.unpack("!I", socket.inet_aton(address))
    load, is_equal, give = 0x20, 0x15, 0x06
    steps = [
        (load, 0, 0, _SOURCE),
        (is_equal, 2, 0, number),
        (load, 0, 0, _DESTINATION),
        (is_equal, 0, 1, number),
        (give, 0, 0, 0xFFFFFFFF),
        (give, 0, 0, 0),
    ]
    return ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps), 8 * len(steps))
