"""The streams that the page and the API show: the batches of the checkpoints that the server was started with."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.streams.batches import BatchRecord
    from penstock.streams.reading import TextFiles


@dataclass(frozen=True, slots=True)
class Stream:
    """The current state of a checkpoint.

    Parameters
    ----------
    checkpoint
        The path.
    batches
        Its batches, the latest first.
    problem
        Why the batches cannot be read; None if they can.
    """

    checkpoint: str
    batches: tuple[BatchRecord, ...]
    problem: str | None

    @classmethod
    def of(cls, location: TextFiles) -> Stream:
        """Read a checkpoint."""
        from penstock.streams.reading import read_batches  # needs PySpark, which serving jobs does not

        try:
            return cls(str(location), tuple(reversed(read_batches(location))), None)
        except PenstockError as error:
            return cls(str(location), (), str(error))

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for the API."""
        return asdict(self)


def streams_of(locations: Sequence[TextFiles]) -> list[Stream]:
    """Read all checkpoints."""
    return [Stream.of(location) for location in locations]
