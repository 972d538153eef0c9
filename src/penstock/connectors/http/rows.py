"""The rows that tasks of an HTTP sink send, in requests, and those that they give back."""

from __future__ import annotations

import hashlib
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
"""The columns of what the first task gives: the digests of all its rows, and the letters of those that were refused."""
_BATCH = 256


@dataclass(frozen=True, slots=True)
class Row:
    """A row to send.

    Parameters
    ----------
    text
        The row as JSON.
    key
        What the user's key columns hold, None where there are none.
    """

    text: str
    key: str | None = None

    @property
    def digest(self) -> str:
        """By what it is known."""
        return hashlib.sha256(f"{self.key}\n{self.text}".encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Letter:
    """What came of a row; the fields are the columns of `FIRST`. Of a row that was taken only the digest is told."""

    digest: str
    row: str | None = None
    status: int | None = None
    error: str | None = None
    attempts: int | None = None
    time: datetime | None = None


def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    """Iterate over the rows of a task."""
    for batch in batches:
        columns = [column.to_pylist() for column in batch.columns]
        for values in zip(*columns, strict=True):
            yield Row(*values)


def requests_of(rows: Iterator[Row], size: int) -> Iterator[list[Row]]:
    """Put rows together for requests."""
    while request := list(islice(rows, size)):
        yield request


def batches_of(letters: Iterator[Letter], *, with_digests: bool) -> Iterator[pa.RecordBatch]:
    """Return letters as Spark takes them: with the columns `FIRST`, or without digests `LETTERS`."""
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
    while some := list(islice(letters, _BATCH)):
        columns = {name: [getattr(letter, name) for letter in some] for name in schema.names}
        yield pa.RecordBatch.from_pydict(columns, schema=schema)
