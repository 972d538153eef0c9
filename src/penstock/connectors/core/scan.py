"""Interface of scans, which read the leaves of Spark's plan in a job; and the scan of a leaf that Spark partitions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from penstock.spark.plans.logical_plan import MAX_ESTIMATE_BYTES

if TYPE_CHECKING:
    from penstock.spark.bridge.handles import Session
    from penstock.spark.plans.logical_plan import LogicalPlan


@dataclass(frozen=True, slots=True)
class Splitting:
    """The decided number of tasks of a source, and the reason, a clause.

    `parallelism` is None if Spark chooses it. `settings` are the session settings that the read of the source needs.
    """

    parallelism: int | None
    reason: str
    settings: Mapping[str, str] = field(default_factory=dict)


class Scan(ABC):
    """The scan of a source in a running job.

    The parallelism is inferred first (see `parallelism_source`), then the scan is divided once, then read.
    """

    uses_predicates: bool = False
    """Whether the scan skips data that predicates on its columns exclude."""
    allows_any_parallelism: bool = False
    """Whether the scan can be divided for every number of tasks that a user may set."""

    @property
    def reason(self) -> str:
        """A clause: how the parallelism was inferred, or why Spark's partitions must not be coalesced; else empty."""
        return ""

    @property
    def fallback_reason(self) -> str:
        """The reason why the scan was not executed as decided; empty if it was."""
        return ""

    @property
    def is_divided_by_spark(self) -> bool:
        """Whether Spark chooses the partitions, so that a parallelism set by the user has no effect."""
        return False

    @property
    @abstractmethod
    def size_in_bytes(self) -> int | None:
        """The estimated size in bytes, None if unknown."""

    @property
    def rows(self) -> int | None:
        """The estimated row count, None if it is unknown without reading the data."""
        return None

    def parallelism_source(self, user_source: object | None) -> object | None:  # noqa: ARG002
        """Return the object that infers the parallelism, if any: the scan, or the user's source `user_source`."""
        return self

    @abstractmethod
    def divide(self, parallelism: int) -> int:
        """Divide the scan into at most `parallelism` splits; return the number of splits."""

    def choose_splitting(self, parallelism: int, reason: str) -> Splitting:
        """Divide the scan for a requested number of tasks, and return the decision; `reason` explains this number."""
        possible = self.divide(parallelism)
        reason = f"{reason}: {self.reason}" if self.reason else reason
        return Splitting(possible, reason if possible == parallelism else f"{reason}; it can be split into {possible}")

    def unchanged_splitting(self, reason: str) -> Splitting:
        """Return the decision for a scan that Spark divides; `reason` says that it does, `Scan.reason` says why."""
        return Splitting(None, f"{reason}: {self.reason}" if self.reason else reason)

    @abstractmethod
    def leaf(self, session: Session | None = None) -> LogicalPlan:
        """Return the leaf of Spark's plan that reads the splits; `session` has `Splitting.settings`, None if empty."""

    @abstractmethod
    def with_filters(self, plan: LogicalPlan) -> Scan:
        """Return the scan with additional filters; `plan` is the relation with all its filters."""

    @property
    def is_open(self) -> bool:
        """Whether the scan holds an open resource, such as a transaction, that reading its rows needs."""
        return False

    def close(self) -> None:  # noqa: B027 - most scans hold no resources
        """Release the resources of an open scan. Called at the end of the job."""


class PlainScan(Scan):
    """The scan of an unchanged leaf, whose partitions are coalesced if there are too many.

    `reason` says why Spark's partitions must not be coalesced; empty if they may be coalesced.
    """

    reason: str = ""
    is_divided_by_spark: bool = False

    def __init__(self, leaf: LogicalPlan, reason: str = "") -> None:
        self._leaf = leaf
        self.reason = reason
        self.is_divided_by_spark = bool(reason)
        self._parallelism: int | None = None

    @cached_property
    def size_in_bytes(self) -> int | None:
        """The size in bytes by Spark's statistics; None if they have no estimate, as for an RDD."""
        size = self._leaf.size_in_bytes
        return size if size < MAX_ESTIMATE_BYTES else None

    def parallelism_source(self, user_source: object | None) -> object | None:
        """Return `user_source`: the scan cannot infer, because Spark's partitions are unknown before planning."""
        return user_source

    def divide(self, parallelism: int) -> int:
        """Coalesce to at most `parallelism` partitions; return `parallelism`."""
        self._parallelism = parallelism
        return parallelism

    def leaf(self, session: Session | None = None) -> LogicalPlan:  # noqa: ARG002
        """Return the leaf, coalesced if `divide` was called."""
        return self._leaf if self._parallelism is None else self._leaf.coalesced(self._parallelism)

    def with_filters(self, plan: LogicalPlan) -> PlainScan:  # noqa: ARG002
        """Return the scan itself: filters do not change Spark's partitions."""
        return self
