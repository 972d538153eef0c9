"""The command `penstock demo`: the same queries on plain Spark and on Penstock, side by side."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.base.units import show_bytes
from penstock.cli.checks import check_can_create
from penstock.cli.demo_data import DEFAULT_ORDERS, create_tables, default_folder, table_files
from penstock.cli.flags import FORMAT, KEEP_OPEN, QUERY_OPTIONS, UI, enable_page, keep_page_open, with_options
from penstock.config.options import WHOLE_QUERY_THRESHOLD
from penstock.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from penstock.cli.common import SharedOptions
    from penstock.cli.demo_runs import Comparison
    from penstock.cli.output import Output

ROUNDS = 3
"""Counted runs of each query on each system."""
_WIDTH = 120
"""Characters of a line with a decision."""


@click.command(short_help="Compare Penstock with plain Spark, side by side.")
@with_options(FORMAT, *QUERY_OPTIONS)
@click.option("--data", type=click.Path(file_okay=False), metavar="DIR", help="Store the tables in this folder.")
@UI
@KEEP_OPEN
def demo(
    shared: SharedOptions,
    data: str | None,
    ui: bool,  # noqa: FBT001
    keep_open: bool,  # noqa: FBT001
) -> None:
    """Run three queries on plain Spark and on Penstock, side by side.

    The queries join orders with customers and products. The tables are created once, take 90 MB, and stay for further
    runs, in a folder of ~/.cache/penstock unless --data sets another. Each system runs each query once to warm up, and
    three times in turns, in the same Spark session. The result has the median seconds, shuffled bytes and tasks, what
    Penstock decided and why, and whether the rows are equal. It takes two to three minutes on two idle cores.

    \b
    Examples:
      penstock demo
      penstock demo --keep-open
    """
    folder = Path(data) if data else default_folder()
    with shared.output() as output:
        check_can_create(folder, lambda cause: SinkError(f"{folder} cannot be written", cause=cause))
        if ui or keep_open:
            enable_page()
        with shared.spark() as spark_thread:
            _create_tables(folder)
            spark_thread.call(lambda: _run_demo(output, table_files(folder)))
            if keep_open:
                keep_page_open()


def _create_tables(folder: Path) -> None:
    """Create the tables unless an earlier run has created them."""
    if all(file.exists() for file in table_files(folder).values()):
        return
    _progress(f"Creating {DEFAULT_ORDERS:,} orders in {folder} ...", newline=False)
    start = time.monotonic()
    create_tables(folder, DEFAULT_ORDERS)
    _progress(f" {time.monotonic() - start:.0f} s")


def _run_demo(output: Output, tables: Mapping[str, Path]) -> None:
    from penstock.cli.demo_runs import Comparison
    from penstock.spark.bridge.session import embedded_session

    _progress("Starting Spark ...")
    spark = embedded_session()
    comparison = Comparison(spark, tables)
    _progress("Seconds for all three queries, on each system:")
    for number in range(ROUNDS + 1):
        _progress(f"Round {number} of {ROUNDS}:" if number else "Warm-up:     ", newline=False)
        start = time.monotonic()
        for system, seconds in comparison.run_round(number):
            _progress(f"  {system.value} {seconds:.1f} s", newline=False)
        _progress("")
        if 0 < number < ROUNDS:
            remaining = (ROUNDS - number) * (time.monotonic() - start)
            _progress(f"{_verdict(comparison)}, so far. About {remaining:.0f} s left.")
    _show_conditions(output, spark, tables)
    _show_figures(output, comparison)
    _show_decisions(output, comparison)
    _show_result(output, comparison)
    _show_next(output, tables)
    spark.stop()


def _progress(text: str, *, newline: bool = True) -> None:
    """Show progress on standard error, as the results are on standard output."""
    click.echo(text, err=True, nl=newline)


def _show_conditions(output: Output, spark: SparkSession, tables: Mapping[str, Path]) -> None:
    size = show_bytes(sum(file.stat().st_size for file in tables.values()))
    limit = WHOLE_QUERY_THRESHOLD.format(WHOLE_QUERY_THRESHOLD.default)
    output.note(
        f"\nSpark {spark.version} and Penstock ran in the same session, {spark.sparkContext.master} with Spark's "
        f"settings, and read the\nsame Parquet files ({size}). Each ran every query once to warm "
        f"up, then {ROUNDS} times in turns.\nSeconds are medians. Tasks and shuffled bytes are those of Spark's "
        "finished stages in the last run.\n"
        "A small result of DuckDB comes directly from its process, without a task of Spark.\n"
        f"Penstock without DuckDB leaves a query to Spark if its tables are below {limit}; the demo's "
        "default tables\nare just above.\n"
    )


def _show_figures(output: Output, comparison: Comparison) -> None:
    """Show a row for each query and system, and for the totals of each system."""
    from penstock.cli.demo_runs import QUESTIONS, System

    rows: list[tuple[str, ...]] = []
    for title, questions in (*((question.title, [question]) for question in QUESTIONS), ("All", QUESTIONS)):
        for system in System:
            total = comparison.total(system, questions)
            spark_seconds = comparison.total(System.SPARK, questions).seconds
            is_spark = system is System.SPARK
            times = "" if is_spark else f"{spark_seconds / total.seconds:.1f}"
            figures = (f"{total.seconds:.2f}", show_bytes(total.shuffled_bytes), f"{total.tasks:,}", times)
            rows.append((title if is_spark else "", system.value, *figures))
    columns = ("query", "system", "seconds", "shuffled", "tasks", "times as fast as Spark")
    output.rows(columns, rows, "Side by side")


def _show_decisions(output: Output, comparison: Comparison) -> None:
    """Show the decisions of the last run of each query, with and without DuckDB."""
    from penstock.cli.demo_runs import QUESTIONS, System

    output.note("\nWhat Penstock decided, and why")
    for question in QUESTIONS:
        output.note(f"\n{question.title}")
        for system in (System.PENSTOCK, System.STEPS):
            for line in comparison.jobs[question, system].decision_lines():
                output.note(_wrapped(f"{system.value}: {line.removeprefix('- ')}"))


def _verdict(comparison: Comparison) -> str:
    """Return how much faster Penstock is in the rounds so far, with DuckDB and without."""
    from penstock.cli.demo_runs import QUESTIONS, System

    seconds = {system: comparison.total(system, QUESTIONS).seconds for system in System}
    spark_seconds = seconds[System.SPARK]
    return (
        f"Penstock is {spark_seconds / seconds[System.PENSTOCK]:.1f} times as fast as Spark with AQE here "
        f"({spark_seconds:.1f} s became {seconds[System.PENSTOCK]:.1f} s); "
        f"without DuckDB, {spark_seconds / seconds[System.STEPS]:.1f} times"
    )


def _show_result(output: Output, comparison: Comparison) -> None:
    from penstock.cli.demo_runs import QUESTIONS

    output.note(
        f"\n{_verdict(comparison)}.\n"
        f"Rows: equal ({len(QUESTIONS)} queries, {comparison.compared_rows:,} rows compared in {ROUNDS + 1} rounds)."
    )


def _show_next(output: Output, tables: Mapping[str, Path]) -> None:
    command = _command()
    folder = tables["orders"].parent
    data = "" if folder == default_folder() else f" --data {shlex.quote(str(folder))}"
    commands = {
        "run your_job.py": "any PySpark program, unchanged",
        "verify your_job.py": "also runs it on plain Spark, and compares the rows",
        f"demo{data} --keep-open": "this comparison, with a web page of its jobs",
    }
    width = max(map(len, commands))
    lines = [f"  {command} {arguments:{width}}   {purpose}" for arguments, purpose in commands.items()]
    output.note("\n".join(["\nWhere to go next", *lines, "  README.md and docs/README.md in the sources"]))


def _wrapped(text: str) -> str:
    return textwrap.fill(text, _WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)


def _command() -> str:
    """Return how the user can call the command `penstock`: its path unless it is on the PATH."""
    called = Path(sys.argv[0]).resolve()
    on_path = shutil.which("penstock")
    if on_path and Path(on_path).resolve() == called:
        return "penstock"
    return os.path.relpath(called) if called.name == "penstock" else "python -m penstock"
