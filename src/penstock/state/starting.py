"""`penstock.state.start_query`: starts a streaming query whose number of key groups can be changed later."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.streaming.readwriter import DataStreamWriter

from penstock.base.arguments import check_path, check_settings, check_type
from penstock.commit import Access
from penstock.config import Configuration
from penstock.config import options as o
from penstock.errors import StateError
from penstock.spark.bridge.session import penstock_settings, session_settings
from penstock.spark.io.filesystem import HadoopPath
from penstock.spark.plans.dataframes import with_settings
from penstock.spark.run.jobs import cluster_cores
from penstock.state.api import bridge_of, rescale
from penstock.state.key_groups import default_max_parallelism
from penstock.state.live_rescale import RescaleService
from penstock.state.log_entries import SHUFFLE_PARTITIONS
from penstock.state.marker import local_query_names, write_marker
from penstock.state.progress_files import record_progress
from penstock.state.query_start import QueryStart, recover_rescale
from penstock.state.running import RescalableQuery

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.state.checkpoint import Checkpoint

log = logging.getLogger("penstock.state")


def start_query(
    writer: DataStreamWriter,
    checkpoint: str,
    *,
    config: Mapping[str, object] | None = None,
    spark: SparkSession | None = None,
) -> RescalableQuery:
    """Start a streaming query whose number of key groups (max parallelism) can be changed later, even while it runs.

    At the first start, ``pipeline.max-parallelism`` sets the number. If the option is unset, the number is derived from
    ``parallelism.default`` or the cluster's cores. Later starts use the number that the state has. If the option sets
    another number, the start is refused, unless ``state.rescale-on-restart`` is true: then the state is rescaled before
    the start, or after an unfinished batch of the last run. The start first finishes or undoes an interrupted rescale.

    A query runs in only one process at a time. If a process on another machine or in another container ran the query
    and was killed, this call waits until a minute after the last renewal of that process's lease.

    While the query runs, ``query.rescale`` changes the number, and so do `rescale_running` and
    ``penstock state rescale --live`` in any process that can access the checkpoint.

    The progress of each batch is recorded in the checkpoint; ``penstock stream advise`` reads it.

    >>> spark.range(9).write.parquet(f"{folder}/in")
    >>> counts = spark.readStream.schema("id long").parquet(f"{folder}/in").groupBy("id").count()
    >>> writer = counts.writeStream.outputMode("update").format("noop").trigger(availableNow=True)
    >>> query = start_query(writer, f"{folder}/checkpoint", config={"pipeline.max-parallelism": 4})
    >>> query.awaitTermination()

    Parameters
    ----------
    writer
        The query, ready to start except for its checkpoint.
    checkpoint
        The query's ``checkpointLocation``.
    config
        Options. They override those of the session and the configuration file.
    spark
        The session of the query; if None, the active session.

    Raises
    ------
    StateError
        If another process runs the query, or its state has another number of key groups and is not rescaled.
    """
    check_type(writer, DataStreamWriter, "start_query", "a writer of a stream", "give df.writeStream...")
    check_path(checkpoint, "start_query")
    check_settings(config, "the config of start_query")
    bridge = bridge_of(spark)
    configuration = Configuration.load(config, spark_conf=penstock_settings(bridge), environ=os.environ)
    folder = HadoopPath(bridge, checkpoint)
    marker = write_marker(Access(bridge), folder, keep_requests=bool(local_query_names(bridge, folder)))
    try:  # `recover_rescale` returns the checkpoint, None at the first start
        numbers = _KeyGroupNumbers.at_start(configuration, recover_rescale(bridge, checkpoint), cluster_cores(bridge))
        if numbers.target != numbers.initial and numbers.unfinished_batch is None:
            rescale(checkpoint, numbers.target, spark=bridge.spark)
            numbers = replace(numbers, initial=numbers.target)
        writer = writer.option("checkpointLocation", checkpoint)
        start = QueryStart(bridge, writer, checkpoint, session_settings(bridge))
        with with_settings(bridge.spark, {SHUFFLE_PARTITIONS: str(numbers.initial)}):
            query = RescalableQuery(start)
    except BaseException:
        try:  # the query may still run in this process, from an earlier start
            (marker.restore_previous if local_query_names(bridge, folder) else marker.remove)()
        except Exception:  # the original error is raised below
            log.warning("the marker of this process stays in %s", checkpoint, exc_info=True)
        raise
    RescaleService(query, folder, marker).start()
    record_progress(bridge, str(query.id), checkpoint)
    if numbers.target != numbers.initial and numbers.unfinished_batch is not None:
        _rescale_after_batch(query, numbers.unfinished_batch, numbers.target)
    return query


@dataclass(frozen=True, slots=True)
class _KeyGroupNumbers:
    """The numbers of key groups of a query that is about to start.

    `initial` is the number at the start, and `target` the number that the options request. `unfinished_batch` is the
    batch of the last run that must finish before a rescale from `initial` to `target`; None if no batch is unfinished.
    """

    initial: int
    target: int
    unfinished_batch: int | None = None

    @classmethod
    def at_start(cls, configuration: Configuration, checkpoint: Checkpoint | None, cores: int) -> _KeyGroupNumbers:
        """Return the numbers; raise `StateError` if option and state differ and `state.rescale-on-restart` is false."""
        requested = configuration.maybe_integer(o.PIPELINE_MAX_PARALLELISM)
        started = None if checkpoint is None else checkpoint.latest_batch("offsets")
        number = None if checkpoint is None or started is None else checkpoint.offset_entry(started).max_parallelism
        if checkpoint is None or started is None or number is None:
            initial = requested or default_max_parallelism(configuration.maybe_integer(o.PARALLELISM_DEFAULT) or cores)
            return cls(initial, initial)
        if requested is not None and requested != number and not configuration.flag(o.RESCALE_ON_RESTART):
            path = checkpoint.location
            raise StateError(
                f"the state in {path} has max parallelism {number}, and the query requests {requested}",
                hint=f"leave pipeline.max-parallelism unset to continue with {number}, set state.rescale-on-restart, "
                f"or run `penstock state rescale {path} --max-parallelism {requested}`",
            )
        finished = checkpoint.latest_batch("commits")
        return cls(number, requested or number, started if finished is None or finished < started else None)


def _rescale_after_batch(query: RescalableQuery, batch: int, number: int) -> None:
    """Rescale a query that has just started, once the unfinished batch of its last run has finished."""
    try:
        if query.wait_for_batch(batch):
            query.rescale(number)
    except StateError:
        if query.isActive:
            query.stop()  # the caller of `start_query` gets the error, and no handle of the query
            raise
    if not query.isActive:  # the query failed, which PySpark reports, or has processed all available data
        log.warning("the query ended before its state was rescaled to %d; its next start rescales it", number)
