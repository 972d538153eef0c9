"""All of these tests represent plans as text."""

from __future__ import annotations

import pytest

from tests.execution.plans import plans_as_text


@pytest.fixture(autouse=True)
def as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    plans_as_text(monkeypatch)
