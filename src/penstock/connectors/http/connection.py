"""An HTTP connection with a timeout for a whole request.

The timeouts of httpx apply to each read and write. A service that sends a byte from time to time, in the headers or
between chunks of its response, could block a task for ever.
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
    """An HTTP client with a single connection and a single request at a time; a context manager.

    Parameters
    ----------
    headers
        Headers of all requests.
    timeout
        The maximum seconds of a request, with its response.
    tls
        The TLS context, which verifies certificates.
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
        """Whether the last request timed out, so that its connection was shut down."""
        return self._is_late

    @contextmanager
    def send(self, method: str, url: str, body: bytes, headers: Mapping[str, str]) -> Iterator[httpx.Response]:
        """Send a request, and yield its response, whose body has to be read in the block.

        Raises
        ------
        httpx.TimeoutException
            If the request timed out.
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
            with self._client.stream(
                method, url, content=body, headers=dict(headers), extensions=extensions
            ) as response:
                yield response
        except httpx.TransportError as error:
            if not self._is_late:
                raise
            raise httpx.ReadTimeout(f"no whole answer in {self._timeout:g} s") from error
        finally:
            timer.cancel()
            with self._lock:
                self._running = None

    def _on_event(self, _: str, details: Mapping[str, object]) -> None:
        """Store the socket of a connection that was opened or upgraded to TLS."""
        get_extra_info = getattr(details.get("return_value"), "get_extra_info", None)
        if get_extra_info is None:
            return
        with self._lock:
            self._socket = get_extra_info("socket")
            late = self._running if self._is_late else None
        if late is not None:
            self._shut_down(late)

    def _shut_down(self, request: int) -> None:
        """Make blocking reads and writes of a request fail, if it is still running."""
        with self._lock:
            if self._running != request:
                return
            self._is_late = True
            if self._socket is not None:
                with suppress(OSError):  # the socket is closed, or is being upgraded to TLS
                    # Not the method of a TLS socket, which would continue without TLS.
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
