"""Classification and translation of errors of PySpark and Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.base.location import UserLine
from penstock.errors import PenstockError

_HINTS = {
    "PATH_NOT_FOUND": "check the path; Spark sees it from the driver and from every executor",
    "UNABLE_TO_INFER_SCHEMA": "the folder is empty, or holds files of another format",
    "UNRESOLVED_COLUMN": "check the spelling against the columns that are suggested",
    "TABLE_OR_VIEW_NOT_FOUND": "name the table with --table NAME=PATH, or create the view first",
    "PARSE_SYNTAX_ERROR": "the statement is not Spark SQL",
}

_OUT_OF_MEMORY = ("OutOfMemory", "Cannot broadcast the table", "_CANNOT_ACQUIRE_MEMORY", "spark.driver.maxResultSize")
_TRACEBACK = "Traceback (most recent call last):"
_FRAME_LINE = re.compile(r'  File "(.*?)", line (\d+)')
_PYSPARK_FILE = re.compile(r"(pyspark\.zip|(site|dist)-packages|python)/pyspark/")
_FULL_DISK = ("No space left on device", "Disk quota exceeded", "There is not enough space on the disk")
_WRITTEN = re.compile(r"writing rows to (\S+?)\.?(?:\s|$)")  # in Spark's message
_LOCAL_DIR_CALLS = re.compile(  # in the stack trace of an error
    r"spark\.shuffle\.|spark\.storage\.|UnsafeSorterSpill|spill\(\)|blockmgr-|util\.collection\.\w*Spill|DiskBlockManager"
)


@contextmanager
def translate_errors(message: str = "the query could not be planned") -> Iterator[None]:
    """Raise PySpark's errors in the block as `PenstockError` with a message; the cause is Spark's own message."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        condition = error.getCondition() or type(error).__name__
        text = str(error).split("\n\nJVM stacktrace")[0].split(";\n'")[0].strip()  # without stack trace and plan
        hint = next((hint for name, hint in _HINTS.items() if name in condition), None)
        raise PenstockError(message, cause=text, hint=hint) from error


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the error of a broadcast says that its table exceeds Spark's limits or the available memory."""
    text = str(error)
    return any(sign in text for sign in _OUT_OF_MEMORY)


def is_failed_last_stage(error: BaseException) -> bool:
    """Whether Spark cannot retry the failed last stage of a query: a barrier stage, or a stage whose input was lost."""
    return any(sign in str(error) for sign in ("failed barrier ResultStage", "cannot rollback the ResultStage"))


def is_cancelled(error: BaseException) -> bool:
    """Whether an error reports a cancelled Spark job, because the query has ended or the user cancelled the job."""
    return "[SPARK_JOB_CANCELLED]" in str(error)


def user_traceback(text: str) -> str:
    """Return the Python traceback in an error's text without the frames of PySpark and Penstock.

    If a traceback has only frames of these packages, its last frame remains. The text must contain a traceback.
    """
    text = text[text.index(_TRACEBACK) :].split("\n\tat ", maxsplit=1)[0].rstrip()
    lines: list[str] = []
    dropped_frame: list[str] = []
    is_shown = True
    has_shown_frame = False
    for line in text.splitlines():
        frame = _FRAME_LINE.match(line)
        if frame is not None:
            is_shown = not (_PYSPARK_FILE.search(frame[1]) or UserLine(frame[1], int(frame[2])).is_in_penstock)
            has_shown_frame = has_shown_frame or is_shown
            dropped_frame = []
        elif line.startswith(_TRACEBACK):
            is_shown, has_shown_frame = True, False
        elif not line.startswith("  ") and not is_shown:  # the error below the frames of a traceback
            lines += [] if has_shown_frame else dropped_frame
            is_shown = True
        (lines if is_shown else dropped_frame).append(line)
    return "\n".join(lines)


_WRAPPER_MESSAGE = "Exception thrown in awaitResult"
_CAUSES = re.compile(r"^Caused by: (.+(?:\n(?!\s+at |\s+\.\.\. |Caused by: ).+)*)", re.MULTILINE)
_HAS_CONDITION = re.compile(r"[\w.$]+: \[[A-Z0-9_]+(?:\.[A-Z0-9_]+)*\]")


def without_stack(text: str) -> str:
    """Return the message of a Java exception from its text, without the stack trace.

    Spark runs subqueries and broadcasts in other threads, and wraps their exceptions. A wrapper is replaced by the
    first cause with an error condition, or by the last cause.
    """
    message = text.split("\n\tat ", maxsplit=1)[0].strip()
    causes: list[str] = [cause.strip() for cause in _CAUSES.findall(text)] if _WRAPPER_MESSAGE in message else []
    return next((cause for cause in causes if _HAS_CONDITION.match(cause)), [message, *causes][-1])


def is_full_disk(error: BaseException) -> bool:
    """Whether an error reports a full disk."""
    return any(sign in str(error) for sign in _FULL_DISK)


def full_disk(error: BaseException) -> str | None:
    """Return the disk that an error reports as full, such as ``the disk of file:/out is full``; None if it does not."""
    if not is_full_disk(error):
        return None
    written = _WRITTEN.search(str(error))
    if is_full_local_dir(error):
        return "the disk of spark.local.dir is full, where Spark keeps shuffled and spilled rows"
    return f"the disk of {written[1]} is full" if written else "the disk that rows are written to is full"


def is_full_local_dir(error: BaseException) -> bool:
    """Whether an error reports that the disk of ``spark.local.dir``, for shuffled and spilled rows, is full."""
    return is_full_disk(error) and _LOCAL_DIR_CALLS.search(str(error)) is not None
