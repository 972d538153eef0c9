"""PySpark's own errors, when they come up before a job runs, as errors with cause and hint."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.location import SourceLine

if TYPE_CHECKING:
    from collections.abc import Iterator

_HINTS = {
    "PATH_NOT_FOUND": "check the path; Spark sees it from the driver and from every executor",
    "UNABLE_TO_INFER_SCHEMA": "the folder is empty, or holds files of another format",
    "UNRESOLVED_COLUMN": "check the spelling against the columns that are suggested",
    "TABLE_OR_VIEW_NOT_FOUND": "name the table with --table NAME=PATH, or create the view first",
    "PARSE_SYNTAX_ERROR": "the statement is not Spark SQL",
}

_NO_MEMORY = ("OutOfMemory", "Cannot broadcast the table", "_CANNOT_ACQUIRE_MEMORY", "spark.driver.maxResultSize")
_TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(r'  File "(.*?)", line (\d+)')
_PYSPARK = re.compile(r"(pyspark\.zip|(site|dist)-packages|python)/pyspark/")
_FULL = ("No space left on device", "Disk quota exceeded", "There is not enough space on the disk")
_LOCAL_DIR = re.compile(
    r"spark\.shuffle\.|spark\.storage\.|UnsafeSorterSpill|spill\(\)|blockmgr-|util\.collection\.\w*Spill|DiskBlockManager"
)


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
    return any(sign in text for sign in _NO_MEMORY)


def is_failed_last_stage(error: BaseException) -> bool:
    """Whether Spark gave up as it does not repeat the last stage of a query: a barrier, or one behind what was lost."""
    return any(sign in str(error) for sign in ("failed barrier ResultStage", "cannot rollback the ResultStage"))


def user_traceback(text: str) -> str:
    """Return Python's traceback in an error's text with the frames of the user's code and of what it calls.

    PySpark's own frames, and Penstock's, say nothing to the user. Where there are no others, the last one stays.
    """
    text = text[text.index(_TRACEBACK) :].split("\n\tat ", maxsplit=1)[0].rstrip()
    told: list[str] = []
    dropped: list[str] = []
    is_told = True
    kept_one = False
    for line in text.splitlines():
        frame = _FRAME.match(line)
        if frame is not None:
            is_told = not _is_machinery(frame[1], int(frame[2]))
            kept_one = kept_one or is_told
            dropped = []
        elif line.startswith(_TRACEBACK):
            is_told, kept_one = True, False
        elif not line.startswith("  ") and not is_told:
            told += [] if kept_one else dropped
            is_told = True
        (told if is_told else dropped).append(line)
    return "\n".join(told)


def _is_machinery(file: str, line: int) -> bool:
    return bool(_PYSPARK.search(file)) or SourceLine(file, line).is_own


_AWAITED = "Exception thrown in awaitResult"
_CAUSES = re.compile(r"^Caused by: (.+(?:\n(?!\s+at |\s+\.\.\. |Caused by: ).+)*)", re.MULTILINE)
_WITH_CONDITION = re.compile(r"[\w.$]+: \[[A-Z0-9_]+(?:\.[A-Z0-9_]+)*\]")


def without_stack(text: str) -> str:
    """Return the message of a Java exception's text without its stack.

    Spark waits for subqueries and broadcasts in other threads. The exception that says so is replaced by the first of
    its causes that has a condition, or else by the last.
    """
    message = text.split("\n\tat ", maxsplit=1)[0].strip()
    causes: list[str] = [cause.strip() for cause in _CAUSES.findall(text)] if _AWAITED in message else []
    return next((cause for cause in causes if _WITH_CONDITION.match(cause)), [message, *causes][-1])


def is_full_disk(error: BaseException) -> bool:
    """Whether a disk had no room left."""
    return any(sign in str(error) for sign in _FULL)


def is_full_local_dir(error: BaseException) -> bool:
    """Whether a disk had no room left that Spark keeps shuffled or spilled rows on."""
    return is_full_disk(error) and _LOCAL_DIR.search(str(error)) is not None
