"""Classification of errors, to compare those of Penstock with those of plain Spark."""

from __future__ import annotations

import re

_CONDITION = re.compile(r"\[([A-Z][A-Z0-9]*_[A-Z0-9_]*(?:\.[A-Z0-9_]+)*)\]")
_RAISED = re.compile(r"^([A-Za-z_][\w.]*)(?::|$)")
_JAVA = re.compile(r"\b(?:[a-z]\w*\.)+([A-Z]\w*(?:Exception|Error))\b")
_TRACEBACK = "Traceback (most recent call last)"


def error_class(error: BaseException) -> str:
    """Return the class of an error's root cause.

    This is a Python exception of the user's function, an error condition of Spark such as ``DIVIDE_BY_ZERO``, or a
    Java class.
    """
    while error.__cause__ is not None:
        error = error.__cause__
    text = str(error)
    if _TRACEBACK in text:
        lines = text[text.rindex(_TRACEBACK) :].splitlines()[1:]
        exception = next((match for line in lines if (match := _RAISED.match(line)) is not None), None)
        if exception is not None:
            return exception[1]
    conditions = _CONDITION.findall(text)
    if conditions:
        return str(conditions[0])
    classes = _JAVA.findall(text)
    return str(classes[-1]) if classes else type(error).__name__


def first_line(error: BaseException) -> str:
    """Return the first line of the message of an error's root cause, at most 300 characters."""
    while error.__cause__ is not None:
        error = error.__cause__
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:300]
