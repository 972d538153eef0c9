"""The public functions: inspect a checkpoint, rescale it, abort a rescale, prune old state, start a query."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.readwriter import DataStreamWriter

from penstock.arguments import check_path, check_session, check_settings, check_type
from penstock.config import Configuration
from penstock.config import options as o
from penstock.errors import StateError
from penstock.spark.dataframes import with_settings
from penstock.spark.filesystem import Folder
from penstock.spark.jobs import cluster_cores
from penstock.spark.jvm import Bridge
from penstock.spark.session import embedded_session, penstock_settings, session_settings
from penstock.state.asking import ask
from penstock.state.checkpoint import Checkpoint
from penstock.state.file_sink import complete_sink_log
from penstock.state.inspection import Inspection, inspect_checkpoint
from penstock.state.journal import Journal, Phase
from penstock.state.key_groups import check_max_parallelism, default_max_parallelism
from penstock.state.preflight import RescalePlan, plan_rescale
from penstock.state.progress_files import record_progress
from penstock.state.requests import Requests
from penstock.state.rescale import OnProgress, Rescale, RescaleReport, is_over, publish, tidy, undo
from penstock.state.running import QueryStart, RescalableQuery, settled
from penstock.state.service import Service
from penstock.state.turn import my_turn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from penstock.state.rewrite_methods import RewriteMethod

_PARTITIONS = "spark.sql.shuffle.partitions"


def inspect(checkpoint: str, *, count: bool = False, spark: SparkSession | None = None) -> Inspection:
    """Return a description of a streaming query's state. Writes nothing.

    Parameters
    ----------
    checkpoint
        The query's ``checkpointLocation``.
    count
        Whether to read the state and count its rows, instead of using the counts in its files.
    spark
        A session; if None, the active one or an embedded one.

    Raises
    ------
    StateError
        If there is no checkpoint, or it is damaged.
    """
    check_path(checkpoint, "inspect")
    return inspect_checkpoint(_bridge(spark), checkpoint, count=count)


def plan(
    checkpoint: str, max_parallelism: int, *, spark: SparkSession | None = None, method: RewriteMethod | None = None
) -> RescalePlan:
    """Return what `rescale` would do. Writes nothing.

    Raises
    ------
    StateError
        If the state cannot be rescaled; the message lists every reason.
    """
    check_path(checkpoint, "plan")
    check_max_parallelism(max_parallelism)
    bridge = _bridge(spark)
    found = Checkpoint(bridge, checkpoint)
    _check_whole(found)
    return plan_rescale(bridge, found, max_parallelism, method)


def rescale(
    checkpoint: str,
    max_parallelism: int,
    *,
    spark: SparkSession | None = None,
    method: RewriteMethod | None = None,
    file_sink: str | None = None,
    on_progress: OnProgress | None = None,
) -> RescaleReport | None:
    """Change the number of key groups (the max parallelism) of a stopped streaming query.

    The change is one more batch that reads no data. If an earlier rescale to the same number was stopped while it put
    its files in place, this call finishes it.

    Parameters
    ----------
    checkpoint
        The query's ``checkpointLocation``.
    max_parallelism
        The new number of key groups, at most 32768.
    spark
        A session; if None, the active one or an embedded one.
    method
        How to rewrite every store. If None, it is chosen for each store.
    file_sink
        The folder that the query writes to, if its sink is one of Spark's file formats. Spark's log in that folder
        needs an entry for every batch, the rescale too. `start_query` adds it by itself.
    on_progress
        Called with the number of finished steps, the number of all steps, and the next step.

    Returns
    -------
    RescaleReport or None
        What was done; None if the call finished an earlier rescale.

    Raises
    ------
    StateError
        If the state cannot be rescaled, or the rescale fails. The checkpoint is then unchanged. A state can be rescaled
        if its query is stopped, Spark is 4.2 or newer, and it is kept in one of Spark's own two stores.
    """
    check_path(checkpoint, "rescale")
    check_max_parallelism(max_parallelism)
    bridge = _bridge(spark)
    report = _rescale(bridge, checkpoint, max_parallelism, method, on_progress or (lambda *_: None))
    if file_sink is not None:
        complete_sink_log(bridge, Checkpoint(bridge, checkpoint), file_sink)
    return report


def _rescale(
    bridge: Bridge, location: str, max_parallelism: int, method: RewriteMethod | None, on_progress: OnProgress
) -> RescaleReport | None:
    found = Checkpoint(bridge, location)
    with my_turn(bridge, found):
        journal = Journal.load(found.folder)
        if journal is not None and journal.phase is Phase.PUBLISHING and journal.new == max_parallelism:
            publish(found, journal)
            return None
        if journal is not None and not is_over(found, journal):
            if journal.phase is Phase.PUBLISHING:
                raise StateError.interrupted(found.location, journal.old, journal.new)
            undo(found, journal)
        planned = plan_rescale(bridge, Checkpoint(bridge, location), max_parallelism, method)
        return Rescale(bridge, planned, on_progress).run()


def rescale_running(
    checkpoint: str,
    max_parallelism: int,
    *,
    spark: SparkSession | None = None,
    method: RewriteMethod | None = None,
    on_progress: OnProgress | None = None,
) -> dict[str, Any]:
    """Change the number of key groups of a query that runs, in whichever process `start_query` started it.

    That process lets the running batch end, stops the query, rescales its state, and starts it again.

    Parameters
    ----------
    checkpoint, max_parallelism, spark, method, on_progress
        As for `rescale`.

    Returns
    -------
    dict
        What was done, as `LiveReport.as_dict` has it.

    Raises
    ------
    StateError
        If no process serves the checkpoint, or the rescale was refused or failed. The query runs on as before, unless
        the message says otherwise.
    """
    check_path(checkpoint, "rescale_running")
    check_max_parallelism(max_parallelism)
    found = Checkpoint(_bridge(spark), checkpoint)
    return ask(found.folder, max_parallelism, method, on_progress or (lambda *_: None))


def abort(checkpoint: str, *, spark: SparkSession | None = None) -> bool:
    """Undo a rescale that was stopped before it was complete.

    Returns
    -------
    bool
        Whether there was such a rescale.

    Raises
    ------
    StateError
        If the rescale is complete, or another process that lives works on it.
    """
    check_path(checkpoint, "abort")
    bridge = _bridge(spark)
    found = Checkpoint(bridge, checkpoint)
    with my_turn(bridge, found):
        journal = Journal.load(found.folder)
        if journal is None:
            tidy(found.folder)
            return False
        undo(found, journal)
        return True


def prune(checkpoint: str, *, spark: SparkSession | None = None) -> list[str]:
    """Remove the folders of key groups that the query no longer has. State of earlier batches becomes unreadable.

    Returns
    -------
    list of str
        The removed folders, relative to the checkpoint.

    Raises
    ------
    StateError
        If there is no checkpoint, or a rescale is not complete, or another process that lives works on one.
    """
    check_path(checkpoint, "prune")
    bridge = _bridge(spark)
    found = Checkpoint(bridge, checkpoint)
    with my_turn(bridge, found):
        _check_whole(found)
        number = found.offsets(found.batch).max_parallelism if found.batch is not None else None
        if number is None:
            return []
        removed = [
            f"state/{operator.number}/{group}"
            for operator in found.operators
            for group in found.groups(operator.number)
            if group >= number
        ]
        for path in removed:
            found.folder.child(path).delete()
        return removed


def _check_whole(checkpoint: Checkpoint) -> None:
    """Refuse a checkpoint in which a rescale is half in place."""
    journal = Journal.load(checkpoint.folder)
    if journal is not None and journal.phase is not Phase.STAGING and not is_over(checkpoint, journal):
        raise StateError.interrupted(checkpoint.location, journal.old, journal.new)


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
    is true. A rescale that was stopped while it put its files in place is finished first.

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
        If the state has another number of key groups, or cannot be rescaled.
    """
    check_type(writer, DataStreamWriter, "start_query", "a writer of a stream", "give df.writeStream...")
    check_path(checkpoint, "start_query")
    check_settings(config, "the config of start_query")
    bridge = _bridge(spark)
    configuration = Configuration.load(config, spark_conf=penstock_settings(bridge), environ=os.environ)
    wanted = configuration.maybe_integer(o.PIPELINE_MAX_PARALLELISM)
    number = _state_number(bridge, checkpoint)
    if number is None:
        parallelism = configuration.maybe_integer(o.PARALLELISM_DEFAULT) or cluster_cores(bridge)
        number = wanted or default_max_parallelism(parallelism)
    elif wanted is not None and wanted != number:
        if not configuration.flag(o.RESCALE_ON_RESTART):
            raise StateError.differs(checkpoint, number, wanted)
        rescale(checkpoint, wanted, spark=bridge.spark)
        number = wanted
    Requests(Folder(bridge, checkpoint)).clear()
    start = QueryStart(bridge, writer.option("checkpointLocation", checkpoint), checkpoint, session_settings(bridge))
    with with_settings(bridge.spark, {_PARTITIONS: str(number)}):
        query = RescalableQuery(start)
    record_progress(bridge, str(query.id), checkpoint)
    Service(bridge, query, checkpoint).start()
    return query


def _state_number(bridge: Bridge, location: str) -> int | None:
    found = settled(bridge, location)
    batch = None if found is None else found.latest("offsets")
    return None if found is None or batch is None else found.offsets(batch).max_parallelism


def _bridge(spark: SparkSession | None) -> Bridge:
    if spark is not None:
        check_session(spark, "spark")
    return Bridge(spark or embedded_session())
