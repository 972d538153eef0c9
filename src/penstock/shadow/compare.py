"""Compares the rows a sink got with those of plain Spark."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.shadow.comparison import Comparison, Verdict
from penstock.shadow.failures import error_class, first_line
from penstock.spark.fingerprint import Fingerprint, fingerprint
from penstock.spark.plain_runs import run_without_rows
from penstock.spark.row_hashes import UnknownTypeError
from penstock.spark.row_matching import exact_differences, float_differences, rows_with

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from penstock.shadow.sinks import Watched

EXAMPLES = 5
"""So many rows of each side are shown."""
_AGAIN = "plain Spark itself {} in a second run, with other numbers of shuffle partitions"


@dataclass(frozen=True, slots=True)
class PlainRun:
    """What plain Spark made of a query.

    Parameters
    ----------
    seconds
        How long it took.
    found
        The rows' fingerprint, if it did not fail.
    error
        What it failed with.
    """

    seconds: float
    found: Fingerprint | None = None
    error: Exception | None = None


class NotComparableError(Exception):
    """The rows cannot be compared; the text says why."""


def run_plain(watched: Watched, *, otherwise: bool = False) -> PlainRun:
    """Run a query on plain Spark, and fingerprint its rows.

    Parameters
    ----------
    watched
        The output.
    otherwise
        Whether its shuffles have other numbers of partitions than the user's session says.

    Raises
    ------
    NotComparableError
        If the query runs, and its checksums cannot be taken.
    """
    rows = watched.plain.rows_otherwise if otherwise else watched.plain.rows
    start = time.monotonic()
    try:
        found = fingerprint(rows(), watched.bridge)
        return PlainRun(found=found, seconds=time.monotonic() - start)
    except UnknownTypeError as error:
        raise NotComparableError(error.message) from error
    except Exception as error:
        seconds = time.monotonic() - start
        try:
            run_without_rows(rows())
        except Exception:  # noqa: BLE001 - it is the query that fails
            return PlainRun(error=error, seconds=seconds)
        raise NotComparableError(f"the checksums of plain Spark's rows failed: {first_line(error)}") from error


def compare_rows(watched: Watched, seconds: float) -> Comparison:
    """Compare an output whose sink got its rows; `seconds` are Penstock's."""
    known: dict[str, Any] = {"seconds": seconds, "names": tuple(watched.plain.schema.names)}

    def result(verdict: Verdict, reason: str, **more: Any) -> Comparison:
        return Comparison(watched.name, verdict, reason, location=watched.location, **known | more)

    if watched.is_whole:
        return result(Verdict.BY_SPARK, "Spark runs this query itself, so these are its own rows")
    if watched.problem:
        return result(Verdict.NOT_COMPARED, watched.problem)
    try:
        ours = _own_fingerprint(watched)
        known["rows"] = ours.rows
        plain = run_plain(watched)
        known["plain_seconds"] = plain.seconds
        if plain.found is None:
            return result(*_only_plain_raises(watched, plain, ours.rows))
        known["plain_rows"] = plain.found.rows
        return result(**_verdict(watched, ours, plain.found))
    except NotComparableError as why:
        return result(Verdict.NOT_COMPARED, str(why))
    except Exception as error:  # noqa: BLE001 - a job must not fail for being watched
        return result(Verdict.NOT_COMPARED, f"the comparison failed: {first_line(error)}")


def _own_fingerprint(watched: Watched) -> Fingerprint:
    try:
        return fingerprint(watched.taken, watched.bridge) if watched.counted is None else watched.counted.fingerprint()
    except UnknownTypeError as error:
        raise NotComparableError(error.message) from error
    except Exception as error:
        raise NotComparableError(f"the checksums of Penstock's rows failed: {first_line(error)}") from error


