"""Decides how many tasks read a source, and how it is split for them."""

from __future__ import annotations

from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.base.threads import track_work
from penstock.config.options import MAX_PARALLELISM
from penstock.connectors.core.base import KeyFilter, ParallelismInferenceContext
from penstock.connectors.core.coordinator import NO_ANSWER
from penstock.connectors.core.scan import Splitting
from penstock.connectors.core.scan_parallelism import SourceBounds, choose_scan_parallelism, infers_parallelism

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.graph import JobVertex
    from penstock.planner.plan import JobPlan, SourcePlan
    from penstock.scheduler.deciders.input_estimates import PythonSteps
    from penstock.scheduler.resources import ParallelismSettings


@dataclass(frozen=True, slots=True)
class DecidedSource:
    """The decision for a source; `parallelism` is None if Spark sets it, `bytes_in` if it does not report its size."""

    name: str
    parallelism: int | None
    reason: str
    bytes_in: int | None
    settings: Mapping[str, str]


@dataclass(eq=False)
class SourceDecider:
    """Decides the sources of a job."""

    _plan: JobPlan
    _settings: ParallelismSettings
    _python: PythonSteps

    def infer_parallelism(
        self, vertex: JobVertex, node_id: int, requested: int | None, executor: Executor, keys: KeyFilter | None
    ) -> Future[int]:
        """Let a source of a vertex infer its parallelism, unless options or a request determine it.

        `requested` is the number of tasks for all inputs of the vertex. The source is filtered by `keys`, if not None.
        """
        source = self._with_requested(node_id, requested)
        if not infers_parallelism(source.options, source.static):
            inferred: Future[int] = Future()
            inferred.set_result(NO_ANSWER)
            return inferred
        bound = self._bounds(vertex).inference_bound(source.options)
        context = ParallelismInferenceContext(bound, self._settings.bounds.volume_per_task, keys)
        return source.coordinator.infer_parallelism(context, executor)

    def decide(self, vertex: JobVertex, node_id: int, requested: int | None, inferred: int) -> DecidedSource:
        """Decide a source, and pass its number of tasks to its coordinator."""
        source = self._with_requested(node_id, requested)
        number, reason = self._choose(source, vertex, inferred)
        if number is None:
            split = Splitting(None, f"{reason}: {source.scan.reason}" if source.scan.reason else reason)
        else:
            name = source.coordinator.name
            with track_work(f"asking {name} for its splits", name):
                split = source.scan.split(number, reason)
        if split.parallelism is not None:
            source.coordinator.initialize(split.parallelism)
        size = source.scan.size_in_bytes
        return DecidedSource(source.coordinator.name, split.parallelism, split.reason, size, split.settings)

    def _with_requested(self, node_id: int, requested: int | None) -> SourcePlan:
        """Return a source with the requested number of tasks in its options."""
        source = self._plan.sources[node_id]
        options = source.options
        if self._settings.fixed is not None:  # nothing is decided from data
            options = replace(options, infer=False)
        if requested is not None and options.parallelism is None:
            options = replace(options, parallelism=requested)
        return replace(source, options=options)

    def _bounds(self, vertex: JobVertex) -> SourceBounds:
        settings, step = self._settings, vertex.max_parallelism
        return SourceBounds(
            settings.bounds.maximum,
            settings.source_default,
            settings.user_maximum if step is None else step,
            settings.default,
            job_from=settings.bounds.maximum_from,
            vertex_from=MAX_PARALLELISM.key if step is None else "the most tasks of this step",
            step=step,
        )

    def _choose(self, source: SourcePlan, vertex: JobVertex, inferred: int) -> tuple[int | None, str]:
        """Return the number of tasks for a source (None if Spark sets it), and the reason."""
        coordinator = source.coordinator
        infers = infers_parallelism(source.options, source.static)
        if source.scan.is_cut_by_spark:
            number = source.static if source.options.parallelism is None else source.options.parallelism
            ignored = "" if number is None else f", so the parallelism of {number} does not apply"
            return None, f"Spark splits this source itself{ignored}"
        if infers and inferred == NO_ANSWER and coordinator.source is None:
            return None, "Spark splits this source itself"
        bounds = self._bounds(vertex)
        number, reason = choose_scan_parallelism(source.options, source.static, inferred, bounds)
        if infers and inferred > 0 and source.scan.allows_any_parallelism:
            python = self._python.need(vertex.node_ids, source.scan.size_in_bytes)
            if python is not None:
                raised, bound = bounds.inferred(max(inferred, python.tasks), source.options)
                if raised > number:
                    return raised, f"{python.reason}, but {bound}" if bound else python.reason
        if infers and inferred == NO_ANSWER and coordinator.problem:
            reason += f": {coordinator.problem}"
        return number, reason
