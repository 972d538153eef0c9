"""Records a job: converts each `JobStatusEvent` into lines of the event log (`Event`), and updates the job's record."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from penstock.base.masking import mask, mask_value
from penstock.decisions.plain_spark import SETTING_NAMES
from penstock.events import VertexChanged
from penstock.execution.context import spark_job_group
from penstock.history.lines import EventLines
from penstock.history.record import JobRecord
from penstock.spark.bridge.settings import effective_settings
from penstock.spark.run.jobs import application, cluster_cores, stage_figures, stages_of, tasks_of

if TYPE_CHECKING:
    from penstock.config import Configuration
    from penstock.events import JobStatusEvent
    from penstock.history.record import Event
    from penstock.scheduler.job import Job
    from penstock.scheduler.origin import QueryOrigin
    from penstock.spark.bridge.jvm import Bridge

log = logging.getLogger("penstock.history")

_MAX_TASKS = 200
"""Maximum number of recorded tasks of a vertex."""


class JobRecorder:
    """A listener of a job that updates the job's record and passes log lines to `write`, such as `EventLog.write`.

    If `bridge` is None, tasks, stages, the Spark application and Spark's version are not recorded.
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
        header: Event = {
            "type": "job",
            "at": job.started,
            "id": job.id,
            "name": job.name,
            "started": job.started,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "spark": bridge.spark.version if bridge is not None else "",
            "config": _option_values(config),
            "query": _query_values(job.origin),
            "application": None if bridge is None else asdict(application(bridge)),
            "spark_settings": {} if bridge is None else effective_settings(bridge.session, SETTING_NAMES),
            "cores": 0 if bridge is None else cluster_cores(bridge),
        }
        self._apply_and_write([header])

    def write_to(self, write: Callable[[list[Event]], None]) -> None:
        """Replace the consumer of log lines."""
        self._write = write

    def listen(self, listener: Callable[[JobRecord], None]) -> None:
        """Call a listener after every change of the record, on the thread of the change."""
        self._listeners.append(listener)

    def on_events(self, events: Sequence[JobStatusEvent]) -> None:
        """Record events; part of `JobStatusListener`."""
        lines = [line for event in events for line in (*self._lines.lines_of(event), *self._task_lines(event))]
        if lines:
            self._apply_and_write(lines)

    def _apply_and_write(self, lines: list[Event]) -> None:
        self.record.apply_all(lines)
        self._write(lines)
        for listener in self._listeners:
            listener(self.record)

    def _task_lines(self, event: JobStatusEvent) -> Iterator[Event]:
        if not isinstance(event, VertexChanged) or not event.vertex.state.is_terminal or self._bridge is None:
            return
        vertex = event.vertex.vertex
        try:
            stage_ids = stages_of(self._bridge, spark_job_group(self._job_id, vertex))
            tasks, stages = tasks_of(self._bridge, stage_ids, _MAX_TASKS), stage_figures(self._bridge, stage_ids)
        except Exception:
            log.debug("cannot read the task figures of %s", vertex.id, exc_info=True)
            return
        yield {
            "type": "tasks",
            "at": event.at,
            "vertex": vertex.id,
            "tasks": [asdict(task) for task in tasks],
            "stages": [asdict(stage) for stage in stages],
        }


def _query_values(origin: QueryOrigin | None) -> dict[str, str | bool | None] | None:
    if origin is None:
        return None
    return {
        "statement": origin.statement,
        "line": origin.line and mask(origin.line),
        "page": origin.page,
        "of_spark": origin.is_delegated,  # event logs have used this key since the first release
    }


def _option_values(config: Configuration | None) -> dict[str, dict[str, str]]:
    if config is None:
        return {}
    return {
        option.key: {"value": mask_value(option.key, value), "origin": origin}
        for option, value, origin in config.items()
        if origin != "default"
    }
