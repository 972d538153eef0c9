"""Decisions of a job: what was chosen, from which figures and why, for the log, `explain`, the API and the page."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from penstock.base.masking import mask
from penstock.base.tables import html_of_text
from penstock.base.units import show_count
from penstock.decisions.record import DecisionRecord, displayed_decisions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from penstock.decisions.estimates import Estimate

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


def display_name(name: str) -> str:
    """Return the name of an operator, or of a chain of operators, without the terms of the stream graph.

    >>> display_name("Source: orders -> Calc -> Sink: out")
    'orders → write to out'
    """
    parts = [part for part in name.split(" -> ") if part not in {"Calc", "Project"}] or [name]
    texts = [f"write to {part.removeprefix('Sink: ')}" if part.startswith("Sink: ") else part for part in parts]
    return " → ".join(text.removeprefix("Source: ") for text in texts)


@dataclass(frozen=True, slots=True)
class NodeRef:
    """An operator, by its node in the stream graph."""

    id: int
    name: str

    def __str__(self) -> str:
        return f"{self.id} {self.name}"

    @property
    def display_name(self) -> str:
        """The name that users see."""
        return display_name(self.name)

    @property
    def node_ids(self) -> tuple[int, ...]:
        """The ids of the operators it refers to."""
        return (self.id,)


@dataclass(frozen=True, slots=True)
class VertexRef:
    """A job vertex, or a task of it."""

    id: str
    name: str
    node_ids: tuple[int, ...]
    """The ids of its operators in the stream graph."""
    task: int | None = None

    def __str__(self) -> str:
        return f"{self.id} {self.name}" + ("" if self.task is None else f", task {self.task}")

    @property
    def display_name(self) -> str:
        """The name that users see."""
        return display_name(self.name) + ("" if self.task is None else f", task {self.task}")


@dataclass(frozen=True, slots=True)
class NameRef:
    """A subject that has only a name: a table, a strategy, the job itself."""

    name: str
    node_ids: tuple[int, ...] = ()
    """The id of the operator with that name; empty if it is not unique."""

    def __str__(self) -> str:
        return self.name

    @property
    def display_name(self) -> str:
        """The name that users see."""
        return display_name(self.name)


Subject = NodeRef | VertexRef | NameRef
"""What a decision is about; `str` gives its name in records."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """A decision explained to a user who knows the query and Spark, but not Penstock.

    Parameters
    ----------
    sentence
        A sentence without a full stop that names tables and keys instead of operators and sides.
    option
        The key of the option that changes the decision, or None.
    estimate
        The estimate that the decision is based on, None if its figures were measured.
    not_shuffled
        About how many bytes the decision saved from being shuffled, None if it saves none or that is unknown.
    tables
        The tables that the decision is about.
    is_shown
        Whether users see it. All decisions are recorded.
    location
        The start of the sentence if that names a location in the query, such as "orders join customer on o_custkey".
        Equal decisions at several locations are merged.
    """

    sentence: str
    option: str | None = None
    estimate: Estimate | None = None
    not_shuffled: int | None = None
    tables: tuple[str, ...] = ()
    is_shown: bool = True
    location: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice that is not recorded yet; `DecisionLog.record` turns it into a decision.

    Parameters
    ----------
    chosen
        The number or alternative that was chosen.
    reason
        The reason, as a sentence.
    figures
        The numbers it is based on, in bytes unless the name says otherwise.
    explanation
        The explanation for users; None if `chosen` and `reason` explain it well enough.
    """

    kind: DecisionKind
    subject: Subject
    chosen: int | str
    reason: str
    figures: Mapping[str, int | float | str] = field(default_factory=dict)
    explanation: Explanation | None = None

    @property
    def displayed(self) -> Explanation:
        """The explanation that users see; derived from `chosen` and `reason` if there is none."""
        if self.explanation is not None:
            return self.explanation
        chosen = show_count(self.chosen, "task") if isinstance(self.chosen, int) else self.chosen
        return Explanation(f"{self.subject.display_name}: {chosen}, as {self.reason}")

    def __str__(self) -> str:
        return self.displayed.sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision(Choice):
    """A recorded choice.

    Parameters
    ----------
    id
        Its number among the decisions of its job, from 0.
    outcome
        What resulted from it, such as the number of tasks that ran; filled in later.
    at
        Seconds since the epoch.
    """

    id: int
    outcome: Mapping[str, int | float | str] = field(default_factory=dict)
    at: float = field(default_factory=time.time)

    @property
    def nodes(self) -> tuple[int, ...]:
        """The ids, in the stream graph, of the operators it is about; their vertex displays the decision."""
        return self.subject.node_ids

    def as_dict(self) -> dict[str, Any]:
        """Return the record as plain values for JSON."""
        displayed = self.displayed
        return {
            "kind": self.kind,
            "subject": str(self.subject),
            "chosen": self.chosen,
            "reason": self.reason,
            "figures": dict(self.figures),
            "outcome": dict(self.outcome),
            "at": self.at,
            "nodes": self.nodes,
            "sentence": displayed.sentence,
            "place": displayed.location,
            "option": displayed.option,
            "shown": displayed.is_shown,
            "estimate": None if displayed.estimate is None else displayed.estimate.as_dict(),
            "not_shuffled": displayed.not_shuffled,
            "tables": list(displayed.tables),
        }


