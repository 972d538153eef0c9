"""Errors that Penstock raises, with cause and hint."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Self


class PenstockError(Exception):
    """Base of all errors raised by Penstock.

    Parameters
    ----------
    message
        What happened, with the actual value.
    cause
        Why it happened, None if that is unknown or the message says it.
    hint
        What to do, None if there is no advice.
    line
        The line of the user's code that led to the error, such as ``job.py:12``; None if unknown.
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
    def of(cls, callee: str, expected: str, actual: str, hint: str | None, line: object) -> Self:
        line_text = None if line is None else str(line)
        return cls(f"{callee} needs {expected}", cause=f"it got {actual}", hint=hint, line=line_text)


class ConfigError(PenstockError, ValueError):
    """An option is unknown or its value is not allowed.

    >>> print(ConfigError.unknown_key("paralelism.default", ["parallelism.default"], "penstock.toml"))
    unknown option 'paralelism.default' in penstock.toml
      hint:  did you mean 'parallelism.default'?
    """

    @classmethod
    def unknown_key(cls, key: str, keys: Iterable[str], origin: str) -> Self:
        similar = get_close_matches(key, list(keys), n=1, cutoff=0.5)
        hint = f"did you mean {similar[0]!r}?" if similar else "`penstock options` lists all options"
        return cls(f"unknown option {key!r} in {origin}", hint=hint)

    @classmethod
    def bad_value(cls, key: str, value: object, expected: str, origin: str) -> Self:
        return cls(f"option {key!r} is {value!r} in {origin}", hint=f"use {expected}")


class ConfigFileError(ConfigError):
    """The file with options cannot be read, or is not a TOML file.

    A session that is enabled already runs its queries without Penstock meanwhile: the file may be about to be replaced.
    """


class SessionError(PenstockError):
    """The Spark session cannot be used, or could not be started."""

    @classmethod
    def unsupported_spark(cls, version: str | None) -> Self:
        """Return the error about an installed release, None if there is none."""
        return cls(
            "PySpark is not installed" if version is None else f"Spark {version} is not supported",
            cause="Penstock supports Spark 4.0, 4.1, 4.2 and 4.3",
            hint="pip install 'pyspark>=4.0,<4.4'; for a cluster, install the release of the cluster, and unset "
            "SPARK_HOME if it names another release",
        )

    @classmethod
    def no_java(cls, cause: str) -> Self:
        return cls(
            "Spark could not be started: no Java 17 or newer was found",
            cause=cause,
            hint="install one (Debian, Ubuntu: apt-get install openjdk-17-jre-headless; "
            "macOS: brew install openjdk@17) or set JAVA_HOME",
        )


class GraphError(PenstockError, ValueError):
    """A node, an edge or a change of a graph is invalid."""


class OptimizerError(PenstockError):
    """Optimizer strategies still change the graph of a job after the maximum number of rounds."""


class JobError(PenstockError):
    """A job failed; if a vertex failed, the message names the vertex, an operator and, if possible, the user's line."""


class JobCancelledError(PenstockError):
    """A job was cancelled before it finished."""


class RebalanceError(PenstockError):
    """An adaptive rebalance or rescale cannot run, or failed while a job ran."""

    @classmethod
    def bad_traverse_size(cls, value: object) -> Self:
        return cls(f"max_traverse_size is {value!r}", hint="use a whole number of at least 2: the consumers to compare")


class NoBarrierError(RebalanceError):
    """Spark cannot run an adaptive rebalance as a barrier stage; its consumers then pull the rows in chunks."""


class LostConnectionError(RebalanceError):
    """A connection between two tasks of an adaptive rebalance broke."""


class HistoryError(PenstockError):
    """Event logs of jobs cannot be read or written."""

    @classmethod
    def unwritable(cls, path: str, cause: str) -> Self:
        hint = "choose another folder (--history, jobmanager.archive.fs.dir), or let this user write to it"
        return cls(f"event logs cannot be written to {path}", cause=cause, hint=hint)

    @classmethod
    def unreadable(cls, location: str, cause: str) -> Self:
        return cls(f"event logs cannot be read from {location}", cause=cause)

    @classmethod
    def no_job(cls, job_id: str) -> Self:
        return cls(f"there is no job {job_id!r}", hint="`penstock history list` shows all jobs")


