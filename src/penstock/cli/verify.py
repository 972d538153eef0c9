"""The command `penstock verify`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.cli.flags import SPARK, Flag, program_command, takes, takes_program
from penstock.cli.output import JsonOutput, Output
from penstock.shadow.comparison import REPORTS, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from penstock.cli.common import Common
    from penstock.shadow.comparison import Comparison, ShadowReport

NOTHING = 2
"""The exit code where there was nothing to compare."""


@program_command("Run a program on Spark too, and compare the rows.")
@takes(Flag.FORMAT, *SPARK)
@takes_program
def verify(common: Common, job: str, arguments: tuple[str, ...]) -> None:
    """Run the Python file JOB on Penstock and on plain Spark, and compare the rows.

    JOB makes an Environment, as for `penstock run`. Plain Spark runs everything that the job collects, counts or writes
    a second time, without writing it, and the rows are compared by checksums: in any order, doubles to 1e-9. A query
    that plain Spark answers differently in a second run cannot be compared. The job writes its outputs as usual, so
    give it a separate target.

    \b
    Exit code: 0 no difference, 1 a difference (or the job failed), 2 nothing to compare.

    \b
    Examples:
      penstock verify revenue.py 2026-11 out/revenue-check
      penstock verify --master spark://host:7077 --output-format json revenue.py 2026-11 > report.json
      penstock verify --conf spark.penstock.execution.batch.adaptive.whole-query-threshold=64mb small.py
    """
    with common.output() as output:
        common.check()
        from penstock.cli.scripts import run_file

        os.environ["PENSTOCK_EXECUTION_SHADOW"] = "REPORT"
        try:
            with common.spark(), output.of_program():
                run_file(job, arguments)
        except SystemExit as left:
            if left.code:  # exit code 0 says nothing about the rows
                raise
        finally:
            _tell(output, REPORTS)
        if any(report.differences for report in REPORTS):
            raise SystemExit(1)
        if not any(report.comparisons for report in REPORTS):
            raise SystemExit(NOTHING)


def _tell(output: Output, reports: Iterable[ShadowReport]) -> None:
    told = [report for report in reports if report.comparisons]
    found = [one for report in told for one in report.comparisons]
    if not found:
        why = "no job came as far as its rows" if list(reports) else "the file ran no job of an Environment"
        output.note(f"nothing was compared: {why}")
    if isinstance(output, JsonOutput):
        output.record("verify", {"jobs": [report.as_dict() for report in told]})
    if isinstance(output, JsonOutput) or not found:
        return
    columns = ("job", "output", "verdict", "rows", "Spark's rows", "job's seconds", "Spark's seconds", "why")
    output.rows(columns, [row for report in told for row in _rows(report)], "Penstock and plain Spark")
    for report in told:
        for one in report.differences:
            output.note(str(one))
    output.note(_summary(found))


def _rows(report: ShadowReport) -> Iterator[Sequence[object]]:
    """Return a row for each output of a job; the time of the job, which made all of them, stands in the first."""
    for number, one in enumerate(report.comparisons):
        counts = ["-" if rows is None else f"{rows:,}" for rows in (one.rows, one.plain_rows)]
        own, plain = ("-" if seconds is None else f"{seconds:.1f}" for seconds in (one.seconds, one.plain_seconds))
        yield [report.job, one.output, one.verdict.value, *counts, "" if number else own, plain, one.reason]


def _summary(found: Sequence[Comparison]) -> str:
    counts = [(verdict, sum(one.verdict is verdict for one in found)) for verdict in Verdict]
    return ", ".join(f"{count} {verdict.value}" for verdict, count in counts if count)
