"""How the records of an edge are spread over the tasks of its target."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from penstock.errors import GraphError

_NUMBER = re.compile(r"~\d+$")


def text_of_key(key: str) -> str:
    """Return the key of an expression without the number that makes it unique (``ExpressionKeys.java``)."""
    return _NUMBER.sub("", key)


@dataclass(frozen=True, slots=True)
class Partitioner:
    """Base of all partitioners; compare them by value."""

    name: ClassVar[str] = "CUSTOM"
    chained: ClassVar[bool] = False
    """Whether both ends run in one vertex."""

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class ForwardPartitioner(Partitioner):
    """Record by record to the same task: both ends run in one vertex."""

    name: ClassVar[str] = "FORWARD"
    chained: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class HashPartitioner(Partitioner):
    """By the hash of key expressions, given as keys that are equal if and only if the expressions are."""

    keys: tuple[str, ...]
    name: ClassVar[str] = "HASH"

    def __post_init__(self) -> None:
        if not self.keys:
            raise GraphError("a hash partitioner needs at least one key", hint="use GLOBAL for no key")

    def __str__(self) -> str:
        return f"HASH({', '.join(map(text_of_key, self.keys))})"


@dataclass(frozen=True, slots=True)
class RangePartitioner(Partitioner):
    """By ranges of sort keys, so that the tasks' results follow one another."""

    keys: tuple[str, ...]
    name: ClassVar[str] = "RANGE"

    def __str__(self) -> str:
        return f"RANGE({', '.join(self.keys)})"


@dataclass(frozen=True, slots=True)
class RebalancePartitioner(Partitioner):
    """In turn to all tasks."""

    name: ClassVar[str] = "REBALANCE"


@dataclass(frozen=True, slots=True)
class RescalePartitioner(Partitioner):
    """In turn to some tasks."""

    name: ClassVar[str] = "RESCALE"


@dataclass(frozen=True, slots=True)
class AdaptiveRebalancePartitioner(RebalancePartitioner):
    """To the least loaded of the next few tasks; both ends run in one stage, batch by batch."""

    max_traverse_size: int
    chained: ClassVar[bool] = True

    def __str__(self) -> str:
        return f"{self.name}(least loaded of {self.max_traverse_size})"


@dataclass(frozen=True, slots=True)
class AdaptiveRescalePartitioner(RescalePartitioner):
    """To the least loaded of the next few of some tasks; both ends run in one stage, batch by batch."""

    max_traverse_size: int
    chained: ClassVar[bool] = True

    def __str__(self) -> str:
        return f"{self.name}(least loaded of {self.max_traverse_size})"


@dataclass(frozen=True, slots=True)
class PulledRebalancePartitioner(RebalancePartitioner):
    """In pieces, of which each task takes the next one whenever it is free.

    Parameters
    ----------
    slots
        How many tasks can run at a time.
    """

    slots: int

    def consumers(self, wanted: int | None, most: int | None) -> int:
        """Return how many tasks there are: as many as somebody wants, else as can run, as far as the step may have."""
        return wanted or min(self.slots, most or self.slots)

    def __str__(self) -> str:
        return f"{self.name}(to the next free task)"


@dataclass(frozen=True, slots=True)
class BroadcastPartitioner(Partitioner):
    """Every record to every task."""

    name: ClassVar[str] = "BROADCAST"


@dataclass(frozen=True, slots=True)
class GlobalPartitioner(Partitioner):
    """Every record to the one task there is."""

    name: ClassVar[str] = "GLOBAL"


@dataclass(frozen=True, slots=True)
class ForwardForUnspecifiedPartitioner(Partitioner):
    """A request: FORWARD if both ends can still share a vertex, else RESCALE."""

    name: ClassVar[str] = "FORWARD_FOR_UNSPECIFIED"


@dataclass(frozen=True, slots=True)
class ForwardForConsecutiveHashPartitioner(Partitioner):
    """Like FORWARD, as the source's rows lie hashed by these keys already; becomes the hash should that change."""

    hash: HashPartitioner
    name: ClassVar[str] = "FORWARD_FOR_CONSECUTIVE_HASH"
    chained: ClassVar[bool] = True


FORWARD = ForwardPartitioner()
REBALANCE = RebalancePartitioner()
RESCALE = RescalePartitioner()
BROADCAST = BroadcastPartitioner()
GLOBAL = GlobalPartitioner()
