"""Metrics that Prometheus scrapes (``prometheus_client``)."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder

from penstock.metrics.instruments import DURATION_BUCKETS, INSTRUMENTS, Instrument, InstrumentKind


class PrometheusMeter:
    """A meter with a separate registry, so that it does not interfere with other metrics of the process."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._collectors = {instrument.name: self._create(instrument) for instrument in INSTRUMENTS}

    def _create(self, instrument: Instrument) -> Any:
        labels = (instrument.label,) if instrument.label else ()
        arguments = (instrument.prometheus_name, instrument.doc, labels)
        if instrument.kind is InstrumentKind.HISTOGRAM:
            return Histogram(*arguments, buckets=DURATION_BUCKETS, registry=self._registry)
        collector_type = Counter if instrument.kind is InstrumentKind.COUNTER else Gauge
        return collector_type(*arguments, registry=self._registry)

    def add(self, instrument: Instrument, value: float, label: str = "") -> None:
        """Record a value; part of `Meter`."""
        metric = self._collectors[instrument.name]
        series = metric.labels(label) if instrument.label else metric
        (series.observe if instrument.kind is InstrumentKind.HISTOGRAM else series.inc)(value)

    def scrape(self, accept: str) -> tuple[bytes, str]:
        """Return all metrics in the format that a scraper requests in its header ``Accept``, and the content type."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type
