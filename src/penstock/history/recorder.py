"""Records what happens to a job: its events become lines of a log, and what they add up to."""

from __future__ import annotations

import logging
import os
import socket
from dataclasses import asdict
from typing import TYPE_CHECKING

from penstock.events import VertexChanged
from penstock.execution.context import group_of
from penstock.history.lines import EventLines
from penstock.history.record import JobRecord
from penstock.masking import mask, mask_value
from penstock.spark.jobs import application, figures_of, stages_of, tasks_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.config import Configuration
    from penstock.events import JobStatusEvent
    from penstock.graph import JobVertex
    from penstock.history.record import Event
    from penstock.scheduler.job import Job
    from penstock.scheduler.origin import QueryOrigin
    from penstock.spark.jvm import Bridge

log = logging.getLogger("penstock.history")

_TASKS = 200
"""Tasks kept of a vertex."""


class JobRecorder:
    """Listens to one job; its record has all that was heard, and each line goes to `write` as well.

    Parameters
    ----------
    job
        The job.
    config
        The options it runs with.
    write
        Takes lines as they come, such as `EventLog.write`.
    bridge
        Where tasks are asked for; none are recorded without.
    """

    def __init__(
        self,
        job: Job,
        config: Configuration | None = None,
        write: Callable[[list[Event]], None] = lambda _: None,
        bridge: Bridge | None = None,
    ) -> None:
        self.record = JobRecord()
        self._job_id = job.id
        self._write = write
        self._bridge = bridge
        self._lines = EventLines()
        self._listeners: list[Callable[[JobRecord], None]] = []
        self._keep(
            [
                {
                    "type": "job",
                    "at": job.started,
                    "id": job.id,
                    "name": job.name,
                    "started": job.started,
                    "host": socket.gethostname(),
                    "pid": os.getpid(),
                    "spark": bridge.spark.version if bridge is not None else "",
                    "config": _options(config),
                    "query": _query(job.origin),
                    "application": None if bridge is None else asdict(application(bridge)),
                }
            ]
        )

    def write_to(self, write: Callable[[list[Event]], None]) -> None:
        """Give lines to another taker from now on."""
        self._write = write

    def listen(self, listener: Callable[[JobRecord], None]) -> None:
        """Call a listener after every change of the record, on the thread that made it."""
        self._listeners.append(listener)

    def on_events(self, events: Sequence[JobStatusEvent]) -> None:
        """Record what has happened; part of `JobStatusListener`."""
        lines = [line for event in events for line in (*self._lines.of(event), *self._tasks(event))]
        if lines:
            self._keep(lines)

    def _keep(self, lines: list[Event]) -> None:
        self.record.apply_all(lines)
        self._write(lines)
        for listener in self._listeners:
            listener(self.record)

    def _tasks(self, event: JobStatusEvent) -> Iterator[Event]:
        if isinstance(event, VertexChanged) and event.vertex.state.is_terminal and self._bridge is not None:
            yield from self._tasks_of(self._bridge, event.vertex.vertex, event.at)

    def _tasks_of(self, bridge: Bridge, vertex: JobVertex, at: float) -> Iterator[Event]:
        try:
            ran = stages_of(bridge, group_of(self._job_id, vertex))
            tasks, stages = tasks_of(bridge, ran, _TASKS), figures_of(bridge, ran)
        except Exception:
            log.debug("the tasks of %s are not known", vertex.id, exc_info=True)
            return
        yield {
            "type": "tasks",
            "at": at,
            "vertex": vertex.id,
            "tasks": [asdict(task) for task in tasks],
            "stages": [asdict(stage) for stage in stages],
        }


def _query(origin: QueryOrigin | None) -> dict[str, str | bool | None] | None:
    if origin is None:
        return None
    return {
        "statement": origin.statement,
        "line": origin.line and mask(origin.line),
        "page": origin.page,
        "of_spark": origin.is_of_spark,
    }


def _options(config: Configuration | None) -> dict[str, dict[str, str]]:
    if config is None:
        return {}
    return {
        option.key: {"value": mask_value(option.key, value), "origin": origin}
        for option, value, origin in config.items()
        if origin != "default"
    }
