"""The numbers of rows that the runs of a job read from each source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.graph.labels import listed
from penstock.web import formatting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.web.steps import Step

GREW = 1.1
"""A source has grown or shrunk if its number of rows changed by at least this factor."""


@dataclass(frozen=True, slots=True)
class Growth:
    """A source and the numbers of rows that two runs read from it, which may be fewer than it has."""

    label: str
    before: int
    after: int

    @property
    def factor(self) -> float:
        """The later number of rows divided by the earlier."""
        return self.after / self.before if self.before else float("inf")

    def __str__(self) -> str:
        each = " each" if " and " in self.label else ""
        verb = "was" if self.after == 1 else "were"
        before = formatting.short_count(self.before)
        return f"{formatting.rows(self.after)}{each} of {self.label} {verb} read, {before} before"


def growth(old: Sequence[Step], new: Sequence[Step]) -> list[Growth]:
    """Return the sources that grew or shrank, the largest change first."""
    before = rows_of_sources(old)
    names_by_rows: dict[tuple[int, int], list[str]] = {}  # equal numbers are mostly several reads of a table
    for name, rows in rows_of_sources(new).items():
        if name in before:
            names_by_rows.setdefault((before[name], rows), []).append(name)
    sources = [Growth(listed(names, "tables"), *rows) for rows, names in names_by_rows.items()]
    changed = [source for source in sources if source.factor >= GREW or source.factor <= 1 / GREW]
    return sorted(changed, key=lambda source: abs(source.after - source.before), reverse=True)


def rows_of_sources(steps: Sequence[Step]) -> dict[str, int]:
    """Return the number of rows read from each table; for a table that is read several times, the largest."""
    rows: dict[str, int] = {}
    for step in steps:
        if step.source and step.rows_in:
            rows[step.source] = max(step.rows_in, rows.get(step.source, 0))
    return rows
