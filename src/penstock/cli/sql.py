"""The commands `penstock sql` and `penstock explain`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from penstock.cli.checks import check_new_target, check_table
from penstock.cli.flags import FORMAT, KEEP_OPEN, QUERY_OPTIONS, TABLE, UI, enable_page, keep_page_open, with_options
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.cli.common import SharedOptions
    from penstock.cli.output import Output
    from penstock.cli.statements import StatementResult


@click.command(short_help="Run a SQL statement on files and catalogs.")
@with_options(FORMAT, *QUERY_OPTIONS)
@TABLE
@click.option(
    "--limit",
    type=click.IntRange(1),
    metavar="N",
    help="Show at most N rows; further rows are not computed. Default: 20 as text, all as JSON.",
)
@click.option(
    "--output", "target", metavar="PATH", help="Write all rows to this folder as Parquet instead of showing them."
)
@UI
@KEEP_OPEN
@click.argument("statement")
def sql(
    shared: SharedOptions,
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
    with shared.output() as output:
        _check(shared, tables, statement)
        if target:
            check_new_target(target)
        if ui or keep_open:
            enable_page()
        from penstock.cli.statements import DEFAULT_ROW_LIMIT, SqlSession

        with shared.spark() as spark_thread:
            session = SqlSession(spark_thread, tables)
            if target:
                output.job(session.write(statement, target))
                output.note(f"written to {target}")
            else:
                max_rows = limit or (DEFAULT_ROW_LIMIT if shared.output_format == "text" else None)
                result = session.run(statement, max_rows)
                show_result(output, result, "--limit N shows N of them, --output PATH writes all")
                for job in result.jobs:
                    output.job(job)
            if keep_open:
                keep_page_open()


@click.command(short_help="Show how a query would run; reads no data.")
@with_options(FORMAT, *QUERY_OPTIONS)
@TABLE
@click.argument("statement")
def explain(shared: SharedOptions, tables: tuple[tuple[str, str], ...], statement: str) -> None:
    """Show the plan and the decisions for the Spark SQL STATEMENT, a query, without reading data.

    \b
    Example:
      penstock explain --table o=data/orders.parquet "SELECT o_orderstatus, count(*) FROM o GROUP BY 1"
    """
    with shared.output() as output:
        _check(shared, tables, statement)
        from penstock.cli.statements import SqlSession

        with shared.spark() as spark_thread:
            output.explanation(SqlSession(spark_thread, tables).explain(statement))


def show_result(output: Output, result: StatementResult, how_to_get_more: str) -> None:
    """Show the rows of a statement, and `how_to_get_more` if there are more."""
    if not result.columns:
        output.note("done")
        return
    output.rows(result.columns, result.rows)
    if result.has_more:
        output.note(f"These are the first {len(result.rows):,} rows, and there are more: {how_to_get_more}.")


def _check(shared: SharedOptions, tables: Iterable[tuple[str, str]], statement: str) -> None:
    if not statement.strip(" \t\n;"):
        raise PenstockError("the statement is empty", hint='for example "SELECT 1"')
    for name, path in tables:
        check_table(name, path)
    shared.check()
