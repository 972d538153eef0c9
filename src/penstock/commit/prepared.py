"""Commit records: what a sink is about to make visible, stored so that any process can commit, undo or inspect it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import Field, asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from penstock.commit.names import location_of
from penstock.errors import CommitError

if TYPE_CHECKING:
    from penstock.spark.bridge.jvm import Bridge
    from penstock.spark.io.filesystem import HadoopPath

_CLASSES: dict[str, type[Prepared]] = {}  # by kind


@dataclass
class Access:
    """Session, secrets and open transactions by which records access their targets.

    `secrets` are properties that journals do not store, such as passwords, by `Prepared.address`. `open_transactions`
    are database transactions that only lack their COMMIT, by `Prepared.transaction_key`. `committed_staging_tables` are
    the names of staging tables whose rows such a transaction, or another run of the job, has committed.
    `trusted_journal` is the path of a journal that the user trusts regardless of its owner.
    """

    bridge: Bridge
    secrets: dict[str, Mapping[str, str]] = field(default_factory=dict)
    open_transactions: dict[str, Any] = field(default_factory=dict)
    committed_staging_tables: set[str] = field(default_factory=set)
    trusted_journal: str | None = None

    def close(self) -> None:
        """Close transactions that were not committed; their databases roll them back."""
        while self.open_transactions:
            self.open_transactions.popitem()[1].close()


@dataclass(frozen=True)
class Prepared(ABC):
    """Commit record of a sink with durable rows. All methods but `make_ready` may be repeated, also concurrently."""

    kind: ClassVar[str]  # identifies the class in journals
    is_reversible: ClassVar[bool]
    """Whether `undo` restores the old rows after a commit. If not, `undo` is possible only before the commit."""
    may_succeed_late: ClassVar[bool] = False
    """Whether a commit may still succeed after its request returned an error, or the requesting process died.

    Such a commit is undone only if it has certainly failed, because otherwise the table may soon refer to its files.
    Recovery requests it again, which is safe: a table accepts at most a single commit onto each of its versions.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if hasattr(cls, "kind"):  # abstract base classes have no kind
            _CLASSES[cls.kind] = cls

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
        """Whether the rows appear in a single step that no job can disturb; such a record alone needs no journal."""
        return True

    @property
    def folder(self) -> str | None:
        """The folder beside which the journal, or a pointer to it, is written; None if the target is not a folder."""
        return None

    @property
    def exclusive_paths(self) -> tuple[str, ...]:
        """The paths that other jobs must not write to until the commit ends, because `undo` restores their content."""
        return ()

    @property
    def extended_folders(self) -> tuple[str, ...]:
        """The folders that get additional files."""
        return ()

    @property
    def hidden_folders(self) -> tuple[str, ...]:
        """The hidden folders of new and replaced rows, which exist until the commit ends."""
        return ()

    def is_at(self, target: HadoopPath) -> bool:
        """Whether a folder is the target."""
        return self.folder is not None and location_of(self.folder) == location_of(str(target))

    @property
    def transaction_key(self) -> str | None:
        """The key of the transaction that several records share; None for a record that commits separately."""
        return None

    def write_pointer(self, access: Access, journal: str) -> None:  # noqa: B027
        """Write a pointer to the journal, whose path is `journal`, into a target without a `folder`."""

    def remove_pointer(self, access: Access, journal: str) -> None:  # noqa: B027
        """Remove the pointer that `write_pointer` has written."""

    def make_ready(self, access: Access) -> None:  # noqa: B027
        """Do or check what the commit needs, without making rows visible; called once, in the process of the job."""

    def is_already_committed(self, access: Access) -> bool:  # noqa: ARG002
        """Whether the sink's `prepare` or `make_ready` has detected that another run has committed the rows already."""
        return False

    @abstractmethod
    def commit(self, access: Access) -> None:
        """Make the rows visible.

        Raise `CommitUnknownError` if the commit was requested and may still succeed. Any other exception means that
        this call has not committed and cannot commit later. Penstock verifies that with `is_committed`.
        """

    def check_names(self) -> None:  # noqa: B027
        """Raise `ValueError` for an invalid name or path, before the record is used; see `penstock.commit.names`."""

    def check(self, access: Access) -> None:  # noqa: B027
        """Raise if this process cannot recover the record; called for all records of a journal before recovery."""

    def complete(self, access: Access) -> None:
        """Commit after an earlier attempt: like `commit`, but skip files that another program has removed since."""
        self.commit(access)

    @abstractmethod
    def is_committed(self, access: Access) -> bool:
        """Whether all rows are visible. False implies that no earlier attempt to commit can still succeed.

        For a record that `may_succeed_late`, the result describes only the current state.
        """

    def has_begun(self, access: Access) -> bool:
        """Whether some rows are irreversibly visible, so that the commit must be completed.

        It is called only if the record is not reversible. False implies that no earlier attempt to commit can still
        succeed, as for `is_committed`.
        """
        return self.is_committed(access)

    @abstractmethod
    def undo(self, access: Access) -> None:
        """Remove the prepared rows and restore the replaced ones; not called after an irreversible `commit`."""

    def finish(self, access: Access) -> None:  # noqa: B027
        """Remove what only `undo` needs; called when every sink of the job has committed."""

    def as_dict(self) -> dict[str, Any]:
        """Return the record as a JSON object; the inverse of `prepared_from_dict`."""
        values = asdict(self)
        return {"kind": self.kind, **{_json_key(entry): values[entry.name] for entry in fields(self)}}


