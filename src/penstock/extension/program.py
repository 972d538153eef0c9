"""Runs a program whose Spark sessions Penstock serves, though the program does not say so."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

from penstock.extension.account import TAKEN, QuerySummary
from penstock.extension.sessions import install
from penstock.spark import query_hook
from penstock.spark.jvm import Bridge, is_classic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from penstock.extension.runner import JobRunner


class Program:
    """A program that runs, and what became of its queries.

    Parameters
    ----------
    progress
        Whether to draw how far its queries have come.

    Attributes
    ----------
    runners
        What runs the queries of each of its Spark applications.
    """

    def __init__(self, *, progress: bool = False) -> None:
        self._progress = progress
        self.runners: list[JobRunner] = []
        self._bridge: Bridge | None = None

    def serve(self, session: SparkSession) -> None:
        """Run the queries of a session's application from now on; say so on standard error where that cannot be."""
        try:
            self.runners.append(install(session, {}, progress=self._progress))
            self._bridge = Bridge(session)
            query_hook.counts(self._bridge)  # so that the class can still be asked when the application has ended
        except Exception as error:  # noqa: BLE001 - whatever it is, the program runs as without
            sys.stderr.write(f"Penstock does not run the queries of this session: {error}\n")

    @property
    def queries(self) -> list[QuerySummary]:
        """What became of the latest queries."""
        return [QuerySummary.of(job) for runner in self.runners for job in runner.jobs]

    @property
    def asked(self) -> int:
        """How many queries ran as jobs in all."""
        return sum(runner.asked for runner in self.runners)

    @property
    def counts(self) -> dict[str, int]:
        """How many queries were planned for Penstock, and how many Spark ran itself, by reason."""
        return {} if self._bridge is None else query_hook.counts(self._bridge)

    @property
    def left(self) -> dict[str, int]:
        """How many queries Spark ran itself, by reason."""
        return {why: count for why, count in self.counts.items() if why != TAKEN}


@contextmanager
def all_sessions_enabled(*, progress: bool = False) -> Iterator[Program]:
    """Enable each Spark application whose first session is made in the block, with the program's own settings.

    Where Penstock cannot serve a session (a Spark Connect client, an unsupported release), the program runs without it,
    and a line on standard error says so.

    Parameters
    ----------
    progress
        Whether to draw how far its queries have come.
    """
    from pyspark.sql import SparkSession

    builder = SparkSession.Builder
    plain, plain_init = builder.getOrCreate, SparkSession.__init__
    known: set[str] = set()
    program = Program(progress=progress)

    def serve(session: SparkSession) -> None:
        application = str(session.sparkContext.applicationId) if is_classic(session) else "client"
        if application not in known:
            known.add(application)
            program.serve(session)

    @wraps(plain)
    def get_or_create(self: SparkSession.Builder) -> SparkSession:
        session = plain(self)
        serve(session)
        return session

    @wraps(plain_init)
    def init(self: SparkSession, *arguments: Any, **named: Any) -> None:  # of programs that call SparkSession(sc)
        plain_init(self, *arguments, **named)
        serve(self)

    builder.getOrCreate = get_or_create  # type: ignore[method-assign]
    SparkSession.__init__ = init  # type: ignore[method-assign]
    try:
        active = SparkSession.getActiveSession()
        if active is not None:
            serve(active)
        yield program
    finally:
        builder.getOrCreate = plain  # type: ignore[method-assign]
        SparkSession.__init__ = plain_init  # type: ignore[method-assign]
