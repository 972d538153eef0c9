"""Every error Penstock raises: what happened, why, and what to do about it."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterable


class PenstockError(Exception):
    """Base of all errors raised by Penstock.

    Parameters
    ----------
    message
        What happened, with the value that was found.
    cause
        Why it happened, if that is known.
    hint
        What the reader can do.
    """

    def __init__(self, message: str, *, cause: str | None = None, hint: str | None = None) -> None:
        self.message = message
        self.cause = cause
        self.hint = hint
        lines = [message]
        if cause:
            lines.append(f"  cause: {cause}")
        if hint:
            lines.append(f"  hint:  {hint}")
        super().__init__("\n".join(lines))


class ConfigError(PenstockError, ValueError):
    """An option is unknown or its value is not allowed."""

    @classmethod
    def unknown_key(cls, key: str, known: Iterable[str], origin: str) -> Self:
        """Build the error for a key that no option declares."""
        near = get_close_matches(key, list(known), n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else "`penstock options` lists all options"
        return cls(f"unknown option {key!r} in {origin}", hint=hint)

    @classmethod
    def bad_value(cls, key: str, value: object, expected: str, origin: str) -> Self:
        """Build the error for a value outside an option's type or bounds."""
        return cls(f"option {key!r} is {value!r} in {origin}", hint=f"give {expected}")


class SessionError(PenstockError):
    """The Spark session cannot be used, or could not be started."""

    @classmethod
    def connect(cls) -> Self:
        """Build the error for a Spark Connect session."""
        return cls(
            "Penstock needs a classic Spark session; this one is a Spark Connect client",
            cause="plans are reshaped inside the driver's JVM, which a Connect client cannot reach",
            hint="run the job in the driver: spark-submit, or SparkSession.builder.master(...) without "
            "spark.remote and with spark.api.mode=classic",
        )

    @classmethod
    def no_java(cls, found: str) -> Self:
        """Build the error for a driver without a usable Java."""
        return cls(
            "Spark could not be started: no Java 17 or newer was found",
            cause=found,
            hint="install one (Debian, Ubuntu: apt-get install openjdk-17-jre-headless; "
            "macOS: brew install openjdk@17) or set JAVA_HOME",
        )

    @classmethod
    def unsupported_version(cls, version: str) -> Self:
        """Build the error for a Spark release outside the supported range."""
        return cls(f"Spark {version} is not supported", hint="install pyspark 4.0, 4.1, 4.2 or 4.3")


class GraphError(PenstockError, ValueError):
    """A graph node, edge or modification is not allowed."""


class OptimizerError(PenstockError):
    """A strategy does not behave."""

    @classmethod
    def unsettled(cls, names: list[str], rounds: int) -> Self:
        """Build the error for strategies that change the graph without an end."""
        return cls(
            f"the stream graph does not settle: after {rounds} rounds it is still changed by {', '.join(names)}",
            cause="on_operators_finished returned True every time",
            hint="let it return False once there is nothing left to change",
        )


class SourceError(PenstockError):
    """A source cannot be read as asked."""

    @classmethod
    def bad_parallelism(cls, value: object, where: str) -> Self:
        """Build the error for a parallelism that is not a positive number."""
        return cls(f"invalid parallelism {value!r} for {where}", hint="give a whole number of at least 1")


class SourceTimeoutError(SourceError):
    """A source, a catalogue, a broker or a database does not answer."""

    @classmethod
    def of(cls, source: str, what: str, seconds: float, cause: str = "") -> Self:
        """Build the error for a question that was left unanswered."""
        return cls(
            f"{source} has not answered for {seconds:g} s",
            cause=f"{what}: {cause}" if cause else what,
            hint="can it be reached, and is it well? If an answer may take so long, raise the option sources.timeout",
        )


class SinkError(PenstockError):
    """A sink cannot be written as asked."""

    @classmethod
    def exists(cls, path: str) -> Self:
        """Build the error for an output path that is taken."""
        return cls(
            f"output {path} exists already",
            hint='choose another path, or mode="overwrite", "append" or "ignore"',
        )

    @classmethod
    def partition_commit(cls, policy: str, partition: str, path: str, problem: Exception) -> Self:
        """Build the error for a partition commit policy that failed."""
        return cls(
            f"the partition commit policy {policy!r} failed for {partition} of {path}",
            cause=f"{type(problem).__name__}: {problem}",
            hint="the job's new files are taken back; what the policy did for other partitions is not",
        )


