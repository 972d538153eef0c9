"""The command `penstock`."""

from __future__ import annotations

import os

import click

from penstock.cli.connect_server import connect_server
from penstock.cli.demo import run_demo
from penstock.cli.history import history, ui
from penstock.cli.recover import recover
from penstock.cli.session import Common, common_options, register_tables, run_file
from penstock.cli.state import state
from penstock.cli.verify import verify
from penstock.config import OPTIONS
from penstock.errors import PenstockError
from penstock.spark_errors import in_words

TABLE = click.option(
    "--table", "tables", multiple=True, metavar="NAME=PATH", help="A table: a file or folder. Can be repeated."
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="penstock")
def main() -> None:
    """Run PySpark pipelines and decide their parallelism while they run, from measured data."""


main.add_command(state)
main.add_command(history)
main.add_command(ui)
main.add_command(verify)
main.add_command(recover)
main.add_command(connect_server)


@main.command()
@common_options
@click.option("--keep", type=click.Path(file_okay=False), help="Keep data and results in this folder.")
def demo(common: Common, keep: str | None) -> None:
    """Run a pipeline over the flights that left New York in 2013.

    It joins flights with weather, planes and airlines, writes two results that share the join, and prints the number
    of tasks of every vertex with the reason.
    """
    with common.output() as output:
        run_demo(common, output, keep)


@main.command(context_settings={"ignore_unknown_options": True})
@common_options
@click.option("--quiet", is_flag=True, help="Do not print the decisions.")
@click.option("--ui", is_flag=True, help="Serve the page and the REST API while it runs; the address is printed.")
@click.option("--history", metavar="DIR", help="Write an event log of every job to this folder.")
@click.argument("job", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(
    common: Common,
    quiet: bool,  # noqa: FBT001
    ui: bool,  # noqa: FBT001
    history: str | None,
    job: str,
    arguments: tuple[str, ...],
) -> None:
    """Run the Python file JOB, any PySpark program, and print what was decided for its queries.

    JOB runs as `python JOB ARGUMENTS` would. It need not know of Penstock: the queries of every Spark session that it
    makes run as jobs, and its own settings of the session count. Jobs of an Environment are printed with their
    vertices.

    \b
    Examples:
      penstock run --master spark://host:7077 revenue.py 2026-11
      penstock run --conf spark.penstock.execution.batch.adaptive.whole-query-threshold=8mb nightly.py
    """
    from penstock.cli.programs import tell
    from penstock.extension.program import all_sessions_enabled

    with common.output() as output, all_sessions_enabled() as program:
        common.export()
        if ui:
            os.environ["PENSTOCK_REST_ENABLED"] = "true"
        if history:
            os.environ["PENSTOCK_JOBMANAGER_ARCHIVE_FS_DIR"] = history
        try:
            run_file(job, arguments)
        finally:
            if not quiet:
                tell(output, program)


@main.command()
@common_options
@TABLE
@click.option("--output", "target", metavar="PATH", help="Write the result there as parquet instead of printing it.")
@click.argument("statement")
def sql(common: Common, tables: tuple[str, ...], target: str | None, statement: str) -> None:
    """Run the Spark SQL STATEMENT over tables of files.

    \b
    Example:
      penstock sql --table o=data/orders.parquet "SELECT o_orderstatus, count(*) FROM o GROUP BY 1"
    """
    from penstock.connectors import FileSink

    with common.output() as output:
        environment = common.environment()
        with in_words():
            register_tables(environment, tables)
            df = environment.sql(statement)
        if target:
            environment.write(df, FileSink(target))
            environment.execute("penstock sql")
            output.note(f"written to {target}")
        else:
            rows = environment.collect(df)
            output.rows(df.columns, [tuple(row) for row in rows])
        if environment.last_job is not None:
            output.job(environment.last_job)


@main.command()
@common_options
@TABLE
@click.argument("statement")
def explain(common: Common, tables: tuple[str, ...], statement: str) -> None:
    """Show the plan and the decisions for the Spark SQL STATEMENT without reading data."""
    with common.output() as output:
        environment = common.environment()
        with in_words():
            register_tables(environment, tables)
            df = environment.sql(statement)
        output.explanation(environment.explain(df))


@main.command()
@common_options
@click.argument("key", required=False)
def options(common: Common, key: str | None) -> None:
    """List all options, or those whose key contains KEY."""
    with common.output() as output:
        found = [option for option in OPTIONS if key is None or key in option.key]
        if not found:
            raise PenstockError(f"no option's key contains {key!r}", hint="`penstock options` lists all options")
        rows = [(option.key, option.expected, option.default, option.doc) for option in found]
        output.rows(("key", "type", "default", "meaning"), rows)


if __name__ == "__main__":
    main()
