"""The durable journal of a commit: a file beside a target that lists what every sink makes visible."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from penstock.commit.claims import is_young
from penstock.commit.owner import Owner, tag_is_alive
from penstock.commit.prepared import prepared_or_unknown
from penstock.commit.trust import (
    LARGEST_JOURNAL,
    LARGEST_NOTE,
    check_location,
    is_foreign,
    read_trusted,
    signed,
    warn_of,
)
from penstock.errors import CommitError, UntrustedJournalError
from penstock.spark.io.filesystem import Folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.commit.prepared import Access, Prepared
    from penstock.spark.bridge.jvm import Bridge

PREFIX = ".penstock-commit-"
VERSION = 1
"""Version of the format; increased when an older release would misread a journal."""
COMMITTING: set[str] = set()
"""The names of the journals of running commits of this process; other journals of this process have no owner."""


@dataclass(frozen=True)
class Journal:
    """The records that the sinks of a job commit together.

    `owner` is the process that commits; None once it has released the journal. `parts` are the records of the sinks, in
    the order of their commits. `decided` says whether all sinks have committed, so that only replaced rows are left to
    remove. `is_requested` (`asked` in files) says whether a commit may have been requested that may land late; see
    `Prepared.may_land_late`. `is_rolled_back` (`back` in files) says whether the owner has begun to undo the commit:
    nothing irreversible had been committed, and nothing can be.
    """

    path: str
    job: str
    name: str
    owner: Owner | None
    parts: tuple[Prepared, ...]
    decided: bool = False
    is_requested: bool = False
    is_rolled_back: bool = False

    @property
    def file_name(self) -> str:
        """The name of its file, which is unique, while its folder may have several paths."""
        return _name(self.path)

    def write(self, access: Access) -> None:
        """Write the journal durably and atomically."""
        content: dict[str, Any] = {
            "version": VERSION,
            "job": self.job,
            "name": self.name,
            "decided": self.decided,
            "asked": self.is_requested,
            "back": self.is_rolled_back,
            "owner": None if self.owner is None else asdict(self.owner),
            "parts": [part.as_dict() for part in self.parts],
        }
        file = Folder(access.bridge, self.path)
        file.write(signed(file.name, content), overwrite=True, private=True)

    def check(self) -> None:
        """Raise `CommitError` if a later process would reject a name in the journal; see `commit.names`."""
        for part in self.parts:
            try:
                check_location(self.path, self.path)
                part.check_names()
            except (UntrustedJournalError, ValueError) as error:
                raise CommitError.unusual_name(part.target, str(error)) from error

    def point(self, access: Access) -> None:
        """Write a pointer to the journal at every target; called before `write`, as a dangling pointer is harmless."""
        Folder(access.bridge, self.path).parent.make()
        for pointer in self._pointers(access):
            content = {"version": VERSION, "journal": self.path}
            pointer.parent.make()
            pointer.write(signed(pointer.name, content), overwrite=True, private=True)
        for part in self.parts:
            if part.folder is None:
                part.point(access, self.path)

    def remove(self, access: Access) -> None:
        """Remove the journal, then the pointers to it."""
        Folder(access.bridge, self.path).delete()
        for pointer in self._pointers(access):
            pointer.delete()
        for part in self.parts:
            if part.folder is None:
                part.unpoint(access, self.path)

    def _pointers(self, access: Access) -> list[Folder]:
        """Return the pointer files beside the targets that do not have the journal itself beside them."""
        parents = [folder_beside(access, part.folder) for part in self.parts if part.folder is not None]
        by_path = {str(folder): folder for folder in parents}
        by_path.pop(str(Folder(access.bridge, self.path).parent), None)
        return [folder.child(self.file_name.replace(".json", ".ref")) for folder in by_path.values()]

    def is_alive(self, access: Access) -> bool:
        """Whether the owner may still be committing."""
        if self.owner is None:
            return False
        if self.owner == Owner.me():
            return self.file_name in COMMITTING
        alive = self.owner.is_alive()
        return is_young(access, self.path) if alive is None else alive

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets of all records, as users see them in messages."""
        return tuple(part.target for part in self.parts)

    @property
    def may_land(self) -> bool:
        """Whether rows may become visible after every process has stopped working on the commit."""
        return self.is_requested and any(part.may_land_late for part in self.parts)


def journal_path(access: Access, parts: Iterable[Prepared], job: str) -> str:
    """Return the path of a job's journal: beside the first target that is a folder, else in Spark's warehouse."""
    name = f"{PREFIX}{job}-{Owner.me().tag}.json"
    for part in parts:
        if part.folder is not None:
            return str(folder_beside(access, part.folder).child(name))
    return str(Folder(access.bridge, warehouse_of(access.bridge)).child(name))


