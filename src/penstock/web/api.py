"""The application: the REST API, the page, and who may use them."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from fastapi import Depends, FastAPI
from fastapi.exception_handlers import http_exception_handler, request_validation_exception_handler
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware

import penstock
from penstock.addresses import is_loopback
from penstock.web import pages, rest, site
from penstock.web.access import checked_token
from penstock.web.answers import Answers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fastapi import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from penstock.metrics.prometheus import PrometheusMeter
    from penstock.streams.reading import Place
    from penstock.web.store import JobStore

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
_HEADERS = [
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]
_LOOPBACK = ["127.0.0.1", "localhost", "[::1]"]


def create_app(
    store: JobStore,
    token: str,
    *,
    address: str = "127.0.0.1",
    slots: int = 0,
    spark: str = "",
    metrics: PrometheusMeter | None = None,
    streams: Sequence[Place] = (),
) -> FastAPI:
    """Return the application.

    Parameters
    ----------
    store
        The jobs.
    token
        What cancelling needs; on an address that others can reach, everything.
    address
        The address that the server listens on.
    slots
        The tasks that can run at once; 0 where no driver runs beside it.
    spark
        The version of Spark.
    metrics
        Has the figures of this driver's jobs; None where no driver runs beside it.
    streams
        The checkpoints whose batches are shown.
    """
    open_to_others = not is_loopback(address)
    app = FastAPI(
        title="Penstock",
        version=penstock.__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,  # a route of ours gives it, which needs the token where all do
        dependencies=[Depends(checked_token)] if open_to_others else [],
        description="What a Penstock driver decides while its jobs run. Named as in Flink's REST API.",
    )
    app.state.store, app.state.token, app.state.slots, app.state.spark = store, token, slots, spark
    app.state.answers, app.state.metrics, app.state.streams = Answers(), metrics, streams
    app.include_router(rest.router)
    app.include_router(site.router)
    if not open_to_others:
        # Another site's page could otherwise reach a loopback address by a name of its own.
        own = f"[{address}]" if ":" in address else address
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=[*_LOOPBACK, own])

    app.add_middleware(SafeHeaders)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _not_understood)
    return app


async def _refused(request: Request, error: Exception) -> Response:
    """Answer what is not there, or not allowed: a browser gets a page with a way back, everybody else JSON."""
    assert isinstance(error, HTTPException)
    if not _is_browser(request):
        return await http_exception_handler(request, error)
    title = "Not found" if error.status_code == HTTPStatus.NOT_FOUND else HTTPStatus(error.status_code).phrase
    return HTMLResponse(pages.problem(title, _sentence(str(error.detail))), error.status_code, error.headers)


async def _not_understood(request: Request, error: Exception) -> Response:
    """Answer an address that has no meaning."""
    assert isinstance(error, RequestValidationError)
    if not _is_browser(request):
        return await request_validation_exception_handler(request, error)
    given = ", ".join(f"{one['loc'][-1]} is {one['input']!r}" for one in error.errors())
    text = f"This address leads nowhere: {given}. The id of a job has 12 characters, 0 to 9 and a to f."
    return HTMLResponse(pages.problem("Not found", text), HTTPStatus.NOT_FOUND)


def _is_browser(request: Request) -> bool:
    return "text/html" in request.headers.get("accept", "")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


class SafeHeaders:
    """Adds what keeps a browser from running, framing or guessing anything."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_HEADERS]
            await send(message)

        await self._app(scope, receive, with_headers)
