"""Decides with how many tasks a source is read, and how it is cut for them."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.config.options import MAX_PARALLELISM
from penstock.connectors.base import ParallelismInferenceContext
from penstock.connectors.coordinator import NO_ANSWER
from penstock.connectors.scan import Splitting
from penstock.connectors.scan_parallelism import SourceBounds, choose_scan_parallelism, is_asked
from penstock.threads import doing

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from penstock.connectors.base import KeyFilter
    from penstock.graph import JobVertex
    from penstock.planner.plan import JobPlan, SourcePlan
    from penstock.scheduler.deciders.python_steps import PythonSteps
    from penstock.scheduler.deciders.settings import ParallelismSettings


@dataclass(frozen=True, slots=True)
class DecidedSource:
    """What was decided for a source.

    Parameters
    ----------
    name
        Its name.
    split
        How it is cut.
    bytes_in
        What it holds, None if it does not tell.
    """

    name: str
    split: Splitting
    bytes_in: int | None

    @property
    def parallelism(self) -> int | None:
        """Its number of tasks, None where Spark has the say."""
        return self.split.parallelism

    @property
    def reason(self) -> str:
        """Why that many."""
        return self.split.reason


class SourceDecider:
    """Decides the sources of one job.

    Parameters
    ----------
    plan, settings
        The job's plan, and what its options say.
    python
        Knows the Python functions.
    """

    def __init__(self, plan: JobPlan, settings: ParallelismSettings, python: PythonSteps) -> None:
        self._plan = plan
        self._settings = settings
        self._python = python

    def ask(
        self, vertex: JobVertex, node_id: int, given: int | None, askers: Executor, keys: KeyFilter | None
    ) -> Future[int]:
        """Ask a source of a vertex for its parallelism, unless that is not left to it.

        Parameters
        ----------
        vertex, node_id
            The vertex, and the source in it.
        given
            The number of tasks that was asked for of all that the vertex reads, or None.
        askers
            Where it is asked.
        keys
            The keys by which its rows are filtered, if they are.
        """
        source = self._with_given(node_id, given)
        if not is_asked(source.options, source.static):
            answer: Future[int] = Future()
            answer.set_result(NO_ANSWER)
            return answer
        bound = self._bounds(vertex).asked(source.options)
        context = ParallelismInferenceContext(bound, self._settings.bounds.volume_per_task, keys)
        return source.coordinator.infer_parallelism(context, askers)

    def decide(self, vertex: JobVertex, node_id: int, given: int | None, inferred: int) -> DecidedSource:
        """Decide a source, and tell its coordinator.

        Parameters
        ----------
        inferred
            What the source answered.
        """
        source = self._with_given(node_id, given)
        number, why = self._chosen(source, vertex, inferred)
        if number is None:
            split = Splitting(None, f"{why}: {source.scan.reason}" if source.scan.reason else why)
        else:
            name = source.coordinator.name
            with doing(f"asking {name} for its splits", name):
                split = source.scan.split(number, why)
        if split.parallelism is not None:
            source.coordinator.initialize(split.parallelism)
        return DecidedSource(source.coordinator.name, split, source.scan.size_in_bytes)

    def _with_given(self, node_id: int, given: int | None) -> SourcePlan:
        """Return a source with what was said of the vertex it is in."""
        source = self._plan.sources[node_id]
        options = source.options
        if self._settings.fixed is not None:  # nothing is decided from data
            options = replace(options, infer=False)
        if given is not None and options.parallelism is None:
            options = replace(options, parallelism=given)
        return replace(source, options=options)

    def _bounds(self, vertex: JobVertex) -> SourceBounds:
        settings, step = self._settings, vertex.max_parallelism
        return SourceBounds(
            settings.bounds.maximum,
            settings.source_default,
            settings.own_maximum if step is None else step,
            settings.default,
            job_from=settings.bounds.maximum_from,
            vertex_from=MAX_PARALLELISM.key if step is None else "the most tasks of this step",
            step=step,
        )

    def _chosen(self, source: SourcePlan, vertex: JobVertex, inferred: int) -> tuple[int | None, str]:
        """Return the number of tasks a source should have, and the reason."""
        coordinator = source.coordinator
        asked = is_asked(source.options, source.static)
        if source.scan.is_cut_by_spark:
            number = source.static if source.options.parallelism is None else source.options.parallelism
            unheeded = "" if number is None else f", so the parallelism of {number} does not apply"
            return None, f"Spark splits this source itself{unheeded}"
        if asked and inferred == NO_ANSWER and coordinator.source is None:
            return None, "Spark splits this source itself"
        bounds = self._bounds(vertex)
        number, why = choose_scan_parallelism(source.options, source.static, inferred, bounds)
        if asked and inferred > 0 and source.scan.takes_any_number:
            python = self._python.need(vertex.node_ids, source.scan.size_in_bytes)
            if python is not None:
                more, bound = bounds.inferred(max(inferred, python.tasks), source.options)
                if more > number:
                    return more, f"{python.reason}, but {bound}" if bound else python.reason
        if asked and inferred == NO_ANSWER and coordinator.problem:
            why += f": {coordinator.problem}"
        return number, why
