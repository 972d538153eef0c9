"""The commands `penstock state`."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from penstock.cli.session import Common, common_options
from penstock.units import show_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.state.inspection import Inspection
    from penstock.state.rescale import OnProgress

CHECKPOINT = click.argument("checkpoint")


@click.group()
def state() -> None:
    """Look at the state of a streaming query, and change the number of key groups it is kept in.

    A key group is a state partition. Their number, the max parallelism, is fixed when a query is first started; here
    it can be changed while the query is stopped. CHECKPOINT is the query's checkpointLocation.
    """


@state.command("inspect")
@common_options
@click.option("--count", is_flag=True, help="Read the state and count its rows, instead of believing its files.")
@CHECKPOINT
def inspect_command(common: Common, count: bool, checkpoint: str) -> None:  # noqa: FBT001
    """Show operators, key groups, rows, bytes, skew and the max parallelism to take. Writes nothing."""
    from penstock.state import inspect

    with common.output() as output:
        common.export()
        found = inspect(checkpoint, count=count)
        if common.output_format == "json":
            output.record("inspection", found.as_dict())
            return
        for line in _lines(found):
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
            for store in found.stores
        ]
        output.rows(columns, rows)


def _lines(found: Inspection) -> list[str]:
    batch = "none finished yet" if found.batch is None else str(found.batch)
    lines = [
        f"query {found.query}, last batch {batch}, max parallelism {found.max_parallelism}",
        f"{found.provider}, format version {found.format_version}, keys encoded as {found.encoding}",
        "can be rescaled" if found.obstacle is None else f"cannot be rescaled: {found.obstacle}",
    ]
    if found.recommendation is not None:
        lines.append(f"recommended max parallelism: {found.recommendation.max_parallelism}")
        lines.append(f"  as {found.recommendation.reason}")
    return lines


@state.command()
@common_options
@click.option("--max-parallelism", type=int, metavar="N", help="The number of key groups it shall have.")
@click.option("--dry-run", is_flag=True, help="Look for obstacles and say what would be done; write nothing.")
@click.option("--abort", "take_back", is_flag=True, help="Take back a rescale that was stopped half-way.")
@click.option(
    "--way",
    type=click.Choice(["files", "rows", "shuffle"]),
    help="How state is rewritten: sorted files moved, row by row, or through a shuffle. If not given, chosen for each.",
)
@CHECKPOINT
def rescale(
    common: Common,
    max_parallelism: int | None,
    dry_run: bool,  # noqa: FBT001
    take_back: bool,  # noqa: FBT001
    way: str | None,
    checkpoint: str,
) -> None:
    """Change the max parallelism of a query that is stopped.

    Everything is prepared and checked beside the checkpoint first. Killed at any moment, the query starts as before, or
    the same command finishes what was begun, or --abort takes it back.

    \b
    Example:
      penstock state rescale /checkpoints/orders --max-parallelism 400
    """
    from penstock import state as api
    from penstock.state.ways import Way

    chosen = Way(way) if way else None
    with common.output() as output:
        if take_back == (max_parallelism is not None):
            raise click.UsageError("give either --max-parallelism or --abort")
        common.export()
        if max_parallelism is None:
            aborted = api.abort(checkpoint)
            output.note("taken back; the query starts as before" if aborted else "there was nothing to take back")
            return
        if dry_run:
            planned = api.plan(checkpoint, max_parallelism, way=chosen)
            output.record("plan", planned.as_dict())
            return
        with _bar() as on_progress:
            report = api.rescale(checkpoint, max_parallelism, way=chosen, on_progress=on_progress)
        if report is None:
            output.note(f"an earlier rescale to {max_parallelism} was finished")
            return
        output.record("rescale", report.as_dict())


@state.command()
@common_options
@CHECKPOINT
def prune(common: Common, checkpoint: str) -> None:
    """Remove the folders of key groups that the query no longer has, after it was rescaled to fewer.

    The state of batches before the rescale can then not be read any more.
    """
    from penstock import state as api

    with common.output() as output:
        common.export()
        removed = api.prune(checkpoint)
        output.note(f"removed {', '.join(removed)}" if removed else "there is nothing to remove")


@contextmanager
def _bar() -> Iterator[OnProgress]:
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("looking for obstacles", total=None)

        def tell(done: int, total: int, text: str) -> None:
            progress.update(task, completed=done, total=total, description=text)

        yield tell
