"""Decides how many tasks read a source, and how it is split for them."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.base.threads import track_work
from penstock.config.options import MAX_PARALLELISM
from penstock.connectors.core.base import KeyFilter, ParallelismInferenceContext
from penstock.connectors.core.coordinator import NOT_INFERRED
from penstock.connectors.core.scan_parallelism import SourceBounds, choose_scan_parallelism, infers_parallelism
from penstock.connectors.files.file_scan import FileScan

if TYPE_CHECKING:
    from penstock.graph import JobVertex
    from penstock.planner.plan import JobPlan, SourcePlan
    from penstock.scheduler.deciders.input_estimates import PythonSteps
    from penstock.scheduler.resources import ParallelismSettings


@dataclass(frozen=True, slots=True)
class DecidedSource:
    """The decision for a source and its scan; `parallelism` is None if Spark sets it, `bytes_in` if it is unknown.

    `settings` are those of the session in which Spark plans the scan, and `figures` the number and bytes of its files.
    """

    name: str
    parallelism: int | None
    reason: str
    bytes_in: int | None
    settings: Mapping[str, str]
    figures: Mapping[str, int] = field(default_factory=dict)


@dataclass(eq=False)
class SourceDecider:
    """Decides the sources of a job."""

    _plan: JobPlan
    _settings: ParallelismSettings
    _python: PythonSteps

    def infer_parallelism(
        self, vertex: JobVertex, node_id: int, requested: int | None, executor: Executor, key_filter: KeyFilter | None
    ) -> Future[int]:
        """Let a source of a vertex infer its parallelism, unless options or a request determine the parallelism.

        `requested` is the number of tasks that the user requested for the inputs of the vertex, or None. `key_filter`
        is the dynamic filter of the source, or None. The result is `NOT_INFERRED` if the source inferred no number.
        """
        source = self._with_requested(node_id, requested)
        if not infers_parallelism(source.options, source.static_parallelism):
            inferred: Future[int] = Future()
            inferred.set_result(NOT_INFERRED)
            return inferred
        bound = self._bounds(vertex).inference_bound(source.options)
        context = ParallelismInferenceContext(bound, self._settings.bounds.volume_per_task, key_filter)
        return source.coordinator.infer_parallelism(context, executor)

    def decide(self, vertex: JobVertex, node_id: int, requested: int | None, inferred: int) -> DecidedSource:
        """Decide the tasks and splits of a source from its `inferred` parallelism, and initialize its coordinator."""
        source = self._with_requested(node_id, requested)
        number, reason = self._choose(source, vertex, inferred)
        if number is None:
            splitting = source.scan.unchanged_splitting(reason)
        else:
            name = source.coordinator.name
            with track_work(f"asking {name} for its splits", name):
                splitting = source.scan.choose_splitting(number, reason)
        if splitting.parallelism is not None:
            source.coordinator.initialize(splitting.parallelism)
        size = source.scan.size_in_bytes
        figures = source.scan.figures if isinstance(source.scan, FileScan) else {}
        name = source.coordinator.name
        return DecidedSource(name, splitting.parallelism, splitting.reason, size, splitting.settings, figures)

    def _with_requested(self, node_id: int, requested: int | None) -> SourcePlan:
        """Return a source with the requested number of tasks in its options."""
        source = self._plan.sources[node_id]
        options = source.options
        if self._settings.fixed is not None:  # the options fix all numbers of tasks
            options = replace(options, infer=False)
        if requested is not None and options.parallelism is None:
            options = replace(options, parallelism=requested)
        return replace(source, options=options)

    def _bounds(self, vertex: JobVertex) -> SourceBounds:
        settings, step_maximum = self._settings, vertex.max_parallelism
        return SourceBounds(
            settings.bounds.maximum,
            settings.source_default,
            settings.user_maximum if step_maximum is None else step_maximum,
            settings.default,
            job_from=settings.bounds.maximum_from,
            vertex_from=MAX_PARALLELISM.key if step_maximum is None else "the maximum of this step",
            step=step_maximum,
        )

    def _choose(self, source: SourcePlan, vertex: JobVertex, inferred: int) -> tuple[int | None, str]:
        """Return the number of tasks for a source (None if Spark sets it), and the reason."""
        coordinator = source.coordinator
        infers = infers_parallelism(source.options, source.static_parallelism)
        if source.scan.is_divided_by_spark:
            number = source.static_parallelism if source.options.parallelism is None else source.options.parallelism
            ignored = "" if number is None else f", so the parallelism of {number} does not apply"
            return None, f"Spark splits this source itself{ignored}"
        if infers and inferred == NOT_INFERRED and coordinator.source is None:
            return None, "Spark splits this source itself"
        bounds = self._bounds(vertex)
        number, reason = choose_scan_parallelism(source.options, source.static_parallelism, inferred, bounds)
        if infers and inferred > 0 and source.scan.allows_any_parallelism:
            python = self._python.tasks_needed(vertex.node_ids, source.scan.size_in_bytes)
            if python is not None:
                raised_number, bound_text = bounds.cap_inferred(max(inferred, python.tasks), source.options)
                if raised_number > number:
                    return raised_number, f"{python.reason}, but {bound_text}" if bound_text else python.reason
        if infers and inferred == NOT_INFERRED and coordinator.problem:
            reason += f": {coordinator.problem}"
        return number, reason
