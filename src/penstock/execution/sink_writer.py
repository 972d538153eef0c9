"""Writes the rows of vertices to sinks."""

from __future__ import annotations

import logging
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from penstock.connectors.core.base import SinkParallelism, StageReport
from penstock.spark.errors import is_failed_last_stage
from penstock.spark.plans import fragment
from penstock.spark.plans.catalyst import rows_of
from penstock.spark.plans.dataframes import dataframe
from penstock.spark.plans.limits import split_limits, with_limits
from penstock.spark.run import exchange

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from penstock.execution.context import JobContext
    from penstock.execution.python_batches import PythonBatches
    from penstock.execution.results import ResultStore
    from penstock.graph import JobVertex, StreamEdge
    from penstock.spark.bridge.handles import Session
    from penstock.spark.plans.logical_plan import LogicalPlan

log = logging.getLogger("penstock.scheduler")

_SAMPLE = 4 << 20
"""Bytes of an exchange that are written as a sample to measure their size on disk."""
_ATTEMPTS = 4
"""Attempts for a final stage whose tasks must run together; Spark itself retries all other stages."""


class SinkTrials(Protocol):
    """Trial writes that measure sinks with a part of their rows."""

    def file_ratio(self, edge: StreamEdge) -> float:
        """Return the bytes on disk that a sink writes per exchanged byte."""

    def write_first(self, vertex: JobVertex, edge: StreamEdge) -> SinkParallelism | None:
        """Write the first rows of a sink; return how many tasks all rows need, None if unknown."""


@dataclass(eq=False)
class SinkWriter:
    """Writes to the sinks of a job."""

    _context: JobContext
    _results: ResultStore
    _batches: PythonBatches

    def write(self, vertex: JobVertex, session: Session, logical: LogicalPlan) -> tuple[int, int]:
        """Write the rows of a vertex to its sink; return the tasks that produce them, and the tasks of its inputs."""
        limits, below = split_limits(logical)
        if below.kind == "LogicalRDD":
            leaf = fragment.without_layout(session, below)
            input_tasks = rows_of(leaf).tasks
        else:
            with self._batches.limiting(session, below):
                last = exchange.run_to_rows(session, below)
            leaf, input_tasks = fragment.rdd_leaf(session, below.output, last.rows), last.input_tasks
        rows = with_limits(limits, leaf)
        sink = self._context.sinks[vertex.tail_id]
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with nullcontext() if sink.calls_python else self._batches.limiting(session, below):
                    sink.write(dataframe(session, rows))
                break
            except Exception as error:
                if attempt == _ATTEMPTS or not is_failed_last_stage(error) or not sink.restart():
                    raise
                log.warning("the last stage of %s failed and is run again", vertex.name, exc_info=True)
        return 1 if limits else rows_of(leaf).tasks, input_tasks

    def skip_report(self, vertex: JobVertex) -> StageReport | None:
        """Return the report of a sink that needs no rows; None if it does, or if the vertex has no sink."""
        sink = self._context.sinks.get(vertex.tail_id)
        reason = None if sink is None else sink.nothing_to_write
        return None if reason is None else StageReport("nothing is written", reason)

    def file_ratio(self, edge: StreamEdge) -> float:
        """Return the bytes on disk that a sink writes per exchanged byte, measured by writing a sample."""
        context, result = self._context, self._results.staged(edge.source_id)
        assert result.mapper_bytes is not None
        index = int(result.sizes[0].argmax())
        written = np.cumsum(result.mapper_bytes([index])[:, 0])
        tasks = min(int(np.searchsorted(written, _SAMPLE)) + 1, len(written))
        if not written[tasks - 1]:
            return 1.0
        group = f"penstock-{context.job_id}-sample-{edge.id}"
        with self._sample(edge, group, index, (0, tasks)) as sample:
            size = context.sinks[edge.target_id].sample_size(sample)
        return size / int(written[tasks - 1]) if size else 1.0

    def write_first(self, vertex: JobVertex, edge: StreamEdge) -> SinkParallelism | None:
        """Write the first rows of a sink: a part of what an upstream task has exchanged."""
        context, result = self._context, self._results.staged(edge.source_id)
        assert result.mapper_bytes is not None
        index = int(result.sizes[0].argmax())
        mapper = int(result.mapper_bytes([index])[:, 0].argmax())
        if not result.sizes[0][index]:
            return None
        with self._sample(edge, context.group_of(vertex), index, (mapper, mapper + 1)) as sample:
            return context.sinks[edge.target_id].write_first(sample, result.rows)

    @contextmanager
    def _sample(self, edge: StreamEdge, group: str, index: int, mappers: tuple[int, int]) -> Iterator[DataFrame]:
        context, result = self._context, self._results.staged(edge.source_id)
        with context.sessions.use() as session, context.thread(session, group, "first rows of a sink"):
            rows = exchange.read_slices(result, [[((index, index + 1), mappers)]])
            yield dataframe(session, fragment.rdd_leaf(session, context.plan.edges[edge.id].attributes, rows))
