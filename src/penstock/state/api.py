"""The public functions: inspect a checkpoint, rescale it, abort a rescale, prune old state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.arguments import check_path, check_session
from penstock.errors import StateError
from penstock.spark.jvm import Bridge
from penstock.spark.session import embedded_session
from penstock.state.asking import ask
from penstock.state.checkpoint import Checkpoint
from penstock.state.file_sink import complete_sink_log
from penstock.state.inspection import Inspection, inspect_checkpoint
from penstock.state.journal import Journal, Phase
from penstock.state.key_groups import check_max_parallelism
from penstock.state.past_rescales import check_not_gone_back, remove_what_is_left
from penstock.state.preflight import RescalePlan, plan_rescale
from penstock.state.rescale import OnProgress, Rescale, RescaleReport, is_over, publish, tidy, undo
from penstock.state.turn import my_turn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.state.rewrite_methods import RewriteMethod


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
    return inspect_checkpoint(bridge_of(spark), checkpoint, count=count)


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
    bridge = bridge_of(spark)
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
        if its query is stopped, and it is kept in one of Spark's own two stores; before Spark 4.2 only if it has no
        column families.
    """
    check_path(checkpoint, "rescale")
    check_max_parallelism(max_parallelism)
    bridge = bridge_of(spark)
    if file_sink is not None:  # of a rescale that was killed before it came to that, too
        complete_sink_log(bridge, Checkpoint(bridge, checkpoint), file_sink)
    report = _rescale(bridge, checkpoint, max_parallelism, method, on_progress or (lambda *_: None))
    if file_sink is not None:
        complete_sink_log(bridge, Checkpoint(bridge, checkpoint), file_sink)
    return report


def _rescale(
    bridge: Bridge, location: str, max_parallelism: int, method: RewriteMethod | None, on_progress: OnProgress
) -> RescaleReport | None:
    found = Checkpoint(bridge, location)
    with my_turn(bridge, found.folder):
        journal = Journal.load(found.folder)
        if journal is not None and journal.phase is Phase.PUBLISHING and journal.new == max_parallelism:
            publish(found, journal)
            return None
        if journal is not None and not is_over(found, journal):
            if journal.phase is Phase.PUBLISHING:
                raise StateError.interrupted(found.location, journal.old, journal.new)
            undo(found, journal)
        check_not_gone_back(found)
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
    found = Checkpoint(bridge_of(spark), checkpoint)
    return ask(found.folder, max_parallelism, method, on_progress or (lambda *_: None))


def abort(checkpoint: str, *, spark: SparkSession | None = None) -> bool:
    """Undo a rescale that was stopped before it was complete, or that the query's logs were taken back over.

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
    bridge = bridge_of(spark)
    found = Checkpoint(bridge, checkpoint)
    with my_turn(bridge, found.folder):
        journal = Journal.load(found.folder)
        if journal is None:
            tidy(found.folder)
            return remove_what_is_left(found)
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
    bridge = bridge_of(spark)
    found = Checkpoint(bridge, checkpoint)
    with my_turn(bridge, found.folder):
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
    check_not_gone_back(checkpoint)


def bridge_of(spark: SparkSession | None) -> Bridge:
    """Return the bridge of a session; of the active or an embedded one if there is none."""
    if spark is not None:
        check_session(spark, "spark")
    return Bridge(spark or embedded_session())
