"""Jobs that are compared with plain Spark."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.decisions import DecisionKind
from penstock.errors import JobCancelledError, PenstockError, RowsDifferError
from penstock.events import ExecutionState
from penstock.planner.native_query import IN_ONE_TASK, NativeQuery
from penstock.planner.outputs import Output
from penstock.planner.spark_query import SparkQuery
from penstock.scheduler.job import Job
from penstock.shadow.compare import NotComparableError, PlainRun, compare_rows, run_plain
from penstock.shadow.comparison import REPORTS, Comparison, Engine, ShadowReport, Verdict
from penstock.shadow.failures import error_class, first_line
from penstock.shadow.plain import PlainDataFrame, PlainPlan
from penstock.shadow.sinks import ShadowedSink, Watched
from penstock.spark import jobs
from penstock.spark.fingerprint import fingerprint

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from penstock.connectors.base import Sink
    from penstock.planner.plan import JobPlan
    from penstock.scheduler.origin import QueryOrigin
    from penstock.spark.handles import LocalProperties
    from penstock.spark.jvm import Bridge
    from penstock.spark.logical_plan import LogicalPlan


class ShadowedJob(Job):
    """A job whose queries are run by plain Spark as well, and whose rows are compared with what that gives.

    Plain Spark runs when all sinks have their rows and none shows them, in the user's session and without writing.

    Parameters
    ----------
    bridge
        The bridge to the user's session.
    name
        The job's name.
    raises
        Whether `wait` raises where rows differ.
    origin
        Where its query comes from, if Spark handed it over.
    properties
        What the user's thread tells its Spark jobs; if None, those of this thread.

    Attributes
    ----------
    report
        What was found.
    """

    def __init__(
        self,
        bridge: Bridge,
        name: str,
        *,
        raises: bool,
        origin: QueryOrigin | None = None,
        properties: LocalProperties | None = None,
    ) -> None:
        super().__init__(name, origin)
        self.report = ShadowReport(name)
        self._shadow_bridge = bridge
        self._properties = jobs.user_properties(bridge) if properties is None else properties
        self._raises = raises
        self._watched: list[Watched] = []
        self._compared: dict[int, Comparison] = {}
        self._comparing = threading.RLock()
        self._group = f"penstock-{self.id}-shadow"
        self._is_over = False

    def watched(self, outputs: Sequence[Output]) -> list[Output]:
        """Return outputs whose sinks are watched; the job is to be run with them."""
        REPORTS.append(self.report)
        return [self._watch(output) for output in outputs]

    def _watch(self, output: Output) -> Output:
        line = "" if output.location is None else str(output.location)
        plain = PlainDataFrame(self._shadow_bridge, output.df)
        watched = Watched(self._shadow_bridge, output.sink.name, plain, line, output.sink.materialised, output.df)
        self._watched.append(watched)
        sink = ShadowedSink(output.sink, watched)
        return Output(output.df, sink, output.parallelism, output.location)

    def watched_query(self, plan: LogicalPlan, sink: Sink, line: str) -> Sink:
        """Return a sink that is watched, for a query that Spark has optimised already.

        The rows leave the job after its end, so they are not counted on their way: the last stage runs once more.
        """
        REPORTS.append(self.report)
        watched = Watched(self._shadow_bridge, sink.name, PlainPlan(self._shadow_bridge, plan), line, materialised=True)
        self._watched.append(watched)
        return ShadowedSink(sink, watched)

    def planned(self, plan: JobPlan) -> None:
        """Take what the plan says of the engines: queries that Spark computes itself need no comparison."""
        queries = [source.scan for source in plan.sources.values() if isinstance(source.scan, SparkQuery)]
        if len(self._watched) == 1 and any(not isinstance(query, NativeQuery) for query in queries):
            self._watched[0].runs_on_spark = True

    def handed_back(self, error: BaseException) -> None:
        """Record that Spark runs the query instead, as Penstock failed; what was compared before does not count."""
        with self._comparing:
            self._is_over = True
            self._compared.clear()
            reason = f"Penstock failed, so Spark runs this query itself: {first_line(error)}"
            for watched in self._watched:
                watched.runs_on_spark = True
                self._say(watched, Verdict.BY_SPARK, reason)
            self._finish_report()

    def cancel(self, reason: str = "cancelled by the user") -> None:
        """Stop the job, and its shadow."""
        super().cancel(reason)
        jobs.cancel_group(self._shadow_bridge, self._group, reason)

    def wait(self, timeout: float | None = None) -> Job:
        """Wait for the end as `Job.wait` does.

        Raises
        ------
        RowsDifferError
            If an output differs from plain Spark's; what was written stays written.
        """
        try:
            super().wait(timeout)
        except (TimeoutError, JobCancelledError):
            raise
        except Exception as error:
            self.failed(error)
            self._raise_differences(error)
            raise
        self._raise_differences()
        return self

    def refused(self, error: Exception) -> None:
        """Compare an error that came up when the job was planned; what Penstock itself refuses is not one of a query.

        Raises
        ------
        RowsDifferError
            If plain Spark runs the query.
        """
        self._end(ExecutionState.FAILED, None)
        if not isinstance(error, PenstockError):
            self.failed(error)
            self._raise_differences(error)

    def failed(self, error: BaseException) -> None:
        """Compare a failure with what plain Spark does; nothing was made visible, so it reads what the job read."""
        with self._comparing, self._as_shadow():
            if self._is_over:
                return
            self._is_over = True
            rest = [watched for watched in self._watched if id(watched) not in self._compared]
            seconds = time.time() - self.started
            for watched in [one for one in rest if self._has_rows(one)]:
                self._add(watched, compare_rows(watched, seconds))
                rest.remove(watched)
            for watched in [one for one in rest if one.is_whole]:
                self._say(watched, Verdict.BY_SPARK, "Spark runs this query itself, and it failed")
                rest.remove(watched)
            self._compare_failures(rest, error)
            self._finish_report()

    def _before_commit(self) -> None:
        """Compare: what a job reads is as it was only until its sinks show what it wrote."""
        self._compare()

    def _compare(self) -> None:
        """Compare all outputs, once."""
        with self._comparing, self._as_shadow():
            seconds = time.time() - self.started
            for watched in self._watched:
                if id(watched) not in self._compared:
                    self._add(watched, compare_rows(watched, seconds))
            if self._cancelled:
                raise JobCancelledError(f"job {self.name!r} was cancelled", cause=self._cancelled)
            self._finish_report()

    def _compare_failures(self, rest: Sequence[Watched], error: BaseException) -> None:
        runs: list[tuple[Watched, PlainRun]] = []
        ours = error_class(error)
        for watched in rest:
            try:
                run = run_plain(watched)
            except NotComparableError as why:
                self._say(watched, Verdict.NOT_COMPARED, str(why))
                continue
            if run.error is not None and error_class(run.error) == ours:
                self._say(watched, Verdict.EQUAL, f"both raise {ours}", plain_seconds=run.seconds)
                for other in rest:
                    if id(other) not in self._compared:
                        why_not = f"the job failed as plain Spark does with {watched.name}, so it has no rows"
                        self._say(other, Verdict.NOT_COMPARED, why_not)
                return
            runs.append((watched, run))
        for watched, run in runs:
            self._say_failure(watched, run, ours, error)

    def _say_failure(self, watched: Watched, run: PlainRun, ours: str, error: BaseException) -> None:
        theirs = error_class(run.error) if run.error is not None else ""
        try:
            second = run_plain(watched, otherwise=True)
            again = error_class(second.error) if second.error is not None else ""
        except NotComparableError:
            again = ""
        rows = None if run.found is None else run.found.rows
        if again != theirs:
            reason = f"plain Spark itself {f'raises {again}' if again else 'does not fail'} in a second run"
            self._say(watched, Verdict.NOT_COMPARED, reason, rows, run.seconds)
            return
        plain = f"plain Spark raises {theirs}" if theirs else f"plain Spark gives {rows} rows"
        reason = f"Penstock raises {ours} ({first_line(error)}), {plain}"
        self._say(watched, Verdict.DIFFERENT, reason, rows, run.seconds)

    def _has_rows(self, watched: Watched) -> bool:
        """Whether an output's rows can be had although the job failed: then it was not they that failed."""
        if watched.offered is None or watched.is_whole:
            return False
        try:
            fingerprint(watched.taken, watched.bridge)
        except Exception:  # noqa: BLE001 - whatever a query may raise
            return False
        watched.counted = None  # it may have seen a part of them
        return True

    def _say(
        self,
        watched: Watched,
        verdict: Verdict,
        reason: str,
        plain_rows: int | None = None,
        plain_seconds: float | None = None,
    ) -> None:
        names = tuple(watched.plain.schema.names)
        self._add(
            watched,
            Comparison(
                watched.name,
                verdict,
                reason,
                plain_rows=plain_rows,
                names=names,
                plain_seconds=plain_seconds,
                location=watched.location,
            ),
        )

    def _add(self, watched: Watched, comparison: Comparison) -> None:
        self._compared[id(watched)] = replace(comparison, engine=self._engine(watched))

    def _engine(self, watched: Watched) -> Engine:
        """Return the engine that computed an output; a job shares its decisions among its outputs."""
        if watched.is_whole:
            return Engine.SPARK
        native = [one for one in self.decisions if one.kind is DecisionKind.NATIVE and "DuckDB" in str(one.chosen)]
        chosen = {str(one.chosen): "instead" in one.outcome for one in native}
        if IN_ONE_TASK in chosen:
            return Engine.SPARK if chosen[IN_ONE_TASK] else Engine.NATIVE
        return Engine.BOTH if "DuckDB" in chosen else Engine.PENSTOCK

    def _finish_report(self) -> None:
        known = [self._compared.get(id(watched)) for watched in self._watched]
        self.report.comparisons = [one for one in known if one is not None]
        for watched in self._watched:  # so that Spark can clean up what they were read from
            watched.offered = watched.counted = None

    def _as_shadow(self) -> AbstractContextManager[None]:
        session, description = self._shadow_bridge.session, f"{self.name}: plain Spark"
        return jobs.vertex_thread(session, self._properties, self._group, description)

    def _raise_differences(self, error: Exception | None = None) -> None:
        different = self.report.differences
        if different and self._raises:
            raise RowsDifferError.of(self.name, [str(one) for one in different]) from error
