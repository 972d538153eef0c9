"""Journals and hidden folders that dead processes have left at a path."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.commit.journal import journals_at, own_journals_of, read_own_journal
from penstock.commit.owner import tag_is_alive, tags_in
from penstock.spark.io.filesystem import Folder

if TYPE_CHECKING:
    from penstock.commit.prepared import Access

_STAGING = re.compile(r"\.penstock-(.+?)-[0-9a-f]{12}(-[0-9a-f]{8}-\d+-[0-9a-f]{8})?(-.*)?")


@dataclass(frozen=True, slots=True)
class Leftover:
    """A hidden folder of rows that were never visible, or that a job has replaced.

    `is_used` says whether its process still runs; None if this machine cannot know that, if the folder holds the rows
    of the target, or if it belongs to another user.
    """

    path: str
    is_used: bool | None


def commits_at(access: Access, path: str) -> list[str]:
    """Return the paths of the journals of a target, or of the targets in a folder; the path of a journal as is."""
    location = Folder(access.bridge, path).resolved
    if location.name.endswith(".json") and location.exists() and not location.is_folder():
        return [str(location)]
    journal_paths = set(journals_at(access, location)) if location.is_folder() else set()
    return sorted(journal_paths | {journal.path for journal in own_journals_of(access, location)})


def leftovers_at(access: Access, path: str) -> list[Leftover]:
    """Return the hidden folders of a target, or of the targets in a folder, that no journal needs."""
    target = Folder(access.bridge, path).resolved
    parent = target.parent
    needed: set[str] = set()
    unread_tags: set[str] = set()
    for journal_path in {*journals_at(access, parent), *journals_at(access, target)}:
        journal = read_own_journal(access, journal_path)
        if journal is None:  # it may need any folder of its process
            unread_tags |= tags_in(journal_path)
        else:
            needed |= {folder for part in journal.parts for folder in part.hidden}
    leftovers = []
    for folder in [*parent.matching(".penstock-*"), *target.matching(".penstock-*")]:
        staging = _STAGING.fullmatch(folder.name)
        if staging is None or (str(folder.parent) == str(parent) and staging[1] != target.name):
            continue
        if not folder.is_folder():  # a journal or a file of a journal
            continue
        if str(folder) in needed:
            continue
        holds_target_rows = folder.name.endswith("-old") and not folder.parent.child(staging[1]).exists()
        is_removable = staging[2] and not holds_target_rows and folder.is_removable
        is_used = tag_is_alive(staging[2]) if is_removable and not tags_in(staging[2]) & unread_tags else None
        leftovers.append(Leftover(str(folder), is_used))
    return leftovers
