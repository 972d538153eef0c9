"""Fixtures of tests of the native engine."""

from __future__ import annotations

import pytest

from penstock.spark import native_parts, native_query


@pytest.fixture(autouse=True)
def without_recorded_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Record no failures, as all tests share a JVM; `tests.spark` tests the record."""
    for module in (native_parts, native_query):
        monkeypatch.setattr(module, "record_failure", lambda *_: None)
