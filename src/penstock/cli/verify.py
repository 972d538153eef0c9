"""The command `penstock verify`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.cli.flags import SPARK, Flag, program_command, takes, takes_program
from penstock.cli.output import JsonOutput, Output
from penstock.shadow.comparison import REPORTS, Engine, Verdict
from penstock.units import show_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from penstock.cli.common import Common
    from penstock.shadow.comparison import Comparison, ShadowReport

NOTHING = 2
"""The exit code where there was nothing to compare."""


@program_command("Run a program on Spark too, and compare the rows.")
@takes(Flag.FORMAT, *SPARK)
@takes_program
def verify(common: Common, job: str, arguments: tuple[str, ...]) -> None:
    """Run the Python file JOB on Penstock and on plain Spark, and compare the rows.

    JOB runs as with `penstock run`, whether it makes an Environment or has never heard of Penstock. Plain Spark runs
    every query that Penstock or DuckDB computes a second time, without writing it, and the rows are compared by
    checksums: in any order, doubles to 1e-9. Of a write, these are the rows that go into it. Queries that Spark runs
    itself are listed with the reason. A query that plain Spark answers differently in a second run cannot be compared.
    The program writes its outputs as usual, so give it a separate target.

    \b
    Exit code: 0 no difference, 1 a difference (or JOB ended with an error or another exit code than 0), 2 nothing to
    compare.

    \b
    Examples:
      penstock verify revenue.py 2026-11 out/revenue-check
      penstock verify --master spark://host:7077 --output-format json revenue.py 2026-11 > report.json
      penstock verify --conf spark.penstock.execution.batch.adaptive.whole-query-threshold=64mb small.py
    """
    with common.output() as output:
        common.check()
        from penstock.cli.scripts import run_file
        from penstock.extension.program import all_sessions_enabled

        os.environ["PENSTOCK_EXECUTION_SHADOW"] = "REPORT"
        with common.spark(), all_sessions_enabled() as program:
            try:
                with output.of_program():
                    run_file(job, arguments)
            except SystemExit as left:
                if left.code:  # exit code 0 says nothing about the rows
                    output.note(f"the program ended with exit code {left.code}")
                    raise SystemExit(1) from left
            finally:
                _report(output, REPORTS, program.left)
        comparisons = [comparison for report in REPORTS for comparison in report.comparisons]
        if any(report.differences for report in REPORTS):
            raise SystemExit(1)
        if all(comparison.verdict is Verdict.BY_SPARK for comparison in comparisons):
            raise SystemExit(NOTHING)


def _report(output: Output, reports: Iterable[ShadowReport], of_spark: Mapping[str, int]) -> None:
    """Print the comparisons, and what Spark computed itself.

    Parameters
    ----------
    output, reports
        The output, and what was compared.
    of_spark
        How many queries Spark ran itself, by reason.
    """
    compared = [report for report in reports if report.comparisons]
    comparisons = [comparison for report in compared for comparison in report.comparisons]
    if all(comparison.verdict is Verdict.BY_SPARK for comparison in comparisons):
        if of_spark or comparisons:
            why = "Spark runs all queries of the program itself"
        else:
            why = "no job came as far as its rows" if list(reports) else "the program ran no query"
        output.note(f"nothing was compared: {why}")
    if isinstance(output, JsonOutput):
        output.record("verify", {"jobs": [report.as_dict() for report in compared], "computed-by-spark": of_spark})
        return
    if not comparisons and not of_spark:
        return
    columns = ("job", "output", "engine", "verdict", "rows", "Spark's rows", "job's s", "Spark's s", "why")
    rows = [row for report in compared for row in _rows(report)]
    for why, count in of_spark.items():
        queries = show_count(count, "query", "queries")
        rows.append([queries, "", Engine.SPARK.value, Verdict.BY_SPARK.value, "-", "-", "", "", why])
    output.rows(columns, rows, "Penstock and plain Spark")
    for report in compared:
        for difference in report.differences:
            output.note(f"{report.job}: {difference}")
    if comparisons:
        output.note(_summary(comparisons))


def _rows(report: ShadowReport) -> Iterator[Sequence[object]]:
    """Return a row for each output of a job; the time of the job, which made all of them, stands in the first."""
    for number, one in enumerate(report.comparisons):
        counts = ["-" if rows is None else f"{rows:,}" for rows in (one.rows, one.plain_rows)]
        own, plain = ("-" if seconds is None else f"{seconds:.1f}" for seconds in (one.seconds, one.plain_seconds))
        times = ["" if number else own, plain]
        yield [report.job, one.output, one.engine.value, one.verdict.value, *counts, *times, one.reason]


def _summary(comparisons: Sequence[Comparison]) -> str:
    counts = [(verdict, sum(one.verdict is verdict for one in comparisons)) for verdict in Verdict]
    return ", ".join(f"{count} {verdict.value}" for verdict, count in counts if count)
