"""Runs a program with Penstock enabled in its Spark sessions, without changes to it; summaries of its queries."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

from penstock.decisions.record import displayed_decisions
from penstock.extension.sessions import install
from penstock.spark.bridge.jvm import Bridge, is_classic
from penstock.spark.run import query_hook

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from penstock.extension.runner import JobRunner
    from penstock.scheduler.job import Job

RUN_BY_PENSTOCK = "taken"
"""The key under which Spark's planner counts the queries that Penstock runs."""


@dataclass(frozen=True, slots=True)
class QuerySummary:
    """Summary of a query: its name as in `QueryOrigin`, and its SQL text, None for a DataFrame action.

    `seconds` is the number of seconds until the last vertex could return rows to Spark; None while the job runs.
    """

    name: str
    job: str
    state: str
    vertices: int
    seconds: float | None
    decided: tuple[str, ...]
    statement: str | None

    @classmethod
    def of(cls, job: Job) -> QuerySummary:
        """Return the summary of a query's job."""
        decided = tuple(
            decision.text for decision in displayed_decisions(job.decisions.records, with_parallelism=not job.vertices)
        )
        seconds = None if job.ended is None else job.ended - job.started
        statement = None if job.origin is None else job.origin.statement
        return cls(job.name, job.id, job.state.value, len(job.vertices), seconds, decided, statement)


class Program:
    """A running program, the summaries of its queries, and the query runner of each of its Spark applications."""

    def __init__(self, *, progress: bool = False) -> None:
        self._progress = progress
        self.runners: list[JobRunner] = []
        self._bridge: Bridge | None = None

    def serve(self, session: SparkSession) -> None:
        """Run the queries of a session's application from now on; report on standard error if that is impossible."""
        try:
            self.runners.append(install(session, {}, progress=self._progress))
            self._bridge = Bridge(session)
            query_hook.counts(self._bridge)  # loads the class, which may be queried after the application has ended
        except Exception as error:  # noqa: BLE001 - the program must run without Penstock after any error
            sys.stderr.write(f"Penstock does not run the queries of this session: {error}\n")

    @property
    def queries(self) -> list[QuerySummary]:
        """The summaries of the latest queries."""
        return [QuerySummary.of(job) for runner in self.runners for job in runner.jobs]

    @property
    def query_count(self) -> int:
        """The number of queries that ran as jobs."""
        return sum(runner.query_count for runner in self.runners)

    @property
    def counts(self) -> dict[str, int]:
        """The number of queries planned for Penstock, and the number that Spark ran itself, by reason."""
        return {} if self._bridge is None else query_hook.counts(self._bridge)

    @property
    def left(self) -> dict[str, int]:
        """The number of queries that Spark ran itself, by reason."""
        return {reason: count for reason, count in self.counts.items() if reason != RUN_BY_PENSTOCK}


@contextmanager
def all_sessions_enabled(*, progress: bool = False) -> Iterator[Program]:
    """Enable each Spark application whose first session is created in the block, with the program's own settings.

    If Penstock does not support a session (a Spark Connect client, an unsupported release), the program runs without
    Penstock, and a line on standard error says so.
    """
    from pyspark.sql import SparkSession

    builder = SparkSession.Builder
    original, original_init = builder.getOrCreate, SparkSession.__init__
    served: set[str] = set()
    program = Program(progress=progress)

    def serve(session: SparkSession) -> None:
        application = str(session.sparkContext.applicationId) if is_classic(session) else "client"
        if application not in served:
            served.add(application)
            program.serve(session)

    @wraps(original)
    def get_or_create(self: SparkSession.Builder) -> SparkSession:
        session = original(self)
        serve(session)
        return session

    @wraps(original_init)
    def init(self: SparkSession, *arguments: Any, **named: Any) -> None:  # of programs that call SparkSession(sc)
        original_init(self, *arguments, **named)
        serve(self)

    builder.getOrCreate = get_or_create  # type: ignore[method-assign]
    SparkSession.__init__ = init  # type: ignore[method-assign]
    try:
        active = SparkSession.getActiveSession()
        if active is not None:
            serve(active)
        yield program
    finally:
        builder.getOrCreate = original  # type: ignore[method-assign]
        SparkSession.__init__ = original_init  # type: ignore[method-assign]
