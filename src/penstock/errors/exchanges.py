"""Errors of adaptive exchanges."""

from __future__ import annotations

from typing import Self

from penstock.errors.base import PenstockError


class RebalanceError(PenstockError):
    """An adaptive rebalance or rescale cannot run, or failed while a job ran."""

    @classmethod
    def bad_traverse_size(cls, value: object) -> Self:
        """Build the error for an invalid traverse size."""
        return cls(
            f"max_traverse_size is {value!r}", hint="give a whole number of at least 2: the consumers to compare"
        )

    @classmethod
    def idle(cls, writer: int, readers: list[int], seconds: float) -> Self:
        """Build the error for consumers that have stopped taking rows."""
        return cls(
            f"task {writer} of the rebalance has waited {seconds:g} s for consumer {', '.join(map(str, readers))}",
            cause="the function that consumes the rows has not taken the next ones",
            hint="if it may take this long, raise taskmanager.network.adaptive-partitioner.idle-timeout",
        )

    @classmethod
    def no_chunk(cls, cause: str) -> Self:
        """Build the error for a consumer that cannot get its next rows."""
        return cls("a consumer of the rebalance cannot get its next rows", cause=cause)

    @classmethod
    def in_part(cls, tasks: int) -> Self:
        """Build the error for an attempt in which Spark runs only some tasks of the stage."""
        return cls(
            f"Spark runs {tasks} tasks of the rebalance, and not all of its stage",
            cause="the others succeeded just when a task of their attempt failed; rows would be lost and duplicated",
            hint="Spark repeats the whole stage now",
        )

    @classmethod
    def perhaps_in_part(cls, tasks: int, planned: int | None) -> Self:
        """Build the error for tasks that cannot check whether the whole stage is running."""
        return cls(
            f"{tasks} tasks of the rebalance run, and {planned or 'an unknown number'} were planned",
            cause="the driver, which could tell whether this is the whole stage, cannot be reached by its executors",
            hint="let executors connect to the driver's host at any port, or use adaptive=False",
        )


class NoBarrierError(RebalanceError):
    """Spark cannot run the tasks of an adaptive rebalance as a barrier stage; rows are then exchanged in chunks."""

    @classmethod
    def too_few_slots(cls, needed: int, slots: int) -> Self:
        """Build the error for a stage with more tasks than cores."""
        return cls(f"{needed} tasks need {needed} cores at the same time, and there are {slots}")


class LostConnectionError(RebalanceError):
    """A connection between two tasks of an adaptive rebalance broke."""

    @classmethod
    def to(cls, other: str, cause: BaseException) -> Self:
        """Build the error for the connection to another task."""
        return cls(f"the connection to {other} of the rebalance is lost", cause=f"{type(cause).__name__}: {cause}")