class CommitError(SinkError):
    """The sinks of a job could not all commit, or what a job has left half-way cannot be recovered."""

    @classmethod
    def unreadable(cls, path: str, cause: str) -> Self:
        """Build the error for a journal that is not what it should be."""
        return cls(
            f"the commit journal {path} cannot be read",
            cause=cause,
            hint="it tells how to complete or take back what a job has left half-way: do not write to its targets, "
            "and recover with the release of Penstock that has written it",
        )

    @classmethod
    def incomplete(cls, done: list[str], waiting: list[str], problem: Exception, journal: str | None) -> Self:
        """Build the error for a commit that stays half-way, because some of it cannot be taken back."""
        recovered = "nothing of it was removed" if journal is None else f"`penstock recover {journal}` completes it, or"
        return cls(
            f"only a part of the job's sinks has committed: {', '.join(done) or 'none for sure'}; "
            f"waiting: {', '.join(waiting)}",
            cause=f"{type(problem).__name__}: {problem}",
            hint=f"{recovered}; look at the target before the job is run again"
            if journal is None
            else f"{recovered} the next job that writes to one of these targets",
        )

    @classmethod
    def busy(cls, job: str, targets: list[str], owner: str, journal: str) -> Self:
        """Build the error for a commit of another job that takes too long."""
        return cls(
            f"job {job!r} is still committing to {', '.join(targets)}",
            cause=f"{owner} holds {journal}",
            hint="run the job again when that one has ended",
        )

    @classmethod
    def taken_over(cls, journal: str) -> Self:
        """Build the error for a commit that another process has completed, or taken back, meanwhile."""
        return cls(
            f"the commit was recovered by another process: {journal} is gone",
            cause="this process did not show for a minute that it lived",
            hint="look whether the new rows are there before the job is run again",
        )

    @classmethod
    def unreachable(cls, target: str, cause: str) -> Self:
        """Build the error for a target that cannot be asked whether it has committed."""
        return cls(
            f"an earlier job was interrupted while it committed to {target}, and what became of it cannot be told",
            cause=cause,
            hint="make the target reachable; `penstock recover --help` tells how to give passwords",
        )

    @classmethod
    def forgotten(cls, target: str, gone: str, staging: str) -> Self:
        """Build the error for a table that no longer knows whether a commit to it has happened."""
        return cls(
            f"whether a job has committed to {target} cannot be told",
            cause=f"{gone} were removed since, and it names no file of the job: rewritten since, or never there",
            hint=f"look whether the job's rows are in it, then remove the journal and {staging} by hand",
        )


class RebalanceError(PenstockError):
    """The adaptive exchange cannot be used as asked, or broke while a job ran."""

    @classmethod
    def bad_traverse_size(cls, value: object) -> Self:
        """Build the error for a traverse size that compares nothing."""
        return cls(f"max_traverse_size is {value!r}", hint="give a whole number of at least 2: so many are compared")

    @classmethod
    def idle(cls, writer: int, readers: list[int], seconds: float) -> Self:
        """Build the error for consumers that do not go on."""
        return cls(
            f"writer {writer} of the exchange has waited {seconds:g} s for reader {', '.join(map(str, readers))}",
            cause="the function that consumes the rows has not asked for the next ones",
            hint="if it may take so long, raise taskmanager.network.adaptive-partitioner.idle-timeout",
        )

    @classmethod
    def too_few_slots(cls, needed: int, slots: int) -> Self:
        """Build the error for a stage that could never run at once."""
        return cls(
            f"an adaptive exchange with {needed} tasks needs {needed} slots at the same time, and there are {slots}",
            hint=f"give a parallelism of at most {slots}, more cores, or adaptive=False",
        )

    @classmethod
    def refused(cls, reason: str, hint: str) -> Self:
        """Build the error for a session in which no adaptive exchange can run."""
        return cls("an adaptive exchange cannot run in this session", cause=reason, hint=hint)


class LostConnectionError(RebalanceError):
    """A connection between two tasks of an exchange broke."""

    @classmethod
    def to(cls, other: str, cause: BaseException) -> Self:
        """Build the error for a connection to one of them."""
        return cls(f"the connection to {other} of the exchange is lost", cause=f"{type(cause).__name__}: {cause}")


