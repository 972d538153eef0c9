"""A way to a PostgreSQL server on which the answer to a task's commit is lost: its rows are there, and the task has failed."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class LosesCommits:
    """Hands bytes on between clients and a server, and cuts the connection instead of telling of a commit.

    Parameters
    ----------
    port
        The server's port on this machine.
    losses
        How many commits of rows that were sent one by one are not told of; the others are.
    """

    def __init__(self, port: int, losses: int) -> None:
        self._server = port
        self._left = losses
        self.lost = 0
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._server))
            writes = threading.Event()
            threading.Thread(target=self._hand_on, args=(client, server, writes, None), daemon=True).start()
            threading.Thread(target=self._hand_on, args=(server, client, None, writes), daemon=True).start()

    def _hand_on(
        self, source: socket.socket, target: socket.socket, sets: threading.Event | None, reads: threading.Event | None
    ) -> None:
        try:
            while data := source.recv(1 << 16):
                if sets is not None and b"INSERT INTO" in data and b"VALUES" in data:
                    sets.set()
                if reads is not None and reads.is_set() and b"COMMIT\0" in data and self._loses():
                    break
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):  # to close one would not wake the thread that reads it
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _loses(self) -> bool:
        with self._lock:
            if not self._left:
                return False
            self._left -= 1
            self.lost += 1
            return True

    def close(self) -> None:
        """Take no further connection."""
        self._listener.close()
