"""Plans as text in all of these tests."""

from __future__ import annotations

import pytest

from tests.execution.plans import plans_as_text


@pytest.fixture(autouse=True)
def as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    plans_as_text(monkeypatch)
