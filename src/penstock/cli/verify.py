"""The command `penstock verify`."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

from penstock.base.units import show_count
from penstock.cli.flags import FORMAT, SPARK, program_command, takes, takes_program
from penstock.cli.output import JsonOutput, Output
from penstock.shadow.comparison import REPORTS, Engine, ShadowReport, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from penstock.cli.common import Common

NOTHING_COMPARED = 2
"""The exit code if there was nothing to compare."""


@program_command("Compare the rows of a program with plain Spark.")
@takes(FORMAT, *SPARK)
@takes_program
def verify(common: Common, job: str, arguments: tuple[str, ...]) -> None:
    """Run the Python file JOB on Penstock and on plain Spark, and compare the rows.

    JOB runs as with `penstock run`, with an Environment or as a plain PySpark program. Every query that Penstock or
    DuckDB computes also runs on plain Spark, without writing its rows, and the rows are compared by checksums: in any
    order, doubles to 1e-9. For a write, the written rows are compared. Queries that Spark runs itself are listed with
    the reason. A query whose rows differ between two runs on plain Spark cannot be compared. The program writes its
    outputs as usual, so pass it a separate target.

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
                with output.redirect_program():
                    run_file(job, arguments)
            except SystemExit as left:
                if left.code:  # exit code 0 does not depend on the rows
                    output.note(f"the program ended with exit code {left.code}")
                    raise SystemExit(1) from left
            finally:
                _report(output, REPORTS, program.left)
        comparisons = [comparison for report in REPORTS for comparison in report.comparisons]
        if any(report.differences for report in REPORTS):
            raise SystemExit(1)
        if all(comparison.verdict is Verdict.BY_SPARK for comparison in comparisons):
            raise SystemExit(NOTHING_COMPARED)


def _report(output: Output, reports: Iterable[ShadowReport], of_spark: Mapping[str, int]) -> None:
    """Print the comparisons, and the number of queries that Spark ran itself, by reason."""
    compared = [report for report in reports if report.comparisons]
    comparisons = [comparison for report in compared for comparison in report.comparisons]
    if all(comparison.verdict is Verdict.BY_SPARK for comparison in comparisons):
        if of_spark or comparisons:
            cause = "Spark runs all queries of the program itself"
        else:
            cause = "no job produced rows" if list(reports) else "the program ran no query"
        output.note(f"nothing was compared: {cause}")
    if isinstance(output, JsonOutput):
        output.record("verify", {"jobs": [report.as_dict() for report in compared], "computed-by-spark": of_spark})
        return
    if not comparisons and not of_spark:
        return
    columns = ("job", "output", "engine", "verdict", "rows", "Spark's rows", "job's s", "Spark's s", "reason")
    rows = [row for report in compared for row in _rows(report)]
    for cause, count in of_spark.items():
        queries = show_count(count, "query", "queries")
        rows.append([queries, "", Engine.SPARK.value, Verdict.BY_SPARK.value, "-", "-", "", "", cause])
    output.rows(columns, rows, "Penstock and plain Spark")
    for report in compared:
        for difference in report.differences:
            output.note(f"{report.job}: {difference}")
    if comparisons:
        counts = Counter(comparison.verdict for comparison in comparisons)
        output.note(", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict if counts[verdict]))


def _rows(report: ShadowReport) -> Iterator[Sequence[object]]:
    """Yield a row for each output of a job; the run time of the job is only in the first row."""
    for number, result in enumerate(report.comparisons):
        counts = ["-" if rows is None else f"{rows:,}" for rows in (result.rows, result.plain_rows)]
        own, plain = (
            "-" if seconds is None else f"{seconds:.1f}" for seconds in (result.seconds, result.plain_seconds)
        )
        times = ["" if number else own, plain]
        yield [report.job, result.output, result.engine.value, result.verdict.value, *counts, *times, result.reason]
