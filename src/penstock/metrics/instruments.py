"""The metrics of jobs, declared once for the exporters and the documentation.

Labels have few values. A job's name may be a whole SQL text, so it is not a label.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class InstrumentKind(StrEnum):
    """The type of a metric."""

    COUNTER = "counter"
    UP_DOWN_COUNTER = "gauge"
    HISTOGRAM = "histogram"


SECONDS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10_000.0)
"""The bucket bounds of histograms in seconds: from a small query to several hours, about two per power of ten."""


@dataclass(frozen=True, slots=True)
class Instrument:
    """A metric of jobs."""

    name: str
    """Its name for OpenTelemetry."""
    kind: InstrumentKind
    unit: str
    """In the Unified Code for Units of Measure: ``s``, ``By``, or the counted noun in braces."""
    doc: str
    label: str = ""
    """The name of its label; empty without one."""

    @property
    def prometheus_name(self) -> str:
        """Its name for Prometheus, with the unit and the suffix of counters."""
        unit = {"s": "_seconds", "By": "_bytes"}.get(self.unit, "")
        total = "_total" if self.kind is InstrumentKind.COUNTER else ""
        return self.name.replace(".", "_") + unit + total


_COUNTER, _HISTOGRAM = InstrumentKind.COUNTER, InstrumentKind.HISTOGRAM
JOBS = Instrument("penstock.jobs", _COUNTER, "{job}", "Jobs that have ended.", "state")
RUNNING_JOBS = Instrument("penstock.jobs.running", InstrumentKind.UP_DOWN_COUNTER, "{job}", "Running jobs.")
JOB_DURATION = Instrument("penstock.job.duration", _HISTOGRAM, "s", "How long jobs took.", "state")
VERTICES = Instrument("penstock.vertices", _COUNTER, "{vertex}", "Vertices (steps) that have ended.", "state")
VERTEX_DURATION = Instrument("penstock.vertex.duration", _HISTOGRAM, "s", "How long vertices ran.")
VERTEX_WAIT = Instrument(
    "penstock.vertex.wait", _HISTOGRAM, "s", "How long vertices waited to run after their inputs were ready."
)
TASKS = Instrument("penstock.tasks", _COUNTER, "{task}", "Tasks that vertices ran.")
READ = Instrument("penstock.read", _COUNTER, "By", "Bytes that vertices read, as far as known.")
WRITTEN = Instrument("penstock.written", _COUNTER, "By", "Bytes that vertices wrote for other vertices.")
ROWS_WRITTEN = Instrument("penstock.rows.written", _COUNTER, "{row}", "Rows that vertices wrote.")
NOT_SHUFFLED = Instrument("penstock.not_shuffled", _COUNTER, "By", "Bytes that were not shuffled because of decisions.")
DECISIONS = Instrument("penstock.decisions", _COUNTER, "{decision}", "Decisions.", "kind")
NOT_CARRIED_OUT = Instrument(
    "penstock.decisions.came_otherwise", _COUNTER, "{decision}", "Decisions that could not be carried out.", "kind"
)

INSTRUMENTS = tuple(value for value in globals().values() if isinstance(value, Instrument))


class Meter(Protocol):
    """A consumer of metric values."""

    def add(self, instrument: Instrument, figure: float, label: str = "") -> None:
        """Add a value to a counter, or record an observation of a histogram."""
