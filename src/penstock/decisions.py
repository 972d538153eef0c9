"""What was chosen, from which figures, and why: one record for the log, `explain`, the API and the page."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from penstock.masking import mask
from penstock.tables import html_of_text
from penstock.told import ToldDecision, together
from penstock.units import show_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from penstock.estimates import Estimate

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
    NATIVE = "native"
    WHOLE_QUERY = "whole query"
    CANCEL = "cancel"


def plain(name: str) -> str:
    """Return the name of an operator or of a chain of them without what only Penstock's graph has."""
    parts = [part for part in name.split(" -> ") if part not in {"Calc", "Project"}] or [name]
    shown = [f"write to {one.removeprefix('Sink: ')}" if one.startswith("Sink: ") else one for one in parts]
    return " → ".join(one.removeprefix("Source: ") for one in shown)


@dataclass(frozen=True, slots=True)
class NodeRef:
    """An operator, by its node in the stream graph."""

    id: int
    name: str

    def __str__(self) -> str:
        return f"{self.id} {self.name}"

    @property
    def called(self) -> str:
        """What people call it."""
        return plain(self.name)

    @property
    def node_ids(self) -> tuple[int, ...]:
        """The operators it stands for."""
        return (self.id,)


@dataclass(frozen=True, slots=True)
class VertexRef:
    """A job vertex, or one task of it."""

    id: str
    name: str
    node_ids: tuple[int, ...]
    """Its operators."""
    task: int | None = None

    def __str__(self) -> str:
        return f"{self.id} {self.name}" + ("" if self.task is None else f", task {self.task}")

    @property
    def called(self) -> str:
        """What people call it."""
        return plain(self.name) + ("" if self.task is None else f", task {self.task}")


@dataclass(frozen=True, slots=True)
class NameRef:
    """What has nothing but a name: a table, a strategy, the job itself."""

    name: str
    node_ids: tuple[int, ...] = ()
    """The operator of that name, if there is only one."""

    def __str__(self) -> str:
        return self.name

    @property
    def called(self) -> str:
        """What people call it."""
        return plain(self.name)


Subject = NodeRef | VertexRef | NameRef
"""What a decision is about; `str` is how records call it."""


@dataclass(frozen=True, slots=True)
class Told:
    """A decision in the words of someone who knows the query and Spark, but not Penstock.

    Parameters
    ----------
    sentence
        One sentence without a full stop, with tables and keys instead of operators and sides.
    option
        The key of the option that changes it, None if there is none.
    estimate
        What it was made from if that was not measured; what came is added later.
    not_shuffled
        The bytes that are not shuffled because of it, as far as they are known, or None.
    tables
        The tables it is about.
    is_shown
        Whether it tells a reader something. All decisions are recorded.
    place
        How the sentence begins if it names one place of the query, such as "orders join customer on o_custkey". What
        is decided alike at several places is told once.
    """

    sentence: str
    option: str | None = None
    estimate: Estimate | None = None
    not_shuffled: int | None = None
    tables: tuple[str, ...] = ()
    is_shown: bool = True
    place: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """What is to be decided; `DecisionLog.record` makes a decision of it.

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
    told
        How people are told of it; None where `chosen` and `reason` say it well enough.
    """

    kind: DecisionKind
    subject: Subject
    chosen: int | str
    reason: str
    figures: Mapping[str, int | float | str] = field(default_factory=dict)
    told: Told | None = None

    @property
    def words(self) -> Told:
        """How people are told of it."""
        if self.told is not None:
            return self.told
        chosen = show_count(self.chosen, "task") if isinstance(self.chosen, int) else self.chosen
        return Told(f"{self.subject.called}: {chosen}, as {self.reason}")

    def __str__(self) -> str:
        return self.words.sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision(Choice):
    """A choice that was recorded.

    Parameters
    ----------
    kind, subject, chosen, reason, figures, told
        As in `Choice`.
    id
        Its number among the decisions of its job, from 0.
    outcome
        What came of it, such as the tasks that ran; filled in later.
    at
        Seconds since the epoch.
    """

    id: int
    outcome: Mapping[str, int | float | str] = field(default_factory=dict)
    at: float = field(default_factory=time.time)

    @property
    def nodes(self) -> tuple[int, ...]:
        """The operators it is about, by their ids in the stream graph; it belongs to the vertex that has them."""
        return self.subject.node_ids

    def as_dict(self) -> dict[str, Any]:
        """Return the record as plain values for JSON."""
        words = self.words
        return {
            "kind": self.kind,
            "subject": str(self.subject),
            "chosen": self.chosen,
            "reason": self.reason,
            "figures": dict(self.figures),
            "outcome": dict(self.outcome),
            "at": self.at,
            "nodes": self.nodes,
            "sentence": words.sentence,
            "place": words.place,
            "option": words.option,
            "shown": words.is_shown,
            "estimate": None if words.estimate is None else words.estimate.as_dict(),
            "not_shuffled": words.not_shuffled,
            "tables": list(words.tables),
        }


