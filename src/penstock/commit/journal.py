"""The durable journal of a commit: a file beside a target that lists what every sink makes visible.

File names end with ``.json`` (a journal), ``.ref`` (a pointer to the journal, beside another target), ``.claim`` (the
lock of a process that recovers the journal) or ``.lease`` (shows that the owner of a journal or claim is alive).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from penstock.commit.claims import is_recent
from penstock.commit.owner import Owner, tag_is_alive
from penstock.commit.prepared import prepared_or_unknown
from penstock.commit.trust import (
    LARGEST_JOURNAL,
    LARGEST_POINTER,
    check_location,
    is_foreign,
    read_trusted,
    signed_json,
    warn_once,
)
from penstock.errors import CommitError, UntrustedJournalError
from penstock.spark.io.filesystem import HadoopPath

if TYPE_CHECKING:
    from penstock.commit.prepared import Access, Prepared
    from penstock.spark.bridge.jvm import Bridge

PREFIX = ".penstock-commit-"  # of the names of journals, pointers, claims and leases
VERSION = 1
"""Version of the format; increased when an older release would misread a journal."""
COMMITTING: set[str] = set()
"""File names of journals that this process commits; its other journals are abandoned, and may be recovered."""


@dataclass(frozen=True)
class Journal:
    """The records that the sinks of a job commit together.

    `job_id` and `job_name` (`job` and `name` in files) identify the job. `owner` is the process that commits, None
    after its release of the journal. `parts` are the records of the sinks, in the order of their commits.
    `all_committed` (`decided`) says whether all sinks have committed, so recovery only has to remove replaced rows.
    `commit_requested` (`asked`) says whether commits may have been requested: a record that `may_succeed_late` may then
    be committed after all processes have stopped. `rollback_started` (`back`) says that recovery must undo the commit,
    because the owner has begun to: it has committed no irreversible record, and will not commit any.
    """

    path: str
    job_id: str
    job_name: str
    owner: Owner | None
    parts: tuple[Prepared, ...]
    all_committed: bool = False
    commit_requested: bool = False
    rollback_started: bool = False

    @property
    def file_name(self) -> str:
        """The name of the journal's file. It is unique, while the folder of the file may have several paths."""
        return _file_name(self.path)

    def write(self, access: Access) -> None:
        """Write the journal durably and atomically."""
        content: dict[str, Any] = {
            "version": VERSION,
            "job": self.job_id,
            "name": self.job_name,
            "decided": self.all_committed,
            "asked": self.commit_requested,
            "back": self.rollback_started,
            "owner": None if self.owner is None else asdict(self.owner),
            "parts": [part.as_dict() for part in self.parts],
        }
        file = HadoopPath(access.bridge, self.path)
        file.write(signed_json(file.name, content), overwrite=True, private=True)

    def check(self) -> None:
        """Raise `CommitError` if recovery would reject a name in the journal; see `penstock.commit.names`."""
        for part in self.parts:
            try:
                check_location(self.path, self.path)  # the second argument accepts any file system
                part.check_names()
            except (UntrustedJournalError, ValueError) as error:
                raise CommitError(
                    f"{part.target} is not written: if this process died, the commit could not be completed or undone",
                    cause=str(error),
                    hint="rename the target or the column",
                ) from error

    def write_pointers(self, access: Access) -> None:
        """Write a pointer to the journal at every target; usually before `write`, as a dangling pointer is harmless."""
        HadoopPath(access.bridge, self.path).parent.make()
        for pointer in self._pointers(access):
            content = {"version": VERSION, "journal": self.path}
            pointer.parent.make()
            pointer.write(signed_json(pointer.name, content), overwrite=True, private=True)
        for part in self.parts:
            if part.folder is None:
                part.write_pointer(access, self.path)

    def remove(self, access: Access) -> None:
        """Remove the journal, then the pointers to it."""
        HadoopPath(access.bridge, self.path).delete()
        for pointer in self._pointers(access):
            pointer.delete()
        for part in self.parts:
            if part.folder is None:
                part.remove_pointer(access, self.path)

    def _pointers(self, access: Access) -> list[HadoopPath]:
        """Return the pointer files: beside each target, unless the journal itself is there."""
        parents = [journal_folder_of(access, part.folder) for part in self.parts if part.folder is not None]
        by_path = {str(folder): folder for folder in parents}
        by_path.pop(str(HadoopPath(access.bridge, self.path).parent), None)
        return [folder.child(self.file_name.replace(".json", ".ref")) for folder in by_path.values()]

    def is_alive(self, access: Access) -> bool:
        """Whether the owner may still be committing."""
        if self.owner is None:
            return False
        if self.owner == Owner.current():
            return self.file_name in COMMITTING
        is_alive = self.owner.is_alive()
        return is_recent(access, self.path) if is_alive is None else is_alive

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets of all records, as users see them in messages."""
        return tuple(part.target for part in self.parts)

    @property
    def may_succeed_late(self) -> bool:
        """Whether rows may become visible after every process has stopped working on the commit."""
        return self.commit_requested and any(part.may_succeed_late for part in self.parts)


def new_journal_path(access: Access, parts: Iterable[Prepared], job_id: str) -> str:
    """Return the path for a job's new journal: beside the first target that is a folder, else in Spark's warehouse."""
    name = f"{PREFIX}{job_id}-{Owner.current().tag}.json"
    for part in parts:
        if part.folder is not None:
            return str(journal_folder_of(access, part.folder).child(name))
    return str(HadoopPath(access.bridge, warehouse_of(access.bridge)).child(name))


def claim_of(path: str) -> str:
    """Return the path of the claim on the recovery of a journal."""
    return f"{path.removesuffix('.json')}.claim"


def warehouse_of(bridge: Bridge) -> str:
    """Return the folder of Spark's own tables, which holds the journals of targets without a folder."""
    return str(bridge.spark.conf.get("spark.sql.warehouse.dir"))


