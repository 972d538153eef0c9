"""Every error Penstock raises: what happened, why, and what to do about it."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


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
    line
        The line of the user's code that asked for it, such as ``job.py:12``, if that is known.
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
        told = [f"  {f'{name}:':<6} {text}" for name, text in parts.items() if text]
        return "\n".join([self.message, *told])

    def tell_line(self, line: object) -> None:
        """Say which line of the user's code asked for it, unless that is said already or not known (None)."""
        if self.line is None and line is not None:
            self.line = str(line)
            self.args = (self._text(),)


class ArgumentError(PenstockError, TypeError):
    """A function got an argument that it cannot use."""

    @classmethod
    def of(cls, where: str, wanted: str, found: str, hint: str | None, line: object) -> Self:
        """Build the error for an argument of another type.

        Parameters
        ----------
        where, wanted
            What needs it, such as ``collect``, and what it needs.
        found
            What was given, in words.
        hint
            What to give instead.
        line
            The user's line.
        """
        return cls(
            f"{where} needs {wanted}",
            cause=f"it was given {found}",
            hint=hint,
            line=None if line is None else str(line),
        )


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
            cause="Penstock changes query plans inside the driver's JVM, which a Connect client cannot reach",
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
    def not_pinned(cls) -> Self:
        """Build the error for a driver whose threads have no threads of the JVM of their own."""
        return cls(
            "Penstock needs a thread of the JVM for each thread of Python",
            cause="PYSPARK_PIN_THREAD is false, so the session, settings and job groups of one thread reach others",
            hint="unset PYSPARK_PIN_THREAD, or set it to true, before Spark starts",
        )

    @classmethod
    def unsupported_version(cls, version: str) -> Self:
        """Build the error for a Spark release outside the supported range."""
        return cls(f"Spark {version} is not supported", hint="install pyspark 4.0, 4.1, 4.2 or 4.3")


class GraphError(PenstockError, ValueError):
    """A graph node, edge or modification is not allowed."""


class OptimizerError(PenstockError):
    """A strategy never stops changing the graph."""

    @classmethod
    def unsettled(cls, names: list[str], rounds: int) -> Self:
        """Build the error for strategies that change the graph without an end."""
        return cls(
            f"after {rounds} rounds, {', '.join(names)} still changes the job's graph",
            cause="on_operators_finished returned True every time",
            hint="return False once the strategy has nothing left to change",
        )


class SourceError(PenstockError):
    """A source cannot be read as asked."""

    @classmethod
    def bad_parallelism(cls, value: object, where: str) -> Self:
        """Build the error for a parallelism that is not a positive number."""
        return cls(f"invalid parallelism {value!r} for {where}", hint="give a whole number of at least 1")

    @classmethod
    def beyond_maximum(cls, parallelism: int, maximum: int, where: str) -> Self:
        """Build the error for a parallelism that is more than the largest one that was given with it."""
        return cls(
            f"parallelism {parallelism} for {where} is more than max_parallelism {maximum}", hint="give one of them"
        )


class SourceTimeoutError(SourceError):
    """A source, a catalogue, a broker or a database did not answer in time."""

    @classmethod
    def of(cls, source: str, what: str, seconds: float, cause: str = "") -> Self:
        """Build the error for a question that was left unanswered."""
        return cls(
            f"{source} has not answered for {seconds:g} s",
            cause=f"{what}: {cause}" if cause else what,
            hint="check that it runs and can be reached; if an answer may take this long, raise sources.timeout",
        )


