"""Errors of sources, sinks and commits."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Self

from penstock.errors.base import PenstockError

if TYPE_CHECKING:
    from collections.abc import Sequence


class SourceError(PenstockError):
    """A source cannot be read as requested."""

    @classmethod
    def bad_parallelism(cls, value: object, where: str) -> Self:
        return cls(f"invalid parallelism {value!r} for {where}", hint="give a whole number of at least 1")

    @classmethod
    def gone(cls, partition: str, offset: int, cause: str) -> Self:
        return cls(
            f"records of {partition} from offset {offset} on are gone",
            cause=cause,
            hint="retention deleted them, or the topic was recreated; start later, run the job again, or begin the "
            "stream with a new checkpoint",
        )


class SourceTimeoutError(SourceError):
    """A source, a catalogue, a broker or a database did not answer in time."""

    @classmethod
    def of(cls, source: str, what: str, seconds: float, cause: str = "") -> Self:
        return cls(
            f"{source} has not answered for {seconds:g} s",
            cause=f"{what}: {cause}" if cause else what,
            hint="check that it runs and can be reached; if an answer may take this long, raise sources.timeout",
        )


class SinkError(PenstockError):
    """A sink cannot be written as requested."""

    @classmethod
    def exists(cls, path: str, what: str = "output") -> Self:
        another = "path" if what == "output" else "name"
        return cls(
            f"{what} {path} exists already", hint=f'choose another {another}, or mode="overwrite", "append" or "ignore"'
        )

    @classmethod
    def no_column(cls, where: str, name: str, columns: Sequence[str], *, case_sensitive: bool) -> Self:
        folded = {column if case_sensitive else column.lower(): column for column in columns}
        near = get_close_matches(name if case_sensitive else name.lower(), folded, n=1, cutoff=0.6)
        return cls(
            f"{where} has the partition column {name!r}, which the rows do not have",
            cause=f"their columns are {', '.join(columns) or 'none'}",
            hint=f"did you mean {folded[near[0]]!r}?" if near else "name columns of the DataFrame in partition_by",
        )

    @classmethod
    def no_rights(cls, path: str, folder: str) -> Self:
        return cls(
            f"output {path} cannot be written",
            cause=f"this user has no right to write to {folder}",
            hint="choose another path, or let the owner of the folder grant the right",
        )

    @classmethod
    def same_location(cls, sink: str, other: str, location: str) -> Self:
        return cls(
            f"the sinks {sink} and {other} of this job write to the same location: {location}",
            cause="only one of them could keep its rows",
            hint="give each sink a path or table of its own, or write the union of the rows with one sink",
        )

    @classmethod
    def table_is_gone(cls, table: str, location: str | None) -> Self:
        what = "dropped" if location is None else f"dropped and recreated, or moved to {location}"
        return cls(
            f"table {table} cannot be committed",
            cause=f"while the job ran, it was {what}",
            hint="run the job again if the table is as it should be",
        )

    @classmethod
    def no_ledger(cls, table: str, database: str, cause: str, token: str | None = None) -> Self:
        purpose, alternative = (
            ("by which its job is recovered", "write it by a job of its own")
            if token is None
            else (f"with the token {token!r}", "leave out the token")
        )
        return cls(
            f"table {table} of {database} cannot be written {purpose}: its user may not write to penstock_commits",
            cause=cause,
            hint="create the table penstock_commits (target varchar(200), token varchar(200), primary key (target, "
            f"token)) if it does not exist, and grant the user SELECT, INSERT and DELETE on it; or {alternative}",
        )

    @classmethod
    def no_key_column(cls, table: str, column: str) -> Self:
        return cls(
            f"the rows for table {table} have no column {column}",
            cause="mode upsert finds the rows that it replaces by it",
            hint='add the column, or use mode="append"',
        )

    @classmethod
    def no_unique_index(cls, table: str, key: list[str], database: str) -> Self:
        return cls(
            f"table {table} has no unique index on exactly {', '.join(key)}",
            cause=f"{database} finds the rows that it replaces by unique indexes only, and adds all others",
            hint=f"CREATE UNIQUE INDEX ... ON {table} ({', '.join(key)}), or give the key of the index that there is",
        )

    @classmethod
    def other_unique_index(cls, table: str, columns: list[str], database: str) -> Self:
        of = ", ".join(name or "an expression" for name in columns)
        return cls(
            f"rows of table {table} cannot be replaced by the key alone: it has a unique index on {of}",
            cause=f"{database} replaces the row that is equal in any unique index, so rows of other keys could go",
            hint="drop the index, or write the rows to a table of their own and merge them in SQL",
        )

    @classmethod
    def ledger_without_key(cls, table: str, database: str, token: str) -> Self:
        return cls(
            f"table {table} of {database} cannot be written with the token {token!r}: two runs could write its rows",
            cause="the table penstock_commits has no unique key of target and token",
            hint="CREATE UNIQUE INDEX penstock_commits_key ON penstock_commits (target, token)",
        )

    @classmethod
    def cannot_restore(cls, moves: Sequence[tuple[str, str]]) -> Self:
        where = "; ".join(f"those of {original} are in {current}" for original, current in moves)
        return cls(
            "the old rows cannot be put back",
            cause="another program has created a folder at their location, which cannot be replaced",
            hint=f"{where}. Keep either: move the folder in the way aside, or remove the old rows. Then run "
            "`penstock recover`",
        )

    @classmethod
    def partition_commit(cls, policy: str, partition: str, path: str, problem: Exception) -> Self:
        return cls(
            f"the partition commit policy {policy!r} failed for {partition} of {path}",
            cause=f"{type(problem).__name__}: {problem}",
            hint="the job removes its new files; what the policy did for other partitions stays",
        )


class CommitError(SinkError):
    """The sinks of a job could not all commit, or an interrupted commit cannot be recovered."""

    @classmethod
    def unknown(cls, kind: str) -> Self:
        return cls(
            f"a sink of kind {kind!r} cannot be recovered",
            cause="this release of Penstock does not know this kind, or a newer release wrote the record",
            hint="recover with the release that has written it, or import the package that the sink comes from",
        )

    @classmethod
    def other_catalog(cls, table: str, expected: str, actual: str) -> Self:
        return cls(
            f"the interrupted commit to table {table} cannot be recovered in this session",
            cause=f"its catalogue is {expected}, and that of this session is {actual or 'in memory'}",
            hint="start Spark as the job did: with --conf spark.sql.catalogImplementation=hive, and its metastore",
        )

    @classmethod
    def incomplete(cls, done: list[str], waiting: list[str], problem: Exception, journal: str | None) -> Self:
        return cls(
            f"only some of the job's sinks have committed: {', '.join(done)}; not committed: {', '.join(waiting)}",
            cause=f"{type(problem).__name__}: {problem}",
            hint="no rows were removed; look at the target before you run the job again"
            if journal is None
            else f"`penstock recover {journal} --apply` completes it, or the next job at one of these targets",
        )

    @classmethod
    def unusual_name(cls, target: str, cause: str) -> Self:
        return cls(
            f"{target} is not written: if this process died, the commit could not be completed or undone",
            cause=cause,
            hint="give the target, or the column, another name",
        )

    @classmethod
    def busy(cls, job: str, targets: list[str], owner: str, journal: str) -> Self:
        return cls(
            f"job {job!r} is still committing to {', '.join(targets)}",
            cause=f"{owner} owns {journal}",
            hint="run this job again when that one has ended",
        )

    @classmethod
    def taken_over(cls, journal: str) -> Self:
        return cls(
            f"another process recovered this commit: {journal} is gone",
            cause="this process did not renew its lease for a minute, so it counted as dead",
            hint="check whether the new rows are there before you run the job again",
        )

    @classmethod
    def unreachable(cls, target: str, cause: str) -> Self:
        return cls(
            f"an earlier job was interrupted while it committed to {target}, and whether it committed is unknown",
            cause=cause,
            hint="make the target reachable; `penstock recover --help` says how to give passwords",
        )

    @classmethod
    def receipt_expired(cls, target: str, staging: str, seconds: float) -> Self:
        return cls(
            f"it is unknown whether a job has committed to {target}",
            cause=f"it wrote its journal more than {seconds / 86400:g} days ago, and brokers may have forgotten its "
            "receipt, an offset of a consumer group, since",
            hint=f"look whether the job's records are in it, then remove the journal and {staging} by hand",
        )

    @classmethod
    def forgotten(cls, target: str, gone: str, staging: str) -> Self:
        return cls(
            f"it is unknown whether a job has committed to {target}",
            cause=f"{gone} were removed since, and it names no file of the job: rewritten since, or never there",
            hint=f"look whether the job's rows are in it, then remove the journal and {staging} by hand",
        )


class UntrustedJournalError(CommitError):
    """A file beside a target is not a commit journal of this user, so it is ignored."""

    @classmethod
    def unreadable(cls, path: str, cause: str) -> Self:
        return cls(
            f"the commit journal {path} is ignored: it cannot be read",
            cause=cause,
            hint="look at the target before you remove the file; if another release of Penstock wrote it, run "
            "`penstock recover` with that release",
        )

    @classmethod
    def foreign(cls, path: str, cause: str) -> Self:
        return cls(
            f"{path} is ignored: another user may have written it",
            cause=cause,
            hint="jobs do not wait for it and do not recover it. If it is a journal of your own, see "
            "`penstock recover --trust`",
        )


class CommitUnknownError(CommitError):
    """It is unknown whether rows were committed, because a catalogue, a store or a database gave no clear answer."""

    @classmethod
    def of(cls, target: str, problem: Exception) -> Self:
        return cls(f"whether rows were committed to {target} is unknown", cause=f"{type(problem).__name__}: {problem}")

    @classmethod
    def unresolved(cls, done: list[str], waiting: list[str], cause: str, journal: str | None) -> Self:
        settled = (
            "look whether its rows are there"
            if journal is None
            else f"`penstock recover {journal} --apply`, or the next job there, finds out and ends the commit"
        )
        return cls(
            f"whether the job's rows were committed to {', '.join(waiting)} is unknown"
            + (f"; committed: {', '.join(done)}" if done else ""),
            cause=cause,
            hint=f"no files were removed, as the commit may still succeed: {settled}. If the job runs again without a "
            "token, its rows may be there twice",
        )
