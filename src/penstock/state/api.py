"""Public functions: inspect a checkpoint; plan, run or abort a rescale; prune old state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.base.arguments import check_path, check_session
from penstock.errors import StateError
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.bridge.session import embedded_session
from penstock.state.checkpoint import Checkpoint
from penstock.state.inspection import Inspection, inspect_checkpoint
from penstock.state.journal import Journal, Phase, check_not_rewound, remove_rewound_rescales, rescale_lock
from penstock.state.key_groups import check_max_parallelism
from penstock.state.live_rescale import request_rescale
from penstock.state.preflight import RescalePlan, plan_rescale
from penstock.state.query_start import add_rescales_to_sink_log
from penstock.state.rescale import OnProgress, Rescale, RescaleReport, publish, rescale_ended, try_discard_staging, undo

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.state.rewrite_methods import RewriteMethod


def inspect(checkpoint: str, *, count: bool = False, spark: SparkSession | None = None) -> Inspection:
    """Return a description of a streaming query's state. Writes nothing.

    >>> state = inspect(checkpoint, count=True)
    >>> state.max_parallelism, sum(store.total_rows for store in state.stores)
    (4, 10)

    Parameters
    ----------
    checkpoint
        The query's ``checkpointLocation``.
    count
        Whether to read the state and count its rows, instead of using the counts in its files.
    spark
        A session; if None, the active session, or else a new session in this process.

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
    """Return the plan of a rescale; raise `StateError` with the reasons if it is impossible. Writes nothing.

    >>> plan(checkpoint, 8).assignment.change.value
    'split'
    """
    check_path(checkpoint, "plan")
    check_max_parallelism(max_parallelism)
    bridge = bridge_of(spark)
    opened_checkpoint = Checkpoint(bridge, checkpoint)
    _check_not_partly_published(opened_checkpoint)
    return plan_rescale(bridge, opened_checkpoint, max_parallelism, method)


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

    The rescale adds a batch to the query's logs; the batch reads no data. If an earlier rescale to the same number was
    interrupted while it published its files, this call finishes the earlier rescale.

    >>> report = rescale(checkpoint, 8)
    >>> report.old, report.new, [store.rows for store in report.stores]
    (4, 8, [10])

    Parameters
    ----------
    checkpoint
        The query's ``checkpointLocation``.
    max_parallelism
        The new number of key groups, at most 32768.
    spark
        A session; if None, the active session, or else a new session in this process.
    method
        The rewrite method of every store. If None, it is chosen for each store.
    file_sink
        The folder that the query writes to, if its sink is a file format of Spark. Spark's log in that folder
        needs an entry for every batch, including that of the rescale. `start_query` adds it automatically.
    on_progress
        Called with the number of finished steps, the number of all steps, and the next step.

    Returns
    -------
    RescaleReport or None
        The report of the rescale; None if the call finished an earlier rescale.

    Raises
    ------
    StateError
        If the state cannot be rescaled, or the rescale fails. The checkpoint is then unchanged, unless the message says
        otherwise. The query must be stopped, and its state must be in one of Spark's built-in stores. Before Spark 4.2,
        the stores must not have column families.
    """
    check_path(checkpoint, "rescale")
    check_max_parallelism(max_parallelism)
    bridge = bridge_of(spark)
    if file_sink is not None:  # an earlier rescale that was killed may not have updated Spark's log
        add_rescales_to_sink_log(bridge, Checkpoint(bridge, checkpoint), file_sink)
    report = _rescale_checkpoint(bridge, checkpoint, max_parallelism, method, on_progress or (lambda *_: None))
    if file_sink is not None:
        add_rescales_to_sink_log(bridge, Checkpoint(bridge, checkpoint), file_sink)
    return report


def _rescale_checkpoint(
    bridge: Bridge, location: str, max_parallelism: int, method: RewriteMethod | None, on_progress: OnProgress
) -> RescaleReport | None:
    checkpoint = Checkpoint(bridge, location)
    with rescale_lock(bridge, checkpoint.folder):
        journal = Journal.load(checkpoint.folder)
        if journal is not None and journal.phase is Phase.PUBLISHING and journal.new == max_parallelism:
            publish(checkpoint, journal)
            return None
        if journal is not None and not rescale_ended(checkpoint, journal):
            if journal.phase is Phase.PUBLISHING:
                raise StateError.rescale_interrupted(checkpoint.location, journal.old, journal.new)
            undo(checkpoint, journal)
        check_not_rewound(checkpoint)
        rescale_plan = plan_rescale(bridge, Checkpoint(bridge, location), max_parallelism, method)
        return Rescale(bridge, rescale_plan, on_progress).run()


def rescale_running(
    checkpoint: str,
    max_parallelism: int,
    *,
    spark: SparkSession | None = None,
    method: RewriteMethod | None = None,
    on_progress: OnProgress | None = None,
) -> dict[str, Any]:
    """Change the number of key groups of a running query that `start_query` started in any process.

    That process lets the running batch end, stops the query, rescales its state, and restarts it. Return the report
    of the rescale, as `LiveReport.as_dict` returns it. The parameters are those of `rescale`.

    Raise `StateError` if no process serves the checkpoint, or the rescale was refused or failed. The query continues
    unchanged, unless the message says otherwise.
    """
    check_path(checkpoint, "rescale_running")
    check_max_parallelism(max_parallelism)
    folder = Checkpoint(bridge_of(spark), checkpoint).folder
    return request_rescale(folder, max_parallelism, method, on_progress or (lambda *_: None))


def abort(checkpoint: str, *, spark: SparkSession | None = None) -> bool:
    """Undo an interrupted rescale, or a complete rescale whose batch was removed from the query's logs.

    Return whether there was such a rescale. Raise `StateError` if the rescale was complete before it was interrupted,
    or another live process works on it.

    >>> abort(checkpoint)  # no rescale was interrupted
    False
    """
    check_path(checkpoint, "abort")
    bridge = bridge_of(spark)
    opened_checkpoint = Checkpoint(bridge, checkpoint)
    with rescale_lock(bridge, opened_checkpoint.folder):
        journal = Journal.load(opened_checkpoint.folder)
        if journal is None:
            try_discard_staging(opened_checkpoint.folder)
            return remove_rewound_rescales(opened_checkpoint)
        undo(opened_checkpoint, journal)
        return True


def prune(checkpoint: str, *, spark: SparkSession | None = None) -> list[str]:
    """Remove the folders of key groups that the query does not have any more, after a rescale to fewer groups.

    The state of batches before that rescale becomes unreadable. Return the removed folders, relative to the checkpoint.
    Raise `StateError` if there is no checkpoint, a rescale is partly published or its batch was removed from the logs,
    or another live process works on a rescale.

    >>> report = rescale(checkpoint, 2)
    >>> prune(checkpoint)
    ['state/0/2', 'state/0/3']
    """
    check_path(checkpoint, "prune")
    bridge = bridge_of(spark)
    opened_checkpoint = Checkpoint(bridge, checkpoint)
    with rescale_lock(bridge, opened_checkpoint.folder):
        _check_not_partly_published(opened_checkpoint)
        batch = opened_checkpoint.finished_batch
        max_parallelism = None if batch is None else opened_checkpoint.offset_entry(batch).max_parallelism
        if max_parallelism is None:
            return []
        operators = [operator.number for operator in opened_checkpoint.operators]
        groups = [(operator, group) for operator in operators for group in opened_checkpoint.key_groups(operator)]
        removed = [f"state/{operator}/{group}" for operator, group in groups if group >= max_parallelism]
        for path in removed:
            opened_checkpoint.folder.child(path).delete()
        return removed


def _check_not_partly_published(checkpoint: Checkpoint) -> None:
    """Raise `StateError` if a rescale is partly published or partly undone, or the logs were rewound past a rescale."""
    journal = Journal.load(checkpoint.folder)
    if journal is not None and journal.phase is not Phase.STAGING and not rescale_ended(checkpoint, journal):
        raise StateError.rescale_interrupted(checkpoint.location, journal.old, journal.new)
    check_not_rewound(checkpoint)


def bridge_of(spark: SparkSession | None) -> Bridge:
    """Return the bridge (access to the JVM) of a session; if None, of the active session, or else of a new session."""
    if spark is not None:
        check_session(spark, "spark")
    return Bridge(spark or embedded_session())