class DoctorError(PenstockError):
    """An event log of Spark cannot be read or diagnosed."""

    @classmethod
    def missing(cls, path: str) -> Self:
        return cls(f"{path} does not exist", hint="pass an event log of Spark; spark.eventLog.dir is their folder")

    @classmethod
    def remote(cls, path: str) -> Self:
        return cls(
            f"{path} is not on this machine",
            cause="the command starts no Spark, so it reads only local files",
            hint="copy the log here first, for example with `hadoop fs -get`",
        )

    @classmethod
    def unreadable(cls, path: str, cause: str) -> Self:
        return cls(f"{path} cannot be read", cause=cause)

    @classmethod
    def unwritable(cls, path: str, cause: str) -> Self:
        return cls(f"the page cannot be written to {path}", cause=cause)

    @classmethod
    def unsupported_compression(cls, path: str, codec: str) -> Self:
        return cls(
            f"{path} is compressed with {codec}, which is not supported",
            cause="the codecs zstd, lz4 and snappy of Spark, gzip and bzip2 are supported",
            hint="decompress the log and pass the plain file",
        )

    @classmethod
    def not_an_event_log(cls, path: str, start: str) -> Self:
        return cls(
            f"{path} is not an event log of Spark",
            cause=f"its first line begins with {start!r}, not with an event",
            hint="pass a log from spark.eventLog.dir; `penstock history` reads the logs of Penstock",
        )

    @classmethod
    def empty_log(cls, path: str) -> Self:
        return cls(
            f"{path} has no events", hint="Spark writes events in blocks: wait until the application has run longer"
        )

    @classmethod
    def no_tasks(cls, path: str, name: str) -> Self:
        return cls(
            f"no task of the application {name!r} has ended",
            cause=f"{path} has events, but none of a finished task",
            hint="pass the log of an application that ran a query",
        )

    @classmethod
    def no_single_log(cls, folder: str, names: Sequence[str]) -> Self:
        shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
        return cls(
            f"the folder {folder} has {len(names)} entries, not a single event log",
            cause=f"its entries are {shown}" if names else None,
            hint="pass one of its files, or an eventlog_v2_ folder",
        )


class WebError(PenstockError):
    """The web server cannot be started."""

    @classmethod
    def missing(cls, package: str) -> Self:
        return cls(f"the web page and the REST API need the package {package}", hint=f"pip install {package}")


class VerificationError(PenstockError):
    """A check of ``execution.verify`` failed: rows would be wrong."""

    @classmethod
    def of(cls, message: str) -> Self:
        hint = "report it with the output of env.explain(df), and run the query on plain Spark"
        return cls(message, hint=f"this is a bug in Penstock: {hint}")


class RowsDifferError(PenstockError):
    """A job's rows differ from plain Spark's."""


class StateError(PenstockError):
    """The state of a streaming query cannot be read or changed."""

    @classmethod
    def no_checkpoint(cls, path: str, missing: str) -> Self:
        return cls(
            f"{path} is not the checkpoint of a streaming query",
            cause=f"there is no {missing}",
            hint="pass the folder that is the query's checkpointLocation",
        )

    @classmethod
    def unreadable(cls, path: str, cause: str) -> Self:
        return cls(f"{path} cannot be read as a part of a checkpoint", cause=cause)

    @classmethod
    def cannot_rescale(cls, path: str, obstacles: list[str]) -> Self:
        listed = "\n".join(f"    - {obstacle}" for obstacle in obstacles)
        return cls(f"{path} cannot be rescaled; nothing was written:\n{listed}")

    @classmethod
    def rescale_failed(cls, path: str, step: str, cause: str) -> Self:
        return cls(f"{path} was not rescaled: {step} failed", cause=cause, hint="the checkpoint is unchanged")

    @classmethod
    def rescale_interrupted(cls, path: str, old_groups: int, new_groups: int, cause: str | None = None) -> Self:
        return cls(
            f"{path} is in the middle of a rescale from {old_groups} to {new_groups} key groups",
            cause=cause,
            hint=f"finish it with `penstock state rescale {path} --max-parallelism {new_groups}`, undo it with --abort",
        )

    @classmethod
    def logs_rewound(cls, path: str, batch: int, new_groups: int, cause: str | None = None) -> Self:
        return cls(
            f"the logs of {path} were rewound to a batch before its rescale "
            f"to {new_groups} key groups in batch {batch}",
            cause=cause or "the query would read the files of the rescale as the state of the next batch",
            hint=f"undo the rescale with `penstock state rescale {path} --abort`; "
            f"if you need {new_groups} key groups, then rescale again",
        )

    @classmethod
    def no_rescale_service(cls, path: str, cause: str) -> Self:
        return cls(
            f"the process of the query on {path} does not accept rescales; nothing was done",
            cause=cause,
            hint="start the query with penstock.state.start_query; a stopped query is rescaled without --live",
        )

    @classmethod
    def already_rescaling(cls, path: str, cause: str) -> Self:
        return cls(f"{path} is being rescaled already; nothing was done", cause=cause, hint="try again later")

    @classmethod
    def query_ended(cls, path: str, cause: str) -> Self:
        return cls(
            f"the query on {path} was not rescaled",
            cause=cause,
            hint="rescale it while it is stopped, or start it again and then retry",
        )


class StreamError(PenstockError):
    """The progress of a streaming query cannot be evaluated."""

    @classmethod
    def no_progress(cls, path: str, cause: str) -> Self:
        return cls(
            f"there is no progress of a streaming query at {path}",
            cause=cause,
            hint="start the query with penstock.state.start_query and pass its checkpoint, or write the line "
            "event.progress.json of each onQueryProgress of a StreamingQueryListener to a file and pass the file",
        )


