"""Servers that accept connections and do not answer, for tests of hanging calls."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from typing import Any


class SilentServer:
    """A server that accepts connections and sends nothing."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=50)
        self._accepted: list[socket.socket] = []
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with suppress(OSError):
            while True:
                self._accept(self._listening.accept()[0])

    def _accept(self, connection: socket.socket) -> None:
        self._accepted.append(connection)

    @property
    def connections(self) -> int:
        """The number of accepted connections."""
        return len(self._accepted)

    def close(self) -> None:
        for connection in (self._listening, *self._accepted):
            with suppress(OSError):
                connection.close()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class HangingProxy(SilentServer):
    """A proxy for another port, which forwards nothing while `hangs` is set."""

    def __init__(self, port: int) -> None:
        self._target_port = port
        self.hangs = threading.Event()
        super().__init__()

    def _accept(self, connection: socket.socket) -> None:
        super()._accept(connection)
        threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        """Forward a connection, after the end of a hang, as a paused server would."""
        while self.hangs.is_set():
            time.sleep(0.1)
        with suppress(OSError):
            target = socket.create_connection(("127.0.0.1", self._target_port))
            self._accepted.append(target)
            for sender, receiver in ((connection, target), (target, connection)):
                threading.Thread(target=self._forward, args=(sender, receiver), daemon=True).start()

    def _forward(self, sender: socket.socket, receiver: socket.socket) -> None:
        with suppress(OSError):
            while message := sender.recv(1 << 16):
                while self.hangs.is_set():
                    time.sleep(0.1)
                receiver.sendall(message)
        if not self.hangs.is_set():
            with suppress(OSError):
                receiver.shutdown(socket.SHUT_WR)


def send_request(port: int) -> bytes:
    """Send a request to a local server; return its response."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"how many tasks?\n")
        return connection.recv(100)
