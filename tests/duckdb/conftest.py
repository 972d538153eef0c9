"""Fixtures of tests of the native engine."""

from __future__ import annotations

import pytest

from penstock.duckdb import parts as native_parts
from penstock.duckdb import process
from penstock.duckdb import query as native_query


@pytest.fixture(autouse=True)
def without_recorded_failures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Record no failures, as all tests share a JVM, except in the tests of the record."""
    if request.module.__name__ == "tests.duckdb.test_failures":
        return
    for module in (native_parts, native_query):
        monkeypatch.setattr(module, "record_failure", lambda *_: None)


@pytest.fixture
def in_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute queries in tasks of Spark, as on a cluster, and not in a process beside the driver."""
    monkeypatch.setattr(process, "is_available", lambda _: False)
