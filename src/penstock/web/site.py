"""The routes of the web pages."""

import time
from importlib import resources

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from penstock.web import pages
from penstock.web.access import JobId, Record, Vertex, cookie_name, has_cookie, has_token
from penstock.web.dashboard import Dashboard
from penstock.web.listing import JobListQuery, JobPageQuery
from penstock.web.store import streams_of

router = APIRouter(include_in_schema=False)
_MAX_EARLIER_RUNS = 10
"""The most earlier runs to which a page links for a comparison."""
_MEDIA_TYPES = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
_STATIC_FILES = {path.name: path.read_bytes() for path in resources.files("penstock.web").joinpath("static").iterdir()}


@router.get("/")
def home(request: Request, q: str = "", state: str = "", sort: str = "", page: int = 1) -> Response:
    """Show all jobs; a token in the address is first moved into a cookie by a redirect."""
    if "token" not in request.query_params:
        query = JobListQuery(text=q, state=state, sort=sort, page=page)
        store = request.app.state.store
        has_streams = bool(request.app.state.streams)
        html = pages.jobs(store.summaries(), query, time.time(), unreadable=store.unreadable, has_streams=has_streams)
        return HTMLResponse(html)
    if not has_token(request):
        raise HTTPException(401, "the token is wrong")
    # Other users may see an address with a token. A cookie is not displayed, and scripts cannot read it.
    response = RedirectResponse("/", status_code=303)
    token = request.app.state.token
    response.set_cookie(cookie_name(token), token, httponly=True, samesite="strict")
    return response


@router.get("/static/{name}")
async def static(name: str) -> Response:
    """Return a script, stylesheet or picture of the package."""
    if name not in _STATIC_FILES:
        raise HTTPException(404, f"there is no file {name}")
    media_type = _MEDIA_TYPES[name.rpartition(".")[2]]
    return Response(_STATIC_FILES[name], media_type=media_type, headers={"Cache-Control": "max-age=3600"})


@router.get("/ui/dashboard")
def dashboard(request: Request) -> Response:
    """Show the figures over all jobs."""
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
    compared = store.compared(record, earlier[:_MAX_EARLIER_RUNS])
    return HTMLResponse(
        pages.job(
            record,
            time.time(),
            JobPageQuery(pending=pending, sort=sort, kind=kind),
            may_cancel=has_cookie(request),
            is_local=store.is_local(record.id),
            last=next((store.record(job.id) for job in earlier if job.state == "FINISHED"), None),
            earlier=earlier[:_MAX_EARLIER_RUNS],
            compared=compared,
        )
    )


@router.get("/ui/jobs/{job_id}/compare/{other_id}")
def comparison_page(request: Request, record: Record, other_id: JobId) -> Response:
    """Show a job and another run, side by side."""
    store = request.app.state.store
    before = store.record(other_id)
    if before is None:
        raise HTTPException(404, f"there is no job {other_id}")
    other_runs = [job for job in store.earlier(record) if job.id != other_id]
    return HTMLResponse(pages.compare(before.snapshot(), record, time.time(), other_runs[:_MAX_EARLIER_RUNS]))


@router.get("/ui/jobs/{job_id}/vertices/{vertex_id}")
def vertex_page(request: Request, record: Record, vertex_record: Vertex) -> Response:
    """Show a step of a job."""
    is_local = request.app.state.store.is_local(record.id)
    return HTMLResponse(pages.vertex(record, vertex_record, time.time(), is_local=is_local))
