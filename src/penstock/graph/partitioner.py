"""Partitioners: how the rows of an edge are distributed over the tasks of its target."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from penstock.errors import GraphError

_UNIQUE_SUFFIX = re.compile(r"~\d+$")


def key_text(key: str) -> str:
    """Return the text of a key without the suffix by which ``ExpressionKeys.java`` makes it unique."""
    return _UNIQUE_SUFFIX.sub("", key)


@dataclass(frozen=True, slots=True)
class Partitioner:
    """Base of all partitioners, which are compared by value."""

    name: ClassVar[str] = "CUSTOM"
    is_chained: ClassVar[bool] = False
    """Whether both ends of the edge run in the same vertex."""

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class ForwardPartitioner(Partitioner):
    """Rows stay in their task: both ends run in the same vertex."""

    name: ClassVar[str] = "FORWARD"
    is_chained: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class HashPartitioner(Partitioner):
    """Rows are distributed by the hash of key expressions; `keys` are their texts, equal for equal expressions only."""

    keys: tuple[str, ...]
    name: ClassVar[str] = "HASH"

    def __post_init__(self) -> None:
        if not self.keys:
            raise GraphError("a hash partitioner needs at least one key", hint="use GLOBAL for no key")

    def __str__(self) -> str:
        return f"HASH({', '.join(map(key_text, self.keys))})"


@dataclass(frozen=True, slots=True)
class RangePartitioner(Partitioner):
    """Rows are distributed by ranges of sort keys, so that the results of the tasks are in order."""

    keys: tuple[str, ...]
    name: ClassVar[str] = "RANGE"

    def __str__(self) -> str:
        return f"RANGE({', '.join(self.keys)})"


@dataclass(frozen=True, slots=True)
class RebalancePartitioner(Partitioner):
    """Rows go to all tasks in turn."""

    name: ClassVar[str] = "REBALANCE"


@dataclass(frozen=True, slots=True)
class RescalePartitioner(Partitioner):
    """Each upstream task sends its rows to a few tasks in turn."""

    name: ClassVar[str] = "RESCALE"


@dataclass(frozen=True, slots=True)
class AdaptiveRebalancePartitioner(RebalancePartitioner):
    """Batches go to the least loaded of the next `max_traverse_size` tasks; both ends run in the same stage."""

    max_traverse_size: int
    is_chained: ClassVar[bool] = True

    def __str__(self) -> str:
        return f"{self.name}(least loaded of {self.max_traverse_size})"


@dataclass(frozen=True, slots=True)
class AdaptiveRescalePartitioner(RescalePartitioner):
    """Like `AdaptiveRebalancePartitioner`, but each task sends batches only to a few neighbouring consumers."""

    max_traverse_size: int
    is_chained: ClassVar[bool] = True

    def __str__(self) -> str:
        return f"{self.name}(least loaded of {self.max_traverse_size})"


@dataclass(frozen=True, slots=True)
class PulledRebalancePartitioner(RebalancePartitioner):
    """Rows are written in chunks; a task takes the next chunk whenever it is free.

    `slots` is the number of tasks that the cluster can run at a time.
    """

    slots: int

    def consumers(self, parallelism: int | None, maximum: int | None) -> int:
        """Return the number of tasks: `parallelism` if set, else `slots` or `maximum`, whichever is smaller."""
        return parallelism or min(self.slots, maximum or self.slots)

    def __str__(self) -> str:
        return f"{self.name}(to the next free task)"


@dataclass(frozen=True, slots=True)
class BroadcastPartitioner(Partitioner):
    """Every row goes to every task."""

    name: ClassVar[str] = "BROADCAST"


@dataclass(frozen=True, slots=True)
class GlobalPartitioner(Partitioner):
    """Every row goes to a single task."""

    name: ClassVar[str] = "GLOBAL"


@dataclass(frozen=True, slots=True)
class ForwardForUnspecifiedPartitioner(Partitioner):
    """Requests FORWARD if both ends can share a vertex, else RESCALE."""

    name: ClassVar[str] = "FORWARD_FOR_UNSPECIFIED"


@dataclass(frozen=True, slots=True)
class ForwardForConsecutiveHashPartitioner(Partitioner):
    """FORWARD as long as the source's rows are hash partitioned by `hash`; else strategies replace it by `hash`."""

    hash: HashPartitioner
    name: ClassVar[str] = "FORWARD_FOR_CONSECUTIVE_HASH"
    is_chained: ClassVar[bool] = True


FORWARD = ForwardPartitioner()
REBALANCE = RebalancePartitioner()
RESCALE = RescalePartitioner()
BROADCAST = BroadcastPartitioner()
GLOBAL = GlobalPartitioner()
