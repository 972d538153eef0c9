"""What dead processes have left at a path: commits that are half done, and rows that nobody sees."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.commit.journal import folder_beside, journals_at, read_own_journal
from penstock.commit.owner import tag_is_alive, tags_in
from penstock.spark.filesystem import Folder

if TYPE_CHECKING:
    from penstock.commit.prepared import Access

_STAGING = re.compile(r"\.penstock-(.+?)-[0-9a-f]{12}(-[0-9a-f]{8}-\d+-[0-9a-f]{8})?(-.*)?")


@dataclass(frozen=True, slots=True)
class Leftover:
    """A hidden folder of rows that no job has made visible, or that a job has replaced.

    Parameters
    ----------
    path
        The folder.
    is_used
        Whether its process still runs; None if that cannot be told from this machine, or the target's rows are here, or
        the folder belongs to another user.
    """

    path: str
    is_used: bool | None


def commits_at(access: Access, path: str) -> list[str]:
    """Return the journals of a target, of the targets in a folder, or the one that a path is."""
    given = Folder(access.bridge, path).resolved
    if given.name.endswith(".json") and given.exists() and not given.is_folder():
        return [str(given)]
    found = set(journals_at(access, given)) if given.is_folder() else set()
    for journal in journals_at(access, folder_beside(access, str(given))):
        known = read_own_journal(access, journal)
        if known is not None and any(part.is_at(given) for part in known.parts):
            found.add(journal)
    return sorted(found)


def leftovers_at(access: Access, path: str) -> list[Leftover]:
    """Return the hidden folders of a target, or of the targets in a folder, that no journal needs."""
    given = Folder(access.bridge, path).resolved
    beside, within = given.parent, given
    needed: set[str] = set()
    unread: set[str] = set()
    for path_of_journal in {*journals_at(access, beside), *journals_at(access, within)}:
        journal = read_own_journal(access, path_of_journal)
        if journal is None:  # what it needs is not known: the folders of its process stay
            unread |= tags_in(path_of_journal)
        else:
            needed |= {folder for part in journal.parts for folder in part.hidden}
    found = []
    for folder in [*beside.matching(".penstock-*"), *within.matching(".penstock-*")]:
        named = _STAGING.fullmatch(folder.name)
        if named is None or (str(folder.parent) == str(beside) and named[1] != given.name):
            continue
        if not folder.is_folder():  # a journal, or what belongs to one
            continue
        if str(folder) in needed:
            continue
        holds_the_old_rows = folder.name.endswith("-old") and not folder.parent.child(named[1]).exists()
        is_known = named[2] and not holds_the_old_rows and folder.may_be_removed and not tags_in(named[2]) & unread
        is_used = tag_is_alive(named[2]) if is_known else None
        found.append(Leftover(str(folder), is_used))
    return found
