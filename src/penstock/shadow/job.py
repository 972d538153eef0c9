"""Jobs whose rows are compared with those of plain Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.decisions.log import DecisionKind
from penstock.engine.registry import native_engine
from penstock.errors import JobCancelledError, PenstockError, RowsDifferError
from penstock.events import ExecutionState, OutputCompared
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
    from penstock.connectors.core.base import Sink
    from penstock.planner.plan import JobPlan
    from penstock.scheduler.origin import QueryOrigin
    from penstock.spark.bridge.handles import LocalProperties
    from penstock.spark.bridge.jvm import Bridge
    from penstock.spark.plans.logical_plan import LogicalPlan


class ShadowedJob(Job):
    """A job whose queries plain Spark runs as well, to compare the rows.

    Plain Spark (Spark without Penstock) runs the queries in the user's session before the commit, and writes nothing.
    `report` has the results. `raises` says whether `wait` raises an error if rows differ. `properties` are Spark's
    local properties of the user's thread; if None, those of the current thread.
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
        self._comparisons: dict[int, Comparison] = {}  # by the `id` of the watched output
        self._comparison_lock = threading.RLock()
        self._job_group = f"penstock-{self.id}-shadow"
        self._is_report_final = False

    def watch_outputs(self, outputs: Sequence[Output]) -> list[Output]:
        """Return the outputs with watched sinks, which the job has to use instead."""
        REPORTS.append(self.report)
        return [self._watch_output(output) for output in outputs]

    def _watch_output(self, output: Output) -> Output:
        line = "" if output.location is None else str(output.location)
        plain = PlainQuery.of(self._shadow_bridge, output.df)
        watched = WatchedOutput(self._shadow_bridge, output.sink.name, plain, line, output.sink.materialised, output.df)
        self._watched.append(watched)
        sink = ShadowedSink(output.sink, watched)
        return Output(output.df, sink, output.parallelism, output.location)

    def watch_query(self, plan: LogicalPlan, sink: Sink, line: str) -> Sink:
        """Return a watched sink for a query that Spark delegates.

        Spark fetches the rows after the job, so the sink cannot fingerprint them; the last stage runs again instead.
        """
        REPORTS.append(self.report)
        plain = PlainQuery.of_plan(self._shadow_bridge, plan)
        watched = WatchedOutput(self._shadow_bridge, sink.name, plain, line, materialised=True)
        self._watched.append(watched)
        return ShadowedSink(sink, watched)

    def record_plan(self, plan: JobPlan) -> None:
        """Record if Spark itself runs the query of a job with a single output; no comparison is needed then."""
        queries = [source.scan for source in plan.sources.values() if isinstance(source.scan, SparkQuery)]
        if len(self._watched) == 1 and any(not isinstance(query, NativeQuery) for query in queries):
            self._watched[0].spark_is_chosen = True

    def record_fallback(self, error: BaseException) -> None:
        """Record that Spark runs the query after a failure of Penstock; earlier comparisons are discarded."""
        with self._comparison_lock:
            self._is_report_final = True
            self._comparisons.clear()
            reason = f"Penstock failed, so Spark runs this query itself: {first_line(error)}"
            for watched in self._watched:
                watched.spark_is_chosen = True
                self._add_verdict(watched, Verdict.BY_SPARK, reason)
            self._finish_report()

    def cancel(self, reason: str = "cancelled by the user") -> None:
        """Cancel the job and its comparison."""
        super().cancel(reason)
        jobs.cancel_group(self._shadow_bridge, self._job_group, reason)

    def wait(self, timeout: float | None = None) -> Job:
        """Wait for the end like `Job.wait`; rows that differ from plain Spark's remain in the target.

        Raise `RowsDifferError` if the job `raises` and the rows of an output differ from plain Spark's.
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
        """Check whether plain Spark fails with the same error as the planning; a `PenstockError` is not compared.

        Raise `RowsDifferError` if the job `raises` and plain Spark does not fail with the same error.
        """
        self._end(ExecutionState.FAILED, None)
        if not isinstance(error, PenstockError):
            self.compare_failure(error)
            self._raise_differences(error)

    def compare_failure(self, error: BaseException) -> None:
        """Compare a failed job's outputs or error; plain Spark reads the same data, as the job committed nothing."""
        with self._comparison_lock, self._as_shadow():
            if self._is_report_final:
                return
            self._is_report_final = True
            remaining = [watched for watched in self._watched if id(watched) not in self._comparisons]
            seconds = time.time() - self.started
            for watched in [output for output in remaining if self._can_compute_rows(output)]:
                self._add(watched, compare_rows(watched, seconds))
                remaining.remove(watched)
            for watched in [output for output in remaining if output.is_run_by_spark]:
                self._add_verdict(watched, Verdict.BY_SPARK, "Spark runs this query itself, and it failed")
                remaining.remove(watched)
            self._compare_failures(remaining, error)
            self._finish_report()

    def _before_commit(self) -> None:
        """Compare the remaining outputs before the commit, which may change the data that the queries read."""
        with self._comparison_lock, self._as_shadow():
            seconds = time.time() - self.started
            for watched in self._watched:
                if id(watched) not in self._comparisons:
                    self._add(watched, compare_rows(watched, seconds))
            if self._ending.effective_cancel_reason:
                raise JobCancelledError(f"job {self.name!r} was cancelled", cause=self._ending.effective_cancel_reason)
            self._finish_report()
            for comparison in self.report.comparisons:
                self._event_bus.emit(
                    OutputCompared(
                        comparison.output, comparison.verdict.value, comparison.seconds, comparison.plain_seconds
                    )
                )

    def _compare_failures(self, remaining: Sequence[WatchedOutput], error: BaseException) -> None:
        """Run the queries of outputs without a verdict on plain Spark, until a run fails with the error of the job."""
        runs: list[tuple[WatchedOutput, PlainRun]] = []
        job_error = error_class(error)
        for watched in remaining:
            try:
                run = run_plain(watched)
            except NotComparableError as problem:
                self._add_verdict(watched, Verdict.NOT_COMPARED, str(problem))
                continue
            if run.error is not None and error_class(run.error) == job_error:
                self._add_verdict(watched, Verdict.EQUAL, f"both raise {job_error}", plain_seconds=run.seconds)
                for other_output in remaining:
                    if id(other_output) not in self._comparisons:
                        reason = f"the job failed as plain Spark does with {watched.name}, so this output has no rows"
                        self._add_verdict(other_output, Verdict.NOT_COMPARED, reason)
                return
            runs.append((watched, run))
        for watched, run in runs:
            self._add_failure_verdict(watched, run, job_error, error)

    def _add_failure_verdict(self, watched: WatchedOutput, run: PlainRun, job_error: str, error: BaseException) -> None:
        plain_error = error_class(run.error) if run.error is not None else ""
        try:
            second_run = run_plain(watched, repartitioned=True)
            second_error = error_class(second_run.error) if second_run.error is not None else ""
        except NotComparableError:
            second_error = ""  # the second run itself did not fail
        rows = None if run.fingerprint is None else run.fingerprint.rows
        if second_error != plain_error:
            outcome = f"raises {second_error}" if second_error else "does not fail"
            reason = f"plain Spark itself {outcome} in a second run"
            self._add_verdict(watched, Verdict.NOT_COMPARED, reason, rows, run.seconds)
            return
        plain_outcome = f"plain Spark raises {plain_error}" if plain_error else f"plain Spark returns {rows} rows"
        reason = f"Penstock raises {job_error} ({first_line(error)}), {plain_outcome}"
        self._add_verdict(watched, Verdict.DIFFERENT, reason, rows, run.seconds)

    def _can_compute_rows(self, watched: WatchedOutput) -> bool:
        """Whether the rows of an output can be computed: then the job failed because of another output."""
        if watched.sink_df is None or watched.is_run_by_spark:
            return False
        try:
            fingerprint(watched.recomputed_rows, watched.bridge)
        except Exception:  # noqa: BLE001 - a query may raise any error
            return False
        watched.fingerprinted_rows = None  # the sink may have read only some of the rows
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
        self._comparisons[id(watched)] = replace(comparison, engine=self._engine(watched))

    def _engine(self, watched: WatchedOutput) -> Engine:
        """Return the engine that computed an output, from the decisions of the job, which all outputs share."""
        if watched.is_run_by_spark:
            return Engine.SPARK
        has_fallback_by_choice = {
            str(decision.chosen): "instead" in decision.outcome  # the outcome of a fallback to Spark
            for decision in self.decisions
            if decision.kind is DecisionKind.NATIVE
        }
        engine = native_engine()
        if engine is None:
            return Engine.PENSTOCK
        if (single_task := single_task_choice(engine)) in has_fallback_by_choice:
            return Engine.SPARK if has_fallback_by_choice[single_task] else Engine.NATIVE
        return Engine.BOTH if engine.name in has_fallback_by_choice else Engine.PENSTOCK

    def _finish_report(self) -> None:
        comparisons = [self._comparisons.get(id(watched)) for watched in self._watched]
        self.report.comparisons = [comparison for comparison in comparisons if comparison is not None]
        for watched in self._watched:  # so that Spark can clean up the data that these DataFrames read
            watched.sink_df = watched.fingerprinted_rows = None

    def _as_shadow(self) -> AbstractContextManager[None]:
        """Return a context whose Spark jobs belong to the job group of the comparison, so that `cancel` ends them."""
        session, description = self._shadow_bridge.session, f"{self.name}: plain Spark"
        return jobs.vertex_thread(session, self._properties, self._job_group, description)

    def _raise_differences(self, error: Exception | None = None) -> None:
        different = self.report.differences
        if different and self._raises:
            listed = "\n".join(f"  {line}" for comparison in different for line in str(comparison).splitlines())
            raise RowsDifferError(
                f"the rows of job {self.name!r} differ from plain Spark's:\n{listed}",
                hint="the job's output is kept; run the job on plain Spark, and report this with the query",
            ) from error
