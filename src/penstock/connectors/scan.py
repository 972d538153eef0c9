"""Interface of scans, which read a leaf of a plan while its job runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.spark.handles import Session
    from penstock.spark.logical_plan import LogicalPlan


@dataclass(frozen=True, slots=True)
class Splitting:
    """The decided partitioning of a source.

    Parameters
    ----------
    parallelism
        The number of tasks; None if Spark chooses it.
    reason
        The reason for this number, a sentence.
    settings
        The session settings with which the source has to be read.
    """

    parallelism: int | None
    reason: str
    settings: Mapping[str, str] = field(default_factory=dict)


class Scan(ABC):
    """The scan of a source in a running job.

    The parallelism is inferred first (see `parallelism_source`), then the scan is divided once, then read.
    """

    @property
    def reason(self) -> str:
        """The basis of the inferred parallelism, a clause; empty before the inference."""
        return ""

    @property
    def fallback_reason(self) -> str:
        """Why the scan was not executed as decided; empty if it was."""
        return ""

    @property
    def uses_predicates(self) -> bool:
        """Whether the scan skips data that predicates on its columns exclude."""
        return False

    @property
    def is_cut_by_spark(self) -> bool:
        """Whether Spark chooses the partitions, and a parallelism set by the user has no effect."""
        return False

    @property
    def allows_any_parallelism(self) -> bool:
        """Whether the scan can be divided for every number of tasks that a user may set."""
        return False

    @property
    @abstractmethod
    def size_in_bytes(self) -> int | None:
        """The estimated size in bytes, None if unknown."""

    @property
    def rows(self) -> int | None:
        """The estimated row count, None if it is unknown without reading the data."""
        return None

    def parallelism_source(self, user_source: object | None) -> object | None:
        """Return the object that infers the parallelism: the scan itself, or the user's source.

        Parameters
        ----------
        user_source
            The source that the user passed, None if there is none.
        """
        del user_source
        return self

    @abstractmethod
    def divide(self, parallelism: int) -> int:
        """Divide the scan into at most `parallelism` splits; return the number of splits."""

    def split(self, parallelism: int, reason: str) -> Splitting:
        """Divide the scan, and return the partitioning with its reason.

        Parameters
        ----------
        parallelism
            The requested number of tasks.
        reason
            The reason for this number, a clause.
        """
        possible = self.divide(parallelism)
        reason = f"{reason}: {self.reason}" if self.reason else reason
        return Splitting(possible, reason if possible == parallelism else f"{reason}; it can be split into {possible}")

    @abstractmethod
    def leaf(self, session: Session | None = None) -> LogicalPlan:
        """Return the leaf of Spark's plan that reads the scan.

        Parameters
        ----------
        session
            The session with the settings of the `Splitting`; None if it has no settings.
        """

    @abstractmethod
    def with_filters(self, plan: LogicalPlan) -> Scan:
        """Return the scan with additional filters on its rows.

        Parameters
        ----------
        plan
            The relation with all filters above it.
        """

    @property
    def is_open(self) -> bool:
        """Whether the scan holds an open resource, such as a transaction, that reading its rows needs."""
        return False

    def close(self) -> None:  # noqa: B027 - most scans hold no resources
        """Release resources that were held open for reading. Called at the end of the job."""
