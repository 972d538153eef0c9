"""A running query whose number of key groups can be changed, with a stop of seconds."""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from threading import Condition, Event, Thread, current_thread
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.errors import StateError
from penstock.spark.filesystem import Folder
from penstock.spark.jvm import root_cause
from penstock.spark.streaming_queries import (
    ReplaceableQuery,
    end_after_batch,
    failure_of,
    sink_facts,
    wait_until_started,
)
from penstock.state.checkpoint import Checkpoint
from penstock.state.journal import Journal, Phase
from penstock.state.preflight import plan_rescale
from penstock.state.rescale import OnProgress, Rescale, RescaleReport, undo
from penstock.state.turn import my_turn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.state.query_start import QueryStart
    from penstock.state.rewrite_methods import RewriteMethod

T = TypeVar("T")

_LOOK = 0.2
"""Seconds between two looks whether a batch is done."""
_LEAST = 0.001
"""Seconds that a wait takes at least: PySpark takes no wait of nothing."""
_STEPS = 2
"""Steps of a rescale of a running query besides those of the rescale: ending the batch and starting again."""

log = logging.getLogger("penstock.state")


@dataclass(frozen=True, slots=True)
class LiveReport:
    """What the rescale of a running query did."""

    rescale: RescaleReport
    seconds_to_end: float
    """How long the batch that ran took to end; the query worked until then."""
    seconds_stopped: float
    """From the end of that batch until the query had opened its sources again."""

    def as_dict(self) -> dict[str, Any]:
        """Return it for programs."""
        return asdict(self)