def read_journal(access: Access, path: str) -> Journal | None:
    """Return the journal in a file; None if the file does not exist.

    Raise `UntrustedJournalError` if another user may have written it, it cannot be parsed, or a name in it is invalid.
    """
    check_location(path, path)  # accepts any file system; callers have checked paths from pointers and databases
    file = HadoopPath(access.bridge, path)
    content = read_trusted(access, file, LARGEST_JOURNAL)
    if content is None:
        return None
    try:
        return _parse(str(file), json.loads(content))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UntrustedJournalError.unreadable(path, f"{type(error).__name__}: {error}") from error


def read_if_trusted(access: Access, path: str) -> Journal | None:
    """Return the journal in a file; None if it does not exist, or, with a warning, if it is not trusted."""
    try:
        return read_journal(access, path)
    except UntrustedJournalError as error:
        warn_once(error)
        return None


def _parse(path: str, content: dict[str, Any]) -> Journal:
    owner = None if content["owner"] is None else Owner.from_json(json.dumps(content["owner"]).encode())
    if content["owner"] is not None and owner is None:
        raise ValueError("the owner is not a process")
    is_of_this_version = content["version"] == VERSION
    parts = tuple(prepared_or_unknown(part, is_of_this_version) for part in content["parts"])
    for part in parts:
        part.check_names()
    all_committed = content["decided"]
    commit_requested, rollback_started = content.get("asked", True), content.get("back", False)  # not in older journals
    if not all(isinstance(flag, bool) for flag in (all_committed, commit_requested, rollback_started)):
        raise ValueError("a flag is neither true nor false")
    job_id, job_name = str(content["job"]), str(content["name"])
    return Journal(path, job_id, job_name, owner, parts, all_committed, commit_requested, rollback_started)


def trusted_journals_of(access: Access, target: HadoopPath) -> Iterator[Journal]:
    """Yield the trusted journals of the commits to a target."""
    for path in journals_at(access, journal_folder_of(access, str(target))):
        journal = read_if_trusted(access, path)
        if journal is not None and any(part.is_at(target) for part in journal.parts):
            yield journal


def journals_at(access: Access, folder: HadoopPath) -> list[str]:
    """Return the paths of the journals in a folder, and of the journals that pointers in the folder refer to.

    Pointers, claims and leases without a journal are removed if the process of the commit is dead. Pointers of other
    users are not followed, and files of other users are not removed.
    """
    journals = set()
    for file in folder.children_matching(f"{PREFIX}*"):
        if file.is_folder():  # `.penstock-commit-x-...` is the staging folder of a target `commit-x`
            continue
        try:
            journal = _journal_path_of(access, file)
        except UntrustedJournalError as error:
            warn_once(error)
            continue
        if journal is None:
            continue
        if HadoopPath(access.bridge, journal).exists():
            journals.add(journal)
        elif tag_is_alive(_file_name(journal)) is False and not is_foreign(file):
            file.delete()  # the process died before it wrote a journal, or the journal has been recovered
    return sorted(journals)


def _journal_path_of(access: Access, file: HadoopPath) -> str | None:
    """Return the path of the journal that a file is, belongs to or points to; None if the file is a removed pointer."""
    if file.name.endswith(".ref"):
        content = read_trusted(access, file, LARGEST_POINTER)
        if content is None:
            return None
        try:
            journal = str(json.loads(content)["journal"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise UntrustedJournalError.unreadable(str(file), f"{type(error).__name__}: {error}") from error
        check_location(journal, str(file))
        if _file_name(journal) != file.name.removesuffix(".ref") + ".json":
            raise UntrustedJournalError.foreign(str(file), f"it points to {journal}, which has a different name")
        return journal
    name = file.name.partition(".claim")[0].removesuffix(".lease").removesuffix(".json")
    return str(file.parent.child(f"{name}.json"))


def journal_folder_of(access: Access, target: str) -> HadoopPath:
    """Return the folder in which every job looks for journals of a target: its parent, with symbolic links resolved.

    For a volume, return the volume itself: other machines do not see the files beside its mount point.
    """
    folder = HadoopPath(access.bridge, target).resolved
    return folder if folder.is_volume else folder.parent


def _file_name(path: str) -> str:
    return path.rpartition("/")[2]