def _only_plain_raises(watched: Watched, plain: PlainRun, rows: int) -> tuple[Verdict, str]:
    assert plain.error is not None
    second = run_plain(watched, otherwise=True)
    if second.error is None:
        return Verdict.NOT_COMPARED, _AGAIN.format("does not fail") + f"; in the first {first_line(plain.error)}"
    return Verdict.DIFFERENT, f"plain Spark raises {error_class(plain.error)}, Penstock gives {rows} rows"


def _verdict(watched: Watched, ours: Fingerprint, plain: Fingerprint) -> dict[str, Any]:
    """Return what can be said of the rows, more of it the less they are equal."""
    assert watched.offered is not None
    ours_are, theirs_are = (_columns(schema) for schema in (watched.offered.schema, watched.plain.schema))
    if ours_are != theirs_are:
        return {"verdict": Verdict.DIFFERENT, "reason": f"the columns are {ours_are} instead of {theirs_are}"}
    if ours.equals(plain):
        return {"verdict": Verdict.EQUAL, "reason": "every row, bit by bit"}
    taken = watched.taken
    note = ""
    again = fingerprint(taken, watched.bridge)
    if ours.rows == 0 and again.rows:
        # Not a loss: a sink may have the rows already, as a token or the mode "ignore" tells it.
        note = "; the sink took none of the rows it was offered, these were compared"
        if again.equals(plain):
            return {"verdict": Verdict.EQUAL, "reason": "every row, bit by bit" + note, "rows": again.rows}
        ours = again
    elif not again.may_equal(ours):
        note = "; read once more, Penstock's rows are others, so the examples may mislead"
    second = run_plain(watched, otherwise=True)
    if second.found is None or not second.found.may_equal(plain):
        raise NotComparableError(_AGAIN.format("gives other rows" if second.found else "fails"))
    undetermined = watched.plain.why_undetermined()
    if undetermined:
        raise NotComparableError(f"the query does not determine its rows: {undetermined}")
    return _details(watched, ours, plain, taken, note)


def _columns(schema: StructType) -> str:
    """Return names and types, but not whether they may hold null: optimised plans know that better."""
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)


def _details(watched: Watched, ours: Fingerprint, plain: Fingerprint, taken: DataFrame, note: str) -> dict[str, Any]:
    """Return which rows differ; nearly equal doubles are equal."""
    bridge, names, plain_rows = watched.bridge, watched.plain.schema.names, watched.plain.rows()
    columns = tuple(names[i] for i in ours.differing_columns(plain)) if ours.rows == plain.rows else ()
    if ours.equals_but_for_floats(plain):
        found = float_differences(bridge, taken, plain_rows)
        if found is not None and not any(found):
            reason = "every row; doubles to 1e-9, as their last digits depend on the order of additions"
            return {"verdict": Verdict.EQUAL, "reason": reason + note}
        keys = found or ([], [])
        columns = columns or tuple(names[i] for i in sorted(ours.sums))
        reason = "doubles or floats differ by more than additions in another order explain"
    else:
        keys = exact_differences(bridge, taken, plain_rows, EXAMPLES)
        reason = f"{ours.rows} rows, plain Spark gives {plain.rows}" if ours.rows != plain.rows else "other rows"
        times = ours.rows // plain.rows if plain.rows else 0
        if times > 1 and ours.hashes == tuple(times * one for one in plain.hashes):
            reason += f": every row {times} times, or the sink reads its rows {times} times"
    sides = zip((taken, plain_rows), keys, strict=True)
    try:
        shown = [rows_with(bridge, df, side, EXAMPLES) for df, side in sides]
    except Exception as error:  # noqa: BLE001 - rows that cannot be shown are different all the same
        shown, note = [[], []], f"{note}; the rows cannot be shown: {first_line(error)}"
    return {
        "verdict": Verdict.DIFFERENT,
        "reason": reason + note,
        "columns": columns,
        "examples": tuple(shown[0]),
        "plain_examples": tuple(shown[1]),
    }
