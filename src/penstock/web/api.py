"""The web application: the REST API, the web pages, and access control."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING

from fastapi import Depends, FastAPI
from fastapi.exception_handlers import http_exception_handler, request_validation_exception_handler
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware

import penstock
from penstock.base.addresses import is_loopback
from penstock.web import pages, rest, site
from penstock.web.access import require_token

if TYPE_CHECKING:
    from fastapi import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from penstock.metrics.prometheus import PrometheusMeter
    from penstock.streams.reading import TextFiles
    from penstock.web.store import JobStore

_CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
_SECURITY_HEADERS = [
    (b"content-security-policy", _CONTENT_SECURITY_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]
_LOOPBACK_HOSTS = ["127.0.0.1", "localhost", "[::1]"]


def create_app(
    store: JobStore,
    token: str,
    *,
    address: str = "127.0.0.1",
    slots: int = 0,
    spark: str = "",
    metrics: PrometheusMeter | None = None,
    streams: Sequence[TextFiles] = (),
) -> FastAPI:
    """Build the web application for the jobs of `store` and for the streams whose checkpoints are `streams`.

    Cancelling a job requires `token`; on an `address` that other machines can reach, every request requires the token.
    `slots` is the number of tasks that the driver in this process can run at the same time, and `spark` the version of
    Spark. In a process without a driver, `slots` is 0, `spark` is empty, and `metrics` is None.
    """
    is_reachable_by_others = not is_loopback(address)
    app = FastAPI(
        title="Penstock",
        version=penstock.__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,  # served by a route of `rest`, which requires the token like all other routes
        dependencies=[Depends(require_token)] if is_reachable_by_others else [],
        description="What a Penstock driver decides while its jobs run. Named as in Flink's REST API.",
    )
    app.state.store, app.state.token, app.state.slots, app.state.metrics = store, token, slots, metrics
    app.state.spark_version, app.state.streams, app.state.responses = spark, streams, rest.ResponseCache()
    app.include_router(rest.router)
    app.include_router(site.router)
    if not is_reachable_by_others:
        # Prevent DNS rebinding: another site could resolve its name to a loopback address.
        own_host = f"[{address}]" if ":" in address else address
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=[*_LOOPBACK_HOSTS, own_host])
    app.add_middleware(SecurityHeaders)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    return app


async def _http_error(request: Request, error: Exception) -> Response:
    """Answer a request that is rejected, or whose object does not exist: a page for browsers, JSON for others."""
    assert isinstance(error, HTTPException)
    if not _is_browser(request):
        return await http_exception_handler(request, error)
    title = "Not found" if error.status_code == HTTPStatus.NOT_FOUND else HTTPStatus(error.status_code).phrase
    detail = str(error.detail)
    text = f"{detail[:1].upper()}{detail[1:]}."
    return HTMLResponse(pages.problem(title, text), error.status_code, error.headers)


async def _validation_error(request: Request, error: Exception) -> Response:
    """Answer a request whose address is not valid."""
    assert isinstance(error, RequestValidationError)
    if not _is_browser(request):
        return await request_validation_exception_handler(request, error)
    invalid = ", ".join(f"{problem['loc'][-1]} is {problem['input']!r}" for problem in error.errors())
    text = f"This address is not valid: {invalid}. The id of a job has 12 characters, 0 to 9 and a to f."
    return HTMLResponse(pages.problem("Not found", text), HTTPStatus.NOT_FOUND)


def _is_browser(request: Request) -> bool:
    return "text/html" in request.headers.get("accept", "")


class SecurityHeaders:
    """Middleware that adds the security headers to every response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, with the security headers in the response."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_SECURITY_HEADERS]
            await send(message)

        await self._app(scope, receive, with_headers)
