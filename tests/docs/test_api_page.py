"""The API page contains every public name, and shows default values."""

from __future__ import annotations

import importlib
import inspect
import re

import pytest

import penstock.errors
from tests.docs.test_tutorials import DOCS

PAGE = (DOCS / "reference" / "api.md").read_text()
NAMES = re.findall(r"^### `(.*)`$", PAGE, re.MULTILINE)


@pytest.mark.parametrize(
    "package",
    [
        "penstock",
        "penstock.connectors",
        "penstock.connectors.jdbc",
        "penstock.connectors.kafka",
        "penstock.graph",
        "penstock.optimizer",
        "penstock.state",
    ],
)
def test_the_page_contains_every_public_name(package: str) -> None:
    module = importlib.import_module(package)
    internal = {"__version__", "JdbcScan", "dialect_of"}
    assert set(module.__all__) - internal <= set(NAMES)


def test_the_page_contains_every_error() -> None:
    members = vars(penstock.errors).items()
    errors = {name for name, member in members if inspect.isclass(member) and issubclass(member, Exception)}
    assert errors <= set(NAMES)


def test_the_page_contains_every_default_strategy() -> None:
    optimizer = importlib.import_module("penstock.optimizer.optimizer")
    assert {strategy.__name__ for strategy in optimizer.DEFAULT_STRATEGIES} <= set(NAMES)


def test_defaults_of_strings_are_shown() -> None:
    assert "name: str | None = None" in PAGE
    assert "name: str = ''" in PAGE
    assert "<factory>" not in PAGE
