from __future__ import annotations

from typing import Any

import pytest

from penstock.cli.shell import InputBuffer, is_blank, split_statements

TEXTS = [
    ("select 1;", ["select 1"], ""),
    ("select 1; select 2;", ["select 1", "select 2"], " "[:0]),
    ("select 1; select", ["select 1"], " select"),
    ("select ';';", ["select ';'"], ""),
    (r"select 'it\'s; one';", [r"select 'it\'s; one'"], ""),
    ('select "a;b", `c;d`;', ['select "a;b", `c;d`'], ""),
    ("select 1 -- a; b\n;", ["select 1 -- a; b"], ""),
    ("select /* ; */ 1;", ["select /* ; */ 1"], ""),
    ("select '/*'; select 2;", ["select '/*'", "select 2"], ""),
    ("select 'open;", [], "select 'open;"),
    ("select 1; /* open ;", ["select 1"], " /* open ;"),
    (";;", [], ""),
    ("-- only a comment;\n", [], "-- only a comment;\n"),
    ("select 'ä; ö' ; rest", ["select 'ä; ö'"], " rest"),
]


@pytest.mark.parametrize(("text", "statements", "rest"), TEXTS)
def test_split_statements(text: Any, statements: Any, rest: Any) -> None:
    assert split_statements(text) == (statements, rest)


def test_lines() -> None:
    buffer = InputBuffer()
    assert buffer.add("select 'a") == []
    assert buffer.is_open
    assert buffer.add("b';") == ["select 'a\nb'"]
    assert not buffer.is_open
    assert buffer.add("select 2") == []
    assert buffer.flush() == "select 2"
    assert not buffer.is_open
    assert buffer.add("-- nothing") == []
    assert buffer.flush() == ""


@pytest.mark.parametrize(("text", "blank"), [("", True), (" -- a\n /* b */ ", True), ("/* a */ select", False)])
def test_blank(text: Any, blank: Any) -> None:
    assert is_blank(text) is blank
