"""PySpark's own errors, when they come up before a job runs, as errors with cause and hint."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Iterator

_HINTS = {
    "PATH_NOT_FOUND": "check the path; Spark sees it from the driver and from every executor",
    "UNABLE_TO_INFER_SCHEMA": "the folder is empty, or holds files of another format",
    "UNRESOLVED_COLUMN": "check the spelling against the columns that are suggested",
    "TABLE_OR_VIEW_NOT_FOUND": "name the table with --table NAME=PATH, or create the view first",
    "PARSE_SYNTAX_ERROR": "the statement is not Spark SQL",
}


@contextmanager
def in_words(what: str = "the query could not be planned") -> Iterator[None]:
    """Turn PySpark's errors in the block into `PenstockError`.

    Parameters
    ----------
    what
        What an error in the block means.
    """
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        condition = error.getCondition() or type(error).__name__
        text = str(error).split("\n\nJVM stacktrace")[0].split(";\n'")[0].strip()
        hint = next((hint for name, hint in _HINTS.items() if name in condition), None)
        raise PenstockError(what, cause=text, hint=hint) from error


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a broadcast failed because its table was too large for Spark's limits or for the memory there is."""
    text = str(error)
    return any(sign in text for sign in ("OutOfMemory", "Cannot broadcast the table", "_CANNOT_ACQUIRE_MEMORY"))


def is_failed_last_stage(error: BaseException) -> bool:
    """Whether Spark gave up as it does not repeat the last stage of a query: a barrier, or one behind what was lost."""
    return any(sign in str(error) for sign in ("failed barrier ResultStage", "cannot rollback the ResultStage"))
