"""Servers that take connections and never answer, or stop to: what hangs in tests really hangs."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from typing import Any


class Silent:
    """Listens, takes connections, and says nothing."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=50)
        self._taken: list[socket.socket] = []
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with suppress(OSError):
            while True:
                self._take(self._listening.accept()[0])

    def _take(self, connection: socket.socket) -> None:
        self._taken.append(connection)

    @property
    def connections(self) -> int:
        """How many have come."""
        return len(self._taken)

    def close(self) -> None:
        for one in (self._listening, *self._taken):
            with suppress(OSError):
                one.close()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Proxy(Silent):
    """Passes on what is said to another port, until it is told to hang."""

    def __init__(self, port: int) -> None:
        self._other = port
        self.hangs = threading.Event()
        super().__init__()

    def _take(self, connection: socket.socket) -> None:
        super()._take(connection)
        threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        """Pass on what a connection says; one that came while it hangs is served afterwards, as by a paused server."""
        while self.hangs.is_set():
            time.sleep(0.1)
        with suppress(OSError):
            there = socket.create_connection(("127.0.0.1", self._other))
            self._taken.append(there)
            for one, other in ((connection, there), (there, connection)):
                threading.Thread(target=self._pump, args=(one, other), daemon=True).start()

    def _pump(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while said := one.recv(1 << 16):
                while self.hangs.is_set():
                    time.sleep(0.1)
                other.sendall(said)
        if not self.hangs.is_set():
            with suppress(OSError):
                other.shutdown(socket.SHUT_WR)


def ask(port: int) -> bytes:
    """Ask a server of this machine, and wait for its answer."""
    with socket.create_connection(("127.0.0.1", port)) as asked:
        asked.sendall(b"how many tasks?\n")
        return asked.recv(100)
