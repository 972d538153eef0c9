"""One coordinator per source: it exists before the parallelism does, and asks the source for it."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from typing import TYPE_CHECKING

from penstock.connectors.base import DynamicParallelismInference
from penstock.errors import GraphError, SourceTimeoutError, first_line
from penstock.threads import doing

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from penstock.connectors.base import ParallelismInferenceContext

log = logging.getLogger("penstock.sources")

NO_ANSWER = -1


class SourceCoordinator:
    """Holds a source of a job.

    Parameters
    ----------
    name
        The source's name for people.
    source
        The source; one without `DynamicParallelismInference` gives no answer.
    """

    def __init__(self, name: str, source: object) -> None:
        self.name = name
        self.source = source
        self.problem: str | None = None
        """Why there was no answer, if there was none."""
        self._answer: Future[int] | None = None
        self._parallelism: int | None = None

    def infer_parallelism(self, context: ParallelismInferenceContext, executor: Executor) -> Future[int]:
        """Ask the source on another thread; the first call asks, later ones get the same future.

        Returns
        -------
        Future[int]
            The number of tasks, or `NO_ANSWER` if the source does not infer, raised, or gave 0 or less. One that
            cannot be reached raises a `SourceTimeoutError`: it would not answer what it is asked next either.
        """
        if self._answer is None:
            if isinstance(self.source, DynamicParallelismInference):
                self._answer = executor.submit(self._ask, self.source, context)
            else:
                self.problem = "it does not infer its parallelism"
                self._answer = Future()
                self._answer.set_result(NO_ANSWER)
        return self._answer

    def _ask(self, source: DynamicParallelismInference, context: ParallelismInferenceContext) -> int:
        try:
            with doing(f"asking {self.name} for its parallelism", self.name):
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
        """The number of tasks the source was initialised with.

        Raises
        ------
        GraphError
            If it is not initialised yet.
        """
        if self._parallelism is None:
            raise GraphError(f"source {self.name} is not initialised yet")
        return self._parallelism

    def initialize(self, parallelism: int) -> None:
        """Give the source its decided parallelism.

        Raises
        ------
        GraphError
            If it has one already.
        """
        if self._parallelism is not None:
            raise GraphError(f"source {self.name} is initialised already, with parallelism {self._parallelism}")
        self._parallelism = parallelism
