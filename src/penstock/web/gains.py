"""How much faster a job was than its last run and than plain Spark, as far as this was measured."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.web import formatting

if TYPE_CHECKING:
    from penstock.history.record import JobRecord

_MIN_SECONDS = 0.05
"""Durations that differ by less are equal: they are shown with a decimal place."""
_PROGRAM = re.compile(r" at (.+\.py):\d+$")
"""The file of the program in the user's line of code, such as ``collect at report.py:12``."""


@dataclass(frozen=True, slots=True)
class Gain:
    """A sentence about the seconds that were gained, the target of its link, and the text and target of the link."""

    text: str
    link: str = ""
    href: str = ""


def gains(
    record: JobRecord, now: float, last: JobRecord | None, compared: JobRecord | None, comparison_page: str
) -> Iterator[Gain]:
    """Compare a job with its last finished run, and with plain Spark; both may be unknown.

    `compared` is the latest run, maybe the job itself, whose queries plain Spark ran as well. `comparison_page` is the
    address of the page that shows both runs.
    """
    if last is not None:
        yield Gain(_since_last_run(record, now, last), "Compare both runs", comparison_page)
    if compared is not None and compared.spark_seconds is not None:
        page = "" if compared.id == record.id else f"/ui/jobs/{compared.id}"
        yield Gain(_against_spark(record, now, compared), "That run" if page else "", page)
    else:
        line = (record.query or {}).get("line") or ""
        program = match[1] if (match := _PROGRAM.search(line)) else "job.py"
        yield Gain(f"Plain Spark was not measured. To measure it: penstock verify {program}")


def _since_last_run(record: JobRecord, now: float, last: JobRecord) -> str:
    before, after = last.seconds_without_comparison(now), record.seconds_without_comparison(now)
    if not record.is_ended:
        return f"The last run ({formatting.clock(last.started)}) took {formatting.seconds(before)}"
    return f"{_change(before, after)} than the last run ({formatting.clock(last.started)}): {_both(before, after)}"


def _against_spark(record: JobRecord, now: float, compared: JobRecord) -> str:
    spark, penstock = compared.spark_seconds or 0.0, compared.seconds_without_comparison(now)
    run = "in this run" if compared.id == record.id else f"in the run of {formatting.clock(compared.started)}"
    if (compared.query or {}).get("of_spark"):
        return (
            f"Plain Spark took {formatting.seconds(spark)} {run}, and Penstock {formatting.seconds(penstock)} without "
            "the last stage, which Spark runs after the job"
        )
    how = f"{run}, where plain Spark ran the same queries afterwards, and neither committed"
    return f"{_change(spark, penstock)} than plain Spark: {_both(spark, penstock)} ({how})"


def _change(before: float, after: float) -> str:
    difference = formatting.seconds(abs(after - before))
    if abs(after - before) < _MIN_SECONDS:
        return "No faster or slower"
    return f"{difference} {'faster' if after < before else 'slower'}"


def _both(before: float, after: float) -> str:
    return f"{formatting.seconds(after)} instead of {formatting.seconds(before)}"
