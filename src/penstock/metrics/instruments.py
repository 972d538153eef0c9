"""The metrics of jobs, declared once for the exporters and the documentation.

Labels have few values. A job's name may be a whole SQL text, so it is not a label.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class InstrumentKind(StrEnum):
    """The type of a metric: the names are those of OpenTelemetry, the values those of Prometheus."""

    COUNTER = "counter"
    UP_DOWN_COUNTER = "gauge"
    HISTOGRAM = "histogram"


DURATION_BUCKETS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10_000.0)
"""Upper bounds of the histogram buckets, in seconds: two per power of ten, from a small query to almost 3 hours."""


@dataclass(frozen=True, slots=True)
class Instrument:
    """A metric of jobs."""

    name: str
    """The name of the metric for OpenTelemetry."""
    kind: InstrumentKind
    unit: str
    """The unit in the Unified Code for Units of Measure: ``s``, ``By``, or the counted noun in braces."""
    doc: str
    label: str = ""
    """The name of the only label of the metric; empty if it has none."""

    @property
    def prometheus_name(self) -> str:
        """The name of the metric for Prometheus, with the unit and the suffix of counters."""
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
# The name is public. "came_otherwise" means that a fallback replaced the decision.
NOT_CARRIED_OUT = Instrument(
    "penstock.decisions.came_otherwise", _COUNTER, "{decision}", "Decisions that could not be carried out.", "kind"
)

INSTRUMENTS = tuple(value for value in globals().values() if isinstance(value, Instrument))


class Meter(Protocol):
    """A consumer of metric values."""

    def add(self, instrument: Instrument, value: float, label: str = "") -> None:
        """Add a value to a counter or gauge, or record it in a histogram; `label` is the value of the only label."""
