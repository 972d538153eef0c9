"""A proxy for PostgreSQL that drops the confirmations of commits: the rows are committed, but the tasks fail."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class ConfirmationDroppingProxy:
    """Proxy that closes the connection instead of confirming a commit.

    Parameters
    ----------
    port
        The server's port on this machine.
    losses
        The number of commits that are not confirmed; only commits after INSERT statements are chosen.
    """

    def __init__(self, port: int, losses: int) -> None:
        self._server_port = port
        self._remaining = losses
        self.dropped = 0
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
            server = socket.create_connection(("127.0.0.1", self._server_port))
            has_inserted = threading.Event()
            threading.Thread(target=self._forward, args=(client, server, has_inserted, None), daemon=True).start()
            threading.Thread(target=self._forward, args=(server, client, None, has_inserted), daemon=True).start()

    def _forward(
        self,
        source: socket.socket,
        target: socket.socket,
        set_on_insert: threading.Event | None,
        drop_if_set: threading.Event | None,
    ) -> None:
        try:
            while data := source.recv(1 << 16):
                if set_on_insert is not None and b"INSERT INTO" in data and b"VALUES" in data:
                    set_on_insert.set()
                if (
                    drop_if_set is not None
                    and drop_if_set.is_set()
                    and b"COMMIT\0" in data
                    and self._drop_confirmation()
                ):
                    break
                target.sendall(data)
        except OSError:
            pass
        for connection in (source, target):  # close() would not wake the thread that reads from the socket
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _drop_confirmation(self) -> bool:
        """Count a confirmation to drop; return whether it is dropped."""
        with self._lock:
            if not self._remaining:
                return False
            self._remaining -= 1
            self.dropped += 1
            return True

    def close(self) -> None:
        """Accept no further connections."""
        self._listener.close()
