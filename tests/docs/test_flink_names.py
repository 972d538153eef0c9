"""The page of Flink's names has only names and option keys that exist in Penstock."""

from __future__ import annotations

import re
from importlib import import_module

import pytest

from penstock.config import OPTIONS
from tests.support.paths import ROOT
from tools.design_rows import QUOTED, cells

PAGE = (ROOT / "docs" / "reference" / "flink-names.md").read_text()
KEYS = {key: option.key for option in OPTIONS for key in (option.key, *option.aliases)}
"""The current key of each key that Penstock accepts."""


def rows(heading: str) -> list[tuple[str, str]]:
    """Return the two cells of each row in the table of a section."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [cells(line) for line in section.splitlines() if line.startswith("|")]
    return [(flink, penstock) for flink, penstock in lines[2:]]


def exists(dotted: str) -> bool:
    """Return whether a name is an attribute, or an annotated field, of a module or of a class in it."""
    parts = dotted.split(".")
    for length in range(len(parts) - 1, 0, -1):
        try:
            owner: object = import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        *containers, last = parts[length:]
        for name in containers:
            owner = getattr(owner, name, None)
        return hasattr(owner, last) or last in getattr(owner, "__annotations__", {})
    return False


@pytest.mark.parametrize("name", [name for _, cell in rows("Classes and methods") for name in QUOTED.findall(cell)])
def test_a_class_or_method_of_penstock_exists(name: str) -> None:
    assert exists(name)


@pytest.mark.parametrize(("key", "cell"), rows("Options"))
def test_penstock_accepts_the_option_of_flink(key: str, cell: str) -> None:
    (flink_key,) = QUOTED.findall(key)
    expected = [flink_key] if cell == "the same" else QUOTED.findall(cell)
    assert [KEYS[flink_key]] == expected


def test_names_in_the_designs_are_on_the_page() -> None:
    designs = (ROOT / "docs" / "reference" / "designs.md").read_text()
    assert len(rows("Classes and methods")) > 30
    for key in re.findall(r"`((?:scan|sink|taskmanager|execution|table)\.[a-z.-]+[a-z])`", designs):
        assert f"`{key}`" in PAGE or key.endswith("*"), key


@pytest.mark.parametrize(
    "name", ["penstock.connectors.NoSource", "penstock.graph.AdaptiveGraphManager.no", "no.such.module"]
)
def test_other_names_do_not_exist(name: str) -> None:
    assert not exists(name)
