"""A connection of an HTTP sink, each of whose requests is over after a time in all.

httpx limits each read and each write. A service that sends a byte from time to time, in its headers or between the
chunks of its answer, could hold a task for ever.
"""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator, Mapping

    import httpx


class Connection:
    """A client with one connection at most, for one request at a time. Used as a context.

    Parameters
    ----------
    headers
        Headers of all requests.
    timeout
        The seconds that a request may take, with its answer.
    tls
        How certificates are checked.
    """

    def __init__(self, headers: Mapping[str, str], timeout: float, tls: ssl.SSLContext) -> None:
        import httpx

        limits = httpx.Limits(max_connections=1, max_keepalive_connections=1)
        self._client = httpx.Client(headers=dict(headers), timeout=timeout, limits=limits, verify=tls)
        self._timeout = timeout
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._requests = 0
        self._running: int | None = None
        self._is_late = False

    def __enter__(self) -> Self:
        self._client.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    @property
    def is_late(self) -> bool:
        """Whether the last request took too long, so that its connection was shut down."""
        return self._is_late

    @contextmanager
    def send(self, method: str, url: str, body: bytes, headers: Mapping[str, str]) -> Iterator[httpx.Response]:
        """Send a request; give its answer, whose body is read in the block.

        Raises
        ------
        TimeoutException
            Of httpx, if the request took too long.
        """
        import httpx

        with self._lock:
            self._requests += 1
            self._running, self._is_late = self._requests, False
        timer = threading.Timer(self._timeout, self._shut_down, (self._running,))
        timer.daemon = True
        timer.start()
        try:
            extensions = {"trace": self._on_event}
            with self._client.stream(method, url, content=body, headers=dict(headers), extensions=extensions) as answer:
                yield answer
        except httpx.TransportError as error:
            if not self._is_late:
                raise
            raise httpx.ReadTimeout(f"no whole answer in {self._timeout:g} s") from error
        finally:
            timer.cancel()
            with self._lock:
                self._running = None

    def _on_event(self, _: str, facts: Mapping[str, object]) -> None:
        """Note the socket of a connection that was opened, or to which TLS was added."""
        details = getattr(facts.get("return_value"), "get_extra_info", None)
        if details is None:
            return
        with self._lock:
            self._socket = details("socket")
            late = self._running if self._is_late else None
        if late is not None:
            self._shut_down(late)

    def _shut_down(self, request: int) -> None:
        """Let whatever a request waits for fail now, if it is the running one."""
        with self._lock:
            if self._running != request:
                return
            self._is_late = True
            if self._socket is not None:
                with suppress(OSError):  # it is closed, or is being replaced by one with TLS
                    # A method of the class, as that of a TLS socket would let the rest be sent without TLS.
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
