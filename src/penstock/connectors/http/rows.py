"""The rows that tasks of an HTTP sink send, and the dead letters that they return."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    import pyarrow as pa

LETTERS = "row string, status int, error string, attempts int, time timestamp"
"""The columns of a table of dead letters."""
FIRST = f"digest string, {LETTERS}"
"""The columns of the first task's result: the digests of all its rows, with the dead letters of rejected rows."""
_BATCH = 256


@dataclass(frozen=True, slots=True)
class Row:
    """A row to send, as JSON, and the values of the user's key columns as JSON; None without key columns."""

    text: str
    key: str | None = None

    @property
    def digest(self) -> str:
        """The digest that identifies the row."""
        return hashlib.sha256(f"{self.key}\n{self.text}".encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Letter:
    """The result for a row; the fields are the columns of `FIRST`. For an accepted row, only the digest is set."""

    digest: str
    row: str | None = None
    status: int | None = None
    error: str | None = None
    attempts: int | None = None
    time: datetime | None = None


class FirstRows:
    """Assignment of the first rows to the tasks that leave them out.

    A row that was claimed by an attempt of a task stays assigned to that task, and other attempts of the task claim it
    again. It is never released, as the attempt that claimed it may turn out to be successful.
    """

    def __init__(self) -> None:
        self._free: Counter[str] = Counter()
        self._assigned: defaultdict[int, Counter[str]] = defaultdict(Counter)

    @property
    def digests(self) -> frozenset[str]:
        """The digests of the first rows."""
        return frozenset(self._free)

    def add(self, digests: Iterable[str]) -> None:
        """Add rows that were sent."""
        self._free.update(digests)

    def claim(self, task: int, claimed: Counter[str], digest: str) -> bool:
        """Return whether an attempt of a task leaves out a row; `claimed` are its rows left out so far, updated."""
        assigned = self._assigned[task]
        if claimed[digest] == assigned[digest]:
            if not self._free[digest]:
                return False
            self._free[digest] -= 1
            assigned[digest] += 1
        claimed[digest] += 1
        return True


def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    """Yield the rows of a task."""
    for batch in batches:
        columns = [column.to_pylist() for column in batch.columns]
        for values in zip(*columns, strict=True):
            yield Row(*values)


def requests_of(rows: Iterator[Row], size: int) -> Iterator[list[Row]]:
    """Group rows into requests."""
    while request := list(islice(rows, size)):
        yield request


def letter_batches(letters: Iterator[Letter], *, with_digests: bool) -> Iterator[pa.RecordBatch]:
    """Yield letters as Arrow batches with the columns `FIRST`, or `LETTERS` without digests."""
    import pyarrow as pa

    schema = pa.schema(
        [
            *([("digest", pa.string())] if with_digests else []),
            ("row", pa.string()),
            ("status", pa.int32()),
            ("error", pa.string()),
            ("attempts", pa.int32()),
            ("time", pa.timestamp("us", tz="UTC")),
        ]
    )
    while batch := list(islice(letters, _BATCH)):
        columns = {name: [getattr(letter, name) for letter in batch] for name in schema.names}
        yield pa.RecordBatch.from_pydict(columns, schema=schema)
