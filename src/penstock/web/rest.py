"""The routes of the REST API, and the cache of their responses."""

import json
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException, Query, Request
from fastapi.responses import Response, StreamingResponse

import penstock
from penstock.history.record import JobRecord
from penstock.web import api_schema, views
from penstock.web.access import JobId, Record, Vertex, require_token
from penstock.web.charts.graph import draw_graph
from penstock.web.steps import Timing, steps_of
from penstock.web.store import streams_of

router = APIRouter()
Pending = Annotated[bool, Query(description="Whether to draw operators that are not part of a vertex yet.")]
_Responses = dict[int | str, dict[str, Any]]
_MISSING: _Responses = {404: {"description": "There is no such job or vertex.", "model": api_schema.Problem}}
_CANCEL: _Responses = {
    401: {"description": "The token is missing or wrong.", "model": api_schema.Problem},
    409: {"description": "The job does not run in this driver.", "model": api_schema.Problem},
}
_SVG: _Responses = {200: {"description": "The drawing.", "content": {"image/svg+xml": {}}}}
_METRICS: _Responses = {
    200: {"description": "The figures.", "content": {"text/plain": {}}},
    404: {"description": "There is no driver in this process.", "model": api_schema.Problem},
}
_EVENTS: _Responses = {200: {"description": "Server-sent events.", "content": {"text/event-stream": {}}}}
_MAX_CACHED_RESPONSES = 64


class ResponseCache:
    """A cache of encoded responses by job id and topic, which all clients share."""

    def __init__(self) -> None:
        # By job id (empty for all jobs) and topic: the stamp (see `_get`) of a valid response, and the response.
        self._entries: OrderedDict[tuple[str, str], tuple[tuple[int, int], bytes]] = OrderedDict()

    def get(
        self, record: JobRecord, topic: str, compute: Callable[[], Any], media_type: str = "application/json"
    ) -> Response:
        """Return a response about a job, recomputed if the job has changed, or every second if the job is running.

        The durations of a running job grow even without events.
        """
        return self._get(record.id, topic, (record.version, record.is_ended), compute, media_type)

    def get_for_all_jobs(self, topic: str, version: int, compute: Callable[[], Any]) -> Response:
        """Return a response about all jobs, recomputed after a change or a second, because some jobs may be running."""
        return self._get("", topic, (version, False), compute, "application/json")

    def _get(
        self, job_id: str, topic: str, version_and_end: tuple[int, bool], compute: Callable[[], Any], media_type: str
    ) -> Response:
        version, is_ended = version_and_end
        stamp = (version, 0 if is_ended else int(time.monotonic()))
        entry = self._entries.get((job_id, topic))
        if entry is None or entry[0] != stamp:
            content = compute()
            entry = (stamp, content.encode() if isinstance(content, str) else json.dumps(content, default=str).encode())
            self._entries[job_id, topic] = entry
            while len(self._entries) > _MAX_CACHED_RESPONSES:
                self._entries.popitem(last=False)
        return Response(entry[1], media_type=media_type)


@router.get("/openapi.json", include_in_schema=False)
def openapi_description(request: Request) -> Any:
    """Return the OpenAPI description."""
    return request.app.openapi()


@router.get("/config", response_model=api_schema.Config)
async def config(request: Request) -> Any:
    """Return the versions and features of the server."""
    return {
        "refresh-interval": 0,
        "timezone-name": time.tzname[0],
        "penstock-version": penstock.__version__,
        "spark-version": request.app.state.spark_version,
        # Only a driver has slots, and only a driver can cancel jobs: its own.
        "features": {"web-cancel": request.app.state.slots > 0},
    }


@router.get("/metrics", responses=_METRICS, response_class=Response)
def metrics(request: Request) -> Response:
    """Return the metrics of this driver's jobs for Prometheus."""
    meter = request.app.state.metrics
    if meter is None:
        raise HTTPException(404, "there is no driver in this process, so there are no metrics")
    text, content_type = meter.scrape(request.headers.get("accept", ""))
    return Response(text, headers={"content-type": content_type})


@router.get("/overview", response_model=api_schema.Overview)
def overview(request: Request) -> Any:
    """Count jobs by their state."""
    state = request.app.state
    versions = {"penstock-version": penstock.__version__, "spark-version": state.spark_version}
    return state.responses.get_for_all_jobs(
        "overview", state.store.version, lambda: views.overview(state.store.summaries(), versions, state.slots)
    )


@router.get("/jobs/overview", response_model=api_schema.JobsOverview)
def jobs_overview(request: Request) -> Any:
    """List all jobs, newest first."""
    store = request.app.state.store
    return request.app.state.responses.get_for_all_jobs(
        "jobs", store.version, lambda: views.jobs_overview(store.summaries(), time.time())
    )


