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

MAX_EXAMPLES = 5
"""Maximum number of differing rows that a report shows of each side, Penstock and plain Spark."""
_UNSTABLE = "plain Spark itself {} in a second run, with other numbers of shuffle partitions"
# Patterns of an error condition of Spark, a Python class and a Java class in the message of an error.
_ERROR_CONDITION = re.compile(r"\[([A-Z][A-Z0-9]*_[A-Z0-9_]*(?:\.[A-Z0-9_]+)*)\]")
_PYTHON_ERROR = re.compile(r"^([A-Za-z_][\w.]*)(?::|$)")
_JAVA_ERROR = re.compile(r"\b(?:[a-z]\w*\.)+([A-Z]\w*(?:Exception|Error))\b")
_TRACEBACK = "Traceback (most recent call last)"


@dataclass(frozen=True, slots=True)
class PlainRun:
    """The result of a query on plain Spark: its duration, and the fingerprint of its rows or its error."""

    seconds: float
    fingerprint: Fingerprint | None = None
    error: Exception | None = None


class NotComparableError(Exception):
    """An error whose message says why rows cannot be compared."""


def run_plain(watched: WatchedOutput, *, repartitioned: bool = False) -> PlainRun:
    """Run the query of an output on Spark without Penstock, and compute the fingerprint (checksums) of its rows.

    With `repartitioned`, the numbers of shuffle partitions differ from those of the user's session. Raise
    `NotComparableError` if the checksums fail but the query does not, or a column has a type without checksums.
    """
    create_rows = watched.plain.repartitioned_rows if repartitioned else watched.plain.rows
    start = time.monotonic()
    try:
        rows_fingerprint = fingerprint(create_rows(), watched.bridge)
        return PlainRun(fingerprint=rows_fingerprint, seconds=time.monotonic() - start)
    except UnknownTypeError as error:
        raise NotComparableError(error.message) from error
    except Exception as error:
        seconds = time.monotonic() - start
        try:
            run_without_rows(create_rows())
        except Exception:  # noqa: BLE001 - the query itself fails
            return PlainRun(error=error, seconds=seconds)
        raise NotComparableError(f"the checksums of plain Spark's rows failed: {first_line(error)}") from error


def compare_rows(watched: WatchedOutput, seconds: float) -> Comparison:
    """Compare the rows that a sink received with plain Spark's; `seconds` is the duration of the job on Penstock."""
    measured: dict[str, Any] = {"seconds": seconds}

    def comparison(verdict: Verdict, reason: str, **details: Any) -> Comparison:
        return watched.comparison(verdict, reason, **measured | details)

    if watched.is_run_by_spark:
        return comparison(Verdict.BY_SPARK, "Spark runs this query itself, so these are plain Spark's rows")
    if watched.problem:
        return comparison(Verdict.NOT_COMPARED, watched.problem)
    try:
        penstock = _penstock_fingerprint(watched)
        measured["rows"] = penstock.rows
        plain_run = run_plain(watched)
        measured["plain_seconds"] = plain_run.seconds
        if plain_run.fingerprint is None:
            return comparison(*_verdict_on_plain_error(watched, plain_run, penstock.rows))
        measured["plain_rows"] = plain_run.fingerprint.rows
        return comparison(**_compare_fingerprints(watched, penstock, plain_run.fingerprint))
    except NotComparableError as error:
        return comparison(Verdict.NOT_COMPARED, str(error))
    except Exception as error:  # noqa: BLE001 - the comparison must not fail the job
        return comparison(Verdict.NOT_COMPARED, f"the comparison failed: {first_line(error)}")


def _penstock_fingerprint(watched: WatchedOutput) -> Fingerprint:
    try:
        if watched.fingerprinted_rows is not None:
            return watched.fingerprinted_rows.fingerprint()
        return fingerprint(watched.recomputed_rows, watched.bridge)
    except UnknownTypeError as error:
        raise NotComparableError(error.message) from error
    except Exception as error:
        raise NotComparableError(f"the checksums of Penstock's rows failed: {first_line(error)}") from error


def _verdict_on_plain_error(watched: WatchedOutput, plain_run: PlainRun, rows: int) -> tuple[Verdict, str]:
    """Return the verdict and reason if plain Spark fails, but not Penstock; `rows` is the number of Penstock's rows."""
    assert plain_run.error is not None
    second_run = run_plain(watched, repartitioned=True)
    if second_run.error is None:
        message = first_line(plain_run.error)
        return Verdict.NOT_COMPARED, _UNSTABLE.format("does not fail") + f"; the first run raised: {message}"
    return Verdict.DIFFERENT, f"plain Spark raises {error_class(plain_run.error)}, Penstock returns {rows} rows"


