"""The rows that runs of one job have read of each source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.graph.wording import listed
from penstock.web import words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.web.steps import Step

GREW = 1.1
"""A source has grown if it has so many times the rows; one of so many times fewer has shrunk."""


@dataclass(frozen=True, slots=True)
class Growth:
    """A source of which more rows were read, or fewer; how many it has is not known."""

    label: str
    before: int
    after: int

    @property
    def factor(self) -> float:
        """How many times as many rows were read."""
        return self.after / self.before if self.before else float("inf")

    def __str__(self) -> str:
        each = " each" if " and " in self.label else ""
        verb = "was" if self.after == 1 else "were"
        return f"{words.rows(self.after)}{each} of {self.label} {verb} read, {words.short_count(self.before)} before"


def growth(old: Sequence[Step], new: Sequence[Step]) -> list[Growth]:
    """Return the sources of which clearly more or fewer rows were read, those with most more or fewer first."""
    before = rows_of_sources(old)
    alike: dict[tuple[int, int], list[str]] = {}  # a table that is read several times, mostly
    for name, rows in rows_of_sources(new).items():
        if name in before:
            alike.setdefault((before[name], rows), []).append(name)
    found = [Growth(listed(names, "tables"), *rows) for rows, names in alike.items()]
    changed = [one for one in found if one.factor >= GREW or one.factor <= 1 / GREW]
    return sorted(changed, key=lambda one: abs(one.after - one.before), reverse=True)


def rows_of_sources(steps: Sequence[Step]) -> dict[str, int]:
    """Return how many rows were read of each table; of one that was read several times, the most."""
    found: dict[str, int] = {}
    for step in steps:
        if step.source and step.rows_in:
            found[step.source] = max(step.rows_in, found.get(step.source, 0))
    return found
