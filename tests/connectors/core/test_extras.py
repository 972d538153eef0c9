"""Messages about a missing client library name a command that installs it."""

from __future__ import annotations

import shlex
import tomllib
from pathlib import Path

import pytest

from penstock.connectors.core.extras import PACKAGES, require_module
from penstock.errors import SinkError
from tests.support.paths import ROOT

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
OTHER_EXTRAS = {"dev", "otel"}
"""Extras that no connector needs."""


def test_each_extra_of_a_connector_has_its_packages() -> None:
    required = {extra: [name.partition(">=")[0] for name in names] for extra, names in EXTRAS.items()}
    assert {extra: shlex.split(packages) for extra, packages in PACKAGES.items()} == {
        extra: names for extra, names in required.items() if extra not in OTHER_EXTRAS
    }


def test_a_missing_library_is_an_error_with_a_command() -> None:
    with pytest.raises(SinkError, match=r"no_such_library is not installed.*\n?.*pip install httpx tenacity"):
        require_module("no_such_library", "http", SinkError)


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "src").rglob("*.py"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_installs_the_package_of_another_project(page: Path) -> None:
    """The name `penstock` on PyPI belongs to another project."""
    assert "pip install penstock" not in page.read_text()
    assert "pip install 'penstock" not in page.read_text()
