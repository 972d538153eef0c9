"""Serves the API and the page from a thread of the driver, or alone over a folder of event logs."""

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
    from penstock.streams.reading import Place
    from penstock.web.store import JobStore


class WebServer:
    """A server that runs until the process ends, or until `stop`.

    Parameters
    ----------
    store
        The jobs.
    config
        The options ``rest.*``.
    slots
        The tasks that can run at once; 0 where no driver runs beside it.
    spark
        The version of Spark.
    metrics
        Has the figures of this driver's jobs; None where no driver runs beside it.
    streams
        The checkpoints whose batches are shown.

    Raises
    ------
    WebError
        If the address is open to others and there is no token, or it cannot be listened on.
    """

    def __init__(
        self,
        store: JobStore,
        config: Configuration,
        *,
        slots: int = 0,
        spark: str = "",
        metrics: PrometheusMeter | None = None,
        streams: Sequence[Place] = (),
    ) -> None:
        self.store, self.metrics = store, metrics
        address, given = str(config.get(o.REST_BIND_ADDRESS)), config.get(o.REST_TOKEN)
        if given is None and not is_loopback(address):
            raise WebError.needs_token(address)
        self.token = str(given) if given is not None else secrets.token_urlsafe(18)
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
        """The page's address, from which it may cancel jobs."""
        return f"{self.url}?token={self.token}"

    def run(self) -> None:
        """Serve until stopped."""
        self._server.run(sockets=[self._socket])

    def start(self) -> None:
        """Serve from a thread that does not keep the process alive."""
        self._thread.start()

    def stop(self) -> None:
        """End the server, and wait for that."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(5)


def _listen(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    # A port that is taken by another driver is no reason to fail: the page's address is shown anyway.
    for wanted in (port, 0):
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.bind((address, wanted))
            listening.listen(512)
        except OSError as error:
            listening.close()
            if wanted == 0 or error.errno != errno.EADDRINUSE:
                raise WebError.no_port(address, port, str(error)) from error
        else:
            return listening
    raise AssertionError
