"""How commands speak: to people in text, to programs in JSON."""

from __future__ import annotations

import json
import math
import sys
from abc import ABC, abstractmethod
from contextlib import nullcontext, redirect_stdout
from typing import TYPE_CHECKING, Any

from penstock.cli.group import say_error

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from rich.console import Console
    from rich.table import Table

    from penstock.errors import PenstockError
    from penstock.explain import Explanation
    from penstock.scheduler.job import Job

_ENDLESS = 1_000_000


class Output(ABC):
    """What a command can say."""

    @abstractmethod
    def note(self, text: str) -> None:
        """Say something about the way of things."""

    @abstractmethod
    def rows(self, columns: Sequence[str], rows: Sequence[Sequence[Any]], title: str = "") -> None:
        """Show rows."""

    @abstractmethod
    def job(self, job: Job) -> None:
        """Show what a job did."""

    @abstractmethod
    def explanation(self, explanation: Explanation) -> None:
        """Show a dry run."""

    @abstractmethod
    def table(self, table: Table) -> None:
        """Show a table that is made already; programs get records instead."""

    @abstractmethod
    def record(self, name: str, record: Mapping[str, Any]) -> None:
        """Show named values; lists of such become tables."""

    def error(self, error: PenstockError) -> None:
        """Show an error; everybody gets it on standard error."""
        say_error(error)

    def of_program(self) -> AbstractContextManager[object]:
        """Let a user's program print in the block."""
        return nullcontext()

    @abstractmethod
    def close(self) -> None:
        """End what the command says."""


class TextOutput(Output):
    """Tables and sentences."""

    def note(self, text: str) -> None:
        print(text, flush=True)

    def rows(self, columns: Sequence[str], rows: Sequence[Sequence[Any]], title: str = "") -> None:
        from rich.measure import Measurement
        from rich.table import Table
        from rich.text import Text

        table = Table(title=Text(title) if title else None, title_justify="left")
        for column in columns:
            table.add_column(Text(column))
        shown = [["NULL" if value is None else str(value) for value in row] for row in rows]
        for row in shown:
            table.add_row(*map(Text, row))
        console = self._console()
        needed = Measurement.get(console, console.options.update(max_width=_ENDLESS), table)
        if not sys.stdout.isatty():
            console.width = max(console.width, needed.maximum)
        elif needed.minimum > console.width:  # columns would be cut within words
            self._records(columns, shown)
            return
        console.print(table)

    def _records(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Show each row as lines, a column in each."""
        width = max(map(len, columns))
        for number, row in enumerate(rows, 1):
            self.note(f"-- row {number} " + "-" * width)
            for column, value in zip(columns, row, strict=True):
                self.note(f"{column:{width}}  {value}")

    def job(self, job: Job) -> None:
        self._console().print(job.table())
        if told := job.told():
            self.note("\n".join(["What was decided", *told]))

    def explanation(self, explanation: Explanation) -> None:
        self.note(str(explanation))

    def table(self, table: Table) -> None:
        self._console().print(table)

    def record(self, name: str, record: Mapping[str, Any]) -> None:
        tables = {key: value for key, value in record.items() if isinstance(value, (list, tuple)) and value}
        inner = {key: value for key, value in record.items() if isinstance(value, dict)}
        told = [f"{key} {_shown(record[key])}" for key in record if key not in tables and key not in inner]
        self.note(f"{name}: {', '.join(told)}")
        for key, value in inner.items():
            self.record(key, value)
        for key, rows in tables.items():
            self.rows(list(rows[0]), [[_shown(value) for value in row.values()] for row in rows], key)

    def close(self) -> None:
        """Do nothing; everything is said."""

    @staticmethod
    def _console() -> Console:
        from rich.console import Console

        # Without a terminal there is no width to fit into; a table cut at 80 columns would help nobody.
        return Console(width=None if sys.stdout.isatty() else 150)


class JsonOutput(Output):
    """One JSON object on standard output."""

    def __init__(self) -> None:
        self._said: dict[str, Any] = {}

    def note(self, text: str) -> None:
        self._said.setdefault("notes", []).append(text)

    def rows(self, columns: Sequence[str], rows: Sequence[Sequence[Any]], title: str = "") -> None:
        names = _unique(columns)
        named = [dict(zip(names, map(_plain, row), strict=True)) for row in rows]
        self._said.setdefault("results", []).append({"title": title, "rows": named})

    def job(self, job: Job) -> None:
        from penstock.report import job_as_dict

        self._said.setdefault("jobs", []).append(job_as_dict(job))

    def explanation(self, explanation: Explanation) -> None:
        self._said["explanation"] = explanation.as_dict()

    def table(self, table: Table) -> None:
        """Do nothing; a table is for people."""

    def record(self, name: str, record: Mapping[str, Any]) -> None:
        self._said[name] = dict(record)

    def error(self, error: PenstockError) -> None:
        self._said["error"] = {"message": error.message, "cause": error.cause, "hint": error.hint}
        super().error(error)

    def of_program(self) -> AbstractContextManager[object]:
        """Let a user's program print in the block: standard output is for the one object."""
        return redirect_stdout(sys.stderr)

    def close(self) -> None:
        print(json.dumps(self._said, default=str, indent=2))


def _plain(value: Any) -> Any:
    """Return a value of Spark as one of JSON, which knows texts as keys and no number that is not finite."""
    if hasattr(value, "asDict"):
        return {str(name): _plain(one) for name, one in value.asDict().items()}
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _unique(columns: Sequence[str]) -> list[str]:
    """Return names for columns of which several may have the same: ``id``, ``id (2)``."""
    found: list[str] = []
    for column in columns:
        same = columns[: len(found)].count(column)
        found.append(f"{column} ({same + 1})" if same else column)
    return found


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return str(value)


OUTPUTS: dict[str, type[Output]] = {"text": TextOutput, "json": JsonOutput}
