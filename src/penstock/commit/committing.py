"""What commits ask of the sinks of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.commit.prepared import Prepared


class Committing(Protocol):
    """A sink of a job, all of whose rows are written."""

    @property
    def secrets(self) -> Mapping[str, Mapping[str, str]]:
        """What journals do not keep."""

    def prepare(self) -> Prepared | None:
        """Make everything durable.

        Asked again once no other commit is under way, if the record replaces, or adds to, what others may write.
        """

    def commit(self) -> None:
        """Make everything visible, where `prepare` gave nothing."""

    def abort(self) -> None:
        """Remove what was written."""

    def refresh(self) -> None:
        """Let cached readers see what is there now."""