class DecisionListener(Protocol):
    """Listener that is notified of decisions as they are recorded; it must neither block nor raise."""

    def on_decision_recorded(self, decision: Decision) -> None:
        """Handle a new decision."""

    def on_decision_settled(self, decision: Decision) -> None:
        """Handle a decision whose outcome was updated."""


class DecisionLog:
    """The decisions of a job, in order; thread-safe. The listener is notified of each."""

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
    def records(self) -> list[DecisionRecord]:
        """All decisions in the form in which they are displayed."""
        return [DecisionRecord.from_dict(decision.id, decision.as_dict()) for decision in self]

    def __str__(self) -> str:
        return "\n".join(f"- {decision.text}" for decision in displayed_decisions(self.records))

    def _repr_html_(self) -> str:
        return html_of_text(str(self))

    def record(self, choice: Choice) -> Decision:
        """Record a choice as a decision, and write it to the log ``penstock``."""
        with self._lock:
            values = (getattr(choice, field.name) for field in fields(Choice))
            decision = Decision(*values, id=len(self._decisions))
            self._decisions.append(decision)
            for node_id in decision.nodes:
                self._by_node.setdefault(node_id, []).append(decision.id)
            if self._listener is not None:
                self._listener.on_decision_recorded(decision)
        log.info("%s", mask(str(decision)))
        return decision

    def settle(self, decision_id: int, **outcome: float | str | None) -> None:
        """Add values to the outcome of a decision, without those that are None."""
        added = {name: value for name, value in outcome.items() if value is not None}
        with self._lock:
            before = self._decisions[decision_id]
            self._replace(replace(before, outcome={**before.outcome, **added}))

    def compare(self, decision_id: int, actual: float | None, *, is_least: bool = False) -> None:
        """Add the actual value to the estimate of a decision; no effect without an estimate or if the value is None.

        `is_least` says that the actual value may be larger than what was measured.
        """
        with self._lock:
            before = self._decisions[decision_id]
            explanation = before.explanation
            if actual is not None and explanation is not None and explanation.estimate is not None:
                estimate = explanation.estimate.with_actual(actual, is_least=is_least)
                self._replace(replace(before, explanation=replace(explanation, estimate=estimate)))

    def _replace(self, decision: Decision) -> None:
        if decision != self._decisions[decision.id]:
            self._decisions[decision.id] = decision
            if self._listener is not None:
                self._listener.on_decision_settled(decision)

    def of(self, nodes: Iterable[int], kind: DecisionKind | None = None) -> list[Decision]:
        """Return the decisions about any of the operators `nodes`, in order; of any kind if `kind` is None."""
        with self._lock:
            ids = sorted({decision_id for node_id in nodes for decision_id in self._by_node.get(node_id, ())})
            decisions = [self._decisions[decision_id] for decision_id in ids]
        return [decision for decision in decisions if kind in (None, decision.kind)]

    def record_fallback(
        self,
        kind: DecisionKind,
        subject: NodeRef,
        instead: str,
        because: str,
        applies_to: Callable[[Decision], bool] | None = None,
    ) -> None:
        """Settle the decisions about an operator that could not be carried out, with what was done instead.

        `because` is the reason, as a clause. `applies_to` selects among the decisions of the kind, None for all. If
        there is none, the fallback is recorded as a decision of its own.
        """
        replaced = [
            decision for decision in self.of(subject.node_ids, kind) if applies_to is None or applies_to(decision)
        ]
        for decision in replaced:
            self.settle(decision.id, instead=instead, because=because)
            log.info("%s", mask(f"{decision}. Instead: {instead}, because {because}"))
        if not replaced:
            self.record(Choice(kind, subject, instead, because))
