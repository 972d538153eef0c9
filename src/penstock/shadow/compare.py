"""Comparison of the rows that a sink received, or of a job's error, with those of plain Spark."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.shadow.comparison import Comparison, Verdict
from penstock.spark.run.fingerprint import Fingerprint, fingerprint
from penstock.spark.run.plain_runs import run_without_rows
from penstock.spark.run.row_hashes import UnknownTypeError
from penstock.spark.run.row_matching import exact_differences, float_differences, rows_with

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from penstock.shadow.sinks import WatchedOutput

EXAMPLES = 5
"""The most rows of each side in a report."""
_UNSTABLE = "plain Spark itself {} in a second run, with other numbers of shuffle partitions"
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9]*_[A-Z0-9_]*(?:\.[A-Z0-9_]+)*)\]")
_RAISED = re.compile(r"^([A-Za-z_][\w.]*)(?::|$)")
_JAVA = re.compile(r"\b(?:[a-z]\w*\.)+([A-Z]\w*(?:Exception|Error))\b")
_TRACEBACK = "Traceback (most recent call last)"


@dataclass(frozen=True, slots=True)
class PlainRun:
    """The result of a query on plain Spark: the fingerprint of its rows, or its error."""

    seconds: float
    fingerprint: Fingerprint | None = None
    error: Exception | None = None


class NotComparableError(Exception):
    """An error whose message says why rows cannot be compared."""


def run_plain(watched: WatchedOutput, *, repartitioned: bool = False) -> PlainRun:
    """Run a query on plain Spark, and fingerprint its rows.

    `repartitioned` uses other numbers of shuffle partitions than the user's session. Raise `NotComparableError` if the
    query succeeds, but its checksums cannot be computed.
    """
    rows = watched.plain.repartitioned_rows if repartitioned else watched.plain.rows
    start = time.monotonic()
    try:
        checksums = fingerprint(rows(), watched.bridge)
        return PlainRun(fingerprint=checksums, seconds=time.monotonic() - start)
    except UnknownTypeError as error:
        raise NotComparableError(error.message) from error
    except Exception as error:
        seconds = time.monotonic() - start
        try:
            run_without_rows(rows())
        except Exception:  # noqa: BLE001 - the query itself fails
            return PlainRun(error=error, seconds=seconds)
        raise NotComparableError(f"the checksums of plain Spark's rows failed: {first_line(error)}") from error


def compare_rows(watched: WatchedOutput, seconds: float) -> Comparison:
    """Compare an output whose sink received its rows; `seconds` is the duration on Penstock."""
    values: dict[str, Any] = {"seconds": seconds}

    def result(verdict: Verdict, reason: str, **details: Any) -> Comparison:
        return watched.comparison(verdict, reason, **values | details)

    if watched.is_delegated:
        return result(Verdict.BY_SPARK, "Spark runs this query itself, so these are its own rows")
    if watched.problem:
        return result(Verdict.NOT_COMPARED, watched.problem)
    try:
        ours = _own_fingerprint(watched)
        values["rows"] = ours.rows
        plain = run_plain(watched)
        values["plain_seconds"] = plain.seconds
        if plain.fingerprint is None:
            return result(*_only_plain_raises(watched, plain, ours.rows))
        values["plain_rows"] = plain.fingerprint.rows
        return result(**_verdict(watched, ours, plain.fingerprint))
    except NotComparableError as error:
        return result(Verdict.NOT_COMPARED, str(error))
    except Exception as error:  # noqa: BLE001 - the comparison must not fail the job
        return result(Verdict.NOT_COMPARED, f"the comparison failed: {first_line(error)}")


def _own_fingerprint(watched: WatchedOutput) -> Fingerprint:
    try:
        return (
            fingerprint(watched.offered_rows, watched.bridge)
            if watched.counted is None
            else watched.counted.fingerprint()
        )
    except UnknownTypeError as error:
        raise NotComparableError(error.message) from error
    except Exception as error:
        raise NotComparableError(f"the checksums of Penstock's rows failed: {first_line(error)}") from error


def _only_plain_raises(watched: WatchedOutput, plain: PlainRun, rows: int) -> tuple[Verdict, str]:
    assert plain.error is not None
    second = run_plain(watched, repartitioned=True)
    if second.error is None:
        return Verdict.NOT_COMPARED, _UNSTABLE.format("does not fail") + f"; in the first {first_line(plain.error)}"
    return Verdict.DIFFERENT, f"plain Spark raises {error_class(plain.error)}, Penstock gives {rows} rows"


def _verdict(watched: WatchedOutput, ours: Fingerprint, plain: Fingerprint) -> dict[str, Any]:
    """Compare fingerprints, and if they differ, run both sides again to explain the difference."""
    assert watched.offered is not None
    ours_are, theirs_are = (_columns(schema) for schema in (watched.offered.schema, watched.plain.schema()))
    if ours_are != theirs_are:
        return {"verdict": Verdict.DIFFERENT, "reason": f"the columns are {ours_are} instead of {theirs_are}"}
    if ours.equals(plain):
        return {"verdict": Verdict.EQUAL, "reason": "every row, bit by bit"}
    offered_rows = watched.offered_rows
    note = ""
    again = fingerprint(offered_rows, watched.bridge)
    if ours.rows == 0 and again.rows:
        # Not a loss: the sink may have the rows already, or ignore them by its mode or token.
        note = "; the sink took none of the rows it was offered, these were compared"
        if again.equals(plain):
            return {"verdict": Verdict.EQUAL, "reason": "every row, bit by bit" + note, "rows": again.rows}
        ours = again
    elif not again.may_equal(ours):
        note = "; Penstock's rows differ when they are read again, so the examples may be misleading"
    second = run_plain(watched, repartitioned=True)
    if second.fingerprint is None or not second.fingerprint.may_equal(plain):
        raise NotComparableError(_UNSTABLE.format("gives other rows" if second.fingerprint else "fails"))
    cause = watched.plain.nondeterminism()
    if cause:
        raise NotComparableError(f"the query is not deterministic: {cause}")
    return _details(watched, ours, plain, offered_rows, note)


def _columns(schema: StructType) -> str:
    """Return the names and types of columns, without nullability, which optimised plans narrow."""
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)


def _details(
    watched: WatchedOutput, ours: Fingerprint, plain: Fingerprint, offered_rows: DataFrame, note: str
) -> dict[str, Any]:
    """Describe the rows that differ; doubles within the tolerance are equal."""
    bridge, names, plain_rows = watched.bridge, watched.plain.schema().names, watched.plain.rows()
    columns = tuple(names[i] for i in ours.differing_columns(plain)) if ours.rows == plain.rows else ()
    if ours.equals_except_floats(plain):
        float_keys = float_differences(bridge, offered_rows, plain_rows)
        if float_keys is not None and not any(float_keys):
            reason = "every row; doubles to 1e-9, as their last digits depend on the order of additions"
            return {"verdict": Verdict.EQUAL, "reason": reason + note}
        keys = float_keys or ([], [])
        columns = columns or tuple(names[i] for i in sorted(ours.sums))
        reason = "doubles or floats differ by more than another order of additions explains"
    else:
        keys = exact_differences(bridge, offered_rows, plain_rows, EXAMPLES)
        reason = f"{ours.rows} rows, plain Spark gives {plain.rows}" if ours.rows != plain.rows else "other rows"
        times = ours.rows // plain.rows if plain.rows else 0
        if times > 1 and ours.hashes == tuple(times * value for value in plain.hashes):
            reason += f": every row {times} times, or the sink reads its rows {times} times"
    sides = zip((offered_rows, plain_rows), keys, strict=True)
    try:
        shown = [rows_with(bridge, df, side, EXAMPLES) for df, side in sides]
    except Exception as error:  # noqa: BLE001 - the rows differ even if they cannot be shown
        shown, note = [[], []], f"{note}; the rows cannot be shown: {first_line(error)}"
    return {
        "verdict": Verdict.DIFFERENT,
        "reason": reason + note,
        "columns": columns,
        "examples": tuple(shown[0]),
        "plain_examples": tuple(shown[1]),
    }


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
