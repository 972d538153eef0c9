"""Writes the rows of vertices to sinks."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from penstock.connectors.core.base import SinkParallelism, StageReport
from penstock.spark.errors import is_failed_last_stage
from penstock.spark.plans import fragment
from penstock.spark.plans.catalyst import rows_of
from penstock.spark.plans.dataframes import dataframe
from penstock.spark.plans.logical_plan import LogicalPlan, split_limits, with_limits
from penstock.spark.run import exchange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.execution.context import JobContext
    from penstock.execution.python_batches import PythonBatches
    from penstock.execution.results import ResultStore
    from penstock.graph import JobVertex, StreamEdge
    from penstock.spark.bridge.handles import Session

log = logging.getLogger("penstock.scheduler")

_SAMPLE_BYTES = 4 << 20
"""The exchanged bytes that are written as a sample to measure their size on disk."""
_MAX_ATTEMPTS = 4
"""The maximum attempts for a last stage that Spark does not retry, such as a barrier stage (`is_failed_last_stage`)."""


class SinkTrials(Protocol):
    """Trial writes, which measure a sink with a part of its rows."""

    def file_ratio(self, edge: StreamEdge) -> float:
        """Return the bytes on disk that a sink writes per exchanged byte."""

    def write_first(self, vertex: JobVertex, edge: StreamEdge) -> SinkParallelism | None:
        """Write the first rows of a sink; return how many tasks are worthwhile for all rows, None if unknown."""


@dataclass(eq=False)
class SinkWriter:
    """Writes to the sinks of a job."""

    _context: JobContext
    _results: ResultStore
    _batches: PythonBatches

    def write(self, vertex: JobVertex, session: Session, logical: LogicalPlan) -> tuple[int, int]:
        """Write the rows of a vertex to its sink; return how many tasks write them, and how many read the inputs."""
        limits, below_limits = split_limits(logical)
        if below_limits.kind == "LogicalRDD":  # the vertex only reads its input
            leaf = fragment.without_layout(session, below_limits)
            tasks = input_tasks = rows_of(leaf).tasks
        elif below_limits.kind == "LocalRelation":  # the driver holds the rows
            leaf, tasks, input_tasks = below_limits, 1, 1
        else:
            with self._batches.limit_if_needed(session, below_limits):
                last_rows, input_tasks = exchange.run_to_last_stage(session, below_limits)
            leaf, tasks = fragment.rdd_leaf(session, below_limits.output, last_rows), last_rows.tasks
        rows = with_limits(limits, leaf)
        sink = self._context.sinks[vertex.tail_id]
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            try:
                with nullcontext() if sink.calls_python else self._batches.limit_if_needed(session, below_limits):
                    sink.write(dataframe(session, rows))
                break
            except Exception as error:
                if attempt == _MAX_ATTEMPTS or not is_failed_last_stage(error) or not sink.restart():
                    raise
                log.warning("the last stage of %s failed and is retried", vertex.name, exc_info=True)
        return 1 if limits else tasks, input_tasks  # Spark applies a limit in a single task

    def skip_report(self, vertex: JobVertex) -> StageReport | None:
        """Return the report of a sink that has nothing to write, or None for any other vertex."""
        sink = self._context.sinks.get(vertex.tail_id)
        reason = None if sink is None else sink.nothing_to_write
        return None if reason is None else StageReport("nothing is written", reason)

    def file_ratio(self, edge: StreamEdge) -> float:
        """Return the bytes on disk that a sink writes per exchanged byte, measured with a sample; 1 if unknown."""
        context, result = self._context, self._results.staged(edge.source_id)
        subpartition = int(result.sizes[0].argmax())
        cumulative_bytes = np.cumsum(result.mapper_bytes([subpartition])[:, 0])
        tasks = min(int(np.searchsorted(cumulative_bytes, _SAMPLE_BYTES)) + 1, len(cumulative_bytes))
        if not cumulative_bytes[tasks - 1]:
            return 1.0
        group = f"penstock-{context.job_id}-sample-{edge.id}"
        with self._sample(edge, group, subpartition, (0, tasks)) as sample:
            size = context.sinks[edge.target_id].sample_size(sample)
        return size / int(cumulative_bytes[tasks - 1]) if size else 1.0

    def write_first(self, vertex: JobVertex, edge: StreamEdge) -> SinkParallelism | None:
        """Write the rows of the largest subpartition that came from its largest upstream task, see `SinkTrials`."""
        context, result = self._context, self._results.staged(edge.source_id)
        subpartition = int(result.sizes[0].argmax())
        mapper = int(result.mapper_bytes([subpartition])[:, 0].argmax())
        if not result.sizes[0][subpartition]:
            return None
        with self._sample(edge, context.spark_job_group(vertex), subpartition, (mapper, mapper + 1)) as sample:
            return context.sinks[edge.target_id].write_first(sample, result.rows)

    @contextmanager
    def _sample(self, edge: StreamEdge, group: str, subpartition: int, mappers: tuple[int, int]) -> Iterator[DataFrame]:
        """Yield a DataFrame of the rows that a range of upstream tasks wrote to a subpartition."""
        context, result = self._context, self._results.staged(edge.source_id)
        with context.sessions.use() as session, context.thread(session, group, "first rows of a sink"):
            rows = exchange.read_slices(result, [[((subpartition, subpartition + 1), mappers)]])
            yield dataframe(session, fragment.rdd_leaf(session, context.plan.edges[edge.id].attributes, rows))
