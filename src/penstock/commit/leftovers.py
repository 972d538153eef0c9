"""Journals and hidden folders that dead processes have left at a path."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.commit.journal import journals_at, read_if_trusted, trusted_journals_of
from penstock.commit.owner import tag_is_alive, tags_in
from penstock.spark.io.filesystem import HadoopPath

if TYPE_CHECKING:
    from penstock.commit.prepared import Access

_HIDDEN_FOLDER = re.compile(r"\.penstock-(.+?)-[0-9a-f]{12}(-[0-9a-f]{8}-\d+-[0-9a-f]{8})?(-.*)?")
"""Name of a hidden folder: target, random number, perhaps `Owner.tag` of its process, perhaps a suffix (``-old``)."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """A hidden folder with rows that never became visible, or that a job has replaced.

    `is_used` says whether the process that created the folder still runs. It is None if this machine cannot determine
    that, an untrusted journal may need the folder, the folder has the only copy of rows, or another user owns it.
    """

    path: str
    is_used: bool | None


def find_journals(access: Access, path: str) -> list[str]:
    """Return the paths of the journals of a target, or of the targets in a folder; `path` may also be a journal."""
    location = HadoopPath(access.bridge, path).resolved
    if location.name.endswith(".json") and location.exists() and not location.is_folder():
        return [str(location)]
    journal_paths = set(journals_at(access, location)) if location.is_folder() else set()
    return sorted(journal_paths | {journal.path for journal in trusted_journals_of(access, location)})


def find_leftovers(access: Access, path: str) -> list[Leftover]:
    """Return the hidden folders of a target, or of the targets in a folder, that no journal needs."""
    target = HadoopPath(access.bridge, path).resolved
    parent = target.parent
    needed: set[str] = set()
    untrusted_tags: set[str] = set()
    for journal_path in {*journals_at(access, parent), *journals_at(access, target)}:
        journal = read_if_trusted(access, journal_path)
        if journal is None:  # untrusted: another user may have written it, and it may need any folder of its process
            untrusted_tags |= tags_in(journal_path)
        else:
            needed |= {folder for part in journal.parts for folder in part.hidden_folders}
    leftovers = []
    for folder in [*parent.children_matching(".penstock-*"), *target.children_matching(".penstock-*")]:
        match = _HIDDEN_FOLDER.fullmatch(folder.name)
        if match is None or (str(folder.parent) == str(parent) and match[1] != target.name):
            continue
        if str(folder) in needed or not folder.is_folder():  # not a folder: a journal, pointer, claim or lease
            continue
        has_only_copy = folder.name.endswith("-old") and not folder.parent.child(match[1]).exists()
        is_removable = match[2] and not has_only_copy and folder.is_removable
        is_used = tag_is_alive(match[2]) if is_removable and not tags_in(match[2]) & untrusted_tags else None
        leftovers.append(Leftover(str(folder), is_used))
    return leftovers
