"""Figures for OpenTelemetry: whoever runs the driver chooses where they go, by setting up its SDK.

Without an SDK, OpenTelemetry's interface drops them.
"""

from __future__ import annotations

from typing import Any

from opentelemetry import metrics

import penstock
from penstock.metrics.instruments import INSTRUMENTS, SECONDS, Instrument, InstrumentKind


class OpenTelemetryMeter:
    """Gives figures to the meter provider of the process."""

    def __init__(self) -> None:
        self._meter = metrics.get_meter("penstock", penstock.__version__)
        self._made = {one.name: self._make(one) for one in INSTRUMENTS}

    def _make(self, instrument: Instrument) -> Any:
        name, unit, doc = instrument.name, instrument.unit, instrument.doc
        if instrument.kind is InstrumentKind.HISTOGRAM:
            return self._meter.create_histogram(name, unit, doc, explicit_bucket_boundaries_advisory=SECONDS)
        if instrument.kind is InstrumentKind.COUNTER:
            return self._meter.create_counter(name, unit, doc)
        return self._meter.create_up_down_counter(name, unit, doc)

    def add(self, instrument: Instrument, figure: float, label: str = "") -> None:
        """Take a figure; part of `Meter`."""
        made, attributes = self._made[instrument.name], {instrument.label: label} if instrument.label else {}
        (made.record if instrument.kind is InstrumentKind.HISTOGRAM else made.add)(figure, attributes)
