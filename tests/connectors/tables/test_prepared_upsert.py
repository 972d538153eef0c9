"""The commit of an upsert beside concurrent commits: it is retried, and recomputed only if its files no longer fit."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pytest

from penstock.commit import Access
from penstock.connectors.tables.commit import PreparedUpsert
from penstock.errors import CommitUnknownError


class TooLateError(Exception):
    """A concurrent commit came first."""


class BrokenError(Exception):
    """The table cannot be written."""


class UnknownError(CommitUnknownError):
    """The commit has no answer."""


@dataclass
class Table:
    """A simulated table whose writes have predefined outcomes: "done", "late", "answer lost", "broken" or "unknown"."""

    outcomes: list[str]
    version: int = 7
    receipts: int = 0
    writes: int = 0
    removed: list[int | None] = field(default_factory=list)

    def write(self, onto: int | None) -> None:
        assert onto == self.version, "a commit is based on the last version that was read"
        outcome, self.writes = self.outcomes[self.writes], self.writes + 1
        if outcome == "broken":
            raise BrokenError
        if outcome == "unknown":
            raise UnknownError("?")
        self.version += 1
        if outcome == "late":
            raise TooLateError
        self.receipts += 1
        if outcome == "answer lost":
            raise TooLateError


@dataclass(frozen=True)
class Record(PreparedUpsert[int]):
    is_reversible: ClassVar[bool] = False
    retry_pauses: ClassVar[tuple[float, ...]] = (0.0, 0.0)
    target = "t"

    table: Table = field(default_factory=lambda: Table([]))
    fits: bool = True
    seen: int | None = 7

    def commit(self, access: Access) -> None:
        self.commit_optimistically(access)

    def is_committed(self, access: Access) -> bool:
        return self.is_in(self.table.version)

    def is_in(self, table: int | None) -> bool:
        return self.table.receipts > 0

    def remove_attempt(self, access: Access) -> None:
        self.table.removed.append(self.seen)

    def undo(self, access: Access) -> None:
        raise NotImplementedError

    def load_table(self, access: Access) -> int | None:
        return self.table.version

    def is_based_on(self, table: int | None) -> bool:
        return table == self.seen

    def still_fits(self, access: Access, table: int) -> bool:
        return self.fits

    def recomputed(self, access: Access, table: int | None) -> Record:
        return replace(self, seen=table)

    def commit_onto(self, access: Access, table: int | None) -> None:
        self.table.write(table)

    def is_conflict(self, access: Access, error: Exception, table: int | None) -> bool:
        return isinstance(error, TooLateError)


CASES: dict[str, tuple[list[str], bool, list[int]]] = {
    "no concurrent commit": (["done"], True, [7]),
    "a concurrent commit that fits": (["late", "done"], True, [7]),
    "a concurrent commit that does not fit": (["late", "done"], False, [7, 8]),
    "two concurrent commits": (["late", "late", "done"], False, [7, 8, 9]),
    "a commit whose answer is lost": (["answer lost"], False, [7]),
}


@pytest.mark.parametrize("case", CASES)
def test_a_commit_is_retried_and_recomputed_if_it_does_not_fit(case: str) -> None:
    outcomes, fits, expected = CASES[case]
    table = Table(outcomes)
    attempts = Record(table=table, fits=fits).commit_optimistically(Access(None))
    assert [attempt.seen for attempt in attempts] == expected
    assert (table.writes, table.receipts) == (len(outcomes), 1)


@pytest.mark.parametrize(
    ("outcomes", "error", "removed"),
    [
        (["late", "late", "late"], TooLateError, [8, 9]),
        (["late", "broken"], BrokenError, [8]),
        (["late", "unknown"], UnknownError, []),  # the commit may still succeed
    ],
)
def test_files_of_later_attempts_are_removed_after_a_failure(outcomes: Any, error: Any, removed: list[int]) -> None:
    """The files of the first attempt are not in the list, because they are removed with the record."""
    table = Table(outcomes)
    with pytest.raises(error):
        Record(table=table, fits=False).commit(Access(None))
    assert (table.writes, table.receipts, table.removed) == (len(outcomes), 0, removed)


def test_an_upsert_is_recomputed_for_a_dropped_table(caplog: pytest.LogCaptureFixture) -> None:
    record = Record(fits=True, seen=None)
    assert record.fitting(Access(None), None) is record
    dropped = replace(record, seen=7)
    assert dropped.fitting(Access(None), None).seen is None
    assert "table t has changed, so the upsert is recomputed" in caplog.text
