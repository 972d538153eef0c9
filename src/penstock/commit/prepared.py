"""What a sink is about to make visible, so that any later process can commit it, undo it, or tell what has happened."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.commit.paths import place_of
from penstock.errors import CommitError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.spark.filesystem import Folder
    from penstock.spark.jvm import Bridge

_KINDS: dict[str, type[Prepared]] = {}


@dataclass
class Access:
    """What records need to reach their targets.

    Parameters
    ----------
    bridge
        The session.
    secrets
        Properties that are not kept in journals, such as passwords: a mapping for each target's `Prepared.address`.
    open_transactions
        Transactions whose work is done but for the last COMMIT, by the database they lead to.
    committed
        What such transactions have committed, or other runs before, by the name of where it was staged: several records
        share one transaction.
    trusted
        The path of a journal that the user vouches for, whoever wrote it; None if there is none.
    """

    bridge: Bridge
    secrets: dict[str, Mapping[str, str]] = field(default_factory=dict)
    open_transactions: dict[str, Any] = field(default_factory=dict)
    committed: set[str] = field(default_factory=set)
    trusted: str | None = None

    def close(self) -> None:
        """Let go of transactions that were not committed: their databases undo them."""
        while self.open_transactions:
            self.open_transactions.popitem()[1].close()


@dataclass(frozen=True)
class Prepared(ABC):
    """All that one sink has ready; everything it names is durable. All methods may be called again, also at a time."""

    kind: ClassVar[str]
    is_reversible: ClassVar[bool]
    """Whether `undo` brings the old rows back after a commit; if not, only what is not committed can be undone."""
    may_land_late: ClassVar[bool] = False
    """Whether a commit that a process has asked for may succeed after that process, or the request, has ended.

    Nobody can undo it from then on: its files may be named a moment later. It is committed again instead, which is
    safe: of two commits onto one version of a table only one can succeed.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if hasattr(cls, "kind"):  # what several kinds have in common is none itself
            _KINDS[cls.kind] = cls

    @property
    @abstractmethod
    def target(self) -> str:
        """The target, for people."""

    @property
    def address(self) -> str:
        """By which `Access.secrets` are found."""
        return self.target

    @property
    def is_atomic(self) -> bool:
        """Whether all of it appears in one step that no other job can come between; alone it needs no journal then."""
        return True

    @property
    def folder(self) -> str | None:
        """The folder that a journal, or a pointer to one, is put beside; None for a target that is no folder."""
        return None

    @property
    def replaced(self) -> tuple[str, ...]:
        """The paths of what goes away for it, and would come back with all it held then if it is undone."""
        return ()

    @property
    def added(self) -> tuple[str, ...]:
        """The paths of folders that get files beside those that are there."""
        return ()

    @property
    def hidden(self) -> tuple[str, ...]:
        """The hidden folders that new rows, or old ones, lie in until the commit has ended."""
        return ()

    def is_at(self, target: Folder) -> bool:
        """Whether a folder is its target."""
        return self.folder is not None and place_of(self.folder) == place_of(str(target))

    @property
    def together(self) -> str | None:
        """What all records have in common that commit in one step; None for one that commits by itself."""
        return None

    def point(self, access: Access, journal: str) -> None:  # noqa: B027
        """Note in a target without a `folder` where the journal lies."""

    def unpoint(self, access: Access, journal: str) -> None:  # noqa: B027
        """Remove what `point` has left."""

    def ready(self, access: Access) -> None:  # noqa: B027
        """Do, or try, as much of the commit as nobody sees yet; called once, in the job's own process."""

    def is_written(self, access: Access) -> bool:  # noqa: ARG002
        """Whether `prepare` or `ready` has found that another run has written it, or this process has committed it.

        There is nothing to commit then.
        """
        return False

    @abstractmethod
    def commit(self, access: Access) -> None:
        """Make it visible.

        Raises
        ------
        CommitUnknownError
            If it was asked for, and may still succeed.
        Exception
            Any other says that this call has not committed, and no longer can; `is_committed` is asked all the same.
        """

    def check_names(self) -> None:  # noqa: B027
        """Raise `ValueError` if it names what no job writes; asked before anything that a journal says is done.

        See `penstock.commit.names`.
        """

    def check(self, access: Access) -> None:  # noqa: B027
        """Raise an error if it cannot be recovered from here; asked of all parts of a journal before the first step."""

    def complete(self, access: Access) -> None:
        """As `commit`, once one was asked for: what was committed, and somebody has removed since, stays away."""
        self.commit(access)

    @abstractmethod
    def is_committed(self, access: Access) -> bool:
        """Whether all of it is visible. If not, no commit that was begun before may still succeed.

        One that `may_land_late` only tells what is there now.
        """

    def has_begun(self, access: Access) -> bool:
        """Whether some of it is visible for good, so that the rest has to follow; asked of irreversible ones only.

        As of `is_committed`, no commit that was begun before may still succeed if not.
        """
        return self.is_committed(access)

    @abstractmethod
    def undo(self, access: Access) -> None:
        """Remove what was prepared, and bring back what was there before; of irreversible ones not after `commit`."""

    def finish(self, access: Access) -> None:  # noqa: B027
        """Remove what was only needed to undo; called once every sink of the job has committed."""

    def as_dict(self) -> dict[str, Any]:
        """Return the record as JSON knows it; the opposite of `prepared_of`."""
        return {"kind": self.kind, **asdict(self)}


def prepared_of(found: Mapping[str, Any]) -> Prepared:
    """Return the record that a journal holds.

    Raises
    ------
    CommitError
        If this release does not know its kind.
    """
    if not is_known(found):
        raise CommitError.unknown(str(found.get("kind")))
    kind = _KINDS[found["kind"]]
    values = {name: _frozen(value) for name, value in found.items() if name != "kind"}
    for each in fields(kind):
        if each.name in values and not _fits(values[each.name], str(each.type)):
            raise ValueError(f"{each.name} is not of the type {each.type}")
    return kind(**values)


_JSON_TYPES: dict[str, type | tuple[type, ...]] = {
    "str": str,
    "int": int,
    "bool": bool,
    "float": (float, int),
    "Mapping[str, Any]": dict,
    "tuple[str, str]": tuple,
}


def _fits(value: Any, annotation: str) -> bool:
    """Whether a value of JSON has the type of a field: JSON can hold any other."""
    if annotation.endswith(" | None"):
        return value is None or _fits(value, annotation.removesuffix(" | None"))
    if annotation.startswith("tuple[") and annotation.endswith(", ...]"):
        inner = annotation.removeprefix("tuple[").removesuffix(", ...]")
        return isinstance(value, tuple) and all(_fits(item, inner) for item in value)
    if annotation == "tuple[str, str]" and isinstance(value, tuple):
        return [type(item) for item in value] == [str, str]
    return isinstance(value, _JSON_TYPES.get(annotation, object))


def is_known(found: Mapping[str, Any]) -> bool:
    """Whether this release knows the kind of a record, and all that the record says."""
    kind = _KINDS.get(str(found.get("kind")))
    if kind is None or not set(found) <= {"kind", *(one.name for one in fields(kind))}:
        return False
    return all(is_known(part) for part in found.values() if isinstance(part, dict) and "kind" in part)


def _frozen(value: Any) -> Any:
    """Return lists as tuples, as the fields of records hold them."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def needs_journal(records: Sequence[Prepared]) -> bool:
    """Whether a crash between two steps could leave some rows without the others, or other jobs have to wait."""
    steps = {record.together or id(record) for record in records}
    return len(steps) > 1 or any(not record.is_atomic for record in records)
