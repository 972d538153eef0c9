"""What is measured of jobs, declared once: the exporters and the docs are made of it. Pure.

No label takes values without bound. A job's name may be a whole SQL text, so it is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class InstrumentKind(StrEnum):
    """How figures of an instrument add up."""

    COUNTER = "counter"
    UP_DOWN_COUNTER = "gauge"
    HISTOGRAM = "histogram"


SECONDS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10_000.0)
"""The bounds of histograms of seconds: from a small query to a night, about three in each power of ten."""


@dataclass(frozen=True, slots=True)
class Instrument:
    """A figure of jobs.

    Parameters
    ----------
    name
        Its name for OpenTelemetry.
    kind
        How its figures add up.
    unit
        By the Unified Code for Units of Measure: ``s``, ``By``, or what is counted in braces.
    doc
        What it is, one sentence.
    label
        What its figures are told apart by, empty if by nothing.
    """

    name: str
    kind: InstrumentKind
    unit: str
    doc: str
    label: str = ""

    @property
    def prometheus_name(self) -> str:
        """Its name for Prometheus, with the unit and the suffix of counters."""
        unit = {"s": "_seconds", "By": "_bytes"}.get(self.unit, "")
        total = "_total" if self.kind is InstrumentKind.COUNTER else ""
        return self.name.replace(".", "_") + unit + total


_COUNTER, _HISTOGRAM = InstrumentKind.COUNTER, InstrumentKind.HISTOGRAM
JOBS = Instrument("penstock.jobs", _COUNTER, "{job}", "Jobs that have ended.", "state")
RUNNING_JOBS = Instrument("penstock.jobs.running", InstrumentKind.UP_DOWN_COUNTER, "{job}", "Jobs that run.")
JOB_DURATION = Instrument("penstock.job.duration", _HISTOGRAM, "s", "How long jobs took.", "state")
VERTICES = Instrument("penstock.vertices", _COUNTER, "{vertex}", "Vertices (steps) that have ended.", "state")
VERTEX_DURATION = Instrument("penstock.vertex.duration", _HISTOGRAM, "s", "How long vertices ran.")
VERTEX_WAIT = Instrument(
    "penstock.vertex.wait", _HISTOGRAM, "s", "How long vertices waited to run, since their inputs were ready."
)
TASKS = Instrument("penstock.tasks", _COUNTER, "{task}", "Tasks that vertices ran.")
READ = Instrument("penstock.read", _COUNTER, "By", "Bytes that vertices read, as far as they are known.")
WRITTEN = Instrument("penstock.written", _COUNTER, "By", "Bytes that vertices wrote for other vertices.")
ROWS_WRITTEN = Instrument("penstock.rows.written", _COUNTER, "{row}", "Rows that vertices wrote.")
NOT_SHUFFLED = Instrument("penstock.not_shuffled", _COUNTER, "By", "Bytes that decisions kept from being shuffled.")
DECISIONS = Instrument("penstock.decisions", _COUNTER, "{decision}", "Decisions.", "kind")
CAME_OTHERWISE = Instrument(
    "penstock.decisions.came_otherwise", _COUNTER, "{decision}", "Decisions that could not be carried out.", "kind"
)

INSTRUMENTS = (
    JOBS,
    RUNNING_JOBS,
    JOB_DURATION,
    VERTICES,
    VERTEX_DURATION,
    VERTEX_WAIT,
    TASKS,
    READ,
    WRITTEN,
    ROWS_WRITTEN,
    NOT_SHUFFLED,
    DECISIONS,
    CAME_OTHERWISE,
)


class Meter(Protocol):
    """Takes figures."""

    def add(self, instrument: Instrument, figure: float, label: str = "") -> None:
        """Take a figure of an instrument; of a histogram, a value that came."""
