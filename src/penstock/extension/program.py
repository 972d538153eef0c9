"""Runs an unchanged program with Penstock enabled in its Spark sessions, and summarizes its queries."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

from penstock.decisions.record import displayed_decisions
from penstock.errors import ConfigError, HistoryError, WebError
from penstock.events import ExecutionState
from penstock.extension.interrupts import handle_interrupts, interrupts_restored
from penstock.extension.sessions import install
from penstock.spark.bridge.jvm import Bridge, is_classic
from penstock.spark.bridge.session import java_checked
from penstock.spark.run import query_hook

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.extension.runner import JobRunner
    from penstock.scheduler.job import Job

log = logging.getLogger("penstock.extension")

RUN_BY_PENSTOCK = "taken"
"""The key under which `query_hook.query_counts` has the number of queries that Penstock runs."""


@dataclass(frozen=True, slots=True)
class QuerySummary:
    """Summary of a query: the `name`, the id (`job`) and the `state` of its job, and the number of its `vertices`.

    `keeps_plan` is whether the job finished with steps of its own, and no decision changed the plan of Spark.
    `seconds` is the run time of the job, before Spark fetches the rows; None while the job runs. `decisions` are the
    texts that users see. `statement` is the SQL text, None for a DataFrame action.
    """

    name: str
    job: str
    state: str
    vertices: int
    seconds: float | None
    decisions: tuple[str, ...]
    statement: str | None
    keeps_plan: bool

    @classmethod
    def of(cls, job: Job) -> QuerySummary:
        """Return the summary of a query's job."""
        records = job.decisions.records
        decisions = tuple(decision.text for decision in displayed_decisions(records, with_parallelism=not job.vertices))
        keeps_plan = job.state is ExecutionState.FINISHED and not any(
            decision.changes_plan or decision.is_whole_query for decision in records
        )
        seconds = None if job.ended is None else job.ended - job.started
        statement = None if job.origin is None else job.origin.statement
        return cls(job.name, job.id, job.state.value, len(job.vertices), seconds, decisions, statement, keeps_plan)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, in which the key of `decisions` is ``decided``."""
        return {"decided" if name == "decisions" else name: value for name, value in asdict(self).items()}


class Program:
    """A running program: the query runners of its Spark applications, and summaries of the queries that they ran."""

    def __init__(self, *, progress: bool = False) -> None:
        self._progress = progress
        self.runners: list[JobRunner] = []
        self._bridge: Bridge | None = None

    def enable(self, session: SparkSession) -> None:
        """Let Penstock run the queries of a session's application; if it cannot, a line on standard error says why.

        Raise `ConfigError`, `HistoryError` or `WebError` if options of Penstock are wrong.
        """
        try:
            self.runners.append(install(session, {}, progress=self._progress))
        except (ConfigError, HistoryError, WebError):
            raise
        except Exception as error:  # noqa: BLE001 - the program must run without Penstock after any error
            sys.stderr.write(f"Penstock does not run the queries of this session: {error}\n")
            return
        try:
            handle_interrupts()
            self._bridge = Bridge(session)
            query_hook.query_counts(self._bridge)  # loads its Java class for calls after the end of Spark
        except Exception:  # Penstock runs the queries nevertheless
            log.warning("Ctrl-C and the counts of queries are not those of Penstock", exc_info=True)

    @property
    def queries(self) -> list[QuerySummary]:
        """The summaries of the latest queries."""
        return [QuerySummary.of(job) for runner in self.runners for job in runner.jobs]

    @property
    def query_count(self) -> int:
        """The number of queries that became jobs, also if the job failed and the query fell back to Spark."""
        return sum(runner.query_count for runner in self.runners)

    @property
    def counts(self) -> dict[str, int]:
        """The number of queries that Penstock runs (`RUN_BY_PENSTOCK`), and of those that Spark runs, by reason."""
        return {} if self._bridge is None else query_hook.query_counts(self._bridge)

    @property
    def run_by_spark_counts(self) -> dict[str, int]:
        """The number of queries that Spark runs itself, by reason."""
        return {reason: count for reason, count in self.counts.items() if reason != RUN_BY_PENSTOCK}


@contextmanager
def all_sessions_enabled(*, progress: bool = False) -> Iterator[Program]:
    """Enable Penstock in each Spark application that has or gets a session in the block; yield the program.

    If Penstock does not support a session (a Spark Connect client, an unsupported release), the program runs without
    Penstock, and a line on standard error says so.
    """
    from pyspark.sql import SparkSession

    builder = SparkSession.Builder
    original_get_or_create, original_init = builder.getOrCreate, SparkSession.__init__
    enabled_applications: set[str] = set()
    program = Program(progress=progress)

    def enable(session: SparkSession) -> None:
        application = str(session.sparkContext.applicationId) if is_classic(session) else "client"
        if application not in enabled_applications:
            enabled_applications.add(application)  # before the call, which may create sessions
            try:
                program.enable(session)
            except BaseException:  # the program may correct the options, and create the session again
                enabled_applications.discard(application)
                raise

    @wraps(original_get_or_create)
    def get_or_create(self: SparkSession.Builder) -> SparkSession:
        session = original_get_or_create(self)
        enable(session)
        return session

    @wraps(original_init)
    def init(self: SparkSession, *arguments: Any, **named: Any) -> None:  # for programs that call SparkSession(sc)
        original_init(self, *arguments, **named)
        enable(self)

    builder.getOrCreate = get_or_create  # type: ignore[method-assign]
    SparkSession.__init__ = init  # type: ignore[method-assign]
    try:
        with java_checked(), interrupts_restored():
            active = SparkSession.getActiveSession()
            if active is not None:
                enable(active)
            yield program
    finally:
        builder.getOrCreate = original_get_or_create  # type: ignore[method-assign]
        SparkSession.__init__ = original_init  # type: ignore[method-assign]
