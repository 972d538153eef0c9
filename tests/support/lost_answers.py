"""A proxy for PostgreSQL that loses the confirmation of a task's commit: the rows are committed, but the task fails."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class LosesCommits:
    """Proxy that closes the connection instead of confirming a commit.

    Parameters
    ----------
    port
        The server's port on this machine.
    losses
        The number of commits, among those with INSERT statements, that are not confirmed.
    """

    def __init__(self, port: int, losses: int) -> None:
        self._server = port
        self._remaining = losses
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
            threading.Thread(target=self._forward, args=(client, server, writes, None), daemon=True).start()
            threading.Thread(target=self._forward, args=(server, client, None, writes), daemon=True).start()

    def _forward(
        self, source: socket.socket, target: socket.socket, sets: threading.Event | None, reads: threading.Event | None
    ) -> None:
        try:
            while data := source.recv(1 << 16):
                if sets is not None and b"INSERT INTO" in data and b"VALUES" in data:
                    sets.set()
                if reads is not None and reads.is_set() and b"COMMIT\0" in data and self._loses_commit():
                    break
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):  # close() would not wake the thread that reads from the socket
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _loses_commit(self) -> bool:
        with self._lock:
            if not self._remaining:
                return False
            self._remaining -= 1
            self.lost += 1
            return True

    def close(self) -> None:
        """Accept no further connections."""
        self._listener.close()
