"""The output of commands: text for users, JSON for programs."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from penstock.errors import PenstockError
    from penstock.report.explain import ExplainedPlan
    from penstock.scheduler.job import Job

_UNLIMITED_WIDTH = 1_000_000


class Output:
    """The output of commands as text: tables and sentences. Its docstrings also apply to `JsonOutput`."""

    def note(self, text: str) -> None:
        """Show a message."""
        print(text, flush=True)

    def rows(self, columns: Sequence[str], rows: Sequence[Sequence[Any]], title: str = "") -> None:
        """Show rows as a table; on a terminal too narrow for the words, show each value on a separate line."""
        from rich.measure import Measurement
        from rich.table import Table
        from rich.text import Text

        table = Table(title=Text(title) if title else None, title_justify="left")
        for column in columns:
            table.add_column(Text(column))
        texts = [["NULL" if value is None else str(value) for value in row] for row in rows]
        for row in texts:
            table.add_row(*map(Text, row))
        console = self._console()
        table_width = Measurement.get(console, console.options.update(max_width=_UNLIMITED_WIDTH), table)
        if not sys.stdout.isatty():
            console.width = max(console.width, table_width.maximum)
        elif table_width.minimum > console.width:  # words would be broken
            self._print_columns_as_lines(columns, texts)
            return
        console.print(table)

    def _print_columns_as_lines(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Show each row as several lines: a line for each column."""
        width = max(map(len, columns))
        for number, row in enumerate(rows, 1):
            self.note(f"-- row {number} " + "-" * width)
            for column, value in zip(columns, row, strict=True):
                self.note(f"{column:{width}}  {value}")

    def job(self, job: Job) -> None:
        """Show the steps and the decisions of a job."""
        self._console().print(job.table())
        if lines := job.decision_lines():
            self.note("\n".join(["Decisions", *lines]))

    def explanation(self, explanation: ExplainedPlan) -> None:
        """Show an explained plan."""
        self.note(str(explanation))

    def table(self, table: Table) -> None:
        """Show a formatted table; `JsonOutput` ignores it, so commands with JSON output call `record` instead."""
        self._console().print(table)

    def record(self, name: str, record: Mapping[str, Any]) -> None:
        """Show values under a name; a list (of dictionaries) becomes a table, and a dictionary becomes a record."""
        tables = {key: value for key, value in record.items() if isinstance(value, (list, tuple)) and value}
        nested = {key: value for key, value in record.items() if isinstance(value, dict)}
        scalars = [f"{key} {_formatted(record[key])}" for key in record if key not in tables and key not in nested]
        self.note(f"{name}: {', '.join(scalars)}")
        for key, value in nested.items():
            self.record(key, value)
        for key, rows in tables.items():
            self.rows(list(rows[0]), [[_formatted(value) for value in row.values()] for row in rows], key)

    def error(self, error: PenstockError) -> None:
        """Show an error on standard error."""
        print_error(error)

    def redirect_program(self) -> AbstractContextManager[object]:
        """Return a context that redirects the standard output of a user's program, if necessary."""
        return nullcontext()

    def close(self) -> None:
        """Finish the output."""

    @staticmethod
    def _console() -> Console:
        from rich.console import Console

        return Console(width=None if sys.stdout.isatty() else 150)  # without a terminal, the default is 80 columns


class JsonOutput(Output):
    """The output of commands as a single JSON object on standard output, for programs."""

    def __init__(self) -> None:
        self._document: dict[str, Any] = {}

    def note(self, text: str) -> None:
        self._document.setdefault("notes", []).append(text)

    def rows(self, columns: Sequence[str], rows: Sequence[Sequence[Any]], title: str = "") -> None:
        names = _unique(columns)
        records = [dict(zip(names, map(_plain, row), strict=True)) for row in rows]
        self._document.setdefault("results", []).append({"title": title, "rows": records})

    def job(self, job: Job) -> None:
        from penstock.report.analysis import job_as_dict

        self._document.setdefault("jobs", []).append(job_as_dict(job))

    def explanation(self, explanation: ExplainedPlan) -> None:
        self._document["explanation"] = explanation.as_dict()

    def table(self, table: Table) -> None:
        """Do nothing: with JSON output, commands call `record` instead."""

    def record(self, name: str, record: Mapping[str, Any]) -> None:
        self._document[name] = dict(record)

    def error(self, error: PenstockError) -> None:
        self._document["error"] = {"message": error.message, "cause": error.cause, "hint": error.hint}
        super().error(error)

    def redirect_program(self) -> AbstractContextManager[object]:
        """Return a context that redirects to standard error, as standard output is for the JSON object."""
        return redirect_stdout(sys.stderr)

    def close(self) -> None:
        print(json.dumps(self._document, default=str, indent=2))


def print_error(error: PenstockError) -> None:
    """Print an error to standard error."""
    click.echo(f"error: {error}", err=True)


def _plain(value: Any) -> Any:
    """Convert a Spark value for JSON, which has only texts as keys and only finite numbers."""
    if hasattr(value, "asDict"):
        return {str(name): _plain(field) for name, field in value.asDict().items()}
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _unique(columns: Sequence[str]) -> list[str]:
    """Make column names unique by numbering repetitions: ``id``, ``id (2)``."""
    names: list[str] = []
    for column in columns:
        repetitions = columns[: len(names)].count(column)
        names.append(f"{column} ({repetitions + 1})" if repetitions else column)
    return names


def _formatted(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return str(value)


OUTPUTS: dict[str, type[Output]] = {"text": Output, "json": JsonOutput}