class SinkError(PenstockError):
    """A sink cannot be written as asked."""

    @classmethod
    def exists(cls, path: str, what: str = "output") -> Self:
        """Build the error for an output path, or the name of a table, that is taken."""
        another = "path" if what == "output" else "name"
        return cls(
            f"{what} {path} exists already",
            hint=f'choose another {another}, or mode="overwrite", "append" or "ignore"',
        )

    @classmethod
    def no_column(cls, where: str, name: str, columns: Sequence[str], *, case_sensitive: bool) -> Self:
        """Build the error for a partition column that the rows do not have."""
        folded = {one if case_sensitive else one.lower(): one for one in columns}
        near = get_close_matches(name if case_sensitive else name.lower(), folded, n=1, cutoff=0.6)
        return cls(
            f"{where} has the partition column {name!r}, which the rows do not have",
            cause=f"their columns are {', '.join(columns) or 'none'}",
            hint=f"did you mean {folded[near[0]]!r}?" if near else "name columns of the DataFrame in partition_by",
        )

    @classmethod
    def no_rights(cls, path: str, folder: str) -> Self:
        """Build the error for a folder that may not be written to."""
        return cls(
            f"output {path} cannot be written",
            cause=f"this user has no right to write to {folder}",
            hint="choose another path, or let the owner of the folder grant the right",
        )

    @classmethod
    def same_place(cls, one: str, other: str, place: str) -> Self:
        """Build the error for two sinks of a job that would write over each other."""
        return cls(
            f"the sinks {one} and {other} of this job write to the same place: {place}",
            cause="only one of them could keep its rows",
            hint="give each sink a path or table of its own, or write the union of the rows with one sink",
        )

    @classmethod
    def table_is_gone(cls, table: str, location: str | None) -> Self:
        """Build the error for a table that was dropped, or put elsewhere, while a job wrote to it."""
        what = "dropped" if location is None else f"dropped and made again, or moved: it lies in {location} now"
        return cls(
            f"table {table} cannot be committed",
            cause=f"while the job ran, it was {what}",
            hint="run the job again if the table is as it should be",
        )

    @classmethod
    def no_ledger(cls, table: str, database: str, cause: str, token: str | None = None) -> Self:
        """Build the error for a table whose user may not write down what was committed to it."""
        wanted, instead = (
            ("by which its job is recovered", "write it by a job of its own")
            if token is None
            else (f"with the token {token!r}", "leave out the token")
        )
        return cls(
            f"table {table} of {database} cannot be written {wanted}: its user may not write to penstock_commits",
            cause=cause,
            hint="create the table penstock_commits (target varchar(200), token varchar(200), primary key (target, "
            f"token)) if it does not exist, and grant the user SELECT, INSERT and DELETE on it; or {instead}",
        )

    @classmethod
    def ledger_without_key(cls, table: str, database: str, token: str) -> Self:
        """Build the error for a ledger in which two runs of a token could both put it."""
        return cls(
            f"table {table} of {database} cannot be written with the token {token!r}: two runs could write its rows",
            cause="the table penstock_commits has no unique key of target and token",
            hint="CREATE UNIQUE INDEX penstock_commits_key ON penstock_commits (target, token)",
        )

    @classmethod
    def in_the_way(cls, places: Sequence[tuple[str, str]]) -> Self:
        """Build the error for old rows that cannot go back: pairs of where they were and where they are."""
        where = "; ".join(f"those of {place} are in {kept}" for place, kept in places)
        return cls(
            "the old rows cannot be put back",
            cause="another program has made a folder in their place that cannot be replaced",
            hint=f"{where}. Keep either: move the folder in the way aside, or remove the old rows. Then run "
            "`penstock recover`",
        )

    @classmethod
    def partition_commit(cls, policy: str, partition: str, path: str, problem: Exception) -> Self:
        """Build the error for a partition commit policy that failed."""
        return cls(
            f"the partition commit policy {policy!r} failed for {partition} of {path}",
            cause=f"{type(problem).__name__}: {problem}",
            hint="the job removes its new files; what the policy did for other partitions stays",
        )


