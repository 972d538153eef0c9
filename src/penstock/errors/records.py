"""Errors of event logs, of the web server, and of comparisons with plain Spark."""

from __future__ import annotations

from typing import Self

from penstock.errors.base import PenstockError

_BUG_HINT = "this is a bug in Penstock: report it with the output of env.explain(df), and run the query on plain Spark"


class HistoryError(PenstockError):
    """Event logs of jobs cannot be read or written."""

    @classmethod
    def no_folder(cls, path: str) -> Self:
        """Build the error for a missing folder."""
        return cls(
            f"there is no folder {path} with event logs",
            hint="jobs write them to the folder of the option jobmanager.archive.fs.dir",
        )

    @classmethod
    def unwritable(cls, path: str, cause: str) -> Self:
        """Build the error for a folder that is not writable."""
        return cls(f"event logs cannot be written to {path}", cause=cause)

    @classmethod
    def unreadable(cls, what: str, cause: str) -> Self:
        """Build the error for an existing log, or folder of logs, that cannot be read."""
        return cls(f"event logs cannot be read from {what}", cause=cause)

    @classmethod
    def no_job(cls, job_id: str) -> Self:
        """Build the error for a job without an event log."""
        return cls(f"there is no job {job_id!r}", hint="`penstock history list` shows all")

    @classmethod
    def several_jobs(cls, prefix: str, ids: list[str]) -> Self:
        """Build the error for an ambiguous prefix of job ids."""
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
    def not_read_once(cls, reader: str, what: str) -> Self:
        """Build the error for an input that would not be read exactly once."""
        return cls(f"{reader} would not read {what} exactly once", hint=_BUG_HINT)

    @classmethod
    def wrong_row_count(cls, reader: str, written: int, read: int) -> Self:
        """Build the error for a broadcast that loses or repeats rows."""
        return cls(f"{reader} must have {written} rows and has {read}", hint=_BUG_HINT)

    @classmethod
    def key_dropped(cls, filter_name: str) -> Self:
        """Build the error for a filter that drops a row that its keys come from."""
        return cls(f"{filter_name} drops a row that it must keep", hint=_BUG_HINT)


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
