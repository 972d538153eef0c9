"""What was chosen, from which figures, and why: one record for the log, `explain`, the API and the page."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from penstock.masking import mask

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

log = logging.getLogger("penstock")


class DecisionKind(StrEnum):
    """What a decision is about."""

    SOURCE_PARALLELISM = "source parallelism"
    VERTEX_PARALLELISM = "vertex parallelism"
    SINK_PARALLELISM = "sink parallelism"
    SINK_STAGE = "sink stage"
    SUBPARTITIONS = "subpartitions"
    SHARING = "sharing"
    BROADCAST = "broadcast"
    BUILD_SIDE_FIRST = "build side first"
    DYNAMIC_FILTER = "dynamic filter"
    JOIN_ALGORITHM = "join algorithm"
    JOIN_ORDER = "join order"
    EARLY_AGGREGATION = "early aggregation"
    SKEW = "skew"
    EXCHANGE = "exchange"
    REBALANCE = "rebalance"
    STRATEGY = "strategy"
    WHOLE_QUERY = "whole query"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True)
class Decision:
    """One choice.

    Parameters
    ----------
    kind
        What it is about.
    subject
        The vertex, operator or table.
    chosen
        The number or word that was chosen.
    reason
        One sentence.
    figures
        The numbers it was made from; bytes unless the name says otherwise.
    outcome
        What came of it, such as the tasks that ran; filled in later.
    at
        Seconds since the epoch.
    nodes
        The operators it is about, by their ids in the stream graph; it belongs to the vertex that has them.
    """

    kind: DecisionKind
    subject: str
    chosen: int | str
    reason: str
    figures: Mapping[str, int | float | str] = field(default_factory=dict)
    outcome: Mapping[str, int | float | str] = field(default_factory=dict)
    at: float = field(default_factory=time.time)
    nodes: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind} of {self.subject}: {self.chosen} ({self.reason})"

    def as_dict(self) -> dict[str, Any]:
        """Return the record as plain values for JSON."""
        return asdict(self)


class DecisionLog:
    """The decisions of one job, in order. Safe to use from several threads."""

    def __init__(self) -> None:
        self._decisions: list[Decision] = []
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[Decision]:
        return iter(tuple(self._decisions))

    def __len__(self) -> int:
        return len(self._decisions)

    def record(self, decision: Decision) -> Decision:
        """Keep a decision and write it to the log ``penstock``."""
        with self._lock:
            self._decisions.append(decision)
        log.info("%s", mask(str(decision)))
        return decision

    def settle(self, decision: Decision, **outcome: float | str | None) -> None:
        """Add what came of a recorded decision; what is not known is left out."""
        known = {name: value for name, value in outcome.items() if value is not None}
        with self._lock:
            same = replace(decision, outcome={})  # it may have been settled with something else since
            index = next(i for i, kept in enumerate(self._decisions) if replace(kept, outcome={}) == same)
            kept = self._decisions[index]
            self._decisions[index] = replace(kept, outcome={**kept.outcome, **known})

    def of(self, nodes: Collection[int], kind: DecisionKind | None = None) -> list[Decision]:
        """Return the decisions about any of some operators."""
        return [d for d in self if not set(nodes).isdisjoint(d.nodes) and kind in (None, d.kind)]

    def came_otherwise(
        self,
        kind: DecisionKind,
        node_id: int,
        name: str,
        instead: str,
        because: str,
        which: Callable[[Decision], bool] | None = None,
    ) -> None:
        """Settle what was decided about an operator with what was really done, and why.

        Parameters
        ----------
        kind, node_id, name
            What it is about.
        instead
            What was done.
        because
            Why, half a sentence.
        which
            Which of the decisions are meant, None for all. Where there is none, what was done is recorded as one.
        """
        meant = [decision for decision in self.of((node_id,), kind) if which is None or which(decision)]
        for decision in meant:
            self.settle(decision, instead=instead, because=because)
        if not meant:
            self.record(Decision(kind, f"{node_id} {name}", instead, because, nodes=(node_id,)))
        log.info("%s", mask(f"{kind} of {node_id} {name}: {instead}, because {because}"))
