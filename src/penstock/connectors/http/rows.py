"""The rows that the tasks of an HTTP sink send, and the results of rows (such as dead letters) that tasks return."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

LETTER_COLUMNS = "row string, status int, error string, attempts int, time timestamp"
"""The columns of a table of dead letters."""
FIRST_TASK_COLUMNS = f"digest string, {LETTER_COLUMNS}"
"""The result columns of the task that measures requests; for an accepted row, only the digest is set."""
_RESULTS_PER_BATCH = 256


@dataclass(frozen=True, slots=True)
class Row:
    """A row to send: `text` is the row as JSON, `key` the columns of the idempotency key as JSON (None: no key)."""

    text: str
    key: str | None = None

    @property
    def digest(self) -> str:
        """The hash of the text and the key: equal rows have equal digests."""
        return hashlib.sha256(f"{self.key}\n{self.text}".encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class RowResult:
    """The result of sending a row, with the columns `FIRST_TASK_COLUMNS`; accepted rows have only a digest."""

    digest: str
    row: str | None = None
    status: int | None = None
    error: str | None = None
    attempts: int | None = None
    time: datetime | None = None


class FirstRows:
    """Rows that a single task sent first to measure requests; each is assigned to a later task, which skips it.

    A row that an attempt of a task has claimed, and so skips, stays assigned to that task. Other attempts of the task
    can claim the row too: any of the attempts may turn out to be the one whose result Spark uses.
    """

    def __init__(self) -> None:
        self._unassigned: Counter[str] = Counter()  # by digest
        self._assigned: defaultdict[int, Counter[str]] = defaultdict(Counter)  # by task and digest

    @property
    def digests(self) -> frozenset[str]:
        """The digests of the first rows."""
        return frozenset(self._unassigned)

    def add(self, digests: Iterable[str]) -> None:
        """Add rows that were sent first, by their digests."""
        self._unassigned.update(digests)

    def claim(self, task: int, skipped: Counter[str], digest: str) -> bool:
        """Return whether an attempt of a task skips a row; if so, count it in the attempt's `skipped`, by digest."""
        assigned = self._assigned[task]
        if skipped[digest] == assigned[digest]:  # the attempt has skipped all equal rows that the task has claimed
            if not self._unassigned[digest]:
                return False
            self._unassigned[digest] -= 1
            assigned[digest] += 1
        skipped[digest] += 1
        return True


def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    """Yield the rows of batches, whose columns are the fields of `Row`."""
    for batch in batches:
        columns = [column.to_pylist() for column in batch.columns]
        for values in zip(*columns, strict=True):
            yield Row(*values)


def requests_of(rows: Iterator[Row], size: int) -> Iterator[list[Row]]:
    """Group rows into requests of `size` rows; the last may have fewer."""
    while request := list(islice(rows, size)):
        yield request


def result_batches(results: Iterator[RowResult], *, with_digests: bool) -> Iterator[pa.RecordBatch]:
    """Yield results as Arrow batches with the columns `FIRST_TASK_COLUMNS`, or `LETTER_COLUMNS` without digests."""
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
    while batch := list(islice(results, _RESULTS_PER_BATCH)):
        columns = {name: [getattr(result, name) for result in batch] for name in schema.names}
        yield pa.RecordBatch.from_pydict(columns, schema=schema)
