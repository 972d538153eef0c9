"""Results of vertices without Spark, with given sizes of subpartitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.spark.run.exchange import StagedResult

if TYPE_CHECKING:
    from penstock.connectors.core.base import SinkParallelism
    from penstock.graph import JobVertex, StreamEdge


class Written(StagedResult):
    """Stages that count as a plain exchange, without Spark's plan of them."""

    @property
    def has_readable_ranges(self) -> bool:
        return True

    @property
    def is_plain_exchange(self) -> bool:
        return True

    def mapper_bytes(self, subpartitions: Any) -> Any:
        """The tasks wrote equal parts."""
        assert self.tasks is not None
        return np.array([self.sizes[0][subpartitions] // self.tasks] * self.tasks)


def written(*sizes: Any, tasks: int = 4) -> Any:
    """Return a result with these bytes in each subpartition, written in equal parts by the tasks."""
    subpartitions = np.array([sizes], dtype=np.int64)
    return Written(None, ("stage",), subpartitions, rows=100, size_in_bytes=sum(sizes), tasks=tasks)


class Results(dict):
    """The results of finished vertices, by node; see `penstock.execution.results.Results`."""

    staged = dict.__getitem__

    def file_ratio(self, edge: StreamEdge) -> float:
        return 0.5

    worth: SinkParallelism | None = None

    def write_first(self, vertex: JobVertex, edge: StreamEdge) -> SinkParallelism | None:
        return self.worth
