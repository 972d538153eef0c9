"""The API pages contain every public name, and show default values."""

from __future__ import annotations

import importlib
import inspect
import re

import pytest

import penstock.errors
from tests.docs.test_tutorials import DOCS
from tools.api_pages import markdown

PAGES = "\n".join(page.read_text() for page in sorted((DOCS / "reference" / "api").glob("*.md")))
NAMES = re.findall(r"^## `(.*)`$", PAGES, re.MULTILINE)


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
def test_the_pages_contain_every_public_name(package: str) -> None:
    module = importlib.import_module(package)
    internal = {"__version__", "JdbcScan", "dialect_of"}
    assert set(module.__all__) - internal <= set(NAMES)


def test_the_pages_contain_every_error() -> None:
    members = vars(penstock.errors).items()
    errors = {name for name, member in members if inspect.isclass(member) and issubclass(member, Exception)}
    assert errors <= set(NAMES)


def test_the_pages_contain_every_default_strategy() -> None:
    optimizer = importlib.import_module("penstock.optimizer.optimizer")
    assert {strategy.__name__ for strategy in optimizer.DEFAULT_STRATEGIES} <= set(NAMES)


def test_defaults_of_strings_are_shown() -> None:
    assert "name: str | None = None" in PAGES
    assert "name: str = ''" in PAGES
    assert "<factory>" not in PAGES


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        ("Return ``a``.", "Return `a`.\n"),
        ("Add.\n\n>>> 1 + 1\n2\n\nMore.", "Add.\n\n```pycon\n>>> 1 + 1\n2\n```\n\nMore.\n"),
        (
            "Do.\n\nParameters\n----------\na, b\n    Two\n    lines.",
            "Do.\n\n**Parameters**\n\n* `a`: Two\n  lines.\n* `b`: Two\n  lines.\n",
        ),
        ("Do.\n\nRaises\n------\nKeyError\n    If absent.", "Do.\n\n**Raises**\n\n* `KeyError`: If absent.\n"),
    ],
)
def test_docstrings_become_markdown(docstring: str, expected: str) -> None:
    assert markdown(docstring) == expected
