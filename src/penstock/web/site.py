"""The routes of the page."""

import time
from importlib import resources

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from penstock.web import pages
from penstock.web.access import JobId, Record, Vertex, cookie_of, has_cookie, is_known
from penstock.web.dashboard import Dashboard
from penstock.web.listing import JobWish, Wish
from penstock.web.streams import streams_of

router = APIRouter(include_in_schema=False)
_EARLIER = 10
"""Earlier runs that a job is offered to be compared with."""
_TYPES = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
_FILES = {path.name: path.read_bytes() for path in resources.files("penstock.web").joinpath("static").iterdir()}


@router.get("/")
def home(request: Request, q: str = "", state: str = "", sort: str = "", page: int = 1) -> Response:
    """Show all jobs; with the token in the address, keep it first."""
    if "token" not in request.query_params:
        wish = Wish(text=q, state=state, sort=sort, page=page)
        store = request.app.state.store
        has_streams = bool(request.app.state.streams)
        page_of_jobs = pages.jobs(store.summaries(), wish, time.time(), unread=store.unread, has_streams=has_streams)
        return HTMLResponse(page_of_jobs)
    if not is_known(request):
        raise HTTPException(401, "the token is wrong")
    # The token goes from the address, which others may see, into a cookie that scripts cannot read.
    response = RedirectResponse("/", status_code=303)
    token = request.app.state.token
    response.set_cookie(cookie_of(token), token, httponly=True, samesite="strict")
    return response


@router.get("/static/{name}")
async def static(name: str) -> Response:
    """Give a script, style or picture of the package."""
    if name not in _FILES:
        raise HTTPException(404, f"there is no file {name}")
    return Response(_FILES[name], media_type=_TYPES[name.rpartition(".")[2]], headers={"Cache-Control": "max-age=3600"})


@router.get("/ui/dashboard")
def dashboard(request: Request) -> Response:
    """Show all jobs together."""
    store = request.app.state.store
    return HTMLResponse(pages.dashboard(Dashboard.of(store.summaries(), store.digests(), time.time())))


@router.get("/ui/streams")
def streams(request: Request) -> Response:
    """Show the batches of streams."""
    return HTMLResponse(pages.streams(streams_of(request.app.state.streams)))


@router.get("/ui/jobs/{job_id}")
def job_page(
    request: Request,
    record: Record,
    pending: bool = False,  # noqa: FBT001, FBT002
    sort: str = "",
    kind: str = "",
) -> Response:
    """Show a job."""
    store = request.app.state.store
    earlier = store.earlier(record)
    return HTMLResponse(
        pages.job(
            record,
            time.time(),
            JobWish(pending=pending, sort=sort, kind=kind),
            may_cancel=has_cookie(request),
            is_here=store.is_here(record.id),
            last=next((store.record(one.id) for one in earlier if one.state == "FINISHED"), None),
            earlier=earlier[:_EARLIER],
        )
    )


@router.get("/ui/jobs/{job_id}/compare/{other_id}")
def comparison_page(request: Request, record: Record, other_id: JobId) -> Response:
    """Show a job and another run, side by side."""
    store = request.app.state.store
    before = store.record(other_id)
    if before is None:
        raise HTTPException(404, f"there is no job {other_id}")
    others = [one for one in store.earlier(record) if one.id != other_id]
    return HTMLResponse(pages.compare(before.frozen(), record, time.time(), others[:_EARLIER]))


@router.get("/ui/jobs/{job_id}/vertices/{vertex_id}")
def vertex_page(request: Request, record: Record, one: Vertex) -> Response:
    """Show a step of a job."""
    is_here = request.app.state.store.is_here(record.id)
    return HTMLResponse(pages.vertex(record, one, time.time(), is_here=is_here))
