"""Jobs that change the same files at a time: one waits until the other has committed, or has been undone."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from penstock.commit.journal import Journal, journals_at, read_journal
from penstock.commit.recovery import Direction, recover
from penstock.errors import CommitError
from penstock.spark.filesystem import Folder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.commit.prepared import Access, Prepared

log = logging.getLogger("penstock.commit")

PATIENCE = 300.0
"""Seconds to wait for the commit of another job."""
_PAUSE = 0.2


def wait_for_others(
    access: Access, parts: Sequence[Prepared], journal: Journal | None, go_on: Callable[[], None]
) -> None:
    """Return once no other commit is under way that this one could harm, or be harmed by if it is undone.

    Every commit writes its journal, then looks for others. If two have written before either looks, both wait: the one
    whose journal has the later name takes it away meanwhile. `go_on` is called while it waits, and may raise.

    Raises
    ------
    CommitError
        If the other takes too long.
    """
    latest = time.monotonic() + PATIENCE
    while others := _others(access, parts, journal):
        withdrawn = journal if journal is not None and any(other.path < journal.path for other in others) else None
        if withdrawn is not None:
            withdrawn.remove(access)
        for other in others:
            _wait(access, other, latest, go_on)
        if withdrawn is not None:
            withdrawn.point(access)
            withdrawn.write(access)


def wait_for_commits_at(access: Access, target: Folder) -> None:
    """Return once no commit is under way at a target: what it holds meanwhile may be undone."""
    latest = time.monotonic() + PATIENCE
    for path in journals_at(access, target.parent):
        journal = read_journal(access, path)
        if journal is not None and any(part.is_at(target) for part in journal.parts):
            _wait(access, journal, latest, lambda: None)


def _wait(access: Access, other: Journal, latest: float, go_on: Callable[[], None]) -> None:
    said = False
    while recover(access, other.path).direction is Direction.ALIVE:
        if time.monotonic() > latest:
            raise CommitError.busy(other.name, [part.target for part in other.parts], str(other.owner), other.path)
        if not said:
            log.info("waiting for the commit of job %r by %s", other.name, other.owner)
            said = True
        go_on()
        time.sleep(_PAUSE)


def _others(access: Access, parts: Sequence[Prepared], mine: Journal | None) -> list[Journal]:
    """Return the commits of others that touch the same files."""
    places = {str(Folder(access.bridge, part.folder).parent): part for part in parts if part.folder and _touches(part)}
    found = {path for place in places for path in journals_at(access, Folder(access.bridge, place))}
    others = (read_journal(access, path) for path in sorted(found - {mine.path if mine is not None else ""}))
    return [
        other for other in others if other is not None and any(_harms(one, two) for one in parts for two in other.parts)
    ]


def _touches(part: Prepared) -> bool:
    return bool(part.replaced or part.added)


def _harms(one: Prepared, two: Prepared) -> bool:
    """Whether what one replaces, and would bring back, holds what the other replaces or adds."""
    return any(
        _is_within(inner, outer)
        for first, second in ((one, two), (two, one))
        for outer in first.replaced
        for inner in (*second.replaced, *second.added)
    )


def _is_within(inner: str, outer: str) -> bool:
    return inner == outer or inner.startswith(f"{outer}/")