@router.get("/streams", response_model=api_schema.Streams)
def streams(request: Request) -> Any:
    """List the batches of the streams whose checkpoints the server was started with, the latest first."""
    return {"streams": [asdict(stream) for stream in streams_of(request.app.state.streams)]}


@router.get("/jobs/{job_id}", response_model=api_schema.JobDetails, responses=_MISSING)
async def job(request: Request, record: Record) -> Any:
    """Return the details of a job: vertices, pending operators, and the current stream graph."""
    return request.app.state.responses.get(record, "job", lambda: views.job_details(record, time.time()))


@router.patch(
    "/jobs/{job_id}",
    status_code=202,
    dependencies=[Depends(require_token)],
    response_model=api_schema.Accepted,
    responses=_MISSING | _CANCEL,
)
def cancel(request: Request, job_id: JobId, record: Record) -> Any:
    """Cancel a job that runs in this driver; needs the token."""
    if not request.app.state.store.cancel(job_id):
        raise HTTPException(409, f"job {job_id} is {record.state} and cannot be cancelled here")
    return {"jid": job_id, "state": "CANCELLING"}


@router.get("/jobs/{job_id}/plan", response_model=api_schema.PlanAnswer, responses=_MISSING)
async def plan(request: Request, record: Record) -> Any:
    """Return the vertices and edges, and the stream graph that they are created from."""
    return request.app.state.responses.get(
        record,
        "plan",
        lambda: {"plan": views.plan(record), "stream-graph-plan": views.stream_graph_plan(record)},
    )


@router.get("/jobs/{job_id}/config", response_model=api_schema.JobConfig, responses=_MISSING)
async def job_config(record: Record) -> Any:
    """Return the options that were set for a job; secrets are masked."""
    return views.job_config(record)


@router.get("/jobs/{job_id}/exceptions", response_model=api_schema.Exceptions, responses=_MISSING)
async def exceptions(record: Record) -> Any:
    """Return the errors of a job."""
    return views.job_exceptions(record)


@router.get("/jobs/{job_id}/decisions", response_model=api_schema.Decisions, responses=_MISSING)
async def decisions(request: Request, record: Record) -> Any:
    """Return all decisions with figures and reasons, and the changes of the stream graph."""
    return request.app.state.responses.get(record, "decisions", lambda: views.job_decisions(record))


@router.get("/jobs/{job_id}/vertices/{vertex_id}", response_model=api_schema.VertexDetails, responses=_MISSING)
async def vertex(request: Request, record: Record, vertex_record: Vertex) -> Any:
    """Return a vertex: operators, tasks, bytes of each subpartition, decisions."""
    return request.app.state.responses.get(
        record, f"vertex {vertex_record.id}", lambda: views.vertex_details(record, vertex_record, time.time())
    )


@router.get(
    "/jobs/{job_id}/vertices/{vertex_id}/subtasktimes", response_model=api_schema.SubtaskTimes, responses=_MISSING
)
async def subtask_times(record: Record, vertex_record: Vertex) -> Any:
    """Return when the tasks of a vertex ran."""
    return views.subtask_times(record, vertex_record, time.time())


@router.get("/jobs/{job_id}/graph.svg", responses=_MISSING | _SVG, response_class=Response)
async def graph(request: Request, record: Record, pending: Pending = False) -> Response:  # noqa: FBT002
    """Draw the graph of a job."""

    def draw() -> str:
        now = time.time()
        steps = steps_of(record, now)
        critical = Timing.of(steps, record.seconds(now)).critical_path
        return draw_graph(record, steps, critical, pending=pending)

    response: Response = request.app.state.responses.get(record, f"svg {pending}", draw, "image/svg+xml")
    return response


@router.get("/jobs/{job_id}/events", responses=_MISSING | _EVENTS, response_class=StreamingResponse)
async def job_events(request: Request, record: Record) -> StreamingResponse:
    """Send an event whenever a job has changed, until it ends."""
    return _event_stream(request, record.id)


@router.get("/events", responses=_EVENTS, response_class=StreamingResponse)
async def events(request: Request) -> StreamingResponse:
    """Send an event whenever any job has changed."""
    return _event_stream(request, None)


def _event_stream(request: Request, job_id: str | None) -> StreamingResponse:
    async def lines() -> AsyncIterator[str]:
        async for version in request.app.state.store.versions(job_id):
            yield ": alive\n\n" if version is None else f"event: changed\ndata: {version}\n\n"
        yield "event: ended\ndata: 0\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})
