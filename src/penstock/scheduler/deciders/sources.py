"""Decides with how many tasks a source is read, and how it is cut for them."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.connectors.base import ParallelismInferenceContext
from penstock.connectors.coordinator import NO_ANSWER
from penstock.connectors.scan_parallelism import SourceBounds, choose_scan_parallelism, is_asked
from penstock.connectors.splits import OPEN_COST, count_splits, split_size_for
from penstock.execution.reads import ScanRead
from penstock.units import show_bytes, show_count

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from penstock.connectors.base import KeyFilter
    from penstock.graph import JobVertex
    from penstock.planner.plan import JobPlan, SourcePlan
    from penstock.scheduler.deciders.settings import ParallelismSettings


@dataclass(frozen=True, slots=True)
class DecidedSource:
    """What was decided for a source.

    Parameters
    ----------
    name
        Its name.
    parallelism
        Its number of tasks, None where Spark has the say.
    reason
        One sentence.
    bytes_in
        What it holds.
    read
        How it is cut, None of one that cuts itself.
    """

    name: str
    parallelism: int | None
    reason: str
    bytes_in: int
    read: ScanRead | None


class SourceDecider:
    """Decides the sources of one job.

    Parameters
    ----------
    plan, settings
        The job's plan, and what its options say.
    """

    def __init__(self, plan: JobPlan, settings: ParallelismSettings) -> None:
        self._plan = plan
        self._settings = settings

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
        possible, why, split_bytes = self._cut(source, number, why)
        read = None
        if split_bytes is not None:
            read = ScanRead(split_bytes=split_bytes)
        elif not source.is_files and source.splits is None and possible is not None:
            read = ScanRead(at_most=possible)
        if possible is not None:
            source.coordinator.initialize(possible)
        return DecidedSource(source.coordinator.name, possible, why, source.bytes_read, read)

    def _with_given(self, node_id: int, given: int | None) -> SourcePlan:
        """Return a source with what was said of the vertex it is in."""
        source = self._plan.sources[node_id]
        if given is None or source.options.parallelism is not None:
            return source
        return replace(source, options=replace(source.options, parallelism=given))

    def _bounds(self, vertex: JobVertex) -> SourceBounds:
        settings = self._settings
        own = None if vertex.max_parallelism is None else vertex.max_parallelism
        said = [bound for bound in (own, settings.own_maximum) if bound is not None]
        return SourceBounds(
            settings.bounds.maximum, settings.source_default, min(said, default=None), settings.default
        )

    def _chosen(self, source: SourcePlan, vertex: JobVertex, inferred: int) -> tuple[int | None, str]:
        """Return the number of tasks a source should have, and the reason."""
        coordinator = source.coordinator
        asked = is_asked(source.options, source.static)
        if not source.is_files and asked and inferred == NO_ANSWER and coordinator.source is None:
            return None, "Spark cuts this source itself"
        bounds = self._bounds(vertex)
        number, why = choose_scan_parallelism(source.options, source.static, inferred, bounds)
        if asked and inferred == NO_ANSWER and coordinator.problem:
            why += f": {coordinator.problem}"
        return number, why

    def _cut(self, source: SourcePlan, number: int | None, why: str) -> tuple[int | None, str, int | None]:
        """Return the number of tasks that a source can give, the reason, and of files the split size for it."""
        if number is None:
            return None, why, None
        if source.is_files:
            return self._cut_files(source, number, why)
        if source.splits is None:
            return number, why, None
        possible = source.splits.cut(number)
        why = f"{why}: {source.splits.reason}" if source.splits.reason else why
        return possible, why if possible == number else f"{why}; it can be cut into {possible}", None

    def _cut_files(self, source: SourcePlan, number: int, why: str) -> tuple[int | None, str, int | None]:
        """Return the number of tasks the files can give, the reason, and the split size for it."""
        assert source.listing is not None
        listing = source.listing()
        if not sum(listing.sizes):
            return None, f"{why}, but there is nothing to read", None
        split = split_size_for(listing.sizes, listing.splittable, number, OPEN_COST)
        possible = count_splits(listing.sizes, listing.splittable, split, OPEN_COST)
        found = f"{show_count(len(listing.sizes), 'file')} of {show_bytes(sum(listing.sizes))}"
        if listing.fraction < 1:
            found += f", {listing.fraction:.0%} of each row read"
        if possible != number:
            return possible, f"{why}, but {found} can be cut into {possible} at most", split
        return number, f"{found}: {why}", split