class CommitError(SinkError):
    """The sinks of a job could not all commit, or an interrupted commit cannot be recovered."""

    @classmethod
    def unreadable(cls, path: str, cause: str) -> Self:
        """Build the error for a journal that is not what it should be."""
        return cls(
            f"the commit journal {path} cannot be read",
            cause=cause,
            hint="it records an interrupted commit: do not write to its targets, and run `penstock recover` with the "
            "release of Penstock that wrote it",
        )

    @classmethod
    def unknown(cls, kind: str) -> Self:
        """Build the error for a record of a journal that this release does not understand."""
        return cls(
            f"a sink of kind {kind!r} cannot be recovered",
            cause="this release of Penstock does not know it, or what a newer one has written of it",
            hint="recover with the release that has written it, or import the package that the sink comes from",
        )

    @classmethod
    def other_catalog(cls, table: str, wanted: str, found: str) -> Self:
        """Build the error for a table whose catalogue is not that of the session."""
        return cls(
            f"what a dead job has left at table {table} cannot be recovered here",
            cause=f"its catalogue is {wanted}, and that of this session {found or 'one of its own, in memory'}",
            hint="start Spark as the job did: with --conf spark.sql.catalogImplementation=hive, and its metastore",
        )

    @classmethod
    def incomplete(cls, done: list[str], waiting: list[str], problem: Exception, journal: str | None) -> Self:
        """Build the error for a commit that stays incomplete, because some of it cannot be undone."""
        return cls(
            f"only some of the job's sinks have committed: {', '.join(done) or 'none for certain'}; "
            f"not committed: {', '.join(waiting)}",
            cause=f"{type(problem).__name__}: {problem}",
            hint="no rows were removed; look at the target before you run the job again"
            if journal is None
            else f"`penstock recover {journal}` completes it, or the next job that writes to one of these targets",
        )

    @classmethod
    def busy(cls, job: str, targets: list[str], owner: str, journal: str) -> Self:
        """Build the error for a commit of another job that takes too long."""
        return cls(
            f"job {job!r} is still committing to {', '.join(targets)}",
            cause=f"{owner} owns {journal}",
            hint="run this job again when that one has ended",
        )

    @classmethod
    def taken_over(cls, journal: str) -> Self:
        """Build the error for a commit that another process has completed or undone in the meantime."""
        return cls(
            f"another process recovered this commit: {journal} is gone",
            cause="this process did not renew its lease for a minute, so it counted as dead",
            hint="check whether the new rows are there before you run the job again",
        )

    @classmethod
    def unreachable(cls, target: str, cause: str) -> Self:
        """Build the error for a target that cannot be reached to see whether it has committed."""
        return cls(
            f"an earlier job was interrupted while it committed to {target}, and whether it committed is unknown",
            cause=cause,
            hint="make the target reachable; `penstock recover --help` says how to give passwords",
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
    """An adaptive rebalance or rescale cannot run, or failed while a job ran."""

    @classmethod
    def bad_traverse_size(cls, value: object) -> Self:
        """Build the error for a traverse size that compares nothing."""
        return cls(
            f"max_traverse_size is {value!r}", hint="give a whole number of at least 2: the consumers to compare"
        )

    @classmethod
    def idle(cls, writer: int, readers: list[int], seconds: float) -> Self:
        """Build the error for consumers that take no more rows."""
        return cls(
            f"task {writer} of the rebalance has waited {seconds:g} s for consumer {', '.join(map(str, readers))}",
            cause="the function that consumes the rows has not taken the next ones",
            hint="if it may take this long, raise taskmanager.network.adaptive-partitioner.idle-timeout",
        )

    @classmethod
    def no_piece(cls, cause: str) -> Self:
        """Build the error for a consumer that cannot get its next rows."""
        return cls("a consumer of the rebalance cannot get its next rows", cause=cause)

    @classmethod
    def in_part(cls, tasks: int) -> Self:
        """Build the error for a stage of which Spark runs some tasks only; the others are of another attempt."""
        return cls(
            f"Spark runs {tasks} tasks of the rebalance, and not all of its stage",
            cause="the others ended well just as one of their attempt failed; rows would be lost and come twice",
            hint="Spark repeats the whole stage now",
        )

    @classmethod
    def perhaps_in_part(cls, tasks: int, planned: int | None) -> Self:
        """Build the error for tasks of which nobody can tell whether they are all of their stage."""
        return cls(
            f"{tasks} tasks of the rebalance run, and {planned or 'an unknown number'} were planned",
            cause="the driver, which could tell whether this is the whole stage, cannot be reached by its executors",
            hint="let executors connect to the driver's host at any port, or use adaptive=False",
        )


class NoBarrierError(RebalanceError):
    """Spark cannot run the tasks of an adaptive rebalance as one barrier stage; they take pieces of the rows then."""

    @classmethod
    def too_few_slots(cls, needed: int, slots: int) -> Self:
        """Build the error for a stage that could never run at once."""
        return cls(f"{needed} tasks need {needed} cores at the same time, and there are {slots}")


class LostConnectionError(RebalanceError):
    """A connection between two tasks of an adaptive rebalance broke."""

    @classmethod
    def to(cls, other: str, cause: BaseException) -> Self:
        """Build the error for the connection to another task."""
        return cls(f"the connection to {other} of the rebalance is lost", cause=f"{type(cause).__name__}: {cause}")


class StateError(PenstockError):
    """The state of a streaming query cannot be read or changed."""

    @classmethod
    def bad_max_parallelism(cls, value: object, largest: int) -> Self:
        """Build the error for a number of key groups that cannot be."""
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
        """Build the error for a file of a checkpoint that is not what it should be."""
        return cls(f"{path} cannot be read as a part of a checkpoint", cause=cause)

    @classmethod
    def obstacles(cls, path: str, found: list[str]) -> Self:
        """Build the error for a checkpoint that cannot be rescaled."""
        listed = "\n".join(f"    - {obstacle}" for obstacle in found)
        return cls(f"{path} cannot be rescaled; nothing was written:\n{listed}")

    @classmethod
    def failed(cls, path: str, doing: str, cause: str) -> Self:
        """Build the error for a rescale that failed and left the checkpoint unchanged."""
        return cls(f"{path} was not rescaled: {doing} failed", cause=cause, hint="the checkpoint is unchanged")

    @classmethod
    def interrupted(cls, path: str, old: int, new: int) -> Self:
        """Build the error for a rescale that stopped while it put its files in place."""
        return cls(
            f"{path} is in the middle of a rescale from {old} to {new} key groups",
            hint=f"finish it with `penstock state rescale {path} --max-parallelism {new}`, or undo it with --abort",
        )

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
        """Build the error for a second rescale at the same time."""
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
        """Build the error for a process that no longer tells how far it is."""
        return cls(
            f"{process} has not told how the rescale of the query on {path} ended",
            cause=f"it died or hangs; its last step was: {step}",
            hint="if it died, start the query with penstock.state.start_query: first it finishes or undoes the rescale",
        )

    @classmethod
    def differs(cls, path: str, state: int, asked: int) -> Self:
        """Build the error for a query that is started with another max parallelism than its state has."""
        return cls(
            f"the state in {path} has max parallelism {state}, and the query asks for {asked}",
            hint=f"leave pipeline.max-parallelism unset to continue with {state}, set state.rescale-on-restart, "
            f"or run `penstock state rescale {path} --max-parallelism {asked}`",
        )


class StreamError(PenstockError):
    """What a streaming query has done cannot be told."""

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
        """Build the error for the progress of several queries in one file."""
        return cls(f"{path} has the progress of {count} queries", hint="give a file for each of them")

    @classmethod
    def too_few(cls, path: str, count: int) -> Self:
        """Build the error for too little progress to tell a rate."""
        return cls(
            f"{path} has the progress of {count} batches with rows, and two are needed",
            hint="let the query run for a while",
        )

    @classmethod
    def no_batches(cls, path: str) -> Self:
        """Build the error for a checkpoint whose offsets tell no decisions."""
        return cls(
            f"no batch in {path} was decided by Penstock",
            hint="read the topic with the format penstock_kafka; older batches than Spark's last hundred are gone",
        )


class HistoryError(PenstockError):
    """Event logs of jobs cannot be read or written."""

    @classmethod
    def no_folder(cls, path: str) -> Self:
        """Build the error for a folder that is not there."""
        return cls(
            f"there is no folder {path} with event logs",
            hint="jobs write them to the folder of the option jobmanager.archive.fs.dir",
        )

    @classmethod
    def unwritable(cls, path: str, cause: str) -> Self:
        """Build the error for a folder that logs cannot be written to."""
        return cls(f"event logs cannot be written to {path}", cause=cause)

    @classmethod
    def unreadable(cls, what: str, cause: str) -> Self:
        """Build the error for a log, or a folder of logs, that is there and cannot be read."""
        return cls(f"event logs cannot be read from {what}", cause=cause)

    @classmethod
    def no_job(cls, job_id: str) -> Self:
        """Build the error for a job without an event log."""
        return cls(f"there is no job {job_id!r}", hint="`penstock history list` shows all")

    @classmethod
    def several_jobs(cls, prefix: str, ids: list[str]) -> Self:
        """Build the error for the beginning of the ids of several jobs."""
        shown = ", ".join(ids[:5]) + (", ..." if len(ids) > 5 else "")
        return cls(
            f"{len(ids)} jobs have an id that begins with {prefix!r}", cause=shown, hint="give more of its letters"
        )


class WebError(PenstockError):
    """The web server cannot be started."""

    @classmethod
    def needs_token(cls, address: str) -> Self:
        """Build the error for an open address without a token."""
        return cls(
            f"rest.bind-address is {address}, which other machines can reach, and no token is set",
            hint="set rest.token, or leave rest.bind-address at 127.0.0.1",
        )

    @classmethod
    def no_port(cls, address: str, port: int, cause: str) -> Self:
        """Build the error for a port that cannot be listened on."""
        return cls(
            f"the API cannot listen on {address}:{port}", cause=cause, hint="set rest.port to another port, or to 0"
        )

    @classmethod
    def missing(cls, package: str) -> Self:
        """Build the error for a missing package of the web server."""
        return cls(f"the page and the API need the package {package}", hint="pip install 'penstock[web]'")


class VerificationError(PenstockError):
    """A check of ``execution.verify`` failed: rows would be wrong."""

    @classmethod
    def not_tiled(cls, who: str, what: str) -> Self:
        """Build the error for an input that would not be read exactly once."""
        return cls(f"{who} would not read {what} exactly once", hint=_A_DEFECT)

    @classmethod
    def rows_lost(cls, who: str, there: int, found: int) -> Self:
        """Build the error for a broadcast that loses or repeats rows."""
        return cls(f"{who} must have {there} rows and has {found}", hint=_A_DEFECT)

    @classmethod
    def key_left_out(cls, who: str) -> Self:
        """Build the error for a filter that drops a row that its keys come from."""
        return cls(f"{who} drops a row that it must keep", hint=_A_DEFECT)


_A_DEFECT = "this is a bug in Penstock: report it with the output of env.explain(df), and run the query on plain Spark"


class RowsDifferError(PenstockError):
    """A job's rows differ from plain Spark's."""

    @classmethod
    def of(cls, job: str, differences: list[str]) -> Self:
        """Build the error for a job whose outputs differ."""
        listed = "\n".join(f"  {line}" for difference in differences for line in difference.splitlines())
        return cls(
            f"the rows of job {job!r} differ from plain Spark's:\n{listed}",
            hint="the job's output stays written; run the job on plain Spark, and report this with the query",
        )


class JobError(PenstockError):
    """A job failed; the message names the vertex, the operator and the user's line."""


class JobCancelledError(PenstockError):
    """A job was cancelled before it finished."""


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message that says something, for a reason of half a sentence."""
    lines = [line.strip().removeprefix(": ") for line in str(error).splitlines()]
    return next((line for line in lines if line and not line.startswith("An error occurred while calling")), "")
