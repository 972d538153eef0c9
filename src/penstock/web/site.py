"""The routes of the page."""

import time
from importlib import resources

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from penstock.web import pages
from penstock.web.access import COOKIE, Record, Vertex, is_token

router = APIRouter(include_in_schema=False)
_TYPES = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
_FILES = {path.name: path.read_bytes() for path in resources.files("penstock.web").joinpath("static").iterdir()}


@router.get("/")
def home(request: Request) -> Response:
    """Show all jobs; with the token in the address, keep it first."""
    given = request.query_params.get("token")
    if given is None:
        return HTMLResponse(pages.jobs(request.app.state.store.summaries(), time.time()))
    if not is_token(given, request):
        raise HTTPException(401, "the token is wrong")
    # The token goes from the address, which others may see, into a cookie that scripts cannot read.
    response = RedirectResponse("/", status_code=303)
    response.set_cookie(COOKIE, given, httponly=True, samesite="strict")
    return response


@router.get("/static/{name}")
async def static(name: str) -> Response:
    """Give a script, style or picture of the package."""
    if name not in _FILES:
        raise HTTPException(404, f"there is no file {name}")
    return Response(_FILES[name], media_type=_TYPES[name.rpartition(".")[2]], headers={"Cache-Control": "max-age=3600"})


@router.get("/ui/jobs/{job_id}")
def job_page(request: Request, record: Record, pending: bool = False) -> Response:  # noqa: FBT001, FBT002
    """Show a job."""
    may_cancel = is_token(request.cookies.get(COOKIE, ""), request)
    return HTMLResponse(pages.job(record, time.time(), pending=pending, may_cancel=may_cancel))


@router.get("/ui/jobs/{job_id}/vertices/{vertex_id}")
def vertex_page(record: Record, one: Vertex) -> Response:
    """Show a vertex."""
    return HTMLResponse(pages.vertex(record, one, time.time()))
