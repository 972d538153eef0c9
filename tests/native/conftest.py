"""Fixtures of tests of the native engine."""

from __future__ import annotations

import pytest

from penstock.spark import native_parts, native_query


@pytest.fixture(autouse=True)
def forgotten_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each test try its queries anew: all share a JVM, which remembers what failed (`tests.spark`)."""
    for module in (native_parts, native_query):
        monkeypatch.setattr(module, "remember", lambda *_: None)
