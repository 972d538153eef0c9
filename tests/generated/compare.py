"""What a pipeline gave, and whether two such outcomes are the same."""

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
"""Where a message begins to tell of values, tasks or files."""
_RAISED = re.compile(r"^(\w+(?:\.\w+)*(?:Error|Exception|Interrupt|Exit))\b", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """Rows with names and types for each result, or an error, or neither within the time.

    `errors` has those of all results, each run by itself: of a job, any of them may be the first. `causes` tells of the
    error's causes, if these are compared. `sources` has the condition and the causes of each source that fails by
    itself: where several fail, any of them may be the first. `warning` tells of an exception that was only logged, and
    `is_native` whether DuckDB has computed a part of the rows.
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
    """Return what kind of error it is: Spark's condition, or the class that Python raised."""
    text = str(error)
    if "Traceback (most recent call last)" in text:
        raised = _RAISED.findall(text[text.rindex("Traceback (most recent call last)") :])
        if raised and not raised[0].startswith("py4j"):
            return raised[0].rpartition(".")[2]
    found = _CONDITION.search(text)
    if found:
        return found[1]
    raised = _CAUSE.search(text) or _RAISED.search(text)
    return raised[1].rpartition(".")[2] if raised else type(error).__name__


def causes_of(error: BaseException) -> tuple[str, ...]:
    """Return the classes and the beginnings of the messages of Java's errors, without those that only pass on others."""
    while isinstance(error, PenstockError) and error.__cause__ is not None:
        error = error.__cause__
    java = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    found: list[str] = []
    while java is not None:
        name = java.getClass().getSimpleName().removeprefix("Spark")
        message = str(java.getMessage() or "")
        if not message.startswith(_PASSED_ON) and name != "ExecutionException":
            found.append(f"{name}: {_VALUES.split(message)[0][:80]}")
        java = java.getCause()
    return tuple(found) or (type(error).__name__,)


def plain(value: Any) -> Any:
    """Return a value as one with an order, in which -0.0 is 0.0."""
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
    """Return a text to sort by, in which floats that are nearly equal are equal (almost always)."""
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
"""What a result says of a folder without files, see `sinks.Context`."""


def difference(expected: Outcome, found: Outcome) -> str:
    """Return the kind of difference in a few words, an empty text if there is none."""
    if found.hung:
        return "hang"
    if found.warning:
        return f"logged: {found.warning}"
    if expected.error or found.error:
        if {(expected.error, expected.causes), (found.error, found.causes)} <= expected.sources:
            return ""
        if expected.error == found.error or found.error in expected.errors:
            return "" if expected.causes == found.causes else f"other causes of {expected.error}"
        if not expected.error:
            return f"error only here: {found.error}"
        return (
            f"no error here: {expected.error}"
            if not found.error
            else f"other error: {found.error} for {expected.error}"
        )
    if LOST in expected.rows:  # a write failed; where Penstock leaves more, nothing is wrong
        return "" if expected.rows[0] == found.rows[0] else "error of a write"
    if expected.schemas != found.schemas:
        return "schema"
    for number, (wanted, got, ordered) in enumerate(zip(expected.rows, found.rows, expected.ordered, strict=True)):
        where = f" of result {number}" if len(expected.rows) > 1 else ""
        if len(wanted) != len(got):
            return f"row count{where}"
        if not ordered:
            wanted, got = sorted(wanted, key=key), sorted(got, key=key)  # noqa: PLW2901
        if not all(map(same, wanted, got)):
            return f"rows{where}"
    return ""


def figures(expected: Outcome, found: Outcome) -> str:
    """Return both outcomes briefly, with a few of the rows that only one of them has."""
    if expected.error or found.error or found.hung:
        return f"plain: {expected}\npenstock: {found}"
    lines = []
    for number, (wanted, got) in enumerate(zip(expected.rows, found.rows, strict=True)):
        ours, theirs = {key(row): row for row in got}, {key(row): row for row in wanted}
        lines.append(f"result {number}: plain {len(wanted)} rows, penstock {len(got)} rows")
        lines += [f"  only plain:    {theirs[k]}" for k in list(theirs.keys() - ours.keys())[:3]]
        lines += [f"  only penstock: {ours[k]}" for k in list(ours.keys() - theirs.keys())[:3]]
    if expected.schemas != found.schemas:
        lines.append(f"schemas: plain {expected.schemas}, penstock {found.schemas}")
    return "\n".join(lines)
