"""Coordinator of a source: infers the parallelism of the source before the source is initialized."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from typing import TYPE_CHECKING

from penstock.base.threads import track_work
from penstock.connectors.core.base import DynamicParallelismInference
from penstock.errors import GraphError, SourceTimeoutError, first_line

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from penstock.connectors.core.base import ParallelismInferenceContext

log = logging.getLogger("penstock.sources")

NO_ANSWER = -1


class SourceCoordinator:
    """Coordinator of a source of a job."""

    def __init__(self, name: str, source: object) -> None:
        self.name = name
        self.source = source
        self.problem: str | None = None
        """The reason why the inference returned `NO_ANSWER`; None if it did not."""
        self._answer: Future[int] | None = None
        self._parallelism: int | None = None

    def infer_parallelism(self, context: ParallelismInferenceContext, executor: Executor) -> Future[int]:
        """Start the inference on another thread; later calls return the same future.

        Its result is the number of tasks, or `NO_ANSWER` if the source does not infer, raised, or returned 0 or less.
        It raises `SourceTimeoutError` if the source cannot be reached, as later requests would time out too.
        """
        if self._answer is None:
            if isinstance(self.source, DynamicParallelismInference):
                self._answer = executor.submit(self._infer, self.source, context)
            else:
                self.problem = "it does not infer its parallelism"
                self._answer = Future()
                self._answer.set_result(NO_ANSWER)
        return self._answer

    def _infer(self, source: DynamicParallelismInference, context: ParallelismInferenceContext) -> int:
        try:
            with track_work(f"asking {self.name} for its parallelism", self.name):
                number = int(source.infer_parallelism(context))
        except SourceTimeoutError:
            raise
        except Exception as error:
            log.warning("source %s could not infer its parallelism", self.name, exc_info=True)
            self.problem = f"its inference raised {type(error).__name__}: {first_line(error)}"
            return NO_ANSWER
        if number <= 0:
            self.problem = f"its inference returned {number}"
            return NO_ANSWER
        return number

    @property
    def parallelism(self) -> int:
        """The number of tasks that the source was initialised with; raises `GraphError` before that."""
        if self._parallelism is None:
            raise GraphError(f"source {self.name} is not initialised yet")
        return self._parallelism

    def initialize(self, parallelism: int) -> None:
        """Set the decided parallelism of the source; raise `GraphError` if it is set already."""
        if self._parallelism is not None:
            raise GraphError(f"source {self.name} is initialised already, with parallelism {self._parallelism}")
        self._parallelism = parallelism
