"""Who may do what, and which job or vertex a request is about."""

import hashlib
import hmac
from typing import Annotated, Any

from fastapi import Depends, HTTPException, Path, Request

from penstock.history.record import JobRecord

JobId = Annotated[str, Path(pattern="^[0-9a-f]{12}$", description="The id of a job.")]
VertexId = Annotated[str, Path(pattern="^v[0-9]{1,9}$", description="The id of a job vertex.")]


def cookie_of(token: str) -> str:
    """Return the name of the cookie of a server; browsers send the cookies of a host to all of its ports."""
    return f"penstock-{hashlib.sha256(token.encode()).hexdigest()[:8]}"


def has_cookie(request: Request) -> bool:
    """Whether a browser has kept the token."""
    return _is_token(request.cookies.get(cookie_of(request.app.state.token), ""), request)


def is_known(request: Request) -> bool:
    """Whether a request brings the token: as a bearer, in the cookie of the page, or in its address."""
    bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
    return (
        _is_token(bearer, request) or has_cookie(request) or _is_token(request.query_params.get("token", ""), request)
    )


def _is_token(given: str, request: Request) -> bool:
    """Whether a text is the token, found out in a time that tells nothing of it."""
    return hmac.compare_digest(given.encode(), request.app.state.token.encode())


async def checked_token(request: Request) -> None:
    """Refuse a request that does not bring the token."""
    if not is_known(request):
        raise HTTPException(401, "the token is missing or wrong", {"WWW-Authenticate": "Bearer"})


def found_record(request: Request, job_id: JobId) -> JobRecord:
    """Return the job a request is about; on a thread, as a log of many lines may have to be read."""
    record: JobRecord | None = request.app.state.store.record(job_id)
    if record is None:
        raise HTTPException(404, f"there is no job {job_id}")
    return record.frozen()


Record = Annotated[JobRecord, Depends(found_record)]


async def found_vertex(record: Record, vertex_id: VertexId) -> dict[str, Any]:
    """Return the vertex a request is about."""
    if vertex_id not in record.vertices:
        raise HTTPException(404, f"job {record.id} has no vertex {vertex_id}")
    return record.vertices[vertex_id]


Vertex = Annotated[dict[str, Any], Depends(found_vertex)]