class SourceError(PenstockError):
    """A source cannot be read as requested."""

    @classmethod
    def bad_parallelism(cls, value: object, subject: str) -> Self:
        return cls(f"invalid parallelism {value!r} for {subject}", hint="use a whole number of at least 1")

    @classmethod
    def missing_records(cls, partition: str, offset: int, cause: str) -> Self:
        return cls(
            f"the records of {partition} from offset {offset} on no longer exist",
            cause=cause,
            hint="retention deleted them, or the topic was recreated; start at a later offset, run the job again, or "
            "start the stream with a new checkpoint",
        )


class SourceTimeoutError(SourceError):
    """A source, a catalog, a broker or a database did not answer in time."""

    @classmethod
    def of(cls, source: str, work: str, seconds: float, cause: str = "") -> Self:
        return cls(
            f"{source} has not answered for {seconds:g} s",
            cause=f"{work}: {cause}" if cause else work,
            hint="check that it runs and can be reached; if an answer may take longer, raise sources.timeout",
        )


class SinkError(PenstockError):
    """A sink cannot be written as requested."""

    @classmethod
    def already_exists(cls, path: str, target_kind: str = "output") -> Self:
        noun = "path" if target_kind == "output" else "name"
        return cls(
            f"{target_kind} {path} exists already",
            hint=f'choose another {noun}, or mode="overwrite", "append" or "ignore"',
        )

    @classmethod
    def no_column(cls, sink: str, name: str, columns: Sequence[str], *, case_sensitive: bool) -> Self:
        folded = {column if case_sensitive else column.lower(): column for column in columns}
        similar = get_close_matches(name if case_sensitive else name.lower(), folded, n=1, cutoff=0.6)
        return cls(
            f"{sink} has the partition column {name!r}, which the rows do not have",
            cause=f"their columns are {', '.join(columns) or 'none'}",
            hint=f"did you mean {folded[similar[0]]!r}?" if similar else "pass columns of the rows as partition_by",
        )

    @classmethod
    def table_is_gone(cls, table: str, location: str | None) -> Self:
        event = "dropped" if location is None else f"dropped and recreated, or moved to {location}"
        return cls(
            f"table {table} cannot be committed",
            cause=f"while the job ran, it was {event}",
            hint="run the job again once the table is correct",
        )

    @classmethod
    def no_ledger(cls, table: str, database: str, cause: str, token: str | None = None) -> Self:
        purpose, alternative = (
            ("with the receipt that recovery needs", "write the table in a separate job")
            if token is None
            else (f"with the token {token!r}", "omit the token")
        )
        return cls(
            f"table {table} of {database} cannot be written {purpose}: its user may not write to penstock_commits",
            cause=cause,
            hint="create the table penstock_commits (target varchar(200), token varchar(200), primary key (target, "
            f"token)) if it does not exist, and grant the user SELECT, INSERT and DELETE on it; or {alternative}",
        )


class CommitError(SinkError):
    """The sinks of a job could not all commit, or an interrupted commit cannot be recovered."""

    @classmethod
    def unknown_sink_kind(cls, kind: str) -> Self:
        return cls(
            f"a sink of kind {kind!r} cannot be recovered",
            cause="this release of Penstock does not know this kind, or a newer release wrote the record",
            hint="recover with the release that wrote it, or import the package that defines the sink",
        )

    @classmethod
    def no_evidence(cls, target: str, removed: str, staging: str) -> Self:
        return cls(
            f"it is unknown whether a job has committed to {target}",
            cause=f"{removed} were removed, and the target has no file of the job, so perhaps it never committed",
            hint=f"check whether it has the job's rows, then remove the journal and {staging} by hand",
        )


class UntrustedJournalError(CommitError):
    """A commit journal beside a target is ignored: it is unreadable, or another user may have written it."""

    @classmethod
    def unreadable(cls, path: str, cause: str) -> Self:
        return cls(
            f"the commit journal {path} is ignored: it cannot be read",
            cause=cause,
            hint="inspect the target before you remove the file; if another release of Penstock wrote it, run "
            "`penstock recover` with that release",
        )

    @classmethod
    def foreign(cls, path: str, cause: str) -> Self:
        return cls(
            f"{path} is ignored: another user may have written it",
            cause=cause,
            hint="jobs do not wait for it and do not recover it. If you trust it, see `penstock recover --trust`",
        )


class CommitUnknownError(CommitError):
    """It is unknown whether rows were committed, because a catalog, a store or a database gave no clear answer."""

    @classmethod
    def of(cls, target: str, error: Exception) -> Self:
        return cls(f"whether rows were committed to {target} is unknown", cause=f"{type(error).__name__}: {error}")


def first_line(error: BaseException) -> str:
    """Return the first informative line of an error's message, as a clause for other messages; may be empty."""
    lines = [line.strip().removeprefix(": ") for line in str(error).splitlines()]
    return next((line for line in lines if line and not line.startswith("An error occurred while calling")), "")
