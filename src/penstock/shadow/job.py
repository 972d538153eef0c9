"""Jobs whose rows are compared with those of plain Spark."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.decisions.log import DecisionKind
from penstock.engine.registry import native_engine
from penstock.errors import JobCancelledError, PenstockError, RowsDifferError
from penstock.events import ExecutionState
from penstock.planner.outputs import Output
from penstock.planner.whole_queries import NativeQuery, SparkQuery, single_task_choice
from penstock.scheduler.job import Job
from penstock.shadow.compare import NotComparableError, PlainRun, compare_rows, error_class, first_line, run_plain
from penstock.shadow.comparison import REPORTS, Comparison, Engine, ShadowReport, Verdict
from penstock.shadow.plain import PlainQuery
from penstock.shadow.sinks import ShadowedSink, WatchedOutput
from penstock.spark.run import jobs
from penstock.spark.run.fingerprint import fingerprint

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from penstock.connectors.core.base import Sink
    from penstock.planner.plan import JobPlan
    from penstock.scheduler.origin import QueryOrigin
    from penstock.spark.bridge.handles import LocalProperties
    from penstock.spark.bridge.jvm import Bridge
    from penstock.spark.plans.logical_plan import LogicalPlan


class ShadowedJob(Job):
    """A job whose queries plain Spark runs as well, to compare the rows.

    Plain Spark runs in the user's session when all sinks have their rows, before the commit, and writes nothing.
    `report` has the results. `raises` says whether `wait` raises an error if rows differ. `properties` are the local
    properties of the user's thread; if None, those of this thread.
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
        self._watched: list[WatchedOutput] = []
        self._compared: dict[int, Comparison] = {}
        self._comparing = threading.RLock()
        self._group = f"penstock-{self.id}-shadow"
        self._is_over = False

    def watch_outputs(self, outputs: Sequence[Output]) -> list[Output]:
        """Return outputs with watched sinks, with which the job is to be run."""
        REPORTS.append(self.report)
        return [self._watch(output) for output in outputs]

    def _watch(self, output: Output) -> Output:
        line = "" if output.location is None else str(output.location)
        plain = PlainQuery.of(self._shadow_bridge, output.df)
        watched = WatchedOutput(self._shadow_bridge, output.sink.name, plain, line, output.sink.materialised, output.df)
        self._watched.append(watched)
        sink = ShadowedSink(output.sink, watched)
        return Output(output.df, sink, output.parallelism, output.location)

    def watch_query(self, plan: LogicalPlan, sink: Sink, line: str) -> Sink:
        """Return a watched sink for a query that Spark has optimised already.

        The sink hands out the rows after the job, so they cannot be fingerprinted; the last stage runs again instead.
        """
        REPORTS.append(self.report)
        plain = PlainQuery.of_plan(self._shadow_bridge, plan)
        watched = WatchedOutput(self._shadow_bridge, sink.name, plain, line, materialised=True)
        self._watched.append(watched)
        return ShadowedSink(sink, watched)

    def record_plan(self, plan: JobPlan) -> None:
        """Record which engines the plan uses: queries that Spark computes itself need no comparison."""
        queries = [source.scan for source in plan.sources.values() if isinstance(source.scan, SparkQuery)]
        if len(self._watched) == 1 and any(not isinstance(query, NativeQuery) for query in queries):
            self._watched[0].runs_on_spark = True

    def record_fallback(self, error: BaseException) -> None:
        """Record that Spark runs the query after a failure of Penstock; earlier comparisons are discarded."""
        with self._comparing:
            self._is_over = True
            self._compared.clear()
            reason = f"Penstock failed, so Spark runs this query itself: {first_line(error)}"
            for watched in self._watched:
                watched.runs_on_spark = True
                self._add_verdict(watched, Verdict.BY_SPARK, reason)
            self._finish_report()

    def cancel(self, reason: str = "cancelled by the user") -> None:
        """Cancel the job and its comparison."""
        super().cancel(reason)
        jobs.cancel_group(self._shadow_bridge, self._group, reason)

    def wait(self, timeout: float | None = None) -> Job:
        """Wait for the end like `Job.wait`.

        Raise `RowsDifferError` if an output differs from plain Spark's. Written rows are not removed.
        """
        try:
            super().wait(timeout)
        except (TimeoutError, JobCancelledError):
            raise
        except Exception as error:
            self.compare_failure(error)
            self._raise_differences(error)
            raise
        self._raise_differences()
        return self

    def compare_planning_error(self, error: Exception) -> None:
        """Compare an error of planning with plain Spark; errors of Penstock itself are not compared.

        Raise `RowsDifferError` if plain Spark runs the query.
        """
        self._end(ExecutionState.FAILED, None)
        if not isinstance(error, PenstockError):
            self.compare_failure(error)
            self._raise_differences(error)

    def compare_failure(self, error: BaseException) -> None:
        """Compare a failure with plain Spark, which reads the same data, as nothing was committed."""
        with self._comparing, self._as_shadow():
            if self._is_over:
                return
            self._is_over = True
            rest = [watched for watched in self._watched if id(watched) not in self._compared]
            seconds = time.time() - self.started
            for watched in [output for output in rest if self._has_rows(output)]:
                self._add(watched, compare_rows(watched, seconds))
                rest.remove(watched)
            for watched in [output for output in rest if output.is_delegated]:
                self._add_verdict(watched, Verdict.BY_SPARK, "Spark runs this query itself, and it failed")
                rest.remove(watched)
            self._compare_failures(rest, error)
            self._finish_report()

    def _before_commit(self) -> None:
        """Compare the other outputs before the commit, as it may change the data that the job reads."""
        with self._comparing, self._as_shadow():
            seconds = time.time() - self.started
            for watched in self._watched:
                if id(watched) not in self._compared:
                    self._add(watched, compare_rows(watched, seconds))
            if self._ending.cancelled:
                raise JobCancelledError(f"job {self.name!r} was cancelled", cause=self._ending.cancelled)
            self._finish_report()

    def _compare_failures(self, rest: Sequence[WatchedOutput], error: BaseException) -> None:
        runs: list[tuple[WatchedOutput, PlainRun]] = []
        ours = error_class(error)
        for watched in rest:
            try:
                run = run_plain(watched)
            except NotComparableError as problem:
                self._add_verdict(watched, Verdict.NOT_COMPARED, str(problem))
                continue
            if run.error is not None and error_class(run.error) == ours:
                self._add_verdict(watched, Verdict.EQUAL, f"both raise {ours}", plain_seconds=run.seconds)
                for other in rest:
                    if id(other) not in self._compared:
                        reason = f"the job failed as plain Spark does with {watched.name}, so it has no rows"
                        self._add_verdict(other, Verdict.NOT_COMPARED, reason)
                return
            runs.append((watched, run))
        for watched, run in runs:
            self._add_failure_verdict(watched, run, ours, error)

    def _add_failure_verdict(self, watched: WatchedOutput, run: PlainRun, ours: str, error: BaseException) -> None:
        theirs = error_class(run.error) if run.error is not None else ""
        try:
            second = run_plain(watched, repartitioned=True)
            again = error_class(second.error) if second.error is not None else ""
        except NotComparableError:
            again = ""
        rows = None if run.fingerprint is None else run.fingerprint.rows
        if again != theirs:
            reason = f"plain Spark itself {f'raises {again}' if again else 'does not fail'} in a second run"
            self._add_verdict(watched, Verdict.NOT_COMPARED, reason, rows, run.seconds)
            return
        plain = f"plain Spark raises {theirs}" if theirs else f"plain Spark gives {rows} rows"
        reason = f"Penstock raises {ours} ({first_line(error)}), {plain}"
        self._add_verdict(watched, Verdict.DIFFERENT, reason, rows, run.seconds)

    def _has_rows(self, watched: WatchedOutput) -> bool:
        """Whether an output's rows can be computed although the job failed, because another output failed."""
        if watched.offered is None or watched.is_delegated:
            return False
        try:
            fingerprint(watched.offered_rows, watched.bridge)
        except Exception:  # noqa: BLE001 - whatever a query may raise
            return False
        watched.counted = None  # its fingerprint may be incomplete
        return True

    def _add_verdict(
        self,
        watched: WatchedOutput,
        verdict: Verdict,
        reason: str,
        plain_rows: int | None = None,
        plain_seconds: float | None = None,
    ) -> None:
        self._add(watched, watched.comparison(verdict, reason, plain_rows=plain_rows, plain_seconds=plain_seconds))

    def _add(self, watched: WatchedOutput, comparison: Comparison) -> None:
        self._compared[id(watched)] = replace(comparison, engine=self._engine(watched))

    def _engine(self, watched: WatchedOutput) -> Engine:
        """Return the engine that computed an output, from the decisions of the job, which all outputs share."""
        if watched.is_delegated:
            return Engine.SPARK
        chosen = {
            str(decision.chosen): "instead" in decision.outcome
            for decision in self.decisions
            if decision.kind is DecisionKind.NATIVE
        }
        engine = native_engine()
        if engine is None:
            return Engine.PENSTOCK
        if (single_task := single_task_choice(engine)) in chosen:
            return Engine.SPARK if chosen[single_task] else Engine.NATIVE
        return Engine.BOTH if engine.name in chosen else Engine.PENSTOCK

    def _finish_report(self) -> None:
        comparisons = [self._compared.get(id(watched)) for watched in self._watched]
        self.report.comparisons = [comparison for comparison in comparisons if comparison is not None]
        for watched in self._watched:  # so that Spark can clean up the data that they read
            watched.offered = watched.counted = None

    def _as_shadow(self) -> AbstractContextManager[None]:
        session, description = self._shadow_bridge.session, f"{self.name}: plain Spark"
        return jobs.vertex_thread(session, self._properties, self._group, description)

    def _raise_differences(self, error: Exception | None = None) -> None:
        different = self.report.differences
        if different and self._raises:
            raise RowsDifferError.of(self.name, [str(comparison) for comparison in different]) from error
