"""Lines of the user's code, for error messages and names of jobs."""

from __future__ import annotations

import contextlib
import os
import site
import sys
import sysconfig
import threading
import traceback
from dataclasses import dataclass
from pathlib import Path

PACKAGE = str(Path(__file__).parents[1]) + os.sep
"""The folder of Penstock's modules."""
PYTHON = (*{sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")}, "<frozen")
_SITE = {*map(sysconfig.get_path, ("purelib", "platlib")), *site.getsitepackages(), site.getusersitepackages()}
INSTALLED = tuple(folder + os.sep for folder in _SITE)
"""Beginnings of file paths: of Python itself, and of installed packages, some of which are in Python's folder."""
_INTERMEDIATE_FILES = {"<string>", contextlib.__file__, threading.__file__}
"""Files of Python itself whose frames may call Penstock: dataclass constructors, ``with``, thread starts."""


@dataclass(frozen=True, slots=True)
class UserLine:
    """A line of Python code, such as ``job.py:12`` or ``cell 3, line 1``; the user's unless `is_in_penstock`."""

    file: str
    line: int

    def __str__(self) -> str:
        return self.short if self.cell else f"{self.file}:{self.line}"

    @property
    def cell(self) -> str | None:
        """The cell of a notebook or of IPython, such as ``cell 3``, whose number changes when it runs again."""
        shells = sys.modules.get("IPython.core.interactiveshell")
        if shells is None or not shells.InteractiveShell.initialized():
            return None
        numbers = getattr(shells.InteractiveShell.instance().compile, "_filename_map", {})  # by the name of the code
        return f"cell {numbers[self.file]}" if self.file in numbers else None

    @property
    def short(self) -> str:
        """The line without the folder of its file."""
        return f"{self.cell}, line {self.line}" if self.cell else f"{Path(self.file).name}:{self.line}"

    @property
    def is_in_penstock(self) -> bool:
        """Whether it is a line of Penstock itself."""
        return self.file.startswith(PACKAGE)


def current_user_line() -> UserLine | None:
    """Return the innermost line of the call stack outside Penstock and `_INTERMEDIATE_FILES`, None if there is none."""
    frame = sys._getframe(1)  # noqa: SLF001 - the documented way to get a caller without building a stack
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(PACKAGE) and file not in _INTERMEDIATE_FILES:
            return UserLine(file, frame.f_lineno)
        if frame.f_back is None:
            break
        frame = frame.f_back
    return None


def user_line_of(error: BaseException) -> UserLine | None:
    """Return the innermost line of a program that led to an error, None if the error has only lines of packages."""
    lines = [UserLine(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    pyspark = getattr(sys.modules.get("pyspark"), "__file__", None)  # may be in a folder of Spark
    hidden = (PACKAGE, *INSTALLED, *PYTHON, *(() if pyspark is None else (str(Path(pyspark).parent) + os.sep,)))
    return next((line for line in reversed(lines) if not line.file.startswith(hidden)), None)
