"""Models of the REST responses, for the OpenAPI description."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Answer(BaseModel):
    """Base of all responses."""

    model_config = ConfigDict(populate_by_name=True, extra="allow")


class Problem(Answer):
    """An error."""

    detail: Any


class Config(Answer):
    """The server: its versions and features."""

    refresh_interval: int = Field(alias="refresh-interval")
    timezone_name: str = Field(alias="timezone-name")
    penstock_version: str = Field(alias="penstock-version")
    spark_version: str = Field(alias="spark-version")
    features: dict[str, bool]


class Overview(Answer):
    """The number of jobs in each state."""

    slots_total: int = Field(alias="slots-total")
    jobs_running: int = Field(alias="jobs-running")
    jobs_finished: int = Field(alias="jobs-finished")
    jobs_cancelled: int = Field(alias="jobs-cancelled")
    jobs_failed: int = Field(alias="jobs-failed")


class JobLine(Answer):
    """A job in the list; times in milliseconds, -1 for unknown."""

    jid: str
    name: str
    state: str
    start_time: int = Field(alias="start-time")
    end_time: int = Field(alias="end-time")
    duration: int
    last_modification: int = Field(alias="last-modification")
    tasks: dict[str, int]
    pending_operators: int = Field(alias="pending-operators")


class JobsOverview(Answer):
    """All jobs."""

    jobs: list[JobLine]


class InputEdge(Answer):
    """An edge of the stream graph; `type-num` is "0" for the only input of its target, else inputs count from "1"."""

    type_num: str = Field(alias="type-num")
    partitioner: str
    exchange: str
    source_id: str = Field(alias="source-id")
    target_id: str = Field(alias="target-id")


class StreamGraphNode(Answer):
    """An operator; its parallelism is -1 until decided; a pending operator has no vertex id."""

    id: str
    parallelism: int
    max_parallelism: int = Field(alias="maxParallelism")
    operator_name: str = Field(alias="operator-name")
    operator_description: str = Field(alias="operator-description")
    jobvertex_id: str | None = Field(default=None, alias="jobvertex-id")
    input_edges: list[InputEdge] = Field(alias="input-edges")


class StreamGraphPlan(Answer):
    """The current stream graph."""

    jid: str
    name: str
    type: str
    nodes: list[StreamGraphNode]


class StreamGraphInput(Answer):
    """An edge of the stream graph, at its target."""

    num: int
    id: str
    ship_strategy: str
    exchange: str


class ReleasedStreamGraphNode(Answer):
    """An operator in the field names of Flink's releases; its vertex is null while it is pending."""

    id: str
    parallelism: int
    operator: str
    description: str
    job_vertex_id: str | None
    inputs: list[StreamGraphInput]


class ReleasedStreamGraph(Answer):
    """The stream graph in the field names of Flink's releases."""

    nodes: list[ReleasedStreamGraphNode]


class Plan(Answer):
    """The vertices created so far."""

    jid: str
    name: str
    type: str
    nodes: list[dict[str, Any]]


class PlanAnswer(Answer):
    """The job graph and the stream graph."""

    plan: Plan
    stream_graph_plan: StreamGraphPlan = Field(alias="stream-graph-plan")


class Query(Answer):
    """The origin of a job's query: its SQL text, the user's line of code, and Spark's page of the execution.

    `of_spark` is true for a query of a Spark session, whose last stage Spark runs itself.
    """

    statement: str | None = None
    line: str | None = None
    page: str | None = None
    of_spark: bool = False


class JobDetails(Answer):
    """A job; times in milliseconds, -1 for unknown."""

    jid: str
    name: str
    state: str
    start_time: int = Field(alias="start-time")
    end_time: int = Field(alias="end-time")
    duration: int
    now: int
    query: Query | None
    timestamps: dict[str, int]
    vertices: list[dict[str, Any]]
    status_counts: dict[str, int] = Field(alias="status-counts")
    pending_operators: int = Field(alias="pending-operators")
    plan: Plan
    stream_graph_plan: StreamGraphPlan = Field(alias="stream-graph-plan")
    stream_graph: ReleasedStreamGraph = Field(alias="stream-graph")


class Streams(Answer):
    """The batches of streams: the decision and the duration of each."""

    streams: list[dict[str, Any]]


class JobConfig(Answer):
    """The options of a job that differ from their defaults."""

    jid: str
    name: str
    execution_config: dict[str, Any] = Field(alias="execution-config")


class Exceptions(Answer):
    """The errors of a job."""

    root_exception: str | None = Field(alias="root-exception")
    timestamp: int | None
    all_exceptions: list[dict[str, Any]] = Field(alias="all-exceptions")
    truncated: bool


class Decisions(Answer):
    """The decisions of a job, the changes of its graph, and the changes that were rejected."""

    jid: str
    decisions: list[dict[str, Any]]
    changes: list[dict[str, Any]]
    refused: list[dict[str, Any]]


class VertexDetails(Answer):
    """A vertex."""

    id: str
    name: str
    parallelism: int
    status: str
    subpartitions: dict[str, Any]
    subtasks: list[dict[str, Any]]
    operators: list[dict[str, Any]]
    decisions: list[dict[str, Any]]


class SubtaskTimes(Answer):
    """The start and end times of the tasks of a vertex."""

    id: str
    name: str
    now: int
    subtasks: list[dict[str, Any]]


class Accepted(Answer):
    """A job that is being cancelled."""

    jid: str
    state: str
