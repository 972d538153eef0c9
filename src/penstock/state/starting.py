"""Starting a streaming query with a number of key groups that can be changed later."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.streaming.readwriter import DataStreamWriter

from penstock.arguments import check_path, check_settings, check_type
from penstock.commit import Access
from penstock.config import Configuration
from penstock.config import options as o
from penstock.errors import StateError
from penstock.spark.dataframes import with_settings
from penstock.spark.filesystem import Folder
from penstock.spark.jobs import cluster_cores
from penstock.spark.session import penstock_settings, session_settings
from penstock.state.api import bridge_of, rescale
from penstock.state.key_groups import default_max_parallelism
from penstock.state.marker import running_here, take_over
from penstock.state.progress_files import record_progress
from penstock.state.query_start import QueryStart, settled
from penstock.state.running import RescalableQuery
from penstock.state.service import Service

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from penstock.state.checkpoint import Checkpoint

_PARTITIONS = "spark.sql.shuffle.partitions"

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
    ``parallelism.default`` or the cluster's cores. Later starts keep the number that the state has, unless the option
    asks for another. In that case the query is refused, or its state is rescaled first if ``state.rescale-on-restart``
    is true; a batch that was begun and not finished is finished before, with the old number. A rescale that was stopped
    while it put its files in place is finished first.

    One process at a time runs a query. If the one that ran it on another machine or in another container was killed,
    this call waits until its last sign of life is a minute old.

    While the query runs, ``query.rescale`` changes the number, and so do `rescale_running` and
    ``penstock state rescale --live`` in any process that reaches the checkpoint.

    What Spark says of each batch is kept in the checkpoint; ``penstock stream advise`` reads it.

    Parameters
    ----------
    writer
        The query, ready to start except for its checkpoint.
    checkpoint
        The query's ``checkpointLocation``.
    config
        Options. They override those of the session and the configuration file.
    spark
        The session of the query; if None, the active one.

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
    mark = take_over(Access(bridge), folder, again=bool(running_here(bridge, folder)))
    try:
        found = settled(bridge, checkpoint)
        numbers = _Numbers.at_start(configuration, found, cluster_cores(bridge))
        if numbers.wanted != numbers.first and numbers.unfinished is None:
            rescale(checkpoint, numbers.wanted, spark=bridge.spark)
            numbers = replace(numbers, first=numbers.wanted)
        writer = writer.option("checkpointLocation", checkpoint)
        start = QueryStart(bridge, writer, checkpoint, session_settings(bridge))
        with with_settings(bridge.spark, {_PARTITIONS: str(numbers.first)}):
            query = RescalableQuery(start)
    except BaseException:
        try:
            if running_here(bridge, folder):
                mark.give_back()
            else:
                mark.remove()
        except Exception:  # what went wrong first is what to raise
            log.warning("the mark of this process stays in %s", checkpoint, exc_info=True)
        raise
    Service(query, folder, mark).start()
    record_progress(bridge, str(query.id), checkpoint)
    if numbers.wanted != numbers.first and numbers.unfinished is not None:
        _rescale_after(query, numbers.unfinished, numbers.wanted)
    return query


@dataclass(frozen=True, slots=True)
class _Numbers:
    """The numbers of key groups of a query that is about to start.

    Parameters
    ----------
    first
        The number it starts with.
    wanted
        The number it shall have.
    unfinished
        The batch that has to be finished first, with the number it was begun with; None if there is none.
    """

    first: int
    wanted: int
    unfinished: int | None = None

    @classmethod
    def at_start(cls, configuration: Configuration, found: Checkpoint | None, cores: int) -> _Numbers:
        """Return those that the options and the state ask for.

        Raises
        ------
        StateError
            If they differ, and the state is not to be rescaled.
        """
        wanted = configuration.maybe_integer(o.PIPELINE_MAX_PARALLELISM)
        begun = None if found is None else found.latest("offsets")
        number = None if found is None or begun is None else found.offsets(begun).max_parallelism
        if found is None or begun is None or number is None:
            first = wanted or default_max_parallelism(configuration.maybe_integer(o.PARALLELISM_DEFAULT) or cores)
            return cls(first, first)
        if wanted is not None and wanted != number and not configuration.flag(o.RESCALE_ON_RESTART):
            raise StateError.differs(found.location, number, wanted)
        finished = found.latest("commits")
        return cls(number, wanted or number, begun if finished is None or finished < begun else None)


def _rescale_after(query: RescalableQuery, batch: int, number: int) -> None:
    """Rescale a query that has just started, once the batch that its last run left unfinished is done."""
    try:
        if query.wait_for_batch(batch):
            query.rescale(number)
    except StateError:
        if query.isActive:
            query.stop()
            raise
    if not query.isActive:  # it failed, as it tells itself, or processed what was there
        log.warning("the query ended before its state was rescaled to %d; its next start rescales it", number)
