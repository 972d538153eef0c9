"""Figures as Prometheus scrapes them (``prometheus_client``)."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder

from penstock.metrics.instruments import INSTRUMENTS, SECONDS, Instrument, InstrumentKind


class PrometheusMeter:
    """Keeps figures until they are scraped; in a registry of its own, so that the driver may have others."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._made = {one.name: self._make(one) for one in INSTRUMENTS}

    def _make(self, instrument: Instrument) -> Any:
        labels = (instrument.label,) if instrument.label else ()
        about = (instrument.prometheus_name, instrument.doc, labels)
        if instrument.kind is InstrumentKind.HISTOGRAM:
            return Histogram(*about, buckets=SECONDS, registry=self._registry)
        kind = Counter if instrument.kind is InstrumentKind.COUNTER else Gauge
        return kind(*about, registry=self._registry)

    def add(self, instrument: Instrument, figure: float, label: str = "") -> None:
        """Take a figure; part of `Meter`."""
        made = self._made[instrument.name]
        one = made.labels(label) if instrument.label else made
        (one.observe if instrument.kind is InstrumentKind.HISTOGRAM else one.inc)(figure)

    def scraped(self, accept: str) -> tuple[bytes, str]:
        """Return all figures, and the type of the answer.

        Parameters
        ----------
        accept
            The types that a scraper takes, as its request says.
        """
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type
