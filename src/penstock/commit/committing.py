"""The interface of sinks that a commit uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.commit.prepared import Prepared


class Committing(Protocol):
    """A sink of a job after all of its rows are written."""

    @property
    def secrets(self) -> Mapping[str, Mapping[str, str]]:
        """Properties that journals do not store, such as passwords, by `Prepared.address`."""

    def prepare(self) -> Prepared | None:
        """Make everything durable, and return its record; None if only this process can commit the sink.

        A record that replaces files or adds to folders is prepared again after waiting for other commits.
        """

    def commit(self) -> None:
        """Make everything visible; called only if `prepare` returned None."""

    def abort(self) -> None:
        """Remove what was written."""

    def refresh(self) -> None:
        """Refresh cached relations that read the target."""