class StateError(PenstockError):
    """The state of a streaming query cannot be read or changed as asked."""

    @classmethod
    def bad_max_parallelism(cls, value: object, largest: int) -> Self:
        """Build the error for a number of key groups that cannot be."""
        return cls(f"max parallelism is {value!r}", hint=f"give a whole number between 1 and {largest:,}")

    @classmethod
    def no_checkpoint(cls, path: str, missing: str) -> Self:
        """Build the error for a path without a checkpoint."""
        return cls(
            f"{path} is no checkpoint of a streaming query",
            cause=f"there is no {missing}",
            hint="give the folder that the query has as its checkpointLocation",
        )

    @classmethod
    def unreadable(cls, path: str, cause: str) -> Self:
        """Build the error for a file of a checkpoint that is not what it should be."""
        return cls(f"{path} cannot be read as a part of a checkpoint", cause=cause)

    @classmethod
    def obstacles(cls, path: str, found: list[str]) -> Self:
        """Build the error for a checkpoint that cannot be rescaled."""
        listed = "\n".join(f"    - {obstacle}" for obstacle in found)
        return cls(f"{path} cannot be rescaled; nothing was written:\n{listed}")

    @classmethod
    def failed(cls, path: str, doing: str, cause: str) -> Self:
        """Build the error for a rescale that did not succeed; the checkpoint is as it was."""
        return cls(f"{path} was not rescaled: {doing} failed", cause=cause, hint="the checkpoint is as it was before")

    @classmethod
    def interrupted(cls, path: str, old: int, new: int) -> Self:
        """Build the error for a rescale that stopped while it put its files in place."""
        return cls(
            f"{path} is in the middle of a rescale from {old} to {new} key groups",
            hint=f"finish it with `penstock state rescale {path} --max-parallelism {new}`, or go back with --abort",
        )

    @classmethod
    def differs(cls, path: str, state: int, asked: int) -> Self:
        """Build the error for a query that is started with another max parallelism than its state has."""
        return cls(
            f"the state in {path} has max parallelism {state}, and the query asks for {asked}",
            hint=f"leave pipeline.max-parallelism unset to go on with {state}, set state.rescale-on-restart, "
            f"or run `penstock state rescale {path} --max-parallelism {asked}`",
        )


class HistoryError(PenstockError):
    """Event logs of jobs cannot be read or written."""

    @classmethod
    def no_folder(cls, path: str) -> Self:
        """Build the error for a folder that is not there."""
        return cls(
            f"there is no folder {path} with event logs",
            hint="jobs write them where the option jobmanager.archive.fs.dir points to",
        )

    @classmethod
    def unwritable(cls, path: str, cause: str) -> Self:
        """Build the error for a folder that logs cannot be written to."""
        return cls(f"event logs cannot be written to {path}", cause=cause)

    @classmethod
    def no_job(cls, job_id: str) -> Self:
        """Build the error for a job that no log tells of."""
        return cls(f"there is no job {job_id!r}", hint="`penstock history list` shows all")


class WebError(PenstockError):
    """The web server cannot be started as asked."""

    @classmethod
    def needs_token(cls, address: str) -> Self:
        """Build the error for an open address without a token."""
        return cls(
            f"the API is to listen on {address}, where others can reach it, and there is no token",
            hint="set rest.token, or leave rest.bind-address at 127.0.0.1",
        )

    @classmethod
    def no_port(cls, address: str, port: int, cause: str) -> Self:
        """Build the error for a port that cannot be listened on."""
        return cls(
            f"the API cannot listen on {address}:{port}", cause=cause, hint="set rest.port to another one, 0 for any"
        )

    @classmethod
    def missing(cls, package: str) -> Self:
        """Build the error for a package that the web needs."""
        return cls(f"the page and API need the package {package}", hint="pip install 'penstock[web]'")


class VerificationError(PenstockError):
    """A check of ``execution.verify`` found a breach: rows would be wrong."""

    @classmethod
    def not_tiled(cls, who: str, what: str) -> Self:
        """Build the error for an input of which something would be left out or read twice."""
        return cls(f"{who} would not read {what} exactly once", hint=_A_DEFECT)

    @classmethod
    def rows_lost(cls, who: str, there: int, found: int) -> Self:
        """Build the error for a broadcast that does not keep the rows it must."""
        return cls(f"{who} must keep {there} rows and keeps {found}", hint=_A_DEFECT)

    @classmethod
    def key_left_out(cls, who: str) -> Self:
        """Build the error for a filter that does not keep a row that its keys were taken from."""
        return cls(f"{who} leaves out a row that it must keep", hint=_A_DEFECT)


_A_DEFECT = "this is a defect of Penstock: report it with the output of env.explain(df), and run the query on Spark"


class RowsDifferError(PenstockError):
    """A job that was compared with plain Spark gave something else."""

    @classmethod
    def of(cls, job: str, differences: list[str]) -> Self:
        """Build the error for the outputs of a job that differ."""
        listed = "\n".join(f"  {line}" for difference in differences for line in difference.splitlines())
        return cls(
            f"job {job!r} differs from plain Spark:\n{listed}",
            hint="what the job has written stays written; run it on plain Spark, and report this with the query",
        )


class JobError(PenstockError):
    """A job failed; the message names the vertex, the operator and the user's line."""


class JobCancelledError(PenstockError):
    """A job was cancelled before it finished."""


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message that says something, for a reason of half a sentence."""
    lines = [line.strip().removeprefix(": ") for line in str(error).splitlines()]
    return next((line for line in lines if line and not line.startswith("An error occurred while calling")), "")
