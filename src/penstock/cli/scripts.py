"""Runs a Python file as `python FILE ARGUMENTS` does, with the same errors and exit code."""

from __future__ import annotations

import builtins
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.machinery import SourceFileLoader
from pathlib import Path
from pkgutil import get_importer
from types import ModuleType

from penstock.base.location import PACKAGE, user_line_of
from penstock.cli.output import print_error
from penstock.errors import ConfigError, HistoryError, PenstockError, SessionError, WebError


def run_file(path: str, arguments: Sequence[str]) -> None:
    """Run a Python file, folder or archive; if it raises an error, print the traceback and exit with code 1."""
    sys.argv = [path, *arguments]
    file = str(Path(path).absolute())
    if get_importer(file) is not None:  # an archive, or a folder
        with exit_as_python(lambda: file):
            runpy.run_path(path, run_name="__main__")
        return
    sys.path.insert(0, str(Path(path).resolve().parent))
    main, previous_main = ModuleType("__main__"), sys.modules["__main__"]
    vars(main).update(
        __file__=file, __cached__=None, __loader__=SourceFileLoader("__main__", file), __builtins__=builtins
    )
    sys.modules["__main__"] = main
    try:
        with exit_as_python(lambda: file):
            exec(compile(Path(file).read_bytes(), file, "exec", dont_inherit=True), vars(main))  # noqa: S102 - as Python does
    finally:
        sys.modules["__main__"] = previous_main


@contextmanager
def exit_as_python(path: Callable[[], str]) -> Iterator[None]:
    """If the block raises an error, print its traceback from the program's first frame, and exit with code 1.

    If Spark cannot start or options are wrong, print only the error, with the line of the program that led to it.

    `path` returns the path of the program's file, which may be unknown before the block runs.
    """
    try:
        yield
    except (SessionError, ConfigError, HistoryError, WebError) as error:
        error.set_line(user_line_of(error))
        print_error(error)
        raise SystemExit(1) from error
    except Exception as error:
        sys.stderr.write(traceback_of(error, path()))
        sys.stderr.write(_advice(error))
        raise SystemExit(1) from error


def _advice(error: Exception) -> str:
    """Return what a user can do about an error of Spark whose message does not say it; empty if it does, or unknown."""
    if "pyspark" not in sys.modules:
        return ""
    with suppress(Exception):  # such as an old PySpark, or an error whose text cannot be read
        from penstock.spark.errors import full_disk

        if disk := full_disk(error):
            return f"error: {disk}\n  hint:  free some space there, or use a folder on a larger disk\n"
    return ""


def traceback_of(error: BaseException, path: str) -> str:
    """Return the traceback of an error and its causes, from the first frame in `path`, without frames of Penstock.

    If `error` is a `PenstockError`, its causes in Spark or a database are omitted, as its message describes them.
    """
    formatted = traceback.TracebackException.from_exception(error)
    chained: traceback.TracebackException | None = formatted
    while chained is not None:
        frames = list(chained.stack)
        first_index = next((index for index, frame in enumerate(frames) if frame.filename == path), len(frames))
        if first_index < len(frames):
            frames = frames[first_index:]
        chained.stack = traceback.StackSummary.from_list([frame for frame in frames if not _is_hidden(frame.filename)])
        if chained is formatted and isinstance(error, PenstockError):
            chained.__cause__, chained.__suppress_context__ = None, True
        chained = chained.__cause__ or (None if chained.__suppress_context__ else chained.__context__)
    return "".join(formatted.format())


def _is_hidden(file: str) -> bool:
    return file.startswith((PACKAGE, "<frozen runpy>"))
