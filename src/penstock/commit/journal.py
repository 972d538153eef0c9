"""The durable journal of a commit: one file beside a target that names what every sink makes visible."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.commit.lease import is_young
from penstock.commit.owner import Owner, tag_is_alive
from penstock.commit.unknown import known_or_not
from penstock.errors import CommitError
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
        Folder(access.bridge, self.path).write(json.dumps(content, indent=1).encode(), overwrite=True)

    def point(self, access: Access) -> None:
        """Let every target know where the journal lies; before it is written, as a pointer to nothing harms nobody."""
        Folder(access.bridge, self.path).parent.make()
        for folder in _others(access, self):
            content = {"version": VERSION, "journal": self.path}
            pointer = folder.child(_name(self.path).replace(".json", ".ref"))
            folder.make()
            pointer.write(json.dumps(content).encode(), overwrite=True)
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
    CommitError
        If it cannot be understood.
    """
    file = Folder(access.bridge, path)
    content = _content(file)
    if content is None:
        return None
    try:
        found = json.loads(content)
        owner = None if found["owner"] is None else Owner(**found["owner"])
        parts = tuple(known_or_not(part, found["version"] == VERSION) for part in found["parts"])
        asked = found.get("asked", True)  # older releases have not written it down
        back = found.get("back", False)
        return Journal(str(file), found["job"], found["name"], owner, parts, found["decided"], asked, back)
    except (ValueError, KeyError, TypeError) as error:
        raise CommitError.unreadable(path, f"{type(error).__name__}: {error}") from error


def journals_at(access: Access, folder: Folder) -> list[str]:
    """Return the journals that lie in a folder, or are pointed to from it; what is left of others is removed."""
    found = set()
    for file in folder.matching(f"{PREFIX}*"):
        if file.is_folder():  # rows of a target whose name begins with "commit-"
            continue
        journal = _journal_of(file)
        if journal is None:
            continue
        if Folder(access.bridge, journal).exists():
            found.add(journal)
        elif tag_is_alive(_name(journal)) is False:  # it died before it had a journal, or those who recovered it have
            file.delete()
    return sorted(found)


def _journal_of(file: Folder) -> str | None:
    """Return the journal that a file is, points to or belongs to; None if it is gone."""
    if file.name.endswith(".ref"):
        content = _content(file)
        return None if content is None else str(json.loads(content)["journal"])
    name = file.name.partition(".claim")[0].removesuffix(".lease").removesuffix(".json")
    return str(file.parent.child(f"{name}.json"))


def folder_beside(access: Access, target: str) -> Folder:
    """Return the folder in which a target lies, not a symbolic link to it: all who write to it look there.

    A volume is its own: what lies beside where it is mounted is not there on other machines.
    """
    found = Folder(access.bridge, target).resolved
    return found if found.is_volume else found.parent


def _content(file: Folder) -> bytes | None:
    """Return what a file holds, None where there is none, or no more: its process may remove it at any time."""
    try:
        return file.read() if file.exists() else None
    except Exception:
        if file.exists():
            raise
        return None


def _others(access: Access, journal: Journal) -> list[Folder]:
    """Return the folders beside targets that do not hold the journal itself."""
    besides = [folder_beside(access, part.folder) for part in journal.parts if part.folder is not None]
    found = {str(folder): folder for folder in besides}
    found.pop(str(Folder(access.bridge, journal.path).parent), None)
    return list(found.values())


def _name(path: str) -> str:
    return path.rpartition("/")[2]
