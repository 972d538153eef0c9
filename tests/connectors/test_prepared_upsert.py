"""The commit of an upsert while others commit: it is tried again, and worked out again only if it no longer fits."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pytest

from penstock.commit import Access
from penstock.connectors.prepared_upsert import PreparedUpsert
from penstock.errors import CommitUnknownError


class TooLateError(Exception):
    """Another commit came first."""


class BrokenError(Exception):
    """The table cannot be written."""


class UnknownError(CommitUnknownError):
    """Nobody has answered."""


@dataclass
class World:
    """A table that is only its version; the writes end as they are told to, and others commit where one is late."""

    ends: list[str]
    version: int = 7
    receipts: int = 0
    writes: int = 0
    removed: list[int | None] = field(default_factory=list)

    def write(self, onto: int | None) -> None:
        assert onto == self.version, "a commit goes onto the version that was looked at last"
        end, self.writes = self.ends[self.writes], self.writes + 1
        if end == "broken":
            raise BrokenError
        if end == "unknown":
            raise UnknownError("?")
        self.version += 1
        if end == "late":
            raise TooLateError
        self.receipts += 1
        if end == "answer lost":
            raise TooLateError


@dataclass(frozen=True)
class Record(PreparedUpsert[int]):
    is_reversible: ClassVar[bool] = False
    pauses: ClassVar[tuple[float, ...]] = (0.0, 0.0)
    target = "t"

    world: World = field(default_factory=lambda: World([]))
    fits: bool = True
    seen: int | None = 7

    def commit(self, access: Access) -> None:
        self.commit_what_fits(access)

    def is_committed(self, access: Access) -> bool:
        return self.is_in(self.world.version)

    def is_in(self, table: int | None) -> bool:
        return self.world.receipts > 0

    def remove_attempt(self, access: Access) -> None:
        self.world.removed.append(self.seen)

    def undo(self, access: Access) -> None:
        raise NotImplementedError

    def look(self, access: Access) -> int | None:
        return self.world.version

    def has_seen(self, table: int | None) -> bool:
        return table == self.seen

    def still_fits(self, access: Access, table: int) -> bool:
        return self.fits

    def worked_out_again(self, access: Access, table: int | None) -> Record:
        return replace(self, seen=table)

    def commit_onto(self, access: Access, table: int | None) -> None:
        self.world.write(table)

    def came_too_late(self, access: Access, error: Exception, table: int | None) -> bool:
        return isinstance(error, TooLateError)


CASES: dict[str, tuple[list[str], bool, list[int]]] = {
    "nobody else": (["done"], True, [7]),
    "another first, and it fits": (["late", "done"], True, [7]),
    "another first, and it does not fit": (["late", "done"], False, [7, 8]),
    "two others first": (["late", "late", "done"], False, [7, 8, 9]),
    "it was committed, and the answer was lost": (["answer lost"], False, [7]),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_tried(case: str) -> None:
    ends, fits, expected = CASES[case]
    world = World(ends)
    tried = Record(world=world, fits=fits).commit_what_fits(Access(None))
    assert [one.seen for one in tried] == expected
    assert (world.writes, world.receipts) == (len(ends), 1)


@pytest.mark.parametrize(
    ("ends", "error", "removed"),
    [
        (["late", "late", "late"], TooLateError, [8, 9]),
        (["late", "broken"], BrokenError, [8]),
        (["late", "unknown"], UnknownError, []),  # it may be committed yet
    ],
)
def test_what_is_given_up(ends: Any, error: Any, removed: list[int]) -> None:
    """The files of the first attempt are removed with the record."""
    world = World(ends)
    with pytest.raises(error):
        Record(world=world, fits=False).commit(Access(None))
    assert (world.writes, world.receipts, world.removed) == (len(ends), 0, removed)


def test_a_table_that_is_gone_is_worked_out_anew(caplog: pytest.LogCaptureFixture) -> None:
    record = Record(fits=True, seen=None)
    assert record.fitting(Access(None), None) is record
    gone = replace(record, seen=7)
    assert gone.fitting(Access(None), None).seen is None
    assert "table t has changed, the upsert is worked out again" in caplog.text
