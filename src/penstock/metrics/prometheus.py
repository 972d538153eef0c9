"""Metrics that Prometheus scrapes (``prometheus_client``)."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder

from penstock.metrics.instruments import INSTRUMENTS, SECONDS, Instrument, InstrumentKind


class PrometheusMeter:
    """A meter with a registry of its own, so that it does not interfere with other metrics of the process."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._collectors = {instrument.name: self._create(instrument) for instrument in INSTRUMENTS}

    def _create(self, instrument: Instrument) -> Any:
        labels = (instrument.label,) if instrument.label else ()
        arguments = (instrument.prometheus_name, instrument.doc, labels)
        if instrument.kind is InstrumentKind.HISTOGRAM:
            return Histogram(*arguments, buckets=SECONDS, registry=self._registry)
        kind = Counter if instrument.kind is InstrumentKind.COUNTER else Gauge
        return kind(*arguments, registry=self._registry)

    def add(self, instrument: Instrument, figure: float, label: str = "") -> None:
        """Record a value; part of `Meter`."""
        collector = self._collectors[instrument.name]
        target = collector.labels(label) if instrument.label else collector
        (target.observe if instrument.kind is InstrumentKind.HISTOGRAM else target.inc)(figure)

    def scraped(self, accept: str) -> tuple[bytes, str]:
        """Return all metrics in the format that a scraper accepts by its header ``Accept``, and the content type."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type
