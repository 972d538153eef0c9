"""Who may do what, and which job or vertex a request is about."""

import hmac
from typing import Annotated, Any

from fastapi import Depends, HTTPException, Path, Request

from penstock.history.record import JobRecord

COOKIE = "penstock-token"
JobId = Annotated[str, Path(pattern="^[0-9a-f]{12}$", description="The id of a job.")]
VertexId = Annotated[str, Path(pattern="^v[0-9]{1,9}$", description="The id of a job vertex.")]


def is_token(given: str, request: Request) -> bool:
    """Whether a text is the token, found out in a time that tells nothing of it."""
    return hmac.compare_digest(given.encode(), request.app.state.token.encode())


async def checked_token(request: Request) -> None:
    """Refuse a request that brings no token: as a bearer, in the cookie of the page, or in its address."""
    given = request.headers.get("authorization", "").removeprefix("Bearer ") or request.cookies.get(COOKIE, "")
    if not is_token(given or request.query_params.get("token", ""), request):
        raise HTTPException(401, "the token is missing or wrong", {"WWW-Authenticate": "Bearer"})


async def found_record(request: Request, job_id: JobId) -> JobRecord:
    """Return the job a request is about."""
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
