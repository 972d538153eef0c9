"""Serving the page from a command, and keeping it open."""

from __future__ import annotations

import os
import signal
import threading

import click

from penstock.errors import WebError

UI = click.option("--ui", is_flag=True, help="Serve the page and the REST API while it runs; the address is printed.")
KEEP_OPEN = click.option(
    "--keep-open", is_flag=True, help="Serve the page, and go on with it after the end, until Ctrl-C."
)


def serve_page() -> None:
    """Let all sessions of this process serve the page.

    Raises
    ------
    WebError
        If a package for it is missing.
    """
    check_packages()
    os.environ["PENSTOCK_REST_ENABLED"] = "true"


def check_packages() -> None:
    """Refuse to serve a page without its packages.

    Raises
    ------
    WebError
        If one is missing.
    """
    try:
        import penstock.web.server  # noqa: F401
    except ModuleNotFoundError as error:
        raise WebError.missing(str(error.name)) from error


def stay_open() -> None:
    """Wait until Ctrl-C, while the page goes on being served."""
    from penstock.observer import page_address

    address = page_address()
    if address is None:
        click.echo("there is no page to keep open: no Spark session was made", err=True)
        return
    click.echo(f"the page stays open until Ctrl-C: {address}", err=True)
    wait_for_the_end()


def wait_for_the_end() -> None:
    """Return when the process is told to end, by Ctrl-C or SIGTERM."""
    ended = threading.Event()
    before = {number: signal.signal(number, lambda *_: ended.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        ended.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
