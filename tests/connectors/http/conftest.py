"""Fixtures of tests of the HTTP sink."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.http.service import Service


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """A function that starts a `Service` in a subprocess; it stops after the test."""
    services = []

    def start_service(**options: Any) -> Service:
        services.append(Service(tmp_path, **options))
        return services[-1]

    yield start_service
    for service in services:
        service.close()
