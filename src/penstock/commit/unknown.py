"""Records that this release does not support: their targets are reported, and nothing is done with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from penstock.commit.prepared import Prepared, is_supported, prepared_from_dict
from penstock.errors import CommitError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.commit.prepared import Access


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
    """Return the record that a JSON object of a journal describes.

    Raises
    ------
    TypeError
        If it is not a JSON object.
    """
    if not isinstance(record, dict):
        raise TypeError("a record is not a mapping")
    if is_of_this_version and is_supported(record):
        return prepared_from_dict(record)
    return PreparedUnknown(record)