class RescalableQuery(ReplaceableQuery):
    """A streaming query that `start_query` started. `rescale` changes its number of key groups while it runs.

    A rescale starts the query again, and this object stays its handle: `id` is the same, `runId` is another,
    `awaitTermination` goes on waiting. (``spark.streams.awaitAnyTermination`` returns, as one run has ended.)
    """

    def __init__(self, start: QueryStart) -> None:
        super().__init__(start.first())
        self._start = start
        self._turn = Condition()
        self._rescaling = False
        self._rescaler: Thread | None = None
        self._runs = 1
        self._failure: StateError | None = None
        self.stop_wanted = Event()
        """Set by `stop`."""

    def rescale(
        self, max_parallelism: int, *, method: RewriteMethod | None = None, on_progress: OnProgress | None = None
    ) -> LiveReport:
        """Change the number of key groups: let the running batch end, stop, rescale, and start again.

        Not to be called by the query's own ``foreachBatch``, whose batch it would wait for.

        Parameters
        ----------
        max_parallelism
            The new number of key groups, at most 32768.
        method
            How to rewrite every store. If None, it is chosen for each store.
        on_progress
            Called with the number of finished steps, the number of all steps, and the next step.

        Raises
        ------
        StateError
            If the state cannot be rescaled, or the rescale failed. The query runs on as before, unless the message
            says otherwise.
        """
        tell = on_progress or (lambda *_: None)
        with self._only_one():
            self._check(max_parallelism, method)
            failure: BaseException | None = None
            with my_turn(self._start.bridge, Folder(self._start.bridge, self._start.location)):
                began = time.monotonic()
                tell(0, _STEPS, "waiting for the running batch to end")
                try:
                    by_others = end_after_batch(self._start.bridge, self)
                    ended = time.monotonic()
                    self._check_ended(by_others=by_others)
                    report = self._rescaled(max_parallelism, method, tell)
                except BaseException as error:  # noqa: BLE001 - the query goes on, whatever it is
                    failure = error
            if failure is not None:  # the turn is over: a start of the query takes one itself
                self._go_on(failure)
                raise failure
            tell(1, _STEPS, "starting the query again")
            self._restart(f"was rescaled to {max_parallelism}")
            return LiveReport(report, ended - began, time.monotonic() - ended)

    def wait_for_batch(self, batch: int) -> bool:
        """Wait until a batch is done; return False if the query ended before."""
        found = Checkpoint(self._start.bridge, self._start.location)
        while (finished := found.latest("commits")) is None or finished < batch:
            if not super().isActive:
                return False
            time.sleep(_LOOK)
        return True

    def _check(self, max_parallelism: int, method: RewriteMethod | None) -> None:
        """Refuse, while the query runs, what would be refused once it has stopped."""
        if not super().isActive:
            raise StateError.ended(self._start.location, "it has ended")
        if not sink_facts(self).survives_restart:
            raise StateError.obstacles(
                self._start.location,
                ["its sink is a table in memory, which Spark cannot go on with after a stop; stop the query yourself"],
            )
        checkpoint = Checkpoint(self._start.bridge, self._start.location)
        plan_rescale(self._start.bridge, checkpoint, max_parallelism, method, running=True)

    def _check_ended(self, *, by_others: bool) -> None:
        """Refuse a query that failed, or that others have stopped, who want it to stay so."""
        failure = failure_of(self)
        if failure is not None:
            raise StateError.ended(self._start.location, f"its last batch failed: {failure}")
        found = Checkpoint(self._start.bridge, self._start.location)
        begun, finished = found.latest("offsets"), found.latest("commits")
        if begun is not None and (finished is None or finished < begun):  # the rescale itself never interrupts a batch
            self.stop_wanted.set()
            raise StateError.ended(self._start.location, f"it was stopped in the middle of batch {begun}")
        if by_others or self.stop_wanted.is_set():
            self.stop_wanted.set()
            raise StateError.ended(self._start.location, "it was stopped by others, or ended by itself, meanwhile")

    def _go_on(self, error: BaseException) -> None:
        """Start the query again as it was, unless it failed by itself."""
        end_after_batch(self._start.bridge, self)
        if failure_of(self) is not None:
            return
        self._restart(f"was not rescaled ({error})")

    def _rescaled(self, max_parallelism: int, method: RewriteMethod | None, tell: OnProgress) -> RescaleReport:
        bridge, location = self._start.bridge, self._start.location
        plan = plan_rescale(bridge, Checkpoint(bridge, location), max_parallelism, method)
        try:
            return Rescale(bridge, plan, lambda done, total, step: tell(done + 1, total + _STEPS, step)).run()
        except BaseException as error:
            if self._is_undone() and isinstance(error, StateError):
                raise StateError.failed(location, "putting it in place", error.cause or error.message) from error
            raise

    def _is_undone(self) -> bool:
        """Undo what was put in place; whether there was anything, and it is gone."""
        try:
            found = Checkpoint(self._start.bridge, self._start.location)
            journal = Journal.load(found.folder)
            if journal is None:
                return False
            undo(found, journal)
        except Exception:  # what cannot be undone now is finished or undone when the query starts
            log.warning("the rescale of %s could not be undone", self._start.location, exc_info=True)
            return False
        return journal.phase is not Phase.STAGING

    def _restart(self, what_happened: str) -> None:
        if self.stop_wanted.is_set():
            return
        try:
            self.replace(self._start.again())
            why = wait_until_started(self)
        except Exception as error:  # noqa: BLE001 - of any class, from the query's sources and sink
            why = root_cause(error)
        if why is not None:
            self._failure = StateError.not_restarted(self._start.location, what_happened, why)
            raise self._failure

    @contextmanager
    def _only_one(self) -> Iterator[None]:
        with self._turn:
            if self._rescaling:
                raise StateError.busy(self._start.location, "it is being rescaled now")
            self._rescaling = True
            self._rescaler = current_thread()
        try:
            yield
        finally:
            with self._turn:
                self._rescaling = False
                self._rescaler = None
                self._runs += 1
                self._turn.notify_all()

    def stop(self) -> None:
        """Stop the query; one that is being rescaled is not started again."""
        self.stop_wanted.set()
        super().stop()
        if self._rescaler is current_thread():  # `on_progress` of a rescale, which ends without starting it again
            return
        with self._turn:
            self._turn.wait_for(lambda: not self._rescaling)
        super().stop()  # the run that may have been started in that moment

    @property
    def isActive(self) -> bool:
        """Whether the query runs, or is being rescaled."""
        return self._rescaling or super().isActive

    def awaitTermination(self, timeout: float | None = None) -> bool | None:
        """Wait until the query has ended for good; see PySpark's ``StreamingQuery``.

        Raises
        ------
        StateError
            If the query was stopped for a rescale and could not be started again.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        await_run = super().awaitTermination

        def wait() -> bool | None:
            left = None if deadline is None else max(_LEAST, deadline - time.monotonic())
            return await_run(left)  # type: ignore[arg-type] # PySpark takes parts of seconds, too

        return self._through(wait, deadline)

    def processAllAvailable(self) -> None:
        """Wait until all data that is there has been processed; see PySpark's ``StreamingQuery``."""
        self._through(super().processAllAvailable, None)

    def _through(self, wait: Callable[[], T], deadline: float | None) -> T | bool:
        """Wait for a run, and where a rescale ended it for the next one."""
        while True:
            with self._turn:
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                if not self._turn.wait_for(lambda: not self._rescaling, left):
                    return False
                runs = self._runs
            if self._failure is not None:
                raise self._failure
            try:
                found = wait()
            except Exception:
                if not self._replaced(runs):
                    raise
            else:
                if not self._replaced(runs):
                    return found

    def _replaced(self, runs: int) -> bool:
        with self._turn:
            return self._rescaling or self._runs != runs
