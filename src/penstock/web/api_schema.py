"""Models of the REST responses, for the OpenAPI description."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Answer(BaseModel):
    """Base of all responses; by default, names of fields have hyphens in place of underscores."""

    model_config = ConfigDict(alias_generator=lambda name: name.replace("_", "-"), extra="allow")


class Problem(Answer):
    """An error."""

    detail: Any


class Config(Answer):
    """The server: its versions and features."""

    refresh_interval: int
    timezone_name: str
    penstock_version: str
    spark_version: str
    features: dict[str, bool]


class Overview(Answer):
    """The number of task slots, and the number of jobs in each state."""

    slots_total: int
    jobs_running: int
    jobs_finished: int
    jobs_cancelled: int
    jobs_failed: int


class NamedJob(Answer):
    """Base of the responses about a job."""

    jid: str
    name: str


class TimedJob(NamedJob):
    """A job; times in milliseconds, -1 for unknown."""

    state: str
    start_time: int
    end_time: int
    duration: int


class JobLine(TimedJob):
    """A job in the list; times in milliseconds, -1 for unknown."""

    last_modification: int
    tasks: dict[str, int]
    pending_operators: int


class JobsOverview(Answer):
    """All jobs."""

    jobs: list[JobLine]


class InputEdge(Answer):
    """An edge of the stream graph; `type-num` is "0" for the only input of its target, else the input's number."""

    type_num: str
    partitioner: str
    exchange: str
    source_id: str
    target_id: str


class StreamGraphNode(Answer):
    """An operator; its parallelism is -1 until decided; a pending operator has no vertex id."""

    id: str
    parallelism: int
    max_parallelism: int = Field(alias="maxParallelism")
    operator_name: str
    operator_description: str
    jobvertex_id: str | None = None
    input_edges: list[InputEdge]


class StreamGraphPlan(NamedJob):
    """The current stream graph."""

    type: str
    nodes: list[StreamGraphNode]


class StreamGraphInput(Answer):
    """An input edge of an operator; `num` is its index from 0, and `id` the id of its source."""

    num: int
    id: str
    ship_strategy: str = Field(alias="ship_strategy")
    exchange: str


class ReleasedStreamGraphNode(Answer):
    """An operator with the field names of Flink's releases; a pending operator has a null vertex id."""

    id: str
    parallelism: int
    operator: str
    description: str
    job_vertex_id: str | None = Field(alias="job_vertex_id")
    inputs: list[StreamGraphInput]


class ReleasedStreamGraph(Answer):
    """The stream graph with the field names of Flink's releases."""

    nodes: list[ReleasedStreamGraphNode]


class Plan(NamedJob):
    """The vertices created so far."""

    type: str
    nodes: list[dict[str, Any]]


class PlanAnswer(Answer):
    """The job graph and the stream graph."""

    plan: Plan
    stream_graph_plan: StreamGraphPlan


class Query(Answer):
    """The origin of a job's query: its SQL text, the user's line of code, and Spark's page of the execution.

    `of_spark` is true for a query that a Spark session delegated to Penstock; Spark then runs the last stage itself.
    """

    statement: str | None = None
    line: str | None = None
    page: str | None = None
    of_spark: bool = Field(default=False, alias="of_spark")


class JobDetails(TimedJob):
    """A job; times in milliseconds, -1 for unknown."""

    now: int
    query: Query | None
    timestamps: dict[str, int]
    vertices: list[dict[str, Any]]
    status_counts: dict[str, int]
    pending_operators: int
    plan: Plan
    stream_graph_plan: StreamGraphPlan
    stream_graph: ReleasedStreamGraph


class Streams(Answer):
    """The batches of streams: the decision and the duration of each."""

    streams: list[dict[str, Any]]


class JobConfig(NamedJob):
    """The options of a job that differ from their defaults."""

    execution_config: dict[str, Any]


class Exceptions(Answer):
    """The errors of a job."""

    root_exception: str | None
    timestamp: int | None
    all_exceptions: list[dict[str, Any]]
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
