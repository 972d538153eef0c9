"""Start of a streaming query whose number of key groups can be changed later."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.streaming.readwriter import DataStreamWriter

from penstock.base.arguments import check_path, check_settings, check_type
from penstock.commit import Access
from penstock.config import Configuration
from penstock.config import options as o
from penstock.errors import StateError
from penstock.spark.bridge.session import penstock_settings, session_settings
from penstock.spark.io.filesystem import Folder
from penstock.spark.plans.dataframes import with_settings
from penstock.spark.run.jobs import cluster_cores
from penstock.state.api import bridge_of, rescale
from penstock.state.key_groups import default_max_parallelism
from penstock.state.layout import SHUFFLE_PARTITIONS
from penstock.state.live_rescale import Service
from penstock.state.marker import local_query_names, mark_checkpoint
from penstock.state.progress_files import record_progress
from penstock.state.query_start import QueryStart, recover_rescale
from penstock.state.running import RescalableQuery

if TYPE_CHECKING:
    from collections.abc import Mapping

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

    At the first start ``pipeline.max-parallelism`` sets the number; if unset, it is derived from
    ``parallelism.default`` or the cluster's cores. Later starts retain the number of the state, unless the option sets
    another. In that case the query is refused, or its state is rescaled first if ``state.rescale-on-restart`` is true;
    an unfinished batch is finished before, with the old number. An interrupted rescale is finished or undone first.

    A query runs in only one process at a time. If a process on another machine or in another container ran the query
    and was killed, this call waits until its last sign of life is a minute old.

    While the query runs, ``query.rescale`` changes the number, and so do `rescale_running` and
    ``penstock state rescale --live`` in any process that can access the checkpoint.

    The progress of each batch is recorded in the checkpoint; ``penstock stream advise`` reads it.

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
        If another process runs the query, its state has another number of key groups, or cannot be rescaled.
    """
    check_type(writer, DataStreamWriter, "start_query", "a writer of a stream", "give df.writeStream...")
    check_path(checkpoint, "start_query")
    check_settings(config, "the config of start_query")
    bridge = bridge_of(spark)
    configuration = Configuration.load(config, spark_conf=penstock_settings(bridge), environ=os.environ)
    folder = Folder(bridge, checkpoint)
    mark = mark_checkpoint(Access(bridge), folder, keep_requests=bool(local_query_names(bridge, folder)))
    try:
        numbers = _Numbers.at_start(configuration, recover_rescale(bridge, checkpoint), cluster_cores(bridge))
        if numbers.target != numbers.first and numbers.unfinished is None:
            rescale(checkpoint, numbers.target, spark=bridge.spark)
            numbers = replace(numbers, first=numbers.target)
        writer = writer.option("checkpointLocation", checkpoint)
        start = QueryStart(bridge, writer, checkpoint, session_settings(bridge))
        with with_settings(bridge.spark, {SHUFFLE_PARTITIONS: str(numbers.first)}):
            query = RescalableQuery(start)
    except BaseException:
        try:
            (mark.restore_previous if local_query_names(bridge, folder) else mark.remove)()
        except Exception:  # the first error is raised
            log.warning("the mark of this process stays in %s", checkpoint, exc_info=True)
        raise
    Service(query, folder, mark).start()
    record_progress(bridge, str(query.id), checkpoint)
    if numbers.target != numbers.first and numbers.unfinished is not None:
        _rescale_after(query, numbers.unfinished, numbers.target)
    return query


@dataclass(frozen=True, slots=True)
class _Numbers:
    """The numbers of key groups of a query that is about to start.

    `target` is the number after a rescale that the options request. `unfinished` is the batch that must be finished
    with the number `first` before; None if there is none.
    """

    first: int
    target: int
    unfinished: int | None = None

    @classmethod
    def at_start(cls, configuration: Configuration, checkpoint: Checkpoint | None, cores: int) -> _Numbers:
        """Return the numbers; raise `StateError` if option and state differ and `state.rescale-on-restart` is false."""
        requested = configuration.maybe_integer(o.PIPELINE_MAX_PARALLELISM)
        begun = None if checkpoint is None else checkpoint.latest("offsets")
        number = None if checkpoint is None or begun is None else checkpoint.offsets(begun).max_parallelism
        if checkpoint is None or begun is None or number is None:
            first = requested or default_max_parallelism(configuration.maybe_integer(o.PARALLELISM_DEFAULT) or cores)
            return cls(first, first)
        if requested is not None and requested != number and not configuration.flag(o.RESCALE_ON_RESTART):
            raise StateError.differs(checkpoint.location, number, requested)
        finished = checkpoint.latest("commits")
        return cls(number, requested or number, begun if finished is None or finished < begun else None)


def _rescale_after(query: RescalableQuery, batch: int, number: int) -> None:
    """Rescale a query that has just started, once the unfinished batch of its last run is done."""
    try:
        if query.wait_for_batch(batch):
            query.rescale(number)
    except StateError:
        if query.isActive:
            query.stop()
            raise
    if not query.isActive:  # it failed, with its own error, or processed all available data
        log.warning("the query ended before its state was rescaled to %d; its next start rescales it", number)
