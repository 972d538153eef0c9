"""The command `penstock verify`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.base.units import show_count
from penstock.cli.flags import FORMAT, QUERY_OPTIONS, program_arguments, program_command, with_options
from penstock.cli.output import JsonOutput, Output
from penstock.shadow.comparison import REPORTS, Engine, ShadowReport, Verdict

if TYPE_CHECKING:
    from penstock.cli.common import SharedOptions

NOTHING_COMPARED_EXIT_CODE = 2
"""The exit code if there was nothing to compare, because Spark itself ran all queries, or the program ran none."""


@program_command("Compare the rows of a program with plain Spark.")
@with_options(FORMAT, *QUERY_OPTIONS)
@program_arguments
def verify(shared: SharedOptions, program_file: str, arguments: tuple[str, ...]) -> None:
    """Run the Python file PROGRAM on Penstock and on plain Spark, and compare the rows.

    PROGRAM runs as with `penstock run`, with an Environment or as a plain PySpark program. Every query that Penstock or
    DuckDB computes also runs on plain Spark, without writing its rows, and the rows are compared by checksums: in any
    order, doubles with a tolerance of 1e-9. For a write, the written rows are compared. Queries that Spark runs itself
    are listed with the reason. A query whose rows differ between two runs on plain Spark cannot be compared. The
    program writes its outputs as usual, so let it write to a separate target.

    \b
    Exit code: 0 no difference, 1 a difference (or PROGRAM failed, or its exit code was not 0), 2 nothing was compared.

    \b
    Examples:
      penstock verify revenue.py 2026-11 out/revenue-check
      penstock verify --master spark://host:7077 --output-format json revenue.py 2026-11 > report.json
      penstock verify --conf spark.penstock.execution.batch.adaptive.whole-query-threshold=64mb small.py
    """
    with shared.output() as output:
        shared.check()
        from penstock.cli.scripts import run_file
        from penstock.extension.program import all_sessions_enabled

        os.environ["PENSTOCK_EXECUTION_SHADOW"] = "REPORT"
        with shared.spark(), all_sessions_enabled() as program:
            try:
                with output.redirect_program():
                    run_file(program_file, arguments)
            except SystemExit as exit_request:
                if exit_request.code:  # otherwise the comparisons decide the exit code
                    output.note(f"the program ended with exit code {exit_request.code}")
                    raise SystemExit(1) from exit_request
            finally:
                _report(output, REPORTS, program.run_by_spark_counts)
        comparisons = [comparison for report in REPORTS for comparison in report.comparisons]
        if any(report.differences for report in REPORTS):
            raise SystemExit(1)
        if all(comparison.verdict is Verdict.BY_SPARK for comparison in comparisons):
            raise SystemExit(NOTHING_COMPARED_EXIT_CODE)


def _report(output: Output, reports: Iterable[ShadowReport], run_by_spark: Mapping[str, int]) -> None:
    """Print the comparisons, and the number of queries that Spark ran itself, by reason."""
    nonempty = [report for report in reports if report.comparisons]
    comparisons = [comparison for report in nonempty for comparison in report.comparisons]
    if all(comparison.verdict is Verdict.BY_SPARK for comparison in comparisons):
        if run_by_spark or comparisons:
            cause = "Spark runs all queries of the program itself"
        else:
            cause = "no job produced rows" if list(reports) else "the program ran no query"
        output.note(f"nothing was compared: {cause}")
    if isinstance(output, JsonOutput):
        output.record("verify", {"jobs": [report.as_dict() for report in nonempty], "computed-by-spark": run_by_spark})
        return
    if not comparisons and not run_by_spark:
        return
    columns = ("job", "output", "engine", "verdict", "rows", "Spark's rows", "job (s)", "Spark (s)", "reason")
    rows = [row for report in nonempty for row in _rows(report)]
    for reason, count in run_by_spark.items():
        queries = show_count(count, "query", "queries")
        rows.append([queries, "", Engine.SPARK.value, Verdict.BY_SPARK.value, "-", "-", "", "", reason])
    output.rows(columns, rows, "Penstock and plain Spark")
    for report in nonempty:
        for difference in report.differences:
            output.note(f"{report.job}: {difference}")
    if comparisons:
        counts = Counter(comparison.verdict for comparison in comparisons)
        output.note(", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict if counts[verdict]))


def _rows(report: ShadowReport) -> Iterator[Sequence[object]]:
    """Yield a row for each output of a job; the run time of the job is only in the first row."""
    for index, comparison in enumerate(report.comparisons):
        counts = ["-" if rows is None else f"{rows:,}" for rows in (comparison.rows, comparison.plain_rows)]
        job_seconds, plain_seconds = (
            "-" if seconds is None else f"{seconds:.1f}" for seconds in (comparison.seconds, comparison.plain_seconds)
        )
        times = ["" if index else job_seconds, plain_seconds]
        engine, verdict = comparison.engine.value, comparison.verdict.value
        yield [report.job, comparison.output, engine, verdict, *counts, *times, comparison.reason]