def claim_of(path: str) -> str:
    """Return the path of the claim on the recovery of a journal."""
    return f"{path.removesuffix('.json')}.claim"


def warehouse_of(bridge: Bridge) -> str:
    """Return the folder of Spark's own tables, which holds the journals of targets without a folder."""
    return str(bridge.spark.conf.get("spark.sql.warehouse.dir"))


def read_journal(access: Access, path: str) -> Journal | None:
    """Return the journal in a file; None if the file does not exist (any more).

    Raise `UntrustedJournalError` if another user may have written it, it cannot be parsed, or it contains a name that
    no job writes.
    """
    check_location(path, path)  # callers check the file system of pointers and of paths in databases
    file = Folder(access.bridge, path)
    content = read_trusted(access, file, LARGEST_JOURNAL)
    if content is None:
        return None
    try:
        return _parse(str(file), json.loads(content))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UntrustedJournalError.unreadable(path, f"{type(error).__name__}: {error}") from error


def read_own_journal(access: Access, path: str) -> Journal | None:
    """Return the journal in a file; None if it does not exist, or, with a warning, if it is not trusted."""
    try:
        return read_journal(access, path)
    except UntrustedJournalError as error:
        warn_of(error)
        return None


def _parse(path: str, content: dict[str, Any]) -> Journal:
    owner = None if content["owner"] is None else Owner.from_json(json.dumps(content["owner"]).encode())
    if content["owner"] is not None and owner is None:
        raise ValueError("the owner is not a process")
    is_of_this_version = content["version"] == VERSION
    parts = tuple(prepared_or_unknown(part, is_of_this_version) for part in content["parts"])
    for part in parts:
        part.check_names()
    decided = content["decided"]
    is_requested, is_rolled_back = content.get("asked", True), content.get("back", False)  # not in older journals
    if not all(isinstance(flag, bool) for flag in (decided, is_requested, is_rolled_back)):
        raise ValueError("a flag is neither true nor false")
    job, name = str(content["job"]), str(content["name"])
    return Journal(path, job, name, owner, parts, decided, is_requested, is_rolled_back)


def own_journals_of(access: Access, target: Folder) -> Iterator[Journal]:
    """Yield the trusted journals of the commits to a target."""
    for path in journals_at(access, folder_beside(access, str(target))):
        journal = read_own_journal(access, path)
        if journal is not None and any(part.is_at(target) for part in journal.parts):
            yield journal


def journals_at(access: Access, folder: Folder) -> list[str]:
    """Return the journals in a folder and those that pointers in it name.

    Leftover files of dead processes and of journals that no longer exist are removed. Pointers of other users are not
    followed, and their files are not removed.
    """
    journals = set()
    for file in folder.matching(f"{PREFIX}*"):
        if file.is_folder():  # rows of a target whose name begins with "commit-"
            continue
        try:
            journal = _journal_of(access, file)
        except UntrustedJournalError as error:
            warn_of(error)
            continue
        if journal is None:
            continue
        if Folder(access.bridge, journal).exists():
            journals.add(journal)
        elif tag_is_alive(_name(journal)) is False and not is_foreign(file):
            file.delete()  # the process died before it wrote a journal, or the journal has been recovered
    return sorted(journals)


def _journal_of(access: Access, file: Folder) -> str | None:
    """Return the path of the journal that a file is, points to or belongs to; None if the file no longer exists."""
    if file.name.endswith(".ref"):
        content = read_trusted(access, file, LARGEST_NOTE)
        if content is None:
            return None
        try:
            journal = str(json.loads(content)["journal"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise UntrustedJournalError.unreadable(str(file), f"{type(error).__name__}: {error}") from error
        check_location(journal, str(file))
        if _name(journal) != file.name.removesuffix(".ref") + ".json":
            raise UntrustedJournalError.foreign(str(file), f"it points to {journal}, which has another name")
        return journal
    name = file.name.partition(".claim")[0].removesuffix(".lease").removesuffix(".json")
    return str(file.parent.child(f"{name}.json"))


def folder_beside(access: Access, target: str) -> Folder:
    """Return the parent folder of a target, with symbolic links resolved: every job at the target looks there.

    For a volume, return the volume itself: other machines do not see the files beside its mount point.
    """
    folder = Folder(access.bridge, target).resolved
    return folder if folder.is_volume else folder.parent


def _name(path: str) -> str:
    return path.rpartition("/")[2]
