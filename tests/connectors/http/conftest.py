"""Services that take rows, each in a process of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.connectors.http.service import Service

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    started = []

    def make(**given: Any) -> Service:
        started.append(Service(tmp_path, **given))
        return started[-1]

    yield make
    for service in started:
        service.close()
