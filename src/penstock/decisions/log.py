"""The decisions of a job, which the log, `explain`, the REST API and the web page show."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from penstock.base.masking import mask
from penstock.base.tables import html_of_text
from penstock.base.units import show_count
from penstock.decisions.record import DecisionRecord, displayed_decisions

if TYPE_CHECKING:
    from penstock.decisions.estimates import Estimate

log = logging.getLogger("penstock")


class DecisionKind(StrEnum):
    """The kind of a decision: what it decides."""

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
        """The operator's id, as the only element."""
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
    """The id of the operator with that name; empty if there is none, or if there are several."""

    def __str__(self) -> str:
        return self.name

    @property
    def display_name(self) -> str:
        """The name that users see."""
        return display_name(self.name)


Subject = NodeRef | VertexRef | NameRef
"""What a decision is about; `str` returns its name in records."""


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
        The approximate bytes that are not shuffled because of the decision; None if there are none, or if unknown.
    tables
        The tables that the decision is about.
    is_shown
        Whether users see the decision. All decisions are recorded.
    location
        The location in the query that the sentence starts with, such as "orders join customer on o_custkey"; may be
        empty. Users see equal decisions at several locations as a single decision.
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

    >>> print(Choice(DecisionKind.VERTEX_PARALLELISM, NameRef("orders"), 4, "it has 64 MiB"))
    orders: 4 tasks, as it has 64 MiB

    Parameters
    ----------
    chosen
        The number or alternative that was chosen.
    reason
        The reason, as a clause that follows "as".
    figures
        The numbers that the choice is based on, by name; in bytes unless the name says otherwise.
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
        noun = "subpartition" if self.kind is DecisionKind.SUBPARTITIONS else "task"
        chosen = show_count(self.chosen, noun) if isinstance(self.chosen, int) else self.chosen
        return Explanation(f"{self.subject.display_name}: {chosen}, as {self.reason}")

    def __str__(self) -> str:
        return self.displayed.sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision(Choice):
    """A recorded choice.

    >>> choice = Choice(DecisionKind.EXCHANGE, NameRef("orders"), "no exchange", "it has 3 rows")
    >>> print(DecisionLog().record(choice).id, choice)
    0 orders: no exchange, as it has 3 rows

    Parameters
    ----------
    id
        The number of the decision in its job, from 0.
    outcome
        What the decision led to, such as the number of tasks that ran; filled in later.
    at
        Seconds since the epoch.
    """

    id: int
    outcome: Mapping[str, int | float | str] = field(default_factory=dict)
    at: float = field(default_factory=time.time)

    @property
    def nodes(self) -> tuple[int, ...]:
        """The ids of the subject's operators in the stream graph; the web page of their vertex shows the decision."""
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
        """Handle a decision whose outcome or estimate was updated."""


class DecisionLog:
    """The decisions of a job, in order; thread-safe. The listener is notified of each decision and update."""

    def __init__(self, listener: DecisionListener | None = None) -> None:
        self._decisions: list[Decision] = []
        self._by_node: dict[int, list[int]] = {}  # ids of decisions, by the id of the operator
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

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return html_of_text(str(self))

    def record(self, choice: Choice) -> Decision:
        """Record a choice as a decision, and log it by the logger ``penstock``."""
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
        """Add the values that are not None to the outcome of a decision."""
        new_values = {name: value for name, value in outcome.items() if value is not None}
        with self._lock:
            decision = self._decisions[decision_id]
            self._replace(replace(decision, outcome={**decision.outcome, **new_values}))

    def compare(self, decision_id: int, actual: float | None, *, is_least: bool = False) -> None:
        """Add the actual value to the estimate of a decision; no effect without an estimate or if the value is None.

        `is_least` says that `actual` is only a lower bound of the actual value.
        """
        with self._lock:
            decision = self._decisions[decision_id]
            explanation = decision.explanation
            if actual is not None and explanation is not None and explanation.estimate is not None:
                estimate = explanation.estimate.with_actual(actual, is_least=is_least)
                self._replace(replace(decision, explanation=replace(explanation, estimate=estimate)))

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
        """Record that decisions of a kind about an operator were not carried out, and what was done `instead`.

        `because` is the reason, as a clause. `applies_to` selects from these decisions; None selects all. If no
        decision is selected, the fallback is recorded as a new decision.
        """
        replaced = [
            decision for decision in self.of(subject.node_ids, kind) if applies_to is None or applies_to(decision)
        ]
        for decision in replaced:
            self.settle(decision.id, instead=instead, because=because)
            log.info("%s", mask(f"{decision}. Instead: {instead}, because {because}"))
        if not replaced:
            self.record(Choice(kind, subject, instead, because))
