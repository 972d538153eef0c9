"""Tables of what a job did, for the terminal and for notebooks."""

from __future__ import annotations

import io
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from penstock.units import show_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

_STYLE = "font-family:Menlo,Consolas,monospace;font-size:12px;line-height:1.35;overflow-x:auto;white-space:pre"
_WIDTH = 150


@dataclass(frozen=True, slots=True)
class VertexRow:
    """A vertex in a table; bytes and tasks are None while unknown."""

    vertex: str
    operators: str
    bytes_in: int | None
    tasks: int | None
    reason: str
    seconds: float


class TextTable(Table):
    """A table whose `str` is its text."""

    def __str__(self) -> str:
        console = Console(width=_WIDTH, file=io.StringIO())
        with console.capture() as shown:
            console.print(self)
        return shown.get().rstrip()


def vertices_table(title: str, rows: Iterable[VertexRow], notes: Iterable[tuple[str, str]]) -> TextTable:
    """Return a table with a row per vertex: what it does, how many tasks it got, and why.

    Parameters
    ----------
    title
        Stands above it.
    rows
        The vertices.
    notes
        What was chosen and why, shown where there are no vertices.
    """
    table = TextTable(title=title, title_justify="left", expand=False)
    table.add_column("vertex", no_wrap=True)
    table.add_column("operators", ratio=3, overflow="fold")
    table.add_column("bytes in", justify="right", no_wrap=True)
    table.add_column("tasks", justify="right", no_wrap=True)
    table.add_column("why", ratio=3, overflow="fold")
    table.add_column("seconds", justify="right", no_wrap=True)
    shown = list(rows)
    for row in shown:
        tasks = "" if row.tasks is None else str(row.tasks)
        size = "?" if row.bytes_in is None else show_bytes(row.bytes_in)
        table.add_row(row.vertex, row.operators, size, tasks, row.reason, f"{row.seconds:.2f}")
    if not shown:
        for chosen, reason in notes:
            table.add_row("", chosen, "", "", reason, "")
    return table


def html_of_table(table: Table) -> str:
    """Return a table of the terminal as HTML."""
    console = Console(record=True, width=_WIDTH, file=io.StringIO())
    console.print(table)
    return console.export_html(inline_styles=True, code_format=f'<div style="{_STYLE}">{{code}}</div>')


def html_of_text(text: str) -> str:
    """Return text as HTML, its lines as they are."""
    return f'<div style="{_STYLE}">{escape(text)}</div>'
