"""Metrics for OpenTelemetry. Its SDK, which the application sets up, exports them; without an SDK they are dropped."""

from __future__ import annotations

from typing import Any

from opentelemetry import metrics

import penstock
from penstock.metrics.instruments import DURATION_BUCKETS, INSTRUMENTS, Instrument, InstrumentKind


class OpenTelemetryMeter:
    """A meter that reports to the meter provider of the process."""

    def __init__(self) -> None:
        self._meter = metrics.get_meter("penstock", penstock.__version__)
        self._instruments = {instrument.name: self._create(instrument) for instrument in INSTRUMENTS}

    def _create(self, instrument: Instrument) -> Any:
        name, unit, doc = instrument.name, instrument.unit, instrument.doc
        if instrument.kind is InstrumentKind.HISTOGRAM:
            return self._meter.create_histogram(name, unit, doc, explicit_bucket_boundaries_advisory=DURATION_BUCKETS)
        if instrument.kind is InstrumentKind.COUNTER:
            return self._meter.create_counter(name, unit, doc)
        return self._meter.create_up_down_counter(name, unit, doc)

    def add(self, instrument: Instrument, value: float, label: str = "") -> None:
        """Record a value; part of `Meter`."""
        target, attributes = self._instruments[instrument.name], {instrument.label: label} if instrument.label else {}
        (target.record if instrument.kind is InstrumentKind.HISTOGRAM else target.add)(value, attributes)
