"""Coordinator of a source, as in Flink: infers the parallelism of the source, and stores the decided parallelism."""

from __future__ import annotations

import logging
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING

from penstock.base.threads import track_work
from penstock.connectors.core.base import DynamicParallelismInference
from penstock.errors import GraphError, SourceTimeoutError, first_line

if TYPE_CHECKING:
    from penstock.connectors.core.base import ParallelismInferenceContext

log = logging.getLogger("penstock.sources")

NOT_INFERRED = -1
"""The result of an inference without a number of tasks."""


class SourceCoordinator:
    """Runs the parallelism inference of a source once per job, and stores the decided parallelism."""

    def __init__(self, name: str, source: object) -> None:
        self.name = name
        self.source = source
        self.problem: str | None = None
        """The reason why the inference returned `NOT_INFERRED`; None unless it did."""
        self._inferred: Future[int] | None = None
        self._parallelism: int | None = None

    def infer_parallelism(self, context: ParallelismInferenceContext, executor: Executor) -> Future[int]:
        """Start the inference on another thread; later calls return the same future.

        The future has the number of tasks, or `NOT_INFERRED` if the source does not infer, raised, or returned 0 or
        less. It raises `SourceTimeoutError` if the source is unreachable, as later requests would time out too.
        """
        if self._inferred is None:
            if isinstance(self.source, DynamicParallelismInference):
                self._inferred = executor.submit(self._infer, self.source, context)
            else:
                self.problem = "it does not infer its parallelism"
                self._inferred = Future()
                self._inferred.set_result(NOT_INFERRED)
        return self._inferred

    def _infer(self, source: DynamicParallelismInference, context: ParallelismInferenceContext) -> int:
        try:
            with track_work(f"asking {self.name} for its parallelism", self.name):
                number = int(source.infer_parallelism(context))
        except SourceTimeoutError:
            raise
        except Exception as error:
            log.warning("source %s could not infer its parallelism", self.name, exc_info=True)
            self.problem = f"its inference raised {type(error).__name__}: {first_line(error)}"
            return NOT_INFERRED
        if number <= 0:
            self.problem = f"its inference returned {number}"
            return NOT_INFERRED
        return number

    @property
    def parallelism(self) -> int:
        """The decided number of tasks; raises `GraphError` before `initialize` was called."""
        if self._parallelism is None:
            raise GraphError(f"source {self.name} is not initialized yet")
        return self._parallelism

    def initialize(self, parallelism: int) -> None:
        """Set the decided parallelism of the source; raise `GraphError` if it is set already."""
        if self._parallelism is not None:
            raise GraphError(f"source {self.name} is initialized already, with parallelism {self._parallelism}")
        self._parallelism = parallelism
