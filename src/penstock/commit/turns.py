"""Jobs that change the same files at a time: one waits until the other has committed, or has been undone."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from penstock.commit.journal import Journal, folder_beside, journals_at, read_own_journal
from penstock.commit.paths import are_within
from penstock.commit.recovery import Direction, recover_own
from penstock.errors import CommitError

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.commit.prepared import Access, Prepared
    from penstock.spark.filesystem import Folder

log = logging.getLogger("penstock.commit")

PATIENCE = 300.0
"""Seconds to wait for the commit of another job."""
_PAUSE = 0.2


def wait_for_others(access: Access, journal: Journal, go_on: Callable[[], None]) -> None:
    """Return once no other commit is under way that this one could harm, or be harmed by if it is undone.

    Every commit writes its journal, then looks for others. If two have written before either looks, both wait: the one
    whose journal has the later name takes it away meanwhile. `go_on` is called while it waits, and may raise.

    Raises
    ------
    CommitError
        If the other takes too long.
    """
    latest = time.monotonic() + PATIENCE
    while others := _others(access, journal):
        withdraws = any(_name(other) < _name(journal) for other in others)
        if withdraws:
            journal.remove(access)
        for other in others:
            _wait(access, other, latest, go_on)
        if withdraws:
            journal.point(access)
            journal.write(access)


def wait_for_commits_at(access: Access, target: Folder) -> None:
    """Return once no commit is under way at a target: what it holds meanwhile may be undone."""
    latest = time.monotonic() + PATIENCE
    for path in journals_at(access, folder_beside(access, str(target))):
        journal = read_own_journal(access, path)
        if journal is not None and any(part.is_at(target) for part in journal.parts):
            _wait(access, journal, latest, lambda: None)


def _wait(access: Access, other: Journal, latest: float, go_on: Callable[[], None]) -> None:
    said = False
    while recover_own(access, other.path) is Direction.ALIVE:
        if time.monotonic() > latest:
            raise CommitError.busy(other.name, [part.target for part in other.parts], str(other.owner), other.path)
        if not said:
            log.info("waiting for the commit of job %r by %s", other.name, other.owner)
            said = True
        go_on()
        time.sleep(_PAUSE)


def _others(access: Access, mine: Journal) -> list[Journal]:
    """Return the commits of others that touch the same files."""
    touching = (part.folder for part in mine.parts if part.folder is not None and _touches(part))
    places = {str(place): place for place in (folder_beside(access, folder) for folder in touching)}
    found = {path for place in places.values() for path in journals_at(access, place)}
    others = (read_own_journal(access, path) for path in sorted(found) if _last(path) != _name(mine))
    return [
        other
        for other in others
        if other is not None and any(_harms(one, two) for one in mine.parts for two in other.parts)
    ]


def _name(journal: Journal) -> str:
    """Return the name of a journal's file, which no two have: its folder may be named in several ways."""
    return _last(journal.path)


def _last(path: str) -> str:
    return path.rpartition("/")[2]


def _touches(part: Prepared) -> bool:
    return bool(part.replaced or part.added)


def _harms(one: Prepared, two: Prepared) -> bool:
    """Whether what one replaces, and would bring back, holds what the other replaces or adds."""
    return any(
        are_within((*second.replaced, *second.added), first.replaced) for first, second in ((one, two), (two, one))
    )
