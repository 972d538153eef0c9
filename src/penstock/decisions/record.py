"""Decisions in event logs, also in those of older releases, and one-line summaries of jobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from penstock.base.units import show_bytes, show_count
from penstock.decisions.estimates import EstimateRecord


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """A decision in an event log; other fields are as in `Decision` and `Explanation` of `penstock.decisions.log`.

    Parameters
    ----------
    is_shown
        Whether users see the decision; always true after a fallback or a missed estimate.
    instead, because
        The fallback if the decision could not be carried out (`not_shuffled` is then None), and its reason; else empty.
    chunks
        The number of chunks in which hot keys were computed, and their bytes, as text; empty without chunks.
    values
        The plain values in the log, see `Decision.as_dict`.
    """

    id: int
    kind: str
    chosen: str
    sentence: str
    location: str
    option: str | None
    estimate: EstimateRecord | None
    not_shuffled: int | None
    tables: tuple[str, ...]
    is_shown: bool
    instead: str
    because: str
    chunks: str
    nodes: tuple[str, ...]
    at: float
    values: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False)

    @classmethod
    def from_dict(cls, number: int, record: Mapping[str, Any]) -> DecisionRecord:
        """Return a decision with its number in the job; older logs lack some values of `Decision.as_dict`."""
        outcome, estimate_values = record["outcome"], record.get("estimate")
        estimate = None if estimate_values is None else EstimateRecord.from_dict(estimate_values)
        instead = str(outcome.get("instead", ""))
        is_missed = estimate is not None and estimate.missed_by is not None
        return cls(
            id=number,
            kind=record["kind"],
            chosen=str(record["chosen"]),
            sentence=record.get("sentence") or f"{record['subject']}: {record['chosen']}, as {record['reason']}",
            location=record.get("place", ""),
            option=record.get("option"),
            estimate=estimate,
            not_shuffled=None if instead else record.get("not_shuffled"),
            tables=tuple(record.get("tables", ())),
            is_shown=bool(record.get("shown", True)) or bool(instead) or is_missed,
            instead=instead,
            because=str(outcome.get("because", "")),
            chunks=_chunks_text(outcome),
            nodes=tuple(map(str, record.get("nodes", ()))),
            at=record["at"],
            values=record,
        )

    def concerns(self, vertex_id: str, nodes: Iterable[str]) -> bool:
        """Whether the decision is about a vertex or any of its operators; older logs name only the vertex."""
        if "nodes" in self.values:
            return not set(self.nodes).isdisjoint(nodes)
        return str(self.values["subject"]).startswith(f"{vertex_id} ")

    @property
    def sets_parallelism(self) -> bool:
        """Whether the decision sets a number of tasks."""
        return self.kind.endswith("parallelism")

    @property
    def is_broadcast(self) -> bool:
        """Whether it chooses a side of a join to broadcast."""
        return self.kind == "broadcast" and not self.chosen.startswith("not ")

    @property
    def is_whole_query(self) -> bool:
        """Whether it leaves the whole query to Spark."""
        return self.kind == "whole query"

    @property
    def is_planned_broadcast(self) -> bool:
        """Whether Spark chooses the same broadcast when it plans: by its statistics (with a limit), or by a hint."""
        return self.is_broadcast and (self.option is None or "limit" in self.values["figures"])

    @property
    def changes_plan(self) -> bool:
        """Whether Spark alone would plan differently: it sets more than tasks, and its choice is not Spark's.

        A decision with a fallback counts as a change.
        """
        if self.instead:
            return True
        is_spark_choice = self.chosen == "Spark" or self.chosen.startswith("not ") or self.is_whole_query
        only_sets_numbers = self.sets_parallelism or self.kind == "subpartitions"
        return not (only_sets_numbers or is_spark_choice or self.is_planned_broadcast)

    @property
    def is_plain_parallelism(self) -> bool:
        """Whether it only sets a number of tasks (which the table of steps shows), without fallback or miss."""
        return self.sets_parallelism and not (self.instead or self.is_missed)

    @property
    def merge_key(self) -> tuple[object, ...]:
        """A key that is equal for decisions whose texts differ only in their location."""
        action = self.sentence.removeprefix(self.location)
        return (self.kind, action, self.option, self.estimate, self.instead, self.because, self.chunks)

    @property
    def is_missed(self) -> bool:
        """Whether its estimate was a miss."""
        return self.estimate is not None and self.estimate.missed_by is not None

    @property
    def text(self) -> str:
        """The decision with fallback, missed estimate and option, as sentences."""
        return ". ".join(self._sentences())

    def _sentences(self) -> Iterator[str]:
        yield self.sentence
        if self.instead:
            yield f"Instead: {self.instead}, because {self.because}" if self.because else f"Instead: {self.instead}"
        if self.chunks:
            yield self.chunks
        if self.is_missed:
            yield f"Estimate of {self.estimate}"
        if self.option is not None:
            yield f"Change with {self.option}"


def _chunks_text(outcome: Mapping[str, Any]) -> str:
    match outcome:
        case {"pieces": chunks, "bytes before": before, "bytes merged": after}:
            return f"{show_bytes(before)} of partial results were merged in {chunks} chunks, into {show_bytes(after)}"
        case {"pieces": chunks, "bytes divided": size}:
            return f"{show_bytes(size)} of rows were divided into {chunks} chunks"
    return ""


def displayed_decisions(decisions: Iterable[DecisionRecord], *, with_parallelism: bool = True) -> list[DecisionRecord]:
    """Return the decisions that users see, in order; equal decisions at several locations are merged.

    `with_parallelism` includes decisions that only set a number of tasks. A decision against a broadcast is omitted if
    the join has a broadcast that was not replaced: the decision for it says why the other side is not broadcast.
    """
    decisions = list(decisions)
    broadcast_joins = {decision.nodes for decision in decisions if decision.is_broadcast and not decision.instead}
    groups: dict[tuple[object, ...], list[DecisionRecord]] = {}
    for decision in decisions:
        is_refusal = decision.kind == "broadcast" and not decision.is_broadcast
        if is_refusal and decision.nodes and decision.nodes in broadcast_joins:
            continue
        if decision.is_shown and (with_parallelism or not decision.is_plain_parallelism):
            groups.setdefault(decision.merge_key, []).append(decision)
    return [_merged(group) for group in groups.values()]


_MAX_LOCATIONS = 2
"""How many locations a merged decision names before "N more"; up to 3 locations are all named."""


def _merged(group: list[DecisionRecord]) -> DecisionRecord:
    first, locations = group[0], list(dict.fromkeys(decision.location for decision in group))
    if len(locations) == 1:
        return first
    shown = locations
    if len(locations) > _MAX_LOCATIONS + 1:
        shown = [*locations[:_MAX_LOCATIONS], f"{len(locations) - _MAX_LOCATIONS} more"]
    action = first.sentence.removeprefix(f"{first.location}: ")
    sizes = [decision.not_shuffled for decision in group if decision.not_shuffled is not None]
    return replace(
        first,
        sentence=f"{action}; in {len(locations)} places: {'; '.join(shown)}",
        not_shuffled=sum(sizes) if sizes else None,
        tables=tuple(dict.fromkeys(table for decision in group for table in decision.tables)),
        nodes=tuple(dict.fromkeys(node for decision in group for node in decision.nodes)),
    )


@dataclass(frozen=True, slots=True)
class JobSummary:
    """What Penstock did for a job.

    >>> print(JobSummary(3 << 20, tasks=8, seconds=2.5, last_seconds=3.1, decisions=5, estimates=2, missed=1))
    about 3.0 MiB not shuffled, 8 tasks, 2.5 s (last run 3.1 s), 1 of 2 estimates missed

    Parameters
    ----------
    not_shuffled
        The approximate bytes that were not shuffled because joins became broadcast joins at run time.
    last_seconds
        The duration in seconds of the previous run of a job with the same name, None if there is none.
    decisions
        The number of decisions that users see, before equal decisions are merged.
    estimates, missed
        The number of different estimates with an actual value, and the number of misses among them.
    """

    not_shuffled: int
    tasks: int
    seconds: float
    last_seconds: float | None
    decisions: int
    estimates: int
    missed: int

    @classmethod
    def of(
        cls, decisions: Sequence[DecisionRecord], tasks: int, seconds: float, last_seconds: float | None = None
    ) -> JobSummary:
        """Return the summary of a job."""
        estimates = (decision.estimate for decision in decisions)
        # Several decisions may share an estimate.
        compared = {estimate for estimate in estimates if estimate is not None and estimate.actual is not None}
        return cls(
            not_shuffled=sum(decision.not_shuffled or 0 for decision in decisions),
            tasks=tasks,
            seconds=seconds,
            last_seconds=last_seconds,
            decisions=sum(decision.is_shown for decision in decisions),
            estimates=len(compared),
            missed=sum(estimate.missed_by is not None for estimate in compared),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        last = "" if self.last_seconds is None else f" (last run {self.last_seconds:.1f} s)"
        parts = [show_count(self.tasks, "task") if self.tasks else "", f"{self.seconds:.1f} s{last}"]
        if self.not_shuffled:
            parts.insert(0, f"about {show_bytes(self.not_shuffled)} not shuffled")
        if self.estimates:
            parts.append(f"{self.missed} of {show_count(self.estimates, 'estimate')} missed")
        return ", ".join(filter(None, parts))
