"""The application: the REST API, the page, and who may use them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import Depends, FastAPI
from starlette.middleware.trustedhost import TrustedHostMiddleware

import penstock
from penstock.web import rest, site
from penstock.web.access import checked_token
from penstock.web.answers import Answers

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastapi import Request
    from fastapi.responses import Response

    from penstock.web.store import JobStore

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'"
)
_LOOPBACK = ["127.0.0.1", "localhost", "[::1]"]


def create_app(
    store: JobStore, token: str, *, open_to_others: bool = False, slots: int = 0, spark: str = ""
) -> FastAPI:
    """Return the application.

    Parameters
    ----------
    store
        The jobs.
    token
        What cancelling needs; on an address that others can reach, everything.
    open_to_others
        Whether it listens on such an address.
    slots
        The tasks that can run at once; 0 where no driver runs beside it.
    spark
        The version of Spark.
    """
    app = FastAPI(
        title="Penstock", version=penstock.__version__, docs_url=None, redoc_url=None,
        dependencies=[Depends(checked_token)] if open_to_others else [],
        description="What a Penstock driver decides while its jobs run. Named as in Flink's REST API.",
    )  # fmt: skip
    app.state.store, app.state.token, app.state.slots, app.state.spark = store, token, slots, spark
    app.state.answers = Answers()
    app.include_router(rest.router)
    app.include_router(site.router)
    if not open_to_others:
        # Another site's page could otherwise reach a loopback address by a name of its own.
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=_LOOPBACK)

    @app.middleware("http")
    async def headers(request: Request, call_next: Callable[[Request], Any]) -> Response:
        response: Response = await call_next(request)
        response.headers["Content-Security-Policy"] = _POLICY
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        return response

    return app
