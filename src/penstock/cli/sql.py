"""The commands `penstock sql` and `penstock explain`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from penstock.cli.checks import check_new_target, check_table
from penstock.cli.flags import FORMAT, KEEP_OPEN, SPARK, TABLE, UI, serve_page, stay_open, takes
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.cli.common import Common
    from penstock.cli.output import Output
    from penstock.cli.statements import Answer


@click.command(short_help="Run a SQL statement on files and catalogs.")
@takes(FORMAT, *SPARK)
@TABLE
@click.option(
    "--limit",
    type=click.IntRange(1),
    metavar="N",
    help="Show N rows; no more are computed. Default: 20 as text, all as JSON.",
)
@click.option(
    "--output", "target", metavar="PATH", help="Write all rows to this folder as Parquet instead of showing them."
)
@UI
@KEEP_OPEN
@click.argument("statement")
def sql(
    common: Common,
    tables: tuple[tuple[str, str], ...],
    limit: int | None,
    target: str | None,
    ui: bool,  # noqa: FBT001
    keep_open: bool,  # noqa: FBT001
    statement: str,
) -> None:
    """Run the Spark SQL STATEMENT on tables of files and on tables of the session's catalogs.

    STATEMENT is a query or a command, such as INSERT INTO or CREATE TABLE ... AS. Spark's default catalog is discarded
    at the end, unless --conf configures a persistent catalog.

    \b
    Examples:
      penstock sql --table o=data/orders.parquet "SELECT o_orderstatus, count(*) FROM o GROUP BY 1"
      penstock sql --table o=data/orders.parquet --output late/ "SELECT * FROM o WHERE o_orderstatus = 'O'"
      penstock sql --conf spark.sql.catalogImplementation=hive --table o=data/orders.parquet \\
        "CREATE TABLE late AS SELECT * FROM o WHERE o_orderstatus = 'O'"
    """
    with common.output() as output:
        _check(common, tables, statement)
        if target:
            check_new_target(target)
        if ui or keep_open:
            serve_page()
        from penstock.cli.statements import SHOWN_ROWS, Statements

        with common.spark() as thread:
            session = Statements(thread, tables)
            if target:
                output.job(session.write(statement, target))
                output.note(f"written to {target}")
            else:
                max_rows = limit or (SHOWN_ROWS if common.output_format == "text" else None)
                answer = session.run(statement, max_rows)
                show_result(output, answer, "--limit N shows N of them, --output PATH writes all")
                for job in answer.jobs:
                    output.job(job)
            if keep_open:
                stay_open()


@click.command(short_help="Show how a query would run; reads no data.")
@takes(FORMAT, *SPARK)
@TABLE
@click.argument("statement")
def explain(common: Common, tables: tuple[tuple[str, str], ...], statement: str) -> None:
    """Show the plan and the decisions for the Spark SQL STATEMENT, a query, without reading data.

    \b
    Example:
      penstock explain --table o=data/orders.parquet "SELECT o_orderstatus, count(*) FROM o GROUP BY 1"
    """
    with common.output() as output:
        _check(common, tables, statement)
        from penstock.cli.statements import Statements

        with common.spark() as thread:
            output.explanation(Statements(thread, tables).explain(statement))


def show_result(output: Output, answer: Answer, how_to_get_more: str) -> None:
    """Show the rows of a result, and whether there are more."""
    if not answer.columns:
        output.note("done")
        return
    output.rows(answer.columns, answer.rows)
    if answer.has_more:
        output.note(f"These are the first {len(answer.rows):,} rows, and there are more: {how_to_get_more}.")


def _check(common: Common, tables: Iterable[tuple[str, str]], statement: str) -> None:
    if not statement.strip(" \t\n;"):
        raise PenstockError("the statement is empty", hint='for example "SELECT 1"')
    for name, path in tables:
        check_table(name, path)
    common.check()
