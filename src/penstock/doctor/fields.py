"""Texts and numbers of the events of a log, without secrets and characters that harm a terminal."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from penstock.base.masking import mask
from penstock.doctor.records import MAX_TEXT

_CONTROL_CHARACTERS = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]+")
"""Characters that a terminal interprets or cannot show."""
_ERROR = re.compile(r"[\w.]*(?:Error|Exception)\b.*:")
"""The line of a Python traceback that has the error."""


@lru_cache(maxsize=1024)
def _clean(raw: str) -> str:
    return sys.intern(_CONTROL_CHARACTERS.sub(" ", mask(raw))[:MAX_TEXT])


def text(value: object) -> str:
    """Return a text of the log without secrets and control characters; equal texts are the same object."""
    return _clean(str(value))


def settings(pairs: Iterable[Any]) -> dict[str, str]:
    """Return the names and values of settings as texts."""
    return {text(key): text(value) for key, value in pairs}


def number(value: Any) -> float:
    """Convert a number of the log; null is 0, and an infinite number raises an exception."""
    result = float(value or 0)
    if not math.isfinite(result):
        raise ValueError(result)
    return result


def error_line(message: object) -> str:
    """Return the line of an error message or traceback that says most: the last with an error, else the first."""
    lines = [line.strip() for line in str(message).splitlines() if line.strip()]
    error = next((line for line in reversed(lines) if _ERROR.match(line)), lines[0] if lines else "")
    return text(error)[:300]
