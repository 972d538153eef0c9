from __future__ import annotations

from typing import Any

import pytest

from penstock.cli.splitting import Typed, divide, is_blank

TEXTS = [
    ("select 1;", ["select 1"], ""),
    ("select 1; select 2;", ["select 1", "select 2"], " "[:0]),
    ("select 1; select", ["select 1"], " select"),
    ("select ';';", ["select ';'"], ""),
    (r"select 'it\'s; one';", [r"select 'it\'s; one'"], ""),
    ('select "a;b", `c;d`;', ['select "a;b", `c;d`'], ""),
    ("select 1 -- one; two\n;", ["select 1 -- one; two"], ""),
    ("select /* ; */ 1;", ["select /* ; */ 1"], ""),
    ("select '/*'; select 2;", ["select '/*'", "select 2"], ""),
    ("select 'open;", [], "select 'open;"),
    ("select 1; /* open ;", ["select 1"], " /* open ;"),
    (";;", [], ""),
    ("-- only a comment;\n", [], "-- only a comment;\n"),
    ("select 'ä; ö' ; rest", ["select 'ä; ö'"], " rest"),
]


@pytest.mark.parametrize(("text", "whole", "rest"), TEXTS)
def test_divide(text: Any, whole: Any, rest: Any) -> None:
    assert divide(text) == (whole, rest)


def test_lines() -> None:
    typed = Typed()
    assert typed.add("select 'a") == []
    assert typed.is_open
    assert typed.add("b';") == ["select 'a\nb'"]
    assert not typed.is_open
    assert typed.add("select 2") == []
    assert typed.rest() == "select 2"
    assert not typed.is_open
    assert typed.add("-- nothing") == []
    assert typed.rest() == ""


@pytest.mark.parametrize(("text", "blank"), [("", True), (" -- a\n /* b */ ", True), ("/* a */ select", False)])
def test_blank(text: Any, blank: Any) -> None:
    assert is_blank(text) is blank
