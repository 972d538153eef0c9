"""Records of what a sink is about to make visible, by which any process can commit, undo or inspect it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from penstock.commit.names import location_of
from penstock.errors import CommitError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from dataclasses import Field

    from penstock.spark.bridge.jvm import Bridge
    from penstock.spark.io.filesystem import Folder

_KINDS: dict[str, type[Prepared]] = {}


@dataclass
class Access:
    """Session, secrets and open transactions by which records access their targets.

    `secrets` are properties that journals do not store, such as passwords, by `Prepared.address`. `open_transactions`
    are transactions that need only their COMMIT, by database; several records share a transaction. `committed` are the
    staging names of rows that such transactions, or other runs, have committed. `trusted` is the path of a journal that
    the user trusts regardless of its owner.
    """

    bridge: Bridge
    secrets: dict[str, Mapping[str, str]] = field(default_factory=dict)
    open_transactions: dict[str, Any] = field(default_factory=dict)
    committed: set[str] = field(default_factory=set)
    trusted: str | None = None

    def close(self) -> None:
        """Close transactions that were not committed; their databases roll them back."""
        while self.open_transactions:
            self.open_transactions.popitem()[1].close()


@dataclass(frozen=True)
class Prepared(ABC):
    """The prepared rows of a sink, all of them durable. All methods may be repeated, and may run concurrently."""

    kind: ClassVar[str]
    is_reversible: ClassVar[bool]
    """Whether `undo` restores the old rows after a commit; if not, `undo` is possible only before the commit."""
    may_land_late: ClassVar[bool] = False
    """Whether a requested commit may succeed after the request, or the process that sent it, has ended.

    Such a commit is never undone, because the table may refer to its files a moment later. It is committed again
    instead, which is safe: of two commits onto the same version of a table only the first succeeds.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if hasattr(cls, "kind"):  # base classes of several kinds have none
            _KINDS[cls.kind] = cls

    @property
    @abstractmethod
    def target(self) -> str:
        """The target, as users see it in messages."""

    @property
    def address(self) -> str:
        """The key of the target in `Access.secrets`."""
        return self.target

    @property
    def is_atomic(self) -> bool:
        """Whether all rows appear in a single step that no other job can interrupt; alone it needs no journal."""
        return True

    @property
    def folder(self) -> str | None:
        """The folder beside which the journal, or a pointer to it, is written; None if the target is not a folder."""
        return None

    @property
    def replaced(self) -> tuple[str, ...]:
        """The paths that the commit replaces, and that `undo` restores with their content."""
        return ()

    @property
    def added(self) -> tuple[str, ...]:
        """The paths of folders that get files in addition to their own."""
        return ()

    @property
    def hidden(self) -> tuple[str, ...]:
        """The hidden folders of new and replaced rows, which exist until the commit ends."""
        return ()

    def is_at(self, target: Folder) -> bool:
        """Whether a folder is the target."""
        return self.folder is not None and location_of(self.folder) == location_of(str(target))

    @property
    def together(self) -> str | None:
        """The key of all records that share a commit step; None for a record that commits by itself."""
        return None

    def point(self, access: Access, journal: str) -> None:  # noqa: B027
        """Write a pointer to the journal into a target without a `folder`."""

    def unpoint(self, access: Access, journal: str) -> None:  # noqa: B027
        """Remove the pointer of `point`."""

    def ready(self, access: Access) -> None:  # noqa: B027
        """Do, or try, the steps of the commit that make nothing visible; called once, in the process of the job."""

    def is_written(self, access: Access) -> bool:  # noqa: ARG002
        """Whether the rows were committed already when `prepare` or `ready` looked; then nothing is left to commit."""
        return False

    @abstractmethod
    def commit(self, access: Access) -> None:
        """Make the rows visible.

        Raise `CommitUnknownError` if the commit was requested and may still succeed, any other exception if this call
        has not committed and no longer can. `is_committed` is called nevertheless.
        """

    def check_names(self) -> None:  # noqa: B027
        """Raise `ValueError` for a name that no job writes, before any recovery step; see `penstock.commit.names`."""

    def check(self, access: Access) -> None:  # noqa: B027
        """Raise if this process cannot recover the record; called for all records before the first step."""

    def complete(self, access: Access) -> None:
        """Do as `commit` after a first request, without restoring files that were committed and removed since."""
        self.commit(access)

    @abstractmethod
    def is_committed(self, access: Access) -> bool:
        """Whether all rows are visible; if False, no earlier commit may still succeed.

        For a record that `may_land_late`, the answer describes only the current state.
        """

    def has_begun(self, access: Access) -> bool:
        """Whether some rows are irreversibly visible, so that the others must follow; for irreversible records only.

        If False, no earlier commit may still succeed, as for `is_committed`.
        """
        return self.is_committed(access)

    @abstractmethod
    def undo(self, access: Access) -> None:
        """Remove the prepared rows and restore the replaced ones; not called after an irreversible `commit`."""

    def finish(self, access: Access) -> None:  # noqa: B027
        """Remove what was only needed to undo; called once every sink of the job has committed."""

    def as_dict(self) -> dict[str, Any]:
        """Return the record as a JSON object; the inverse of `prepared_from_dict`."""
        values = asdict(self)
        return {"kind": self.kind, **{_json_key(each): values[each.name] for each in fields(self)}}


