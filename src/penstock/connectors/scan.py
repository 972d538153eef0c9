"""How a leaf of a plan is read while its job runs: one class for each kind of source."""

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
    """How a source is cut.

    Parameters
    ----------
    parallelism
        The number of tasks it gives, None where that is left to Spark.
    reason
        Why that many, one sentence.
    settings
        The settings that a session needs in which it is read like this.
    """

    parallelism: int | None
    reason: str
    settings: Mapping[str, str] = field(default_factory=dict)


class Scan(ABC):
    """A source of a running job.

    It is asked for its parallelism first (see `asked`), then cut once, then read.
    """

    @property
    def reason(self) -> str:
        """What its answer was inferred from, half a sentence; empty before it was asked."""
        return ""

    @property
    def came_otherwise(self) -> str:
        """Why it was read in another way than was decided, empty if it was not."""
        return ""

    @property
    def uses_predicates(self) -> bool:
        """Whether it leaves out data that conditions on its columns rule out."""
        return False

    @property
    def is_cut_by_spark(self) -> bool:
        """Whether its tasks stay those that Spark makes, whatever a user sets."""
        return False

    @property
    def takes_any_number(self) -> bool:
        """Whether it can be cut for whatever number of tasks a user gives."""
        return False

    @property
    @abstractmethod
    def size_in_bytes(self) -> int | None:
        """About how many bytes it gives, or None if that is not known."""

    @property
    def rows(self) -> int | None:
        """About how many rows it has, or None if that is not known without reading it."""
        return None

    def asked(self, given: object | None) -> object | None:
        """Return what is asked for the parallelism: itself, or what the user has given.

        Parameters
        ----------
        given
            The user's own source, if there is one.
        """
        del given
        return self

    @abstractmethod
    def cut(self, parallelism: int) -> int:
        """Make at most so many splits; return how many there are."""

    def split(self, parallelism: int, why: str) -> Splitting:
        """Cut it.

        Parameters
        ----------
        parallelism
            The number of tasks it should have.
        why
            Why that many, half a sentence.
        """
        possible = self.cut(parallelism)
        why = f"{why}: {self.reason}" if self.reason else why
        return Splitting(possible, why if possible == parallelism else f"{why}; it can be split into {possible}")

    @abstractmethod
    def leaf(self, session: Session | None = None) -> LogicalPlan:
        """Return the leaf of Spark's plan that reads it.

        Parameters
        ----------
        session
            The session with the settings that its `Splitting` wants, None if it wants none.
        """

    @abstractmethod
    def with_filters(self, plan: LogicalPlan) -> Scan:
        """Return it as it is once its rows are filtered further.

        Parameters
        ----------
        plan
            Its relation with all filters above it.
        """

    @property
    def is_open(self) -> bool:
        """Whether it holds something open without which its rows cannot be read."""
        return False

    def close(self) -> None:  # noqa: B027 - most hold nothing open
        """Let go of what was held open for reading; the job has ended."""
