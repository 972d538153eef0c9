"""What the page and the API show of streams: the batches of the checkpoints that the server was told of."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.streams.batches import BatchRecord
    from penstock.streams.reading import Place


@dataclass(frozen=True, slots=True)
class Stream:
    """A checkpoint, as it is now.

    Parameters
    ----------
    checkpoint
        Where it is.
    batches
        Its batches, the latest first.
    problem
        Why there are none, None if there are.
    """

    checkpoint: str
    batches: tuple[BatchRecord, ...]
    problem: str | None

    @classmethod
    def of(cls, place: Place) -> Stream:
        """Read a checkpoint."""
        from penstock.streams.reading import read_batches  # which needs PySpark, and jobs alone do not

        try:
            return cls(str(place), tuple(reversed(read_batches(place))), None)
        except PenstockError as error:
            return cls(str(place), (), str(error))

    def as_dict(self) -> dict[str, Any]:
        """Return it for the API."""
        return asdict(self)


def streams_of(places: Sequence[Place]) -> list[Stream]:
    """Read all checkpoints."""
    return [Stream.of(place) for place in places]
