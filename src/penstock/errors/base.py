"""The base of all errors, and all errors but those of sources, sinks and commits."""

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
        What happened, with the actual value.
    hint
        What to do.
    line
        The line of the user's code that led to the error, such as ``job.py:12``, if known.
    """

    def __init__(
        self, message: str, *, cause: str | None = None, hint: str | None = None, line: str | None = None
    ) -> None:
        self.message = message
        self.cause = cause
        self.hint = hint
        self.line = line
        super().__init__(self._text())

    def _text(self) -> str:
        parts = {"cause": self.cause, "hint": self.hint, "line": self.line}
        lines = [f"  {f'{name}:':<6} {text}" for name, text in parts.items() if text]
        return "\n".join([self.message, *lines])

    def set_line(self, line: object) -> None:
        """Add the line of the user's code, unless the error has a line already or `line` is None."""
        if self.line is None and line is not None:
            self.line = str(line)
            self.args = (self._text(),)


class ArgumentError(PenstockError, TypeError):
    """A function got an invalid argument."""

    @classmethod
    def of(cls, where: str, expected: str, actual: str, hint: str | None, line: object) -> Self:
        return cls(
            f"{where} needs {expected}", cause=f"it got {actual}", hint=hint, line=None if line is None else str(line)
        )


class ConfigError(PenstockError, ValueError):
    """An option is unknown or its value is not allowed."""

    @classmethod
    def unknown_key(cls, key: str, keys: Iterable[str], origin: str) -> Self:
        near = get_close_matches(key, list(keys), n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else "`penstock options` lists all options"
        return cls(f"unknown option {key!r} in {origin}", hint=hint)

    @classmethod
    def bad_value(cls, key: str, value: object, expected: str, origin: str) -> Self:
        return cls(f"option {key!r} is {value!r} in {origin}", hint=f"give {expected}")


class SessionError(PenstockError):
    """The Spark session cannot be used, or could not be started."""

    @classmethod
    def connect(cls) -> Self:
        return cls(
            "Penstock needs a classic Spark session; this one is a Spark Connect client",
            cause="Penstock changes query plans inside the driver's JVM, which a Connect client cannot reach",
            hint="run the job in the driver: spark-submit, or SparkSession.builder.master(...) without "
            "spark.remote and with spark.api.mode=classic",
        )

    @classmethod
    def no_java(cls, cause: str) -> Self:
        return cls(
            "Spark could not be started: no Java 17 or newer was found",
            cause=cause,
            hint="install one (Debian, Ubuntu: apt-get install openjdk-17-jre-headless; "
            "macOS: brew install openjdk@17) or set JAVA_HOME",
        )

    @classmethod
    def not_pinned(cls) -> Self:
        return cls(
            "Penstock needs pinned threads: a JVM thread for each Python thread",
            cause="PYSPARK_PIN_THREAD is false, so the session, settings and job groups of one thread reach others",
            hint="unset PYSPARK_PIN_THREAD, or set it to true, before Spark starts",
        )

    @classmethod
    def unsupported_version(cls, version: str) -> Self:
        return cls(f"Spark {version} is not supported", hint="install pyspark 4.0, 4.1, 4.2 or 4.3")


class GraphError(PenstockError, ValueError):
    """A node, an edge or a change of a graph is invalid."""


class OptimizerError(PenstockError):
    """Strategies do not stop changing the graph."""

    @classmethod
    def unsettled(cls, names: list[str], rounds: int) -> Self:
        return cls(
            f"after {rounds} rounds, {', '.join(names)} still changes the job's graph",
            cause="on_operators_finished returned True every time",
            hint="return False once the strategy has nothing left to change",
        )


class JobError(PenstockError):
    """A job failed; the message names the vertex, the operator and the user's line."""


class JobCancelledError(PenstockError):
    """A job was cancelled before it finished."""


class RebalanceError(PenstockError):
    """An adaptive rebalance or rescale cannot run, or failed while a job ran."""

    @classmethod
    def bad_traverse_size(cls, value: object) -> Self:
        return cls(
            f"max_traverse_size is {value!r}", hint="give a whole number of at least 2: the consumers to compare"
        )

    @classmethod
    def idle(cls, writer: int, readers: list[int], seconds: float) -> Self:
        return cls(
            f"task {writer} of the rebalance has waited {seconds:g} s for consumer {', '.join(map(str, readers))}",
            cause="the function that consumes the rows has not taken the next ones",
            hint="if it may take this long, raise taskmanager.network.adaptive-partitioner.idle-timeout",
        )

    @classmethod
    def no_chunk(cls, cause: str) -> Self:
        return cls("a consumer of the rebalance cannot get its next rows", cause=cause)

    @classmethod
    def in_part(cls, tasks: int) -> Self:
        return cls(
            f"Spark runs {tasks} tasks of the rebalance, and not all of its stage",
            cause="the others succeeded just when a task of their attempt failed; rows would be lost and duplicated",
            hint="Spark repeats the whole stage now",
        )

    @classmethod
    def perhaps_in_part(cls, tasks: int, planned: int | None) -> Self:
        return cls(
            f"{tasks} tasks of the rebalance run, and {planned or 'an unknown number'} were planned",
            cause="the driver, which could tell whether this is the whole stage, cannot be reached by its executors",
            hint="let executors connect to the driver's host at any port, or use adaptive=False",
        )


class NoBarrierError(RebalanceError):
    """Spark cannot run the tasks of an adaptive rebalance as a barrier stage; rows are then exchanged in chunks."""

    @classmethod
    def too_few_slots(cls, needed: int, slots: int) -> Self:
        return cls(f"{needed} tasks need {needed} cores at the same time, and there are {slots}")


class LostConnectionError(RebalanceError):
    """A connection between two tasks of an adaptive rebalance broke."""

    @classmethod
    def to(cls, other: str, cause: BaseException) -> Self:
        return cls(f"the connection to {other} of the rebalance is lost", cause=f"{type(cause).__name__}: {cause}")


_BUG_HINT = "this is a bug in Penstock: report it with the output of env.explain(df), and run the query on plain Spark"


class HistoryError(PenstockError):
    """Event logs of jobs cannot be read or written."""

    @classmethod
    def no_folder(cls, path: str) -> Self:
        return cls(
            f"there is no folder {path} with event logs",
            hint="jobs write them to the folder of the option jobmanager.archive.fs.dir",
        )

    @classmethod
    def unwritable(cls, path: str, cause: str) -> Self:
        return cls(f"event logs cannot be written to {path}", cause=cause)

    @classmethod
    def unreadable(cls, what: str, cause: str) -> Self:
        return cls(f"event logs cannot be read from {what}", cause=cause)

    @classmethod
    def no_job(cls, job_id: str) -> Self:
        return cls(f"there is no job {job_id!r}", hint="`penstock history list` shows all")


class WebError(PenstockError):
    """The web server cannot be started."""

    @classmethod
    def missing(cls, package: str) -> Self:
        return cls(f"the page and the API need the package {package}", hint="pip install 'penstock[web]'")


class VerificationError(PenstockError):
    """A check of ``execution.verify`` failed: rows would be wrong."""

    @classmethod
    def not_read_once(cls, reader: str, what: str) -> Self:
        return cls(f"{reader} would not read {what} exactly once", hint=_BUG_HINT)

    @classmethod
    def wrong_row_count(cls, reader: str, written: int, read: int) -> Self:
        return cls(f"{reader} must have {written} rows and has {read}", hint=_BUG_HINT)

    @classmethod
    def key_dropped(cls, filter_name: str) -> Self:
        return cls(f"{filter_name} drops a row that it must keep", hint=_BUG_HINT)


class RowsDifferError(PenstockError):
    """A job's rows differ from plain Spark's."""

    @classmethod
    def of(cls, job: str, differences: list[str]) -> Self:
        listed = "\n".join(f"  {line}" for difference in differences for line in difference.splitlines())
        return cls(
            f"the rows of job {job!r} differ from plain Spark's:\n{listed}",
            hint="the job's output stays written; run the job on plain Spark, and report this with the query",
        )


class StateError(PenstockError):
    """The state of a streaming query cannot be read or changed."""

    @classmethod
    def bad_max_parallelism(cls, value: object, largest: int) -> Self:
        return cls(f"max parallelism is {value!r}", hint=f"give a whole number between 1 and {largest:,}")

    @classmethod
    def no_checkpoint(cls, path: str, missing: str) -> Self:
        return cls(
            f"{path} is not the checkpoint of a streaming query",
            cause=f"there is no {missing}",
            hint="give the folder that is the query's checkpointLocation",
        )

    @classmethod
    def unreadable(cls, path: str, cause: str) -> Self:
        return cls(f"{path} cannot be read as a part of a checkpoint", cause=cause)

    @classmethod
    def obstacles(cls, path: str, obstacles: list[str]) -> Self:
        listed = "\n".join(f"    - {obstacle}" for obstacle in obstacles)
        return cls(f"{path} cannot be rescaled; nothing was written:\n{listed}")

    @classmethod
    def failed(cls, path: str, doing: str, cause: str) -> Self:
        return cls(f"{path} was not rescaled: {doing} failed", cause=cause, hint="the checkpoint is unchanged")

    @classmethod
    def interrupted(cls, path: str, old: int, new: int, cause: str | None = None) -> Self:
        return cls(
            f"{path} is in the middle of a rescale from {old} to {new} key groups",
            cause=cause,
            hint=f"finish it with `penstock state rescale {path} --max-parallelism {new}`, or undo it with --abort",
        )

    @classmethod
    def rolled_back(cls, path: str, batch: int, new: int, cause: str | None = None) -> Self:
        return cls(
            f"the logs of {path} were taken back to before its rescale to {new} key groups (batch {batch})",
            cause=cause or "what the rescale has put in place would be taken for the state of the next batch",
            hint=f"remove it with `penstock state rescale {path} --abort`; next time rescale again to go back",
        )

    @classmethod
    def complete(cls, path: str, old: int, new: int) -> Self:
        return cls(
            f"the rescale of {path} to {new} key groups is complete and cannot be aborted",
            hint=f"rescale it to {old} to go back",
        )

    @classmethod
    def in_progress(cls, path: str, process: str, claim: str) -> Self:
        return cls(
            f"a rescale of {path}, or a start of its query, is under way; nothing was done",
            cause=f"{process} works on it",
            hint="wait until it is done, or end that process; one of another machine counts as dead a minute after its "
            f"last sign of life (if none of them works on it, delete {claim})",
        )

    @classmethod
    def already_running(cls, path: str, process: str, marker: str) -> Self:
        return cls(
            f"the query on {path} runs already, and was not started again",
            cause=f"{process} runs it",
            hint=f"stop it there first (if that process is another program, delete {marker})",
        )

    @classmethod
    def not_writable(cls, path: str, cause: str) -> Self:
        return cls(f"{path} cannot be written to; nothing was done", cause=cause)

    @classmethod
    def unserved(cls, path: str, cause: str) -> Self:
        return cls(
            f"no process serves a rescale of the query on {path} while it runs; nothing was done",
            cause=cause,
            hint="start the query with penstock.state.start_query; a query that is stopped is rescaled without --live",
        )

    @classmethod
    def busy(cls, path: str, cause: str) -> Self:
        return cls(f"{path} is not rescaled twice at once; nothing was done", cause=cause, hint="ask again later")

    @classmethod
    def ended(cls, path: str, cause: str) -> Self:
        return cls(
            f"the query on {path} was not rescaled",
            cause=cause,
            hint="rescale it stopped, or start it again and ask again",
        )

    @classmethod
    def not_restarted(cls, path: str, what_happened: str, cause: str) -> Self:
        return cls(
            f"the query on {path} {what_happened}, and does not start again",
            cause=cause,
            hint="its state is whole: start it with penstock.state.start_query once the cause is gone",
        )

    @classmethod
    def lost(cls, path: str, process: str, step: str) -> Self:
        return cls(
            f"{process} has not reported how the rescale of the query on {path} ended",
            cause=f"it died or hangs; its last step was: {step}",
            hint="if it died, start the query with penstock.state.start_query: first it finishes or undoes the rescale",
        )

    @classmethod
    def differs(cls, path: str, state: int, requested: int) -> Self:
        return cls(
            f"the state in {path} has max parallelism {state}, and the query asks for {requested}",
            hint=f"leave pipeline.max-parallelism unset to continue with {state}, set state.rescale-on-restart, "
            f"or run `penstock state rescale {path} --max-parallelism {requested}`",
        )


class StreamError(PenstockError):
    """The progress of a streaming query cannot be evaluated."""

    @classmethod
    def no_progress(cls, path: str, cause: str) -> Self:
        return cls(
            f"there is no progress of a streaming query at {path}",
            cause=cause,
            hint="start the query with penstock.state.start_query and give its checkpoint, or write the line "
            "event.progress.json of each onQueryProgress of a StreamingQueryListener to a file and give that",
        )

    @classmethod
    def several_queries(cls, path: str, count: int) -> Self:
        return cls(f"{path} has the progress of {count} queries", hint="give a file for each of them")

    @classmethod
    def no_batches(cls, path: str) -> Self:
        return cls(
            f"no batch in {path} was decided by Penstock",
            hint="read the topic with the format penstock_kafka; older batches than Spark's last hundred are gone",
        )


def first_line(error: BaseException) -> str:
    """Return the first informative line of an error's message, for use as a clause."""
    lines = [line.strip().removeprefix(": ") for line in str(error).splitlines()]
    return next((line for line in lines if line and not line.startswith("An error occurred while calling")), "")
