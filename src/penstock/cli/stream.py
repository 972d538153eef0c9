"""The commands `penstock stream`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from penstock.base.units import show_count, show_time
from penstock.cli.checks import check_checkpoint, check_settings, local
from penstock.cli.flags import FILE_SYSTEMS, FORMAT, takes

if TYPE_CHECKING:
    from penstock.cli.common import Common
    from penstock.streams.reading import TextFiles


@click.group(short_help="Show the batches of a stream, and recommend settings.")
def stream() -> None:
    """Show the batches of a streaming query, and recommend its settings. Nothing is written.

    These commands only read files, while the query runs or afterwards. They start Spark only for file systems other
    than this machine's.
    """


@stream.command()
@takes(FORMAT, *FILE_SYSTEMS)
@click.option(
    "--cores",
    type=click.IntRange(1),
    metavar="N",
    help="The cores of the cluster, instead of those that penstock.state.start_query recorded.",
)
@click.argument("progress", metavar="CHECKPOINT_OR_PROGRESS")
def advise(common: Common, cores: int | None, progress: str) -> None:
    """Recommend the parallelism, state partitions and trigger of a query, with figures and reasons.

    CHECKPOINT_OR_PROGRESS is the checkpoint of a query that penstock.state.start_query started, or a file with the
    progress of any query: a line of JSON for each batch, from event.progress.json in the method onQueryProgress of a
    StreamingQueryListener.

    \b
    How it is computed:
      arrival           records per second, from where the topics ended at the first and the last batch
      pace              seconds of every batch, and records per second after that: the line that fits best
      parallelism       enough tasks that the arrival keeps them busy for at most 70 % of the time, never fewer than now
      trigger           the shortest interval that a batch of its records fills to at most 80 %
      state partitions  as `penstock state inspect` recommends them; `penstock state rescale` changes them

    It uses the last hundred batches, so run it after the busiest hour.

    \b
    Example:
      penstock stream advise /checkpoints/orders
      penstock stream advise progress.jsonl --cores 16 --output-format json
    """
    from penstock.errors import StreamError
    from penstock.streams.advice import advise as advise_on
    from penstock.streams.reading import read_progress

    with common.output() as output:
        batches = read_progress(location_of(common, progress))
        advice = advise_on(batches, cores)
        if advice is None:
            count = sum(batch.rows > 0 for batch in batches)
            message = f"{progress} has the progress of {count} batches with rows, and two are needed"
            raise StreamError(message, hint="let the query run for a while")
        if common.output_format == "json":
            output.record("advice", advice.as_dict())
            return
        output.note(
            f"query {advice.query}: {show_count(advice.batches, 'batch', 'batches')} in {show_time(advice.seconds)}"
        )
        output.note(f"arrival: {advice.arrival:,.0f} records a second")
        output.note(f"pace: {advice.pace}, so it is busy for {advice.load:.0%} of its time")
        output.note(f"lag: {'unknown' if advice.lag is None else show_count(advice.lag, 'record')}")
        rows = [(setting.setting, setting.now or "?", setting.needed, setting.reason) for setting in advice.settings]
        output.rows(("setting", "now", "needed", "because"), rows)


@stream.command()
@takes(FORMAT, *FILE_SYSTEMS)
@click.argument("checkpoint")
def batches(common: Common, checkpoint: str) -> None:
    """Show the decision and the duration of each of the last hundred batches of a query.

    CHECKPOINT is the checkpoint of a query that reads a topic with the format penstock_kafka. Its offsets contain the
    decisions. A batch that "waited" ended before its trigger was due; its seconds are those until the trigger.

    \b
    Example:
      penstock stream batches /checkpoints/orders
    """
    from penstock.streams.reading import read_batches

    with common.output() as output:
        check_checkpoint(checkpoint)
        records = read_batches(location_of(common, checkpoint))
        if common.output_format == "json":
            output.record("stream", {"batches": [record.as_dict() for record in records]})
            return
        rows = [
            (
                record.batch,
                f"{record.decision.lag:,}",
                f"{record.decision.records:,}",
                record.decision.tasks,
                "?" if record.ran is None else f"{record.ran.seconds:.1f}{' (waited)' if record.ran.waited else ''}",
                record.decision.reason,
            )
            for record in records
        ]
        output.rows(("batch", "lag", "records", "tasks", "seconds", "because"), rows)


def location_of(common: Common, path: str) -> TextFiles:
    """Return a location for a path: a local one, or one that Spark reads for other file systems."""
    from penstock.streams.reading import HadoopTextFiles, LocalTextFiles

    check_settings(common.conf, None)
    local_path = local(path)
    if local_path is not None:
        return LocalTextFiles(local_path)
    from penstock.spark.io.filesystem import Folder

    return common.on_spark(lambda bridge: HadoopTextFiles(Folder(bridge, path)))