def prepared_from_dict(record: Mapping[str, Any]) -> Prepared:
    """Return the record that a JSON object of a journal describes.

    Raise `CommitError` for an unsupported kind, and `ValueError` for a value that does not have the type of its field.
    """
    if not is_supported(record):
        raise CommitError.unknown_sink_kind(str(record.get("kind")))
    record_class = _CLASSES[record["kind"]]
    values = {}
    for record_field in fields(record_class):
        key = _json_key(record_field)
        if key not in record:
            continue
        values[record_field.name] = _as_tuples(record[key])
        if not _has_type(values[record_field.name], str(record_field.type)):
            raise ValueError(f"{key} is not of the type {record_field.type}")
    return record_class(**values)


def _json_key(record_field: Field[Any]) -> str:
    """Return the key of a field in journals: ``key`` in the metadata of the field, or else the name of the field."""
    return str(record_field.metadata.get("key", record_field.name))


_JSON_TYPES: dict[str, type | tuple[type, ...]] = {  # by the annotation of a field
    "str": str,
    "int": int,
    "bool": bool,
    "float": (float, int),
    "Mapping[str, Any]": dict,
}


def _has_type(value: Any, annotation: str) -> bool:
    if annotation.endswith(" | None"):
        return value is None or _has_type(value, annotation.removesuffix(" | None"))
    if annotation.startswith("tuple[") and annotation.endswith(", ...]"):
        inner = annotation.removeprefix("tuple[").removesuffix(", ...]")
        return isinstance(value, tuple) and all(_has_type(item, inner) for item in value)
    if annotation == "tuple[str, str]":
        return isinstance(value, tuple) and [type(item) for item in value] == [str, str]
    return isinstance(value, _JSON_TYPES.get(annotation, object))


def is_supported(record: Mapping[str, Any]) -> bool:
    """Whether this release supports the kind and all keys of a record and of the records nested in it."""
    record_class = _CLASSES.get(str(record.get("kind")))
    if record_class is None or not set(record) <= {"kind", *map(_json_key, fields(record_class))}:
        return False
    return all(is_supported(part) for part in record.values() if isinstance(part, dict) and "kind" in part)


def _as_tuples(value: Any) -> Any:
    """Convert the lists of a JSON value to tuples, the type of such fields in records."""
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


@dataclass(frozen=True)
class PreparedUnknown(Prepared):
    """A record of an unknown kind or a newer release: other jobs wait for its commit, but cannot recover the commit."""

    kind: ClassVar[str] = "unknown"
    is_reversible: ClassVar[bool] = False

    record: Mapping[str, Any]

    @property
    def target(self) -> str:
        """The path; the kind if the record has no path."""
        return self.folder or f"a sink of kind {self.record.get('kind')!r}"

    @property
    def folder(self) -> str | None:
        """The path; None if the record has none."""
        return next(_nested_strings(self.record, "path"), None)

    @property
    def hidden_folders(self) -> tuple[str, ...]:
        """The staging folders in the record, and folders of replaced rows (`-old`): a newer release may need them."""
        return tuple(name for folder in _nested_strings(self.record, "staging") for name in (folder, f"{folder}-old"))

    @property
    def exclusive_paths(self) -> tuple[str, ...]:
        """The whole folder: no other job may write to it before the commit is recovered."""
        return () if self.folder is None else (self.folder,)

    def check(self, access: Access) -> NoReturn:  # noqa: ARG002
        """Raise `CommitError` before the other records of the journal are completed or undone."""
        raise CommitError.unknown_sink_kind(str(self.record.get("kind")))

    commit = is_committed = undo = finish = check  # all of these raise, too

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON object of the record unchanged."""
        return dict(self.record)


def _nested_strings(record: Mapping[str, Any], key: str) -> Iterator[str]:
    """Yield the strings that a record, or a record nested in it, has under a key."""
    value = record.get(key)
    if isinstance(value, str):
        yield value
    for part in record.values():
        if isinstance(part, dict):
            yield from _nested_strings(part, key)


def prepared_or_unknown(record: Mapping[str, Any], is_of_this_version: bool) -> Prepared:  # noqa: FBT001
    """Return the record of a JSON object, `PreparedUnknown` if it, or the version of its journal, is unsupported."""
    if not isinstance(record, dict):
        raise TypeError("a record is not a mapping")
    return prepared_from_dict(record) if is_of_this_version and is_supported(record) else PreparedUnknown(record)


def needs_journal(records: Sequence[Prepared]) -> bool:
    """Whether a crash between two steps could commit only some rows, or other jobs have to wait for the commit."""
    steps = {record.transaction_key or id(record) for record in records}
    return len(steps) > 1 or any(not record.is_atomic for record in records)
