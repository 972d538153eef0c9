"""The durable journal of a commit: one file beside a target that names what every sink makes visible."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.commit.lease import is_young
from penstock.commit.owner import Owner, tag_is_alive
from penstock.commit.signing import signed
from penstock.commit.trust import LARGEST_JOURNAL, LARGEST_NOTE, check_location, is_foreign, read_trusted, warn_of
from penstock.commit.unknown import known_or_not
from penstock.errors import CommitError, UntrustedJournalError
from penstock.spark.filesystem import Folder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.commit.prepared import Access, Prepared
    from penstock.spark.jvm import Bridge

PREFIX = ".penstock-commit-"
VERSION = 1
"""Of what journals say; raised when an older release would misunderstand them."""
COMMITTING: set[str] = set()
"""The names of the journals that jobs of this process are writing now; others of this process are nobody's."""


@dataclass(frozen=True)
class Journal:
    """What a job's sinks make visible together.

    Parameters
    ----------
    path
        Its file.
    job, name
        The job.
    owner
        The process that commits; None once it has given up.
    decided
        Whether all sinks have committed, so that only what was replaced is left to remove.
    asked
        Whether a commit may have been asked for that may land late; see `Prepared.may_land_late`.
    back
        Whether its process has begun to undo it: nothing of it had been committed for good, and nothing can be.
    parts
        What each sink has prepared, in the order of their commits.
    """

    path: str
    job: str
    name: str
    owner: Owner | None
    parts: tuple[Prepared, ...]
    decided: bool = False
    asked: bool = False
    back: bool = False

    def write(self, access: Access) -> None:
        """Make it durable, all of it or nothing."""
        content: dict[str, Any] = {
            "version": VERSION,
            "job": self.job,
            "name": self.name,
            "decided": self.decided,
            "asked": self.asked,
            "back": self.back,
            "owner": None if self.owner is None else asdict(self.owner),
            "parts": [part.as_dict() for part in self.parts],
        }
        file = Folder(access.bridge, self.path)
        file.write(signed(file.name, content), overwrite=True, private=True)

    def check(self) -> None:
        """Refuse a journal that a later process would not believe for what it is called or names; see `commit.names`.

        Raises
        ------
        CommitError
            If there is such a name.
        """
        for part in self.parts:
            try:
                check_location(self.path, self.path)
                part.check_names()
            except (UntrustedJournalError, ValueError) as error:
                raise CommitError.unusual_name(part.target, str(error)) from error

    def point(self, access: Access) -> None:
        """Let every target know where the journal lies; before it is written, as a pointer to nothing harms nobody."""
        Folder(access.bridge, self.path).parent.make()
        for folder in _others(access, self):
            content = {"version": VERSION, "journal": self.path}
            pointer = folder.child(_name(self.path).replace(".json", ".ref"))
            folder.make()
            pointer.write(signed(pointer.name, content), overwrite=True, private=True)
        for part in self.parts:
            if part.folder is None:
                part.point(access, self.path)

    def remove(self, access: Access) -> None:
        """Remove it, then what points to it."""
        Folder(access.bridge, self.path).delete()
        for folder in _others(access, self):
            folder.child(_name(self.path).replace(".json", ".ref")).delete()
        for part in self.parts:
            if part.folder is None:
                part.unpoint(access, self.path)

    def is_alive(self, access: Access) -> bool:
        """Whether its process may still be committing."""
        if self.owner is None:
            return False
        if self.owner == Owner.me():
            return _name(self.path) in COMMITTING
        alive = self.owner.is_alive()
        return is_young(access, self.path) if alive is None else alive

    def released(self) -> Journal:
        """Return it without an owner."""
        return replace(self, owner=None)

    @property
    def may_land(self) -> bool:
        """Whether some of it may become visible although no process works at it any more."""
        return self.asked and any(part.may_land_late for part in self.parts)


def journal_path(access: Access, parts: Iterable[Prepared], job: str) -> str:
    """Return where the journal of a job lies: beside its first target that is a folder, else in Spark's warehouse."""
    name = f"{PREFIX}{job}-{Owner.me().tag}.json"
    for part in parts:
        if part.folder is not None:
            return str(folder_beside(access, part.folder).child(name))
    return str(Folder(access.bridge, warehouse_of(access.bridge)).child(name))


def claim_of(path: str) -> str:
    """Return the path of the file that keeps other processes from recovering a journal."""
    return f"{path.removesuffix('.json')}.claim"


def warehouse_of(bridge: Bridge) -> str:
    """Return the folder of Spark's own tables: where what has no folder of its own is kept."""
    return str(bridge.spark.conf.get("spark.sql.warehouse.dir"))


def read_journal(access: Access, path: str) -> Journal | None:
    """Return the journal in a file, None if there is none (any more).

    Raises
    ------
    UntrustedJournalError
        If another user may have written it, it cannot be understood, or it names what no job writes.
    """
    check_location(path, path)  # whoever says where it lies has checked that: its folder, a pointer, a database
    file = Folder(access.bridge, path)
    content = read_trusted(access, file, LARGEST_JOURNAL)
    if content is None:
        return None
    try:
        return _parsed(str(file), json.loads(content))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UntrustedJournalError.unreadable(path, f"{type(error).__name__}: {error}") from error


def read_own_journal(access: Access, path: str) -> Journal | None:
    """Return the journal in a file; None if there is none, or, with a warning, if it is not to be acted upon."""
    try:
        return read_journal(access, path)
    except UntrustedJournalError as error:
        warn_of(error)
        return None


def _parsed(path: str, content: dict[str, Any]) -> Journal:
    """Return the journal that a file of JSON describes."""
    owner = None if content["owner"] is None else Owner.told(json.dumps(content["owner"]).encode())
    if content["owner"] is not None and owner is None:
        raise ValueError("its owner is not a process")
    is_of_this_version = content["version"] == VERSION
    parts = tuple(known_or_not(part, is_of_this_version) for part in content["parts"])
    for part in parts:
        part.check_names()
    asked, back = content.get("asked", True), content.get("back", False)  # older releases have not written them down
    if not all(isinstance(flag, bool) for flag in (content["decided"], asked, back)):
        raise ValueError("a flag is neither true nor false")
    return Journal(path, str(content["job"]), str(content["name"]), owner, parts, content["decided"], asked, back)


def journals_at(access: Access, folder: Folder) -> list[str]:
    """Return the journals that lie in a folder, or are pointed to from it; what is left of others is removed.

    Pointers of other users are not followed. Nothing of other users is removed.
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
            file.delete()  # its process died before it wrote a journal, or the journal has been recovered
    return sorted(journals)


def _journal_of(access: Access, file: Folder) -> str | None:
    """Return the journal that a file is, points to or belongs to; None if it is gone."""
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
    """Return the folder in which a target lies, not a symbolic link to it: all who write to it look there.

    A volume is its own: what lies beside where it is mounted is not there on other machines.
    """
    found = Folder(access.bridge, target).resolved
    return found if found.is_volume else found.parent


def _others(access: Access, journal: Journal) -> list[Folder]:
    """Return the folders beside targets that do not hold the journal itself."""
    besides = [folder_beside(access, part.folder) for part in journal.parts if part.folder is not None]
    found = {str(folder): folder for folder in besides}
    found.pop(str(Folder(access.bridge, journal.path).parent), None)
    return list(found.values())


def _name(path: str) -> str:
    return path.rpartition("/")[2]
