"""Tables of jobs, for the terminal and for notebooks."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.base.units import show_bytes

_STYLE = "font-family:Menlo,Consolas,monospace;font-size:12px;line-height:1.35;overflow-x:auto;white-space:pre"
WIDTH = 150
"""Characters per line where the width of the terminal is unknown."""


@dataclass(frozen=True, slots=True)
class VertexRow:
    """A row for a vertex of a job graph. `step` is its name for users, `reason` explains `tasks`. None: unknown."""

    vertex: str
    step: str
    bytes_in: int | None
    tasks: int | None
    reason: str
    seconds: float
    rows: int | None = None
    bytes_out: int | None = None


class TextTable(Table):
    """A table of the library rich whose `str` is the rendered text."""

    def __init__(self, title: str) -> None:
        super().__init__(title=Text(title), title_justify="left", expand=False)

    def add_texts(self, *cells: str) -> None:
        """Add a row of texts without interpreting the markup of rich, such as ``[bold]``."""
        self.add_row(*map(Text, cells))

    def __str__(self) -> str:
        console = Console(width=WIDTH, file=io.StringIO(), force_jupyter=False, color_system=None)
        with console.capture() as capture:
            console.print(self)
        return capture.get().rstrip()


def vertices_table(title: str, rows: Iterable[VertexRow], notes: Iterable[str]) -> TextTable:
    """Return a table with a row per vertex: its step, its number of tasks with the reason, and its other figures.

    If there are no vertices, the table has a row for each of `notes` instead. The notes are the texts of decisions.
    """
    table = TextTable(title)
    vertices = list(rows)
    if not vertices:
        table.add_column("what happened")
        for note in notes:
            table.add_texts(note)
        return table
    ratios = {"step": 3, "why": 2}  # relative widths of the text columns
    for name in ("", "step", "bytes in", "tasks", "why", "rows out", "bytes out", "seconds"):
        is_text = name in ratios
        table.add_column(name, justify="left" if is_text else "right", no_wrap=not is_text, ratio=ratios.get(name))
    for row in vertices:
        table.add_texts(
            row.vertex.removeprefix("v"),
            row.step,
            _bytes(row.bytes_in),
            _count(row.tasks),
            row.reason,
            _count(row.rows),
            _bytes(row.bytes_out),
            f"{row.seconds:.2f}",
        )
    return table


def _bytes(size: int | None) -> str:
    return "" if size is None else show_bytes(size)


def _count(number: int | None) -> str:
    return "" if number is None else f"{number:,}"


def html_of_table(table: Table) -> str:
    """Return a table as HTML."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_jupyter=False)
    console.print(table)
    return console.export_html(inline_styles=True, code_format=f'<div style="{_STYLE}">{{code}}</div>')


def html_of_text(text: str) -> str:
    """Return text as HTML with preserved line breaks."""
    return f'<div style="{_STYLE}">{escape(text)}</div>'
