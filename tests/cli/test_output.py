"""Tables of commands: whole where nobody sees their width, and as lines where they do not fit on a terminal."""

from __future__ import annotations

import json
import sys
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import Row

from penstock.cli.output import JsonOutput, TextOutput
from tests.terminal import Terminal

PROGRAM = """
from penstock.cli.output import TextOutput
TextOutput().rows([f"column_{i}" for i in range(16)], [["value%d" % i for i in range(16)], [None] * 16])
TextOutput().rows(["a", "b"], [[1, "[bold]x"]])
"""


def test_what_is_piped_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    TextOutput().rows([f"column_{i}" for i in range(40)], [["a long value"] * 40])
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 5
    assert said[3].count("a long value") == 40


@pytest.mark.parametrize(("width", "as_lines"), [(80, True), (120, True), (250, False)])
def test_on_a_terminal(width: Any, as_lines: Any) -> None:
    with Terminal([sys.executable, "-c", PROGRAM], width) as terminal:
        assert terminal.end() == 0
        assert ("column_15  value15" in terminal.text) is as_lines
        assert ("column_9   NULL" in terminal.text) is as_lines
        assert ("-- row 2 --" in terminal.text) is as_lines
        assert max(map(len, terminal.lines)) <= width
        assert "[bold]x" in terminal.text


def test_programs_get_columns_of_the_same_name(capsys: pytest.CaptureFixture[str]) -> None:
    output = JsonOutput()
    output.rows(("id", "k", "id", "id"), [(1, 2, 3, 4)])
    output.close()
    (row,) = json.loads(capsys.readouterr().out)["results"][0]["rows"]
    assert row == {"id": 1, "k": 2, "id (2)": 3, "id (3)": 4}


VALUES = {
    "a map by dates": ({date(2026, 1, 2): Row(a=1, b=[Row(c=2)])}, {"2026-01-02": {"a": 1, "b": [{"c": 2}]}}),
    "no finite number": ([float("nan"), float("-inf"), 1.5], ["nan", "-inf", 1.5]),
    "bytes": (bytearray(b"\x01\xff"), "01ff"),
    "others": ([Decimal("1.10"), None, True], ["1.10", None, True]),
}


@pytest.mark.parametrize("case", VALUES)
def test_programs_get_values_of_every_type(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    value, expected = VALUES[case]
    output = JsonOutput()
    output.rows(("v",), [(value,)])
    with output.of_program():
        print("what a program prints")
    output.close()
    said = capsys.readouterr()
    assert json.loads(said.out)["results"][0]["rows"] == [{"v": expected}]
    assert said.err == "what a program prints\n"


def test_what_looks_like_markup_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    TextOutput().rows(["[/a]"], [["[/b]"]], "[/c]")
    said = capsys.readouterr().out
    assert all(text in said for text in ("[/a]", "[/b]", "[/c]"))


def test_all_rows_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    TextOutput().rows(["n"], [[number] for number in range(1000, 1100)])
    said = capsys.readouterr().out
    assert [number for number in range(1000, 1100) if str(number) not in said] == []
