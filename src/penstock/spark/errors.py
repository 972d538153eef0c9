"""Classification and translation of errors of PySpark and Spark."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.base.location import SourceLine
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

_NO_MEMORY = ("OutOfMemory", "Cannot broadcast the table", "_CANNOT_ACQUIRE_MEMORY", "spark.driver.maxResultSize")
_TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(r'  File "(.*?)", line (\d+)')
_PYSPARK = re.compile(r"(pyspark\.zip|(site|dist)-packages|python)/pyspark/")
_FULL = ("No space left on device", "Disk quota exceeded", "There is not enough space on the disk")
_LOCAL_DIR = re.compile(
    r"spark\.shuffle\.|spark\.storage\.|UnsafeSorterSpill|spill\(\)|blockmgr-|util\.collection\.\w*Spill|DiskBlockManager"
)


@contextmanager
def translate_errors(what: str = "the query could not be planned") -> Iterator[None]:
    """Raise PySpark's errors in the block as `PenstockError` with the message `what`, a cause and a hint."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        condition = error.getCondition() or type(error).__name__
        text = str(error).split("\n\nJVM stacktrace")[0].split(";\n'")[0].strip()
        hint = next((hint for name, hint in _HINTS.items() if name in condition), None)
        raise PenstockError(what, cause=text, hint=hint) from error


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a broadcast failed because its table was too large for Spark's limits or for the available memory."""
    text = str(error)
    return any(sign in text for sign in _NO_MEMORY)


def is_failed_last_stage(error: BaseException) -> bool:
    """Whether Spark could not retry the last stage of a query: a barrier stage, or after the loss of its input."""
    return any(sign in str(error) for sign in ("failed barrier ResultStage", "cannot rollback the ResultStage"))


def user_traceback(text: str) -> str:
    """Return the Python traceback in an error's text without the frames of PySpark and Penstock.

    A traceback without other frames keeps the last of them.
    """
    text = text[text.index(_TRACEBACK) :].split("\n\tat ", maxsplit=1)[0].rstrip()
    lines: list[str] = []
    dropped: list[str] = []
    is_shown = True
    has_frame = False
    for line in text.splitlines():
        frame = _FRAME.match(line)
        if frame is not None:
            is_shown = not (_PYSPARK.search(frame[1]) or SourceLine(frame[1], int(frame[2])).is_own)
            has_frame = has_frame or is_shown
            dropped = []
        elif line.startswith(_TRACEBACK):
            is_shown, has_frame = True, False
        elif not line.startswith("  ") and not is_shown:
            lines += [] if has_frame else dropped
            is_shown = True
        (lines if is_shown else dropped).append(line)
    return "\n".join(lines)


_AWAITED = "Exception thrown in awaitResult"
_CAUSES = re.compile(r"^Caused by: (.+(?:\n(?!\s+at |\s+\.\.\. |Caused by: ).+)*)", re.MULTILINE)
_WITH_CONDITION = re.compile(r"[\w.$]+: \[[A-Z0-9_]+(?:\.[A-Z0-9_]+)*\]")


def without_stack(text: str) -> str:
    """Return the message of a Java exception's text without its stack.

    Spark runs subqueries and broadcasts in other threads, and wraps their exceptions. A wrapper is replaced by the
    first cause with an error condition, or by the last cause.
    """
    message = text.split("\n\tat ", maxsplit=1)[0].strip()
    causes: list[str] = [cause.strip() for cause in _CAUSES.findall(text)] if _AWAITED in message else []
    return next((cause for cause in causes if _WITH_CONDITION.match(cause)), [message, *causes][-1])


def is_full_disk(error: BaseException) -> bool:
    """Whether a disk was full."""
    return any(sign in str(error) for sign in _FULL)


def is_full_local_dir(error: BaseException) -> bool:
    """Whether a disk for shuffled or spilled rows was full."""
    return is_full_disk(error) and _LOCAL_DIR.search(str(error)) is not None