def prepared_from_dict(record: Mapping[str, Any]) -> Prepared:
    """Return the record that a JSON object of a journal describes.

    Raise `CommitError` for an unsupported kind, and `ValueError` for a value that does not have the type of its field.
    """
    if not is_supported(record):
        raise CommitError.unknown(str(record.get("kind")))
    kind = _KINDS[record["kind"]]
    values = {}
    for each in fields(kind):
        key = _json_key(each)
        if key not in record:
            continue
        values[each.name] = _frozen(record[key])
        if not _fits(values[each.name], str(each.type)):
            raise ValueError(f"{key} is not of the type {each.type}")
    return kind(**values)


def _json_key(record_field: Field[Any]) -> str:
    """Return the key of a field in journals, which differs from its name if its metadata says so."""
    return str(record_field.metadata.get("key", record_field.name))


_JSON_TYPES: dict[str, type | tuple[type, ...]] = {
    "str": str,
    "int": int,
    "bool": bool,
    "float": (float, int),
    "Mapping[str, Any]": dict,
    "tuple[str, str]": tuple,
}


def _fits(value: Any, annotation: str) -> bool:
    if annotation.endswith(" | None"):
        return value is None or _fits(value, annotation.removesuffix(" | None"))
    if annotation.startswith("tuple[") and annotation.endswith(", ...]"):
        inner = annotation.removeprefix("tuple[").removesuffix(", ...]")
        return isinstance(value, tuple) and all(_fits(item, inner) for item in value)
    if annotation == "tuple[str, str]" and isinstance(value, tuple):
        return [type(item) for item in value] == [str, str]
    return isinstance(value, _JSON_TYPES.get(annotation, object))


def is_supported(record: Mapping[str, Any]) -> bool:
    """Whether this release supports the kind of a record and all of its keys."""
    kind = _KINDS.get(str(record.get("kind")))
    if kind is None or not set(record) <= {"kind", *map(_json_key, fields(kind))}:
        return False
    return all(is_supported(part) for part in record.values() if isinstance(part, dict) and "kind" in part)


def _frozen(value: Any) -> Any:
    """Return lists as tuples, the type of record fields."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


@dataclass(frozen=True)
class PreparedUnknown(Prepared):
    """A record of an unsupported kind or a newer release; other jobs wait for its job, but cannot recover it."""

    kind: ClassVar[str] = "unknown"
    is_reversible: ClassVar[bool] = False

    record: Mapping[str, Any]

    @property
    def target(self) -> str:
        """The path, or the kind if the record has no path."""
        return self.folder or f"a sink of kind {self.record.get('kind')!r}"

    @property
    def folder(self) -> str | None:
        """The path; None if the record has none."""
        return next(_strings(self.record, "path"), None)

    @property
    def hidden(self) -> tuple[str, ...]:
        """Every staging folder in the record, as recovery may need them all."""
        return tuple(name for staging in _strings(self.record, "staging") for name in (staging, f"{staging}-old"))

    @property
    def replaced(self) -> tuple[str, ...]:
        """The whole folder: no other job may write to it before the commit is recovered."""
        return () if self.folder is None else (self.folder,)

    def check(self, access: Access) -> NoReturn:  # noqa: ARG002
        """Raise `CommitError` before the other records of the journal are completed or undone."""
        raise CommitError.unknown(str(self.record.get("kind")))

    commit = is_committed = undo = finish = check

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON object of the journal."""
        return dict(self.record)


def _strings(record: Mapping[str, Any], key: str) -> Iterator[str]:
    """Yield the strings that a record, or a record nested in it, has under a key."""
    value = record.get(key)
    if isinstance(value, str):
        yield value
    for part in record.values():
        if isinstance(part, dict):
            yield from _strings(part, key)


def prepared_or_unknown(record: Mapping[str, Any], is_of_this_version: bool) -> Prepared:  # noqa: FBT001
    """Return the record that a JSON object of a journal describes; raise `TypeError` if it is not a JSON object."""
    if not isinstance(record, dict):
        raise TypeError("a record is not a mapping")
    return prepared_from_dict(record) if is_of_this_version and is_supported(record) else PreparedUnknown(record)


def needs_journal(records: Sequence[Prepared]) -> bool:
    """Whether a crash between two steps could commit only some rows, or other jobs have to wait for the commit."""
    steps = {record.together or id(record) for record in records}
    return len(steps) > 1 or any(not record.is_atomic for record in records)
