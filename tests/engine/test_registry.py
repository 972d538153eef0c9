"""Which native engine an installation uses."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint

import pytest

from penstock.engine import registry
from tests.engine import arrow_engine


@pytest.fixture(autouse=True)
def without_cache() -> Iterator[None]:
    registry.native_engine.cache_clear()
    yield
    registry.native_engine.cache_clear()


def install(patch: pytest.MonkeyPatch, *values: str) -> None:
    points = [EntryPoint(f"engine-{number}", value, registry.GROUP) for number, value in enumerate(values)]
    patch.setattr(registry, "entry_points", lambda *, group: points if group == registry.GROUP else [])


def test_an_engine_of_another_package_is_preferred(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "penstock.duckdb.engine:ENGINE", "tests.engine.arrow_engine:ENGINE")
    assert registry.native_engine() is arrow_engine.ENGINE


@pytest.mark.parametrize("value", ["tests.engine.missing:ENGINE", "tests.engine.arrow_engine:MISSING"])
def test_an_engine_that_cannot_be_loaded_is_skipped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, value: str
) -> None:
    install(monkeypatch, value)
    engine = registry.native_engine()
    assert engine is None or engine.name == "DuckDB"
    assert "the native engine engine-0 cannot be loaded" in caplog.text


def test_without_an_engine_spark_computes_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    monkeypatch.setattr(registry, "_DUCKDB", EntryPoint("none", "penstock.missing:ENGINE", registry.GROUP))
    assert registry.native_engine() is None
