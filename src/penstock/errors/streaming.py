"""Errors of streaming queries and of their state."""

from __future__ import annotations

from typing import Self

from penstock.errors.base import PenstockError


class StateError(PenstockError):
    """The state of a streaming query cannot be read or changed."""

    @classmethod
    def bad_max_parallelism(cls, value: object, largest: int) -> Self:
        """Build the error for an invalid number of key groups."""
        return cls(f"max parallelism is {value!r}", hint=f"give a whole number between 1 and {largest:,}")

    @classmethod
    def no_checkpoint(cls, path: str, missing: str) -> Self:
        """Build the error for a path without a checkpoint."""
        return cls(
            f"{path} is not the checkpoint of a streaming query",
            cause=f"there is no {missing}",
            hint="give the folder that is the query's checkpointLocation",
        )

    @classmethod
    def unreadable(cls, path: str, cause: str) -> Self:
        """Build the error for a checkpoint file that cannot be read."""
        return cls(f"{path} cannot be read as a part of a checkpoint", cause=cause)

    @classmethod
    def obstacles(cls, path: str, obstacles: list[str]) -> Self:
        """Build the error for a checkpoint that cannot be rescaled."""
        listed = "\n".join(f"    - {obstacle}" for obstacle in obstacles)
        return cls(f"{path} cannot be rescaled; nothing was written:\n{listed}")

    @classmethod
    def failed(cls, path: str, doing: str, cause: str) -> Self:
        """Build the error for a rescale that failed and left the checkpoint unchanged."""
        return cls(f"{path} was not rescaled: {doing} failed", cause=cause, hint="the checkpoint is unchanged")

    @classmethod
    def interrupted(cls, path: str, old: int, new: int, cause: str | None = None) -> Self:
        """Build the error for a rescale that stopped while it published its files."""
        return cls(
            f"{path} is in the middle of a rescale from {old} to {new} key groups",
            cause=cause,
            hint=f"finish it with `penstock state rescale {path} --max-parallelism {new}`, or undo it with --abort",
        )

    @classmethod
    def rolled_back(cls, path: str, batch: int, new: int, cause: str | None = None) -> Self:
        """Build the error for a checkpoint whose logs were rolled back to before a rescale."""
        return cls(
            f"the logs of {path} were taken back to before its rescale to {new} key groups (batch {batch})",
            cause=cause or "what the rescale has put in place would be taken for the state of the next batch",
            hint=f"remove it with `penstock state rescale {path} --abort`; next time rescale again to go back",
        )

    @classmethod
    def complete(cls, path: str, old: int, new: int) -> Self:
        """Build the error for a rescale that cannot be undone any more."""
        return cls(
            f"the rescale of {path} to {new} key groups is complete and cannot be aborted",
            hint=f"rescale it to {old} to go back",
        )

    @classmethod
    def in_progress(cls, path: str, process: str, claim: str) -> Self:
        """Build the error for a checkpoint that another process is changing."""
        return cls(
            f"a rescale of {path}, or a start of its query, is under way; nothing was done",
            cause=f"{process} works on it",
            hint="wait until it is done, or end that process; one of another machine counts as dead a minute after its "
            f"last sign of life (if none of them works on it, delete {claim})",
        )

    @classmethod
    def already_running(cls, path: str, process: str, marker: str) -> Self:
        """Build the error for the start of a query that another process runs."""
        return cls(
            f"the query on {path} runs already, and was not started again",
            cause=f"{process} runs it",
            hint=f"stop it there first (if that process is another program, delete {marker})",
        )

    @classmethod
    def not_writable(cls, path: str, cause: str) -> Self:
        """Build the error for a checkpoint that is not writable."""
        return cls(f"{path} cannot be written to; nothing was done", cause=cause)

    @classmethod
    def unserved(cls, path: str, cause: str) -> Self:
        """Build the error for a request that no process serves."""
        return cls(
            f"no process serves a rescale of the query on {path} while it runs; nothing was done",
            cause=cause,
            hint="start the query with penstock.state.start_query; a query that is stopped is rescaled without --live",
        )

    @classmethod
    def busy(cls, path: str, cause: str) -> Self:
        """Build the error for concurrent rescales."""
        return cls(f"{path} is not rescaled twice at once; nothing was done", cause=cause, hint="ask again later")

    @classmethod
    def ended(cls, path: str, cause: str) -> Self:
        """Build the error for a query that ended before it could be rescaled."""
        return cls(
            f"the query on {path} was not rescaled",
            cause=cause,
            hint="rescale it stopped, or start it again and ask again",
        )

    @classmethod
    def not_restarted(cls, path: str, what_happened: str, cause: str) -> Self:
        """Build the error for a query that was stopped for a rescale and does not start again."""
        return cls(
            f"the query on {path} {what_happened}, and does not start again",
            cause=cause,
            hint="its state is whole: start it with penstock.state.start_query once the cause is gone",
        )

    @classmethod
    def lost(cls, path: str, process: str, step: str) -> Self:
        """Build the error for a process that no longer reports its progress."""
        return cls(
            f"{process} has not reported how the rescale of the query on {path} ended",
            cause=f"it died or hangs; its last step was: {step}",
            hint="if it died, start the query with penstock.state.start_query: first it finishes or undoes the rescale",
        )

    @classmethod
    def differs(cls, path: str, state: int, requested: int) -> Self:
        """Build the error for a query that is started with another max parallelism than its state has."""
        return cls(
            f"the state in {path} has max parallelism {state}, and the query asks for {requested}",
            hint=f"leave pipeline.max-parallelism unset to continue with {state}, set state.rescale-on-restart, "
            f"or run `penstock state rescale {path} --max-parallelism {requested}`",
        )


class StreamError(PenstockError):
    """The progress of a streaming query cannot be evaluated."""

    @classmethod
    def no_progress(cls, path: str, cause: str) -> Self:
        """Build the error for a path without the progress of a query."""
        return cls(
            f"there is no progress of a streaming query at {path}",
            cause=cause,
            hint="start the query with penstock.state.start_query and give its checkpoint, or write the line "
            "event.progress.json of each onQueryProgress of a StreamingQueryListener to a file and give that",
        )

    @classmethod
    def several_queries(cls, path: str, count: int) -> Self:
        """Build the error for the progress of several queries in a file."""
        return cls(f"{path} has the progress of {count} queries", hint="give a file for each of them")

    @classmethod
    def too_few(cls, path: str, count: int) -> Self:
        """Build the error for too little progress to compute a rate."""
        return cls(
            f"{path} has the progress of {count} batches with rows, and two are needed",
            hint="let the query run for a while",
        )

    @classmethod
    def no_batches(cls, path: str) -> Self:
        """Build the error for a checkpoint whose offsets contain no decisions."""
        return cls(
            f"no batch in {path} was decided by Penstock",
            hint="read the topic with the format penstock_kafka; older batches than Spark's last hundred are gone",
        )