def _compare_fingerprints(watched: WatchedOutput, penstock: Fingerprint, plain: Fingerprint) -> dict[str, Any]:
    """Return the values of a `Comparison` by field; if fingerprints differ, run both sides again to explain why."""
    assert watched.sink_df is not None
    columns, plain_columns = (_columns(schema) for schema in (watched.sink_df.schema, watched.plain.schema()))
    if columns != plain_columns:
        return {"verdict": Verdict.DIFFERENT, "reason": f"the columns are {columns} instead of {plain_columns}"}
    if penstock.equals(plain):
        return {"verdict": Verdict.EQUAL, "reason": "every row, bit by bit"}
    recomputed_rows = watched.recomputed_rows
    note = ""
    recomputed = fingerprint(recomputed_rows, watched.bridge)
    if penstock.rows == 0 and recomputed.rows:
        # The sink ignored the rows because of its mode or token: the target may have the rows already.
        note = "; the sink ignored all its rows, so they were computed again and compared"
        if recomputed.equals(plain):
            return {"verdict": Verdict.EQUAL, "reason": "every row, bit by bit" + note, "rows": recomputed.rows}
        penstock = recomputed
    elif not recomputed.may_equal(penstock):
        note = "; Penstock's rows differ when they are computed again, so the examples may be misleading"
    second_run = run_plain(watched, repartitioned=True)
    if second_run.fingerprint is None or not second_run.fingerprint.may_equal(plain):
        raise NotComparableError(_UNSTABLE.format("returns other rows" if second_run.fingerprint else "fails"))
    cause = watched.plain.nondeterminism()
    if cause:
        raise NotComparableError(f"the query is not deterministic: {cause}")
    return _details(watched, penstock, plain, recomputed_rows, note)


def _columns(schema: StructType) -> str:
    """Return the names and types of columns, without nullability, which differs between optimized plans."""
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)


def _details(
    watched: WatchedOutput, penstock: Fingerprint, plain: Fingerprint, penstock_rows: DataFrame, note: str
) -> dict[str, Any]:
    """Return the values of a `Comparison` if fingerprints differ; rows with nearly equal doubles count as equal."""
    bridge, names, plain_rows = watched.bridge, watched.plain.schema().names, watched.plain.rows()
    columns = tuple(names[i] for i in penstock.differing_columns(plain)) if penstock.rows == plain.rows else ()
    if penstock.equals_except_floats(plain):
        differing_keys = float_differences(bridge, penstock_rows, plain_rows)
        if differing_keys is not None and not any(differing_keys):
            reason = "every row; doubles with a tolerance of 1e-9, as sums depend on the order of additions"
            return {"verdict": Verdict.EQUAL, "reason": reason + note}
        keys = differing_keys or ([], [])  # None: too many rows differ to show examples
        columns = columns or tuple(names[i] for i in sorted(penstock.sums))  # all columns with floats
        reason = "doubles or floats differ by more than another order of additions explains"
    else:
        keys = exact_differences(bridge, penstock_rows, plain_rows, MAX_EXAMPLES)
        counts = f"{penstock.rows} rows, plain Spark returns {plain.rows}"
        reason = counts if penstock.rows != plain.rows else "other rows"
        copies = penstock.rows // plain.rows if plain.rows else 0
        if copies > 1 and penstock.hashes == tuple(copies * value for value in plain.hashes):
            reason += f": every row {copies} times, or the sink reads its rows {copies} times"
    sides = zip((penstock_rows, plain_rows), keys, strict=True)
    try:
        examples = [rows_with(bridge, df, keys_of_side, MAX_EXAMPLES) for df, keys_of_side in sides]
    except Exception as error:  # noqa: BLE001 - the rows differ even if they cannot be shown
        examples, note = [[], []], f"{note}; the rows cannot be shown: {first_line(error)}"
    return {
        "verdict": Verdict.DIFFERENT,
        "reason": reason + note,
        "columns": columns,
        "examples": tuple(examples[0]),
        "plain_examples": tuple(examples[1]),
    }


def error_class(error: BaseException) -> str:
    """Return a name that identifies the kind of an error's root cause.

    The name is, if available, that of the Python exception of a user's function, else an error condition of Spark such
    as ``DIVIDE_BY_ZERO``, else a Java class, else the Python class of the root cause.
    """
    while error.__cause__ is not None:
        error = error.__cause__
    text = str(error)
    if _TRACEBACK in text:
        lines = text[text.rindex(_TRACEBACK) :].splitlines()[1:]  # frames are indented, so they do not match
        error_match = next((match for line in lines if (match := _PYTHON_ERROR.match(line)) is not None), None)
        if error_match is not None:
            return error_match[1]
    conditions = _ERROR_CONDITION.findall(text)
    if conditions:
        return str(conditions[0])
    classes = _JAVA_ERROR.findall(text)
    return str(classes[-1]) if classes else type(error).__name__


def first_line(error: BaseException) -> str:
    """Return the first line, up to 300 characters, of the message of an error's root cause, else the cause's class."""
    while error.__cause__ is not None:
        error = error.__cause__
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:300]
