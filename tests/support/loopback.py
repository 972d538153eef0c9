"""Network traffic between processes of this machine, captured as an attacker could."""

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
_BUFFER_BYTES = 256 << 20
"""Bytes that the kernel buffers, as a busy machine reads late."""
_SOURCE_OFFSET, _DESTINATION_OFFSET = 26, 30
"""Offsets of the addresses of an IPv4 packet, including the 14 bytes of the Ethernet header."""
_MAX_PACKET_BYTES = 1 << 17


def spare_address() -> str:
    """Return a loopback address that no other program uses."""
    return f"127.{random.randint(64, 254)}.{random.randint(1, 254)}.{random.randint(2, 254)}"


def machine_address() -> str:
    """Return this machine's address for other machines; packets to itself use the loopback interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("198.51.100.1", 9))  # an address reserved for documentation; connecting sends no packet
        return str(probe.getsockname()[0])


class Wiretap:
    """Context manager that records the packets from and to a local address."""

    def __init__(self, address: str) -> None:
        try:
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
        except PermissionError:
            message = "the packets of other processes cannot be read without root"
            if os.environ.get("ALL_TEST_SERVICES") == "1":
                pytest.fail(message)
            pytest.skip(message)
        self._program = _address_filter(address)
        filter_ = struct.pack("HL", len(self._program) // 8, ctypes.addressof(self._program))
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, filter_)
        self._socket.bind(("lo", 0))
        self._socket.settimeout(0.2)
        self._packets: list[bytes] = []
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._record, name="wiretap")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopped.set()
        self._thread.join()
        self._socket.close()

    def _record(self) -> None:
        while True:
            try:
                packet, (_, _, kind, *_) = self._socket.recvfrom(_MAX_PACKET_BYTES)
            except TimeoutError:
                if self._is_stopped.is_set():
                    return
                continue
            if kind != socket.PACKET_OUTGOING:  # the loopback interface delivers each packet a second time
                self._packets.append(packet)

    @property
    def packets(self) -> bytes:
        """All packets so far, concatenated."""
        return b"".join(self._packets)


def _address_filter(address: str) -> ctypes.Array[ctypes.c_char]:
    """Return a kernel filter (classic BPF) that drops packets of other addresses."""
    (address_number,) = struct.unpack("!I", socket.inet_aton(address))
    load, jump_if_equal, accept = 0x20, 0x15, 0x06
    instructions = [
        (load, 0, 0, _SOURCE_OFFSET),
        (jump_if_equal, 2, 0, address_number),
        (load, 0, 0, _DESTINATION_OFFSET),
        (jump_if_equal, 0, 1, address_number),
        (accept, 0, 0, 0xFFFFFFFF),
        (accept, 0, 0, 0),
    ]
    return ctypes.create_string_buffer(
        b"".join(struct.pack("HBBI", *instruction) for instruction in instructions), 8 * len(instructions)
    )
