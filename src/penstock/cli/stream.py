"""The commands `penstock stream advise` and `batches`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from penstock.base.units import show_count, show_time
from penstock.cli.checks import as_local_path, check_checkpoint, check_settings
from penstock.cli.flags import FILE_SYSTEM_OPTIONS, FORMAT, with_options

if TYPE_CHECKING:
    from penstock.cli.common import SharedOptions
    from penstock.streams.reading import TextFiles


@click.group(short_help="Show the batches of a stream, and recommend settings.")
def stream() -> None:
    """Show the batches of a streaming query, and recommend its settings. Nothing is written.

    These commands only read files, while the query runs or later. They start Spark only to read file systems other than
    this machine's.
    """


@stream.command()
@with_options(FORMAT, *FILE_SYSTEM_OPTIONS)
@click.option(
    "--cores",
    type=click.IntRange(1),
    metavar="N",
    help="The cores of the cluster, instead of those that penstock.state.start_query recorded.",
)
@click.argument("progress", metavar="CHECKPOINT_OR_PROGRESS")
def advise(shared: SharedOptions, cores: int | None, progress: str) -> None:
    """Recommend the parallelism, state partitions and trigger of a query, with figures and reasons.

    CHECKPOINT_OR_PROGRESS is the checkpoint of a query that penstock.state.start_query started, or a file with the
    progress of any query: a line of JSON for each batch, from event.progress.json in the method onQueryProgress of a
    StreamingQueryListener.

    \b
    How it is computed:
      arrival           records per second, from the end offsets of the topics at the first and the last batch
      pace              the fixed seconds of each batch, and the records per second in its remaining time: a linear fit
      parallelism       the fewest tasks that arriving records keep busy at most 70 % of the time; not fewer than now
      trigger           the shortest interval of which a batch needs at most 80 % for the records that arrive in it
      state partitions  as `penstock state inspect` recommends; `penstock state rescale` changes them

    Only the last hundred batches are used, so run this command after the busiest hour.

    \b
    Example:
      penstock stream advise /checkpoints/orders
      penstock stream advise progress.jsonl --cores 16 --output-format json
    """
    from penstock.errors import StreamError
    from penstock.streams.advice import advise as advise_on
    from penstock.streams.reading import read_progress

    with shared.output() as output:
        batches = read_progress(text_files_at(shared, progress))
        advice = advise_on(batches, cores)
        if advice is None:
            count = sum(batch.rows > 0 for batch in batches)
            message = f"{progress} has the progress of {count} batches with rows, and at least two are needed"
            raise StreamError(message, hint="let the query run for a while")
        if shared.output_format == "json":
            output.record("advice", advice.as_dict())
            return
        output.note(
            f"query {advice.query}: {show_count(advice.batches, 'batch', 'batches')} in {show_time(advice.seconds)}"
        )
        output.note(f"arrival: {advice.arrival:,.0f} records a second")
        output.note(f"pace: {advice.pace}, so the query is busy for {advice.load:.0%} of the time")
        output.note(f"lag: {'unknown' if advice.lag is None else show_count(advice.lag, 'record')}")
        rows = [(setting.setting, setting.now or "?", setting.needed, setting.reason) for setting in advice.settings]
        output.rows(("setting", "now", "needed", "because"), rows)


@stream.command()
@with_options(FORMAT, *FILE_SYSTEM_OPTIONS)
@click.argument("checkpoint")
def batches(shared: SharedOptions, checkpoint: str) -> None:
    """Show the decision and the duration of each of the last hundred batches of a query.

    CHECKPOINT is the checkpoint of a query that reads a topic with the format penstock_kafka. The offsets in it contain
    the decisions. A batch marked as "waited" ended before its trigger interval was over; its seconds include the wait.

    \b
    Example:
      penstock stream batches /checkpoints/orders
    """
    from penstock.streams.reading import read_batches

    with shared.output() as output:
        check_checkpoint(checkpoint)
        records = read_batches(text_files_at(shared, checkpoint))
        if shared.output_format == "json":
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


def text_files_at(shared: SharedOptions, path: str) -> TextFiles:
    """Return access to the text files at a path: by Python for a local path, by Spark for other file systems."""
    from penstock.streams.reading import HadoopTextFiles, LocalTextFiles

    check_settings(shared.conf, None)
    local_path = as_local_path(path)
    if local_path is not None:
        return LocalTextFiles(local_path)
    from penstock.spark.io.filesystem import HadoopPath

    return shared.on_spark(lambda bridge: HadoopTextFiles(HadoopPath(bridge, path)))
