"""Records that this release does not understand: where they are is told, what they need is not guessed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from penstock.commit.prepared import Prepared, is_known, prepared_of
from penstock.errors import CommitError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.commit.prepared import Access


@dataclass(frozen=True)
class PreparedUnknown(Prepared):
    """A record of a kind, or of a release, that is not known: its job is waited for, but cannot be recovered.

    Parameters
    ----------
    found
        What the journal says.
    """

    kind: ClassVar[str] = "unknown"
    is_reversible: ClassVar[bool] = False

    found: Mapping[str, Any]

    @property
    def target(self) -> str:
        """The path, or the kind where there is none."""
        return self.folder or f"a sink of kind {self.found.get('kind')!r}"

    @property
    def folder(self) -> str | None:
        """The path, where it tells one."""
        return next(_texts(self.found, "path"), None)

    @property
    def hidden(self) -> tuple[str, ...]:
        """Whatever it calls so: nobody may remove what it may need."""
        return tuple(name for one in _texts(self.found, "staging") for name in (one, f"{one}-old"))

    @property
    def replaced(self) -> tuple[str, ...]:
        """All of the folder: nobody else may write to it before it is recovered."""
        return () if self.folder is None else (self.folder,)

    def commit(self, access: Access) -> None:
        """Refuse."""
        self._refuse(access)

    def is_committed(self, access: Access) -> bool:
        """Refuse."""
        self._refuse(access)

    def undo(self, access: Access) -> None:
        """Refuse."""
        self._refuse(access)

    def finish(self, access: Access) -> None:
        """Refuse."""
        self._refuse(access)

    def check(self, access: Access) -> None:
        """Refuse, before the other records of the journal are completed or undone."""
        self._refuse(access)

    def as_dict(self) -> dict[str, Any]:
        """Return what was found."""
        return dict(self.found)

    def _refuse(self, access: Access) -> NoReturn:
        del access
        raise CommitError.unknown(str(self.found.get("kind")))


def _texts(found: Mapping[str, Any], key: str) -> Iterator[str]:
    """Iterate over the texts that a record, or one within it, has of a name."""
    value = found.get(key)
    if isinstance(value, str):
        yield value
    for part in found.values():
        if isinstance(part, dict):
            yield from _texts(part, key)


def known_or_not(found: Mapping[str, Any], is_of_this_version: bool) -> Prepared:  # noqa: FBT001
    """Return the record that a journal holds.

    Raises
    ------
    TypeError
        If it is not a mapping.
    """
    if not isinstance(found, dict):
        raise TypeError("a record is not a mapping")
    if is_of_this_version and is_known(found):
        return prepared_of(found)
    return PreparedUnknown(found)
