"""Commands' options to serve the page and to keep it open."""

from __future__ import annotations

import os
import signal
import threading

import click

from penstock.errors import WebError

UI = click.option("--ui", is_flag=True, help="Serve the page and the REST API while it runs; the address is printed.")
KEEP_OPEN = click.option(
    "--keep-open", is_flag=True, help="Serve the page, and keep it open after the end until Ctrl-C."
)


def serve_page() -> None:
    """Configure all sessions of this process to serve the page.

    Raises
    ------
    WebError
        If a required package is missing.
    """
    check_packages()
    os.environ["PENSTOCK_REST_ENABLED"] = "true"


def check_packages() -> None:
    """Check that the packages for the page are installed.

    Raises
    ------
    WebError
        If a package is missing.
    """
    try:
        import penstock.web.server  # noqa: F401
    except ModuleNotFoundError as error:
        raise WebError.missing(str(error.name)) from error


def stay_open() -> None:
    """Keep serving the page until Ctrl-C."""
    from penstock.observer import page_address

    address = page_address()
    if address is None:
        click.echo("there is no page to keep open: no Spark session was created", err=True)
        return
    click.echo(f"the page stays open until Ctrl-C: {address}", err=True)
    wait_for_termination()


def wait_for_termination() -> None:
    """Wait for Ctrl-C or SIGTERM."""
    terminated = threading.Event()
    handlers = {
        number: signal.signal(number, lambda *_: terminated.set()) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        terminated.wait()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
