"""The commands `penstock state inspect`, `rescale` and `prune`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from penstock.base.units import show_bytes, show_count
from penstock.cli.checks import check_checkpoint
from penstock.cli.flags import FILE_SYSTEM_OPTIONS, FORMAT, MASTER, with_options
from penstock.cli.output import JsonOutput, Output

if TYPE_CHECKING:
    from penstock.cli.common import SharedOptions
    from penstock.state.inspection import Inspection
    from penstock.state.rescale import OnProgress

CHECKPOINT = click.argument("checkpoint")
SPARK_OPTIONS = (FORMAT, MASTER, *FILE_SYSTEM_OPTIONS)


@click.group(short_help="Inspect and rescale the state of a stream.")
def state() -> None:
    """Inspect the state of a streaming query, and change its number of key groups.

    A key group is a state partition. Spark fixes their number, the max parallelism, when a query first starts. The
    command `rescale` changes it. CHECKPOINT is the query's checkpointLocation.
    """


@state.command("inspect")
@with_options(*SPARK_OPTIONS)
@click.option(
    "--count", is_flag=True, help="Read the state and count its rows, instead of using the counts in its files."
)
@CHECKPOINT
def inspect_command(shared: SharedOptions, count: bool, checkpoint: str) -> None:  # noqa: FBT001
    """Show operators, key groups, rows, bytes, skew and the recommended max parallelism. Writes nothing.

    \b
    Example:
      penstock state inspect /checkpoints/orders
    """
    from penstock.state import inspect

    with shared.output() as output:
        check_checkpoint(checkpoint)
        with shared.spark() as spark_thread:
            inspection = spark_thread.call(lambda: inspect(checkpoint, count=count))
        if shared.output_format == "json":
            output.record("inspection", inspection.as_dict())
            return
        for line in _inspection_lines(inspection):
            output.note(line)
        columns = ("operator", "name", "store", "groups", "rows", "bytes", "largest group", "skew")
        rows = [
            (
                store.operator,
                store.operator_name,
                store.store,
                len(store.sizes),
                "?" if store.total_rows is None else f"{store.total_rows:,}",
                show_bytes(sum(store.sizes)),
                show_bytes(max(store.sizes, default=0)),
                f"{store.skew:.2f}",
            )
            for store in inspection.stores
        ]
        output.rows(columns, rows)


def _inspection_lines(inspection: Inspection) -> list[str]:
    batch = "none finished yet" if inspection.batch is None else str(inspection.batch)
    lines = [
        f"query {inspection.query}, last batch {batch}, max parallelism {inspection.max_parallelism}",
        f"{inspection.provider}, format version {inspection.format_version}, keys encoded as {inspection.encoding}",
        "can be rescaled" if inspection.obstacle is None else f"cannot be rescaled: {inspection.obstacle}",
    ]
    if inspection.recommendation is not None:
        lines.append(f"recommended max parallelism: {inspection.recommendation.max_parallelism}")
        lines.append(f"  because {inspection.recommendation.reason}")
    return lines


@state.command()
@with_options(*SPARK_OPTIONS)
@click.option("--max-parallelism", type=int, metavar="N", help="The new number of key groups.")
@click.option("--dry-run", is_flag=True, help="Check whether the query can be rescaled, and show what would be done.")
@click.option(
    "--abort",
    "abort",
    is_flag=True,
    help="Undo an incomplete rescale. If you removed files from `offsets` and `commits` to go back to a batch before a "
    "complete rescale, remove the files of that rescale.",
)
@click.option(
    "--live",
    is_flag=True,
    help="Rescale a running query, which must have been started with start_query. It is stopped for a few seconds "
    "between two batches.",
)
@click.option(
    "--file-sink",
    metavar="FOLDER",
    help="The folder that the query writes files to, if it is started without start_query. The rescale adds an entry "
    "to the log that Spark keeps in this folder.",
)
@click.option(
    "--method",
    "--way",  # the name in older releases
    "method",
    type=click.Choice(["files", "rows", "shuffle"]),
    help="How to rewrite the state: sorted files, row by row, or through a shuffle. Default: chosen for each store.",
)
@CHECKPOINT
def rescale(
    shared: SharedOptions,
    max_parallelism: int | None,
    dry_run: bool,  # noqa: FBT001
    abort: bool,  # noqa: FBT001
    live: bool,  # noqa: FBT001
    file_sink: str | None,
    method: str | None,
    checkpoint: str,
) -> None:
    """Change the number of key groups (the max parallelism) of a stopped query, or of a running one with --live.

    The new state is first written and checked beside the old state. If the command is killed at any moment, run it
    again to finish the rescale, or use --abort to undo it.

    \b
    Examples:
      penstock state rescale /checkpoints/orders --max-parallelism 400
      penstock state rescale /checkpoints/orders --max-parallelism 400 --live
    """
    from penstock import state as api
    from penstock.state.key_groups import check_max_parallelism
    from penstock.state.rewrite_methods import RewriteMethod

    if abort == (max_parallelism is not None):
        raise click.UsageError("pass either --max-parallelism or --abort")
    if abort and (dry_run or method):
        raise click.UsageError("--abort undoes a rescale and cannot be combined with --dry-run or --method")
    if live and (abort or dry_run or file_sink):
        raise click.UsageError(
            "--live rescales in the process of the query and cannot be combined with --abort, --dry-run or --file-sink"
        )
    rewrite = RewriteMethod(method) if method else None
    with shared.output() as output:
        if max_parallelism is not None:
            check_max_parallelism(max_parallelism)
        check_checkpoint(checkpoint)
        with shared.spark() as spark_thread:
            if max_parallelism is None:
                is_undone = spark_thread.call(lambda: api.abort(checkpoint))
                output.note("undone; the query starts as before" if is_undone else "there was nothing to undo")
            elif dry_run:
                plan = spark_thread.call(lambda: api.plan(checkpoint, max_parallelism, method=rewrite))
                _show(output, "plan", plan.as_dict(), _plan_lines(plan.as_dict()))
            elif live:
                with _progress_bar() as on_progress:
                    live_rescale = spark_thread.call(
                        lambda: api.rescale_running(
                            checkpoint, max_parallelism, method=rewrite, on_progress=on_progress
                        )
                    )
                lines = [
                    *_report_lines(live_rescale["rescale"]),
                    f"The query was stopped for {live_rescale['seconds_stopped']:.1f} s.",
                    f"If its program sets pipeline.max-parallelism, set {max_parallelism} there before its next start.",
                ]
                _show(output, "rescale", live_rescale, lines)
            else:
                with _progress_bar() as on_progress:
                    report = spark_thread.call(
                        lambda: api.rescale(
                            checkpoint, max_parallelism, method=rewrite, file_sink=file_sink, on_progress=on_progress
                        )
                    )
                if report is None:
                    output.note(f"finished an earlier rescale to {max_parallelism}")
                else:
                    _show(output, "rescale", report.as_dict(), _report_lines(report.as_dict()))


def _show(output: Output, name: str, record: Mapping[str, Any], lines: Iterable[str]) -> None:
    """Show a record: as JSON for programs, or as lines for users."""
    if isinstance(output, JsonOutput):
        output.record(name, record)
    else:
        output.note("\n".join(lines))


def _plan_lines(plan: Mapping[str, Any]) -> Iterator[str]:
    stores = show_count(len(plan["stores"]), "store")
    yield (
        f"The state after batch {plan['batch']} ({show_bytes(plan['bytes'])} in {stores}) would be rewritten from "
        f"{show_count(plan['from'], 'key group')} to {plan['to']}. Nothing was written."
    )
    for store in plan["stores"]:
        yield f"- {store['name']}, store {store['store']}: method {store['method']}, as {store['reason']}"


def _report_lines(report: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"The state was rewritten from {show_count(report['old'], 'key group')} to {report['new']} in "
        f"{report['seconds']:.1f} s. The query continues after batch {report['batch']}."
    )
    for store in report["stores"]:
        yield (
            f"- {store['name']}, store {store['store']}: {show_count(store['rows'], 'row')}, at most "
            f"{store['largest_group']:,} in a key group, {store['seconds']:.1f} s; method {store['method']}, as "
            f"{store['reason']}"
        )


@state.command()
@with_options(FORMAT, *FILE_SYSTEM_OPTIONS)
@CHECKPOINT
def prune(shared: SharedOptions, checkpoint: str) -> None:
    """Remove the folders of key groups that do not exist any more after a rescale to fewer key groups.

    Afterwards, the state of the batches before the rescale cannot be read.

    \b
    Example:
      penstock state prune /checkpoints/orders
    """
    from penstock import state as api

    with shared.output() as output:
        check_checkpoint(checkpoint)
        with shared.spark() as spark_thread:
            removed = spark_thread.call(lambda: api.prune(checkpoint))
        output.note(f"removed {', '.join(removed)}" if removed else "there is nothing to remove")


@contextmanager
def _progress_bar() -> Iterator[OnProgress]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("checking", total=None)

        def update(done: int, total: int, text: str) -> None:
            progress.update(task, completed=done, total=total, description=text)

        yield update
