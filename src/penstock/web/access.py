"""Authorization of requests, and look-up of the job or vertex that a request names."""

import hashlib
import hmac
from typing import Annotated

from fastapi import Depends, HTTPException, Path, Request

from penstock.history.record import JobRecord, VertexRecord

JobId = Annotated[str, Path(pattern="^[0-9a-f]{12}$", description="The id of a job.")]
VertexId = Annotated[str, Path(pattern="^v[0-9]{1,9}$", description="The id of a job vertex.")]


def cookie_name(token: str) -> str:
    """Return the name of a server's cookie, unique by a hash, because browsers send cookies to all ports of a host."""
    return f"penstock-{hashlib.sha256(token.encode()).hexdigest()[:8]}"


def has_cookie(request: Request) -> bool:
    """Whether the request carries the token in the cookie of this server."""
    return _is_token(request.cookies.get(cookie_name(request.app.state.token), ""), request)


def has_token(request: Request) -> bool:
    """Whether the request carries the token: as a bearer token, in the cookie, or in the address."""
    bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
    return (
        _is_token(bearer, request) or has_cookie(request) or _is_token(request.query_params.get("token", ""), request)
    )


def _is_token(candidate: str, request: Request) -> bool:
    """Whether a text equals the token; the comparison takes constant time."""
    return hmac.compare_digest(candidate.encode(), request.app.state.token.encode())


async def require_token(request: Request) -> None:
    """Reject a request without the token."""
    if not has_token(request):
        raise HTTPException(401, "the token is missing or wrong", {"WWW-Authenticate": "Bearer"})


def get_record(request: Request, job_id: JobId) -> JobRecord:
    """Return the job that a request names. Not async, but on a worker thread, because it may read a long event log."""
    record: JobRecord | None = request.app.state.store.record(job_id)
    if record is None:
        raise HTTPException(404, f"there is no job {job_id}")
    return record.snapshot()


Record = Annotated[JobRecord, Depends(get_record)]


async def get_vertex(record: Record, vertex_id: VertexId) -> VertexRecord:
    """Return the vertex that a request names."""
    if vertex_id not in record.vertices:
        raise HTTPException(404, f"job {record.id} has no vertex {vertex_id}")
    return record.vertices[vertex_id]


Vertex = Annotated[VertexRecord, Depends(get_vertex)]
