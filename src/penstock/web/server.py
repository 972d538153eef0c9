"""The server of the REST API and the web pages: a thread of the driver, or a process that reads event logs."""

from __future__ import annotations

import errno
import logging
import secrets
import socket
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import uvicorn

from penstock.base.addresses import is_loopback
from penstock.config import Configuration
from penstock.config import options as o
from penstock.errors import WebError
from penstock.web.api import create_app

log = logging.getLogger("penstock.web")

if TYPE_CHECKING:
    from penstock.metrics.prometheus import PrometheusMeter
    from penstock.streams.reading import TextFiles
    from penstock.web.store import JobStore


class WebServer:
    """The server of the web application, which `create_app` builds. It runs until the process ends or `stop` is called.

    Raise `WebError` if the server cannot listen on the address, or other machines can reach it and no token is set.
    """

    def __init__(
        self,
        store: JobStore,
        config: Configuration,
        *,
        slots: int = 0,
        spark: str = "",
        metrics: PrometheusMeter | None = None,
        streams: Sequence[TextFiles] = (),
    ) -> None:
        self.store, self.metrics = store, metrics
        address, token = str(config.get(o.REST_BIND_ADDRESS)), config.get(o.REST_TOKEN)
        if token is None and not is_loopback(address):
            raise WebError(
                f"rest.bind-address is {address}, which other machines can reach, and no token is set",
                hint="set rest.token, or leave rest.bind-address at 127.0.0.1",
            )
        self.token = str(token) if token is not None else secrets.token_urlsafe(18)
        self._socket = _listen(address, config.integer(o.REST_PORT), is_default=config.origin(o.REST_PORT) == "default")
        self.port = int(self._socket.getsockname()[1])
        host = "127.0.0.1" if address in {"0.0.0.0", "::"} else address  # noqa: S104 - only compared
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self.port}/"
        app = create_app(store, self.token, address=address, slots=slots, spark=spark, metrics=metrics, streams=streams)
        settings = uvicorn.Config(app, log_level="error", lifespan="off", timeout_graceful_shutdown=1, access_log=False)
        self._server = uvicorn.Server(settings)
        self._thread = threading.Thread(target=self.run, name="penstock-web", daemon=True)

    @property
    def url_with_token(self) -> str:
        """The address of the web page with the token, which allows cancelling jobs."""
        return f"{self.url}?token={self.token}"

    def run(self) -> None:
        """Serve on this thread until stopped."""
        self._server.run(sockets=[self._socket])

    def start(self) -> None:
        """Serve on a daemon thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the server and wait for its end, at most five seconds."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(5)


def _listen(address: str, port: int, *, is_default: bool) -> socket.socket:
    """Return a socket on a port, or on a free port if the port `is_default` and another process uses it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    for candidate_port in (port, 0):
        server_socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            server_socket.bind((address, candidate_port))
            server_socket.listen(512)
        except OSError as error:
            server_socket.close()
            if candidate_port == 0 or error.errno != errno.EADDRINUSE or not is_default:
                message, hint = f"the API cannot listen on {address}:{port}", "set rest.port to another port, or to 0"
                raise WebError(message, cause=error.strerror, hint=hint) from error
        else:
            if candidate_port != port:
                log.warning("port %d is in use, so the web page has another port", port)
            return server_socket
    raise AssertionError
