"""The shapes of the API's answers, for its description."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Answer(BaseModel):
    """Base of all answers."""

    model_config = ConfigDict(populate_by_name=True, extra="allow")


class Problem(Answer):
    """What went wrong."""

    detail: Any


class Config(Answer):
    """What serves."""

    refresh_interval: int = Field(alias="refresh-interval")
    timezone_name: str = Field(alias="timezone-name")
    penstock_version: str = Field(alias="penstock-version")
    spark_version: str = Field(alias="spark-version")
    features: dict[str, bool]


class Overview(Answer):
    """Jobs by their state."""

    slots_total: int = Field(alias="slots-total")
    jobs_running: int = Field(alias="jobs-running")
    jobs_finished: int = Field(alias="jobs-finished")
    jobs_cancelled: int = Field(alias="jobs-cancelled")
    jobs_failed: int = Field(alias="jobs-failed")


class JobLine(Answer):
    """A job in the list; times in milliseconds, -1 for none."""

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
    """An edge of the stream graph; its number is "0" where its target has one input, else the inputs count from "1"."""

    type_num: str = Field(alias="type-num")
    partitioner: str
    exchange: str
    source_id: str = Field(alias="source-id")
    target_id: str = Field(alias="target-id")


class StreamGraphNode(Answer):
    """An operator; its parallelism is -1 until decided, and only a converted one names its vertex."""

    id: str
    parallelism: int
    max_parallelism: int = Field(alias="maxParallelism")
    operator_name: str = Field(alias="operator-name")
    operator_description: str = Field(alias="operator-description")
    jobvertex_id: str | None = Field(default=None, alias="jobvertex-id")
    input_edges: list[InputEdge] = Field(alias="input-edges")


class StreamGraphPlan(Answer):
    """The stream graph as it is now."""

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
    """An operator as Flink's releases spell it; its vertex is null while it is pending."""

    id: str
    parallelism: int
    operator: str
    description: str
    job_vertex_id: str | None
    inputs: list[StreamGraphInput]


class ReleasedStreamGraph(Answer):
    """The stream graph as Flink's releases spell it."""

    nodes: list[ReleasedStreamGraphNode]


class Plan(Answer):
    """The vertices made so far."""

    jid: str
    name: str
    type: str
    nodes: list[dict[str, Any]]


class PlanAnswer(Answer):
    """Both graphs."""

    plan: Plan
    stream_graph_plan: StreamGraphPlan = Field(alias="stream-graph-plan")


class Query(Answer):
    """Where a job's query comes from: its SQL text, the action in the user's program, Spark's page of the execution.

    Spark runs the last stage of a job that it has handed over (`of_spark`).
    """

    statement: str | None = None
    line: str | None = None
    page: str | None = None
    of_spark: bool = False


class JobDetails(Answer):
    """A job; times in milliseconds, -1 for none."""

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
    """The batches of streams: what was decided for each, and what it took."""

    streams: list[dict[str, Any]]


class JobConfig(Answer):
    """The options of a job that are no defaults."""

    jid: str
    name: str
    execution_config: dict[str, Any] = Field(alias="execution-config")


class Exceptions(Answer):
    """What a job failed with."""

    root_exception: str | None = Field(alias="root-exception")
    timestamp: int | None
    all_exceptions: list[dict[str, Any]] = Field(alias="all-exceptions")
    truncated: bool


class Decisions(Answer):
    """What was chosen, what was changed, and which changes could not be."""

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
    """When the tasks of a vertex ran."""

    id: str
    name: str
    now: int
    subtasks: list[dict[str, Any]]


class Accepted(Answer):
    """A job that is being cancelled."""

    jid: str
    state: str
