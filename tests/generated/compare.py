"""Outcomes of pipelines, and their comparison."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from penstock.errors import PenstockError

_CONDITION = re.compile(r"\[([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+(?:\.[A-Z0-9_]+)*)\]")
_CAUSE = re.compile(r"cause: (\w+(?:\.\w+)*(?:Error|Exception))\b")
_PASSED_ON = ("Job aborted due to stage failure", "Exception thrown in awaitResult")
_VALUES = re.compile(r"""['"`\d/-]""")
"""The characters with which values, tasks or files begin in a message."""
_RAISED = re.compile(r"^(\w+(?:\.\w+)*(?:Error|Exception|Interrupt|Exit))\b", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """Rows and schema of each result, or an error, or a hang.

    `errors` has the errors of all results run separately, because any of them may be the first error of a job. `causes`
    has the causes of the error if these are compared. `sources` has the conditions and causes of all failing sources,
    because any of them may fail first. `warning` is an exception that was only logged. `is_native` says whether DuckDB
    has computed a part of the rows.
    """

    rows: tuple[list[tuple], ...] = ()
    schemas: tuple[Any, ...] = ()
    ordered: tuple[bool, ...] = ()
    error: str = ""
    text: str = field(default="", compare=False)
    hung: bool = False
    errors: frozenset[str] = field(default=frozenset(), compare=False)
    causes: tuple[str, ...] = ()
    sources: frozenset[tuple[str, tuple[str, ...]]] = field(default=frozenset(), compare=False)
    warning: str = ""
    is_native: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        if self.hung:
            return "no end"
        if self.error:
            text = self.text if len(self.text) < 900 else f"{self.text[:300]} ... {self.text[-600:]}"
            return f"error {self.error}: {text} {self.causes}"
        return "; ".join(f"{len(rows)} rows {rows[:3]}" for rows in self.rows)


def condition_of(error: BaseException) -> str:
    """Return Spark's error condition, or the class of a Python exception."""
    text = str(error)
    if "Traceback (most recent call last)" in text:
        raised = _RAISED.findall(text[text.rindex("Traceback (most recent call last)") :])
        if raised and not raised[0].startswith("py4j"):
            return raised[0].rpartition(".")[2]
    condition = _CONDITION.search(text)
    if condition:
        return condition[1]
    raised = _CAUSE.search(text) or _RAISED.search(text)
    return raised[1].rpartition(".")[2] if raised else type(error).__name__


def causes_of(error: BaseException) -> tuple[str, ...]:
    """Return the classes and message prefixes of the Java exceptions, without wrappers such as ExecutionException."""
    while isinstance(error, PenstockError) and error.__cause__ is not None:
        error = error.__cause__
    java = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    causes: list[str] = []
    while java is not None:
        name = java.getClass().getSimpleName().removeprefix("Spark")
        message = str(java.getMessage() or "")
        if not message.startswith(_PASSED_ON) and name != "ExecutionException":
            causes.append(f"{name}: {_VALUES.split(message)[0][:80]}")
        java = java.getCause()
    return tuple(causes) or (type(error).__name__,)


def plain(value: Any) -> Any:
    """Return a comparable form of a value, with 0.0 instead of -0.0."""
    if hasattr(value, "asDict"):
        return tuple(plain(part) for part in value)
    if isinstance(value, dict):
        return tuple(sorted((repr(plain(k)), plain(v)) for k, v in value.items()))
    if isinstance(value, (list, tuple)):
        return tuple(plain(part) for part in value)
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, float):
        return value + 0.0
    return str(value) if type(value).__name__ == "VariantVal" else value


def key(value: Any) -> str:
    """Return a sort key in which nearly equal floats are (almost always) equal."""
    if isinstance(value, tuple):
        return "(" + ",".join(map(key, value)) + ")"
    return f"{value:.5e}" if isinstance(value, float) else repr(value)


def same(left: Any, right: Any) -> bool:
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float) and isinstance(right, float):
        return (math.isnan(left) and math.isnan(right)) or math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-12)
    if isinstance(left, Decimal) and isinstance(right, Decimal):
        return left.as_tuple() == right.as_tuple()
    return type(left) is type(right) and left == right


LOST = [("UNABLE_TO_INFER_SCHEMA",)]
"""The result of reading a folder without files, see `sinks.Context`."""


def difference(expected: Outcome, actual: Outcome) -> str:
    """Return the kind of difference in a few words, or an empty string."""
    if actual.hung:
        return "hang"
    if actual.warning:
        return f"logged: {actual.warning}"
    if expected.error or actual.error:
        if {(expected.error, expected.causes), (actual.error, actual.causes)} <= expected.sources:
            return ""
        if expected.error == actual.error or actual.error in expected.errors:
            return "" if expected.causes == actual.causes else f"other causes of {expected.error}"
        if not expected.error:
            return f"error only here: {actual.error}"
        return (
            f"no error here: {expected.error}"
            if not actual.error
            else f"other error: {actual.error} for {expected.error}"
        )
    if LOST in expected.rows:  # the write failed; Penstock may leave more files than Spark
        return "" if expected.rows[0] == actual.rows[0] else "error of a write"
    if expected.schemas != actual.schemas:
        return "schema"
    for number, (theirs, ours, ordered) in enumerate(zip(expected.rows, actual.rows, expected.ordered, strict=True)):
        suffix = f" of result {number}" if len(expected.rows) > 1 else ""
        if len(theirs) != len(ours):
            return f"row count{suffix}"
        if not ordered:
            theirs, ours = sorted(theirs, key=key), sorted(ours, key=key)  # noqa: PLW2901
        if not all(map(same, theirs, ours)):
            return f"rows{suffix}"
    return ""


def figures(expected: Outcome, actual: Outcome) -> str:
    """Return a short text of both outcomes, with a few of the rows that only one of them has."""
    if expected.error or actual.error or actual.hung:
        return f"plain: {expected}\npenstock: {actual}"
    lines = []
    for number, (spark_rows, penstock_rows) in enumerate(zip(expected.rows, actual.rows, strict=True)):
        theirs, ours = ({key(row): row for row in rows} for rows in (spark_rows, penstock_rows))
        lines.append(f"result {number}: plain {len(spark_rows)} rows, penstock {len(penstock_rows)} rows")
        lines += [f"  only plain:    {theirs[k]}" for k in list(theirs.keys() - ours.keys())[:3]]
        lines += [f"  only penstock: {ours[k]}" for k in list(ours.keys() - theirs.keys())[:3]]
    if expected.schemas != actual.schemas:
        lines.append(f"schemas: plain {expected.schemas}, penstock {actual.schemas}")
    return "\n".join(lines)
