"""The commands `penstock stream`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from penstock.cli.checks import check_checkpoint, check_settings, local
from penstock.cli.flags import FILE_SYSTEMS, Flag, takes
from penstock.units import show_count, show_time

if TYPE_CHECKING:
    from penstock.cli.common import Common
    from penstock.streams.reading import Place


@click.group(short_help="Show the batches of a stream, and what it needs.")
def stream() -> None:
    """Show what the batches of a streaming query did, and say which settings it needs. Nothing is written.

    They read files only, while the query runs or after it, and start Spark only for other file systems than this
    machine's.
    """


@stream.command()
@takes(Flag.FORMAT, *FILE_SYSTEMS)
@click.option(
    "--cores",
    type=click.IntRange(1),
    metavar="N",
    help="The cores of the cluster, instead of those that penstock.state.start_query recorded.",
)
@click.argument("progress", metavar="CHECKPOINT_OR_PROGRESS")
def advise(common: Common, cores: int | None, progress: str) -> None:
    """Say what parallelism, state partitions and trigger a query needs, with the figures and the reason.

    CHECKPOINT_OR_PROGRESS is the checkpoint of a query that penstock.state.start_query started, or a file with the
    progress of any query: a line of JSON for each batch, as event.progress.json has it in the method onQueryProgress of
    a StreamingQueryListener.

    \b
    How it is found:
      arrival           records per second, from where the topics ended at the first and the last batch
      pace              seconds of every batch, and records per second after that: the line that fits best
      parallelism       enough tasks that the arrival keeps them busy for at most 70 % of the time, never fewer than now
      trigger           the shortest interval that a batch of its records fills to at most 80 %
      state partitions  as `penstock state inspect` recommends them; `penstock state rescale` changes them

    It looks at the last hundred batches, so run it after the busiest hour.

    \b
    Example:
      penstock stream advise /checkpoints/orders
      penstock stream advise progress.jsonl --cores 16 --output-format json
    """
    from penstock.errors import StreamError
    from penstock.streams.advice import advise as advise_on
    from penstock.streams.reading import read_progress

    with common.output() as output:
        batches = read_progress(place_of(common, progress))
        found = advise_on(batches, cores)
        if found is None:
            raise StreamError.too_few(progress, sum(one.rows > 0 for one in batches))
        if common.output_format == "json":
            output.record("advice", found.as_dict())
            return
        output.note(
            f"query {found.query}: {show_count(found.batches, 'batch', 'batches')} in {show_time(found.seconds)}"
        )
        output.note(f"arrival: {found.arrival:,.0f} records a second")
        output.note(f"pace: {found.pace}, so it is busy for {found.load:.0%} of its time")
        output.note(f"lag: {'not known' if found.lag is None else show_count(found.lag, 'record')}")
        rows = [(one.setting, one.now or "?", one.needed, one.reason) for one in found.settings]
        output.rows(("setting", "now", "needed", "because"), rows)


@stream.command()
@takes(Flag.FORMAT, *FILE_SYSTEMS)
@click.argument("checkpoint")
def batches(common: Common, checkpoint: str) -> None:
    """Show what was decided for each of the last hundred batches of a query, and what it took.

    CHECKPOINT is the checkpoint of a query that reads a topic with the format penstock_kafka. Its offsets have the
    decisions. A batch that "waited" ended before its trigger was due; its seconds are those until the trigger.

    \b
    Example:
      penstock stream batches /checkpoints/orders
    """
    from penstock.streams.reading import read_batches

    with common.output() as output:
        check_checkpoint(checkpoint)
        found = read_batches(place_of(common, checkpoint))
        if common.output_format == "json":
            output.record("stream", {"batches": [one.as_dict() for one in found]})
            return
        rows = [
            (
                one.batch,
                f"{one.decision.lag:,}",
                f"{one.decision.records:,}",
                one.decision.tasks,
                "?" if one.ran is None else f"{one.ran.seconds:.1f}{' (waited)' if one.ran.waited else ''}",
                one.decision.reason,
            )
            for one in found
        ]
        output.rows(("batch", "lag", "records", "tasks", "seconds", "because"), rows)


def place_of(common: Common, path: str) -> Place:
    """Return a path as it is read from: by this process, or by Spark where only that has the file system."""
    from penstock.streams.reading import HadoopPlace, LocalPlace

    check_settings(common.conf, None)
    found = local(path)
    if found is not None:
        return LocalPlace(found)
    from penstock.spark.filesystem import Folder
    from penstock.spark.jvm import Bridge
    from penstock.spark.session import embedded_session

    with common.spark() as thread:
        return thread.call(lambda: HadoopPlace(Folder(Bridge(embedded_session()), path)))