class DecisionListener(Protocol):
    """Hears of decisions when they are made; it must neither wait nor raise."""

    def on_decision_made(self, decision: Decision) -> None:
        """Take a new decision."""

    def on_decision_settled(self, decision: Decision) -> None:
        """Take a decision whose outcome is known better now."""


class DecisionLog:
    """The decisions of one job, in order. Safe to use from several threads.

    Parameters
    ----------
    listener
        Hears of each of them, in order.
    """

    def __init__(self, listener: DecisionListener | None = None) -> None:
        self._decisions: list[Decision] = []
        self._by_node: dict[int, list[int]] = {}
        self._listener = listener
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[Decision]:
        return iter(tuple(self._decisions))

    def __len__(self) -> int:
        return len(self._decisions)

    @property
    def told(self) -> list[ToldDecision]:
        """All of them in the words of people."""
        return [ToldDecision.of(decision.id, decision.as_dict()) for decision in self]

    def __str__(self) -> str:
        return "\n".join(f"- {one.text}" for one in together(self.told))

    def _repr_html_(self) -> str:
        return html_of_text(str(self))

    def record(self, choice: Choice) -> Decision:
        """Make a decision of a choice, and write it to the log ``penstock``."""
        with self._lock:
            decision = Decision(
                choice.kind,
                choice.subject,
                choice.chosen,
                choice.reason,
                choice.figures,
                choice.told,
                id=len(self._decisions),
            )
            self._decisions.append(decision)
            for node_id in decision.nodes:
                self._by_node.setdefault(node_id, []).append(decision.id)
            if self._listener is not None:
                self._listener.on_decision_made(decision)
        log.info("%s", mask(str(decision)))
        return decision

    def settle(self, decision_id: int, **outcome: float | str | None) -> None:
        """Add what came of a decision; what is not known is left out."""
        known = {name: value for name, value in outcome.items() if value is not None}
        with self._lock:
            before = self._decisions[decision_id]
            self._replace(replace(before, outcome={**before.outcome, **known}))

    def compare(self, decision_id: int, came: float | None, *, is_least: bool = False) -> None:
        """Add what came to the estimate of a decision, or the least that came, if it has one and that is known."""
        with self._lock:
            before = self._decisions[decision_id]
            if came is not None and before.told is not None and before.told.estimate is not None:
                told = replace(before.told, estimate=before.told.estimate.settled(came, is_least=is_least))
                self._replace(replace(before, told=told))

    def _replace(self, decision: Decision) -> None:
        if decision != self._decisions[decision.id]:
            self._decisions[decision.id] = decision
            if self._listener is not None:
                self._listener.on_decision_settled(decision)

    def of(self, nodes: Iterable[int], kind: DecisionKind | None = None) -> list[Decision]:
        """Return the decisions about any of some operators, in order."""
        with self._lock:
            ids = sorted({decision_id for node_id in nodes for decision_id in self._by_node.get(node_id, ())})
            found = [self._decisions[decision_id] for decision_id in ids]
        return [decision for decision in found if kind in (None, decision.kind)]

    def came_otherwise(
        self,
        kind: DecisionKind,
        subject: NodeRef,
        instead: str,
        because: str,
        which: Callable[[Decision], bool] | None = None,
    ) -> None:
        """Settle what was decided about an operator with what was really done, and why.

        Parameters
        ----------
        kind, subject
            What it is about.
        instead
            What was done.
        because
            Why, half a sentence.
        which
            Which of the decisions are meant, None for all. Where there is none, what was done is recorded as one.
        """
        meant = [decision for decision in self.of(subject.node_ids, kind) if which is None or which(decision)]
        for decision in meant:
            self.settle(decision.id, instead=instead, because=because)
            log.info("%s", mask(f"{decision}. Instead: {instead}, because {because}"))
        if not meant:
            self.record(Choice(kind, subject, instead, because))
