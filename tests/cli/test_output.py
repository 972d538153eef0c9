"""Tables of commands: at full width without a terminal, and as lines if they do not fit on a terminal."""

from __future__ import annotations

import json
import sys
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import Row
from rich.table import Table

from penstock.cli.output import JsonOutput, Output
from tests.support.terminal import Terminal

PROGRAM = """
from penstock.cli.output import Output
Output().rows([f"column_{i}" for i in range(16)], [["value%d" % i for i in range(16)], [None] * 16])
Output().rows(["a", "b"], [[1, "[bold]x"]])
"""


def test_full_width_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    Output().rows([f"column_{i}" for i in range(40)], [["a long value"] * 40])
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 5
    assert printed[3].count("a long value") == 40


@pytest.mark.parametrize(("width", "as_lines"), [(80, True), (120, True), (250, False)])
def test_on_a_terminal(width: Any, as_lines: Any) -> None:
    with Terminal([sys.executable, "-c", PROGRAM], width) as terminal:
        assert terminal.wait_for_exit() == 0
        assert ("column_15  value15" in terminal.text) is as_lines
        assert ("column_9   NULL" in terminal.text) is as_lines
        assert ("-- row 2 --" in terminal.text) is as_lines
        assert max(map(len, terminal.lines)) <= width
        assert "[bold]x" in terminal.text


def test_json_output_with_equal_column_names(capsys: pytest.CaptureFixture[str]) -> None:
    output = JsonOutput()
    output.rows(("id", "k", "id", "id"), [(1, 2, 3, 4)])
    output.close()
    (row,) = json.loads(capsys.readouterr().out)["results"][0]["rows"]
    assert row == {"id": 1, "k": 2, "id (2)": 3, "id (3)": 4}


def test_json_output_has_no_tables(capsys: pytest.CaptureFixture[str]) -> None:
    output = JsonOutput()
    output.table(Table("a"))
    output.close()
    assert json.loads(capsys.readouterr().out) == {}


VALUES = {
    "a map with dates as keys": ({date(2026, 1, 2): Row(a=1, b=[Row(c=2)])}, {"2026-01-02": {"a": 1, "b": [{"c": 2}]}}),
    "infinite numbers": ([float("nan"), float("-inf"), 1.5], ["nan", "-inf", 1.5]),
    "bytes": (bytearray(b"\x01\xff"), "01ff"),
    "others": ([Decimal("1.10"), None, True], ["1.10", None, True]),
}


@pytest.mark.parametrize("case", VALUES)
def test_json_output_of_all_types(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    value, expected = VALUES[case]
    output = JsonOutput()
    output.rows(("v",), [(value,)])
    with output.redirect_program():
        print("what a program prints")
    output.close()
    printed = capsys.readouterr()
    assert json.loads(printed.out)["results"][0]["rows"] == [{"v": expected}]
    assert printed.err == "what a program prints\n"


def test_markup_is_not_interpreted(capsys: pytest.CaptureFixture[str]) -> None:
    Output().rows(["[/a]"], [["[/b]"]], "[/c]")
    printed = capsys.readouterr().out
    assert all(text in printed for text in ("[/a]", "[/b]", "[/c]"))


def test_all_rows_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    Output().rows(["n"], [[number] for number in range(1000, 1100)])
    printed = capsys.readouterr().out
    assert [number for number in range(1000, 1100) if str(number) not in printed] == []
