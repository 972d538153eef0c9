"""The API page has every public name, with its defaults."""

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
def test_every_public_name_is_there(package: str) -> None:
    module = importlib.import_module(package)
    internal = {"__version__", "JdbcScan", "dialect_of"}
    assert set(module.__all__) - internal <= set(NAMES)


def test_every_error_is_there() -> None:
    errors = {name for name, thing in vars(penstock.errors).items() if inspect.isclass(thing) and name[0] != "_"}
    assert errors <= set(NAMES)


def test_every_default_strategy_is_there() -> None:
    optimizer = importlib.import_module("penstock.optimizer.optimizer")
    assert {strategy.__name__ for strategy in optimizer.DEFAULT_STRATEGIES} <= set(NAMES)


def test_defaults_that_are_texts_are_shown() -> None:
    assert "name: str | None = None" in PAGE
    assert "name: str = ''" in PAGE
    assert "<factory>" not in PAGE
