"""Observation of jobs: event logs, metrics, the REST API and the web page."""

from __future__ import annotations

import logging
import sys
import threading
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from penstock.config import Configuration
from penstock.config import options as o
from penstock.errors import WebError, first_line
from penstock.history.event_log import EventLog, LocalFolder, LogFolder, log_file_name
from penstock.history.logs import History
from penstock.history.recorder import JobRecorder
from penstock.history.retention import Retention, RetentionLimits
from penstock.metrics.job_metrics import JobMetrics
from penstock.spark.io.filesystem import HadoopPath
from penstock.spark.io.logs import HadoopLogs
from penstock.spark.run.jobs import cluster_cores

if TYPE_CHECKING:
    from penstock.history.record import Event, JobRecord
    from penstock.metrics.instruments import Meter
    from penstock.scheduler.job import Job
    from penstock.spark.bridge.jvm import Bridge
    from penstock.web.server import WebServer

log = logging.getLogger("penstock.metrics")

_LOCK = threading.Lock()
_SERVERS: list[WebServer] = []
"""The web server of this process: empty until it is started, then a single element."""


def log_folder(bridge: Bridge | None, path: str) -> LogFolder:
    """Return the folder of event logs at `path`: local if `path` has no scheme or ``file:``, or if `bridge` is None."""
    scheme = urlsplit(path).scheme
    if bridge is None or scheme in {"", "file"}:
        return LocalFolder(path)
    return HadoopLogs(HadoopPath(bridge, path))


class Observer:
    """Records jobs for event logs and the web page, as the options say; `ui` overrides ``rest.enabled`` unless None.

    Raise `WebError` if the web page cannot be served as configured, `HistoryError` if the folder of the event logs is
    local and cannot be written.
    """

    def __init__(self, bridge: Bridge, config: Configuration, ui: bool | None) -> None:  # noqa: FBT001
        self._bridge = bridge
        self._config = config
        archive = config.get(o.ARCHIVE_FOLDER)
        self._logs = None if archive is None else log_folder(bridge, str(archive))
        if isinstance(self._logs, LocalFolder):
            self._logs.check()
        limits = RetentionLimits(config.maybe_seconds(o.RETAINED_TTL), config.maybe_integer(o.RETAINED_SIZE))
        self._retention = None if self._logs is None else Retention(self._logs, limits, str(archive))
        serves_page = config.flag(o.REST_ENABLED) if ui is None else ui
        self.server = _shared_server(bridge, config, self._logs) if serves_page else None

    @property
    def is_on(self) -> bool:
        """Whether jobs are recorded, for event logs or the web page."""
        return self._logs is not None or self.server is not None

    def watch(self, job: Job, bridge: Bridge | None = None) -> None:
        """Collect the metrics of a job that is about to start, and record its events if `is_on`.

        `bridge` is that of the session of the job's query; if None, that of this observer's session.
        """
        prometheus = _SERVERS[0].metrics if _SERVERS else None  # has the metrics of all jobs of the process
        meters = [meter for meter in (prometheus, _open_telemetry()) if meter is not None]
        if meters:
            job.watch(JobMetrics(meters, job.started))
        if not self.is_on:
            return
        first_events: list[Event] = []  # buffered, because the name of the log file needs the record
        recorder = JobRecorder(job, self._config, first_events.extend, bridge or self._bridge)
        event_log = self._event_log(recorder.record)
        if event_log is not None:
            event_log.write(first_events)
            recorder.write_to(event_log.write)
        if self._retention is not None:
            self._retention.apply_in_background()
        if self.server is not None:
            store = self.server.store
            store.add(recorder.record, job.cancel)
            recorder.listen(store.notify_watchers)
        job.watch(recorder)

    def _event_log(self, record: JobRecord) -> EventLog | None:
        """Return the event log of a job; None if logs are off, or if the log cannot be created, which is logged."""
        if self._logs is None:
            return None
        try:
            return EventLog(self._logs.create(log_file_name(record)), record.id)
        except Exception as error:  # noqa: BLE001 - Hadoop file systems may raise any error
            log.warning("job %s runs without an event log: %s", record.id, first_line(error))
            return None


def page_address() -> str | None:
    """Return the address of this process's web page, with the token that allows cancelling; None without a page."""
    return _SERVERS[0].url_with_token if _SERVERS else None


def record_of(job: Job) -> JobRecord:
    """Return a new record from the events of a job so far; this does not require an `Observer`."""
    recorder = JobRecorder(job)
    recorder.on_events(job.events)
    return recorder.record


def _open_telemetry() -> Meter | None:
    """Return the meter of OpenTelemetry, None if the program does not use OpenTelemetry."""
    return _open_telemetry_meter() if "opentelemetry.metrics" in sys.modules else None


@cache  # OpenTelemetry warns about instruments that are created twice
def _open_telemetry_meter() -> Meter | None:
    """Return the meter; None if its creation fails (old API, failing provider), which must not make a job fail."""
    try:
        from penstock.metrics.opentelemetry import OpenTelemetryMeter

        return OpenTelemetryMeter()
    except Exception as error:  # noqa: BLE001 - providers may raise any error
        log.warning("OpenTelemetry gets no metrics: %s", first_line(error))
        return None


def _shared_server(bridge: Bridge, config: Configuration, logs: LogFolder | None) -> WebServer:
    """Return the web server of this process. The first call starts the server; later calls ignore their arguments."""
    try:
        from penstock.metrics.prometheus import PrometheusMeter
        from penstock.web.server import WebServer
        from penstock.web.store import JobStore
    except ModuleNotFoundError as error:
        raise WebError.missing(str(error.name)) from error
    with _LOCK:
        if not _SERVERS:
            store = JobStore(None if logs is None else History(logs))
            slots, spark = cluster_cores(bridge), bridge.spark.version
            server = WebServer(store, config, slots=slots, spark=spark, metrics=PrometheusMeter())
            server.start()
            _SERVERS.append(server)
            sys.stderr.write(f"Penstock's page: {server.url_with_token}\n")
        return _SERVERS[0]
