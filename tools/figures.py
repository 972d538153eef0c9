"""Figures in the docs, which `make_docs.py` copies from the tables in bench/results.

A figure is between two comments, which the rendered page does not show:

    <!-- bench: native/tpch-10; geometric mean; times as fast as Spark, AQE; .1f -->7.5<!-- end -->

The parts are a table in ``bench/results``, rows, a column and a format (``.0%`` for a percentage, ``text`` for the
unchanged cell). Rows are the text of a first cell, or a function over the column: ``min``, ``max``, ``range`` (both, if
they differ), or ``names below 1``, the first cells of the rows below a limit. ``where`` filters rows:
``min where method = Penstock, files & keys = 3,000,000``. ``<!-- bench: native/tpch-10; measured -->`` is the date and
the commit of the measurement.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "bench" / "results"
PAGES = [ROOT / "README.md", ROOT / "bench" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_FIGURE = re.compile(r"<!-- bench: (?P<query>[^>]*?) -->(?P<figure>[^<]*)<!-- end -->")
_TOTAL_ROWS = ("all", "geometric mean")
_DATE_AND_COMMIT = re.compile(r"\d{4}-\d\d-\d\d(?:, commit [0-9a-f]+\+?)?")
_NUMBER = r"\d[\d,. ]*"
_SECONDS = rf"{_NUMBER}(?:(?:and|to) {_NUMBER})?(?:s|ms|seconds)\b"
_SPEED_CLAIM = re.compile(
    rf"{_NUMBER}\**\s*(?:and {_NUMBER}\**\s*)?times (?:as (?:fast|long|many)|faster|slower)|{_NUMBER}x (?:fast|slow)er"
    rf"|{_SECONDS} (?:became|become|instead of|where)\b|\b(?:took|ran in|(?:then )?costs) {_SECONDS}"
)
"""Text that claims a measured speed."""


class Table:
    """Results of a benchmark.

    Parameters
    ----------
    text
        A page with a table, or with several tables that have the same columns.
    """

    def __init__(self, text: str) -> None:
        lines = [line for line in text.splitlines() if line.startswith("|")]
        rows = [[cell.strip().strip("*") for cell in line.strip("|").split("|")] for line in lines]
        self.columns = rows[0]
        self.rows = [row for row in rows[1:] if not set("".join(row)) <= set(":- ") and row != self.columns]
        self.dates_and_commits = list(dict.fromkeys(_DATE_AND_COMMIT.findall(text.split("\n|", maxsplit=1)[0])))

    def cells(self, rows: str, column: str) -> dict[str, str]:
        """Return the cells of a column by the first cells of their rows, which must be unique.

        Parameters
        ----------
        rows
            Conditions such as ``method = Spark & keys = 3,000,000``; if empty, all rows except totals.
        column
            The header of the column.
        """
        conditions = [condition.split(" = ", 1) for condition in rows.split(" & ")] if rows else []
        index = self._index(column)
        return {
            f"{row[0]} {number}" if conditions else row[0]: row[index]
            for number, row in enumerate(self.rows)
            if row[index] and (conditions or row[0] not in _TOTAL_ROWS)
            if all(row[self._index(name)] == value for name, value in conditions)
        }

    def figure(self, rows: str, column: str, format_spec: str) -> str:
        """Return the formatted figure of a row, or of a function over rows, in a column."""
        function, _, where = rows.partition(" where ")
        if function not in ("min", "max", "range", "only") and not function.startswith("names below "):
            function, where = "only", f"{self.columns[0]} = {rows}"
        cells = self.cells(where, column)
        if not cells or (function == "only" and len(cells) != 1):
            raise ValueError(f"{len(cells)} rows match {rows!r}")
        if format_spec == "text":
            return next(iter(cells.values()))
        numbers = {name: _number(cell) for name, cell in cells.items()}
        if function.startswith("names below "):
            limit = float(function.removeprefix("names below "))
            return ", ".join(name for name, number in numbers.items() if number < limit) or "none"
        smallest, largest = (format(pick(numbers.values()), format_spec) for pick in (min, max))
        if function == "range" and smallest != largest:
            return f"{smallest} to {largest}"
        return largest if function == "max" else smallest

    def _index(self, column: str) -> int:
        if column not in self.columns:
            raise ValueError(f"there is no column {column!r}, the columns are {self.columns}")
        return self.columns.index(column)


def _number(text: str) -> float:
    """Return the first number in a cell, such as the CPU seconds of `1596, 19534, 233`."""
    match = re.match(r"\d+(?:\.\d+)?", text.replace(",", "") if re.fullmatch(r"\d{1,3}(,\d{3})+", text) else text)
    if match is None:
        raise ValueError(f"{text!r} has no number")
    return float(match[0])


@cache
def table(name: str) -> Table:
    """Return the table of a file in ``bench/results``."""
    return Table((RESULTS / f"{name}.md").read_text())


def figure(query: str) -> str:
    """Return the text for a query ``table; rows; column; format`` or ``table; measured``.

    Raises
    ------
    ValueError
        If the table has no such rows, column or date.
    """
    name, *parts = (part.strip() for part in query.split(";"))
    if parts == ["measured"]:
        if not table(name).dates_and_commits:
            raise ValueError(f"{name} has no date of measurement")
        return " and ".join(table(name).dates_and_commits)
    try:
        return table(name).figure(*parts)
    except ValueError as error:
        raise ValueError(f"bench/results/{name}.md: {error}") from error


def fill_in(text: str) -> str:
    """Return a page with all of its figures updated from the tables."""
    return _FIGURE.sub(lambda match: f"<!-- bench: {match['query']} -->{figure(match['query'])}<!-- end -->", text)


def unsourced_claims(text: str) -> list[str]:
    """Return the claims of speed on a page that have no figure from a table."""
    prose = re.sub(r"```.*?```", "", _FIGURE.sub("*", text), flags=re.DOTALL)
    prose = "\n".join(line for line in prose.splitlines() if not line.startswith("|"))
    return [match[0] for match in _SPEED_CLAIM.finditer(" ".join(prose.split()))]
