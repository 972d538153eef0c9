"""The server of the API and the page: a thread of the driver, or a process of its own over a folder of event logs."""

from __future__ import annotations

import errno
import secrets
import socket
import threading
from typing import TYPE_CHECKING

import uvicorn

from penstock.addresses import is_loopback
from penstock.config import options as o
from penstock.errors import WebError
from penstock.web.api import create_app

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.config import Configuration
    from penstock.metrics.prometheus import PrometheusMeter
    from penstock.streams.reading import TextFiles
    from penstock.web.store import JobStore


class WebServer:
    """A server that runs until the process ends or `stop` is called.

    Parameters
    ----------
    store
        The jobs.
    config
        The options ``rest.*``.
    slots
        The number of tasks that can run at the same time; 0 without a driver in this process.
    spark
        The version of Spark.
    metrics
        The metrics of this driver's jobs; None without a driver in this process.
    streams
        The checkpoints of the streams to show.

    Raises
    ------
    WebError
        If other machines can reach the address and there is no token, or if the server cannot listen on it.
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
            raise WebError.needs_token(address)
        self.token = str(token) if token is not None else secrets.token_urlsafe(18)
        self._socket = _listen(address, config.integer(o.REST_PORT))
        self.port = int(self._socket.getsockname()[1])
        shown = "127.0.0.1" if address in {"0.0.0.0", "::"} else address  # noqa: S104 - only compared
        self.url = f"http://{f'[{shown}]' if ':' in shown else shown}:{self.port}/"
        app = create_app(
            store,
            self.token,
            address=address,
            slots=slots,
            spark=spark,
            metrics=metrics,
            streams=streams,
        )
        settings = uvicorn.Config(app, log_level="error", lifespan="off", timeout_graceful_shutdown=1, access_log=False)
        self._server = uvicorn.Server(settings)
        self._thread = threading.Thread(target=self.run, name="penstock-web", daemon=True)

    @property
    def url_with_token(self) -> str:
        """The address of the page with the token, which allows the page to cancel jobs."""
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


def _listen(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    # If another driver uses the port, listen on a free port: the address is shown to the user anyway.
    for candidate in (port, 0):
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.bind((address, candidate))
            listening.listen(512)
        except OSError as error:
            listening.close()
            if candidate == 0 or error.errno != errno.EADDRINUSE:
                raise WebError.no_port(address, port, str(error)) from error
        else:
            return listening
    raise AssertionError
