"""Where in the user's code something was asked for."""

from __future__ import annotations

import contextlib
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

_OWN = str(Path(__file__).parent)
_BETWEEN = {"<string>", contextlib.__file__, threading.__file__}
"""Files of functions that Python puts between: the constructor of a dataclass, a ``with``, the start of a thread."""


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of the user's code, such as ``job.py:12``."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    @property
    def short(self) -> str:
        """The line without its folder."""
        return f"{Path(self.file).name}:{self.line}"

    @property
    def is_own(self) -> bool:
        """Whether it is a line of Penstock, which says nothing to the user."""
        return self.file.startswith(_OWN)


def callers_line() -> SourceLine | None:
    """Return the innermost line of the stack that is not Penstock's own."""
    frame = sys._getframe(1)  # noqa: SLF001 - the documented way to look at a caller without building a stack
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_OWN) and file not in _BETWEEN:
            return SourceLine(file, frame.f_lineno)
        if frame.f_back is None:
            break
        frame = frame.f_back
    return None
