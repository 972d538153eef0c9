"""Running of a Python file as with `python FILE ARGUMENTS`, with the same errors and exit code."""

from __future__ import annotations

import builtins
import runpy
import sys
import traceback
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from pathlib import Path
from pkgutil import get_importer
from types import ModuleType
from typing import TYPE_CHECKING

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_OWN = str(Path(__file__).parent.parent)


def run_file(path: str, arguments: Sequence[str]) -> None:
    """Run a Python file; if it fails, print its error to standard error and exit with the code that Python returns."""
    sys.argv = [path, *arguments]
    file = str(Path(path).absolute())
    if get_importer(file) is not None:  # an archive, or a folder
        with errors_as_python(lambda: file):
            runpy.run_path(path, run_name="__main__")
        return
    sys.path.insert(0, str(Path(path).resolve().parent))
    main, before = ModuleType("__main__"), sys.modules["__main__"]
    vars(main).update(
        __file__=file, __cached__=None, __loader__=SourceFileLoader("__main__", file), __builtins__=builtins
    )
    sys.modules["__main__"] = main
    try:
        with errors_as_python(lambda: file):
            exec(compile(Path(file).read_bytes(), file, "exec", dont_inherit=True), vars(main))  # noqa: S102 - as Python does
    finally:
        sys.modules["__main__"] = before


@contextmanager
def errors_as_python(path: Callable[[], str]) -> Iterator[None]:
    """Exit with code 1 on an error of the block as Python does, with a traceback that starts in a file.

    `path` returns the file's path, which may be unknown before the block runs.
    """
    try:
        yield
    except Exception as error:
        sys.stderr.write(traceback_of(error, path()))
        raise SystemExit(1) from error


def traceback_of(error: BaseException, path: str) -> str:
    """Return the traceback of a file's error with the frames of the user's code and of the libraries that it calls.

    Errors of Penstock are self-explanatory, so their causes in Spark or a database are omitted.
    """
    formatted = traceback.TracebackException.from_exception(error)
    level: traceback.TracebackException | None = formatted
    while level is not None:
        frames = list(level.stack)
        first = next((number for number, frame in enumerate(frames) if frame.filename == path), len(frames))
        if first < len(frames):
            frames = frames[first:]
        level.stack = traceback.StackSummary.from_list([frame for frame in frames if not _is_ours(frame.filename)])
        if level is formatted and isinstance(error, PenstockError):
            level.__cause__, level.__suppress_context__ = None, True
        level = level.__cause__ or (None if level.__suppress_context__ else level.__context__)
    return "".join(formatted.format())


def _is_ours(file: str) -> bool:
    return file.startswith((_OWN, "<frozen runpy>"))
