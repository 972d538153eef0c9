"""Plan of a rescale, with a check of everything that prevents it before anything is written."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.base.units import show_bytes
from penstock.commit import Access
from penstock.errors import StateError
from penstock.spark.bridge.jvm import root_cause
from penstock.spark.run.jobs import cluster_cores
from penstock.spark.state.row_state import RowSession
from penstock.spark.state.snapshot_state import IN_MEMORY, SnapshotSession
from penstock.spark.state.state_store import ROCKSDB, StateSession, StoreId, has_offline_tools, move_files_problem
from penstock.state.assignment import StateAssignment
from penstock.state.journal import Journal
from penstock.state.layout import ENCODING, JOIN_FORMAT, PROVIDER
from penstock.state.marker import MARKER, local_query_names, other_process
from penstock.state.rewrite_methods import RewriteMethod, choose_method

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.spark.bridge.jvm import Bridge
    from penstock.state.checkpoint import Checkpoint

_JOIN_FORMAT = 2
"""Spark's default."""


def open_stores(bridge: Bridge, checkpoint: Checkpoint, batch: int) -> StateSession:
    """Return the reader of the state that a checkpoint has after a batch."""
    conf, format_version = checkpoint.offsets(batch).conf, checkpoint.commit(batch).format_version
    if not has_offline_tools(bridge):
        return RowSession(bridge, format_version, conf, conf.get(ENCODING, "unsaferow"))
    if conf.get(PROVIDER) == IN_MEMORY:
        return SnapshotSession(bridge, format_version, int(conf.get(JOIN_FORMAT, _JOIN_FORMAT)))
    return StateSession(bridge, format_version)


@dataclass(frozen=True, slots=True)
class StorePlan:
    """The planned rewrite of a store."""

    store: StoreId
    operator_name: str
    key: tuple[str, ...]
    """The columns that distribute rows over key groups."""
    method: RewriteMethod
    reason: str


@dataclass(frozen=True, slots=True)
class RescalePlan:
    """The plan of a rescale."""

    location: str
    batch: int
    format_version: int
    assignment: StateAssignment
    provider: str
    """The class of the state store; it stays the same."""
    stores: tuple[StorePlan, ...]
    state_bytes: int

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {
            "checkpoint": self.location,
            "batch": self.batch,
            "from": self.assignment.old,
            "to": self.assignment.new,
            "provider": self.provider,
            "change": str(self.assignment.change),
            "kept": self.assignment.retained_fraction,
            "bytes": self.state_bytes,
            "stores": [
                {
                    "operator": plan.store.operator,
                    "name": plan.operator_name,
                    "store": plan.store.name,
                    "key": list(plan.key),
                    "method": str(plan.method),
                    "reason": plan.reason,
                }
                for plan in self.stores
            ],
        }


def plan_rescale(
    bridge: Bridge, checkpoint: Checkpoint, new: int, method: RewriteMethod | None = None, *, running: bool = False
) -> RescalePlan:
    """Return the plan of a rescale; `running` says whether the query runs and will be stopped for the rescale.

    Raise `StateError` if the state cannot be rescaled; the message lists every reason. `method` is the method for every
    store. If None, it is chosen for each store.
    """
    batch = checkpoint.batch
    if batch is None:
        raise StateError.obstacles(checkpoint.location, ["no batch of the query has finished yet"])
    old = checkpoint.offsets(batch).max_parallelism
    if old is None:
        raise StateError.unreadable(f"{checkpoint.location}/offsets/{batch}", "it has no number of shuffle partitions")
    format_version = checkpoint.commit(batch).format_version
    assignment = StateAssignment(old, new)
    provider = checkpoint.offsets(batch).conf.get(PROVIDER, "unknown")
    session = open_stores(bridge, checkpoint, batch)
    obstacles = [*_log_obstacles(checkpoint, old, new), *_store_obstacles(session, provider, method)]
    if not running:  # a running query finishes its batch by itself
        obstacles += list(_running_queries(bridge, checkpoint)) or _unfinished_batch(checkpoint, batch, old)
    obstacles += _missing_permissions(checkpoint)
    stores: tuple[StorePlan, ...] = ()
    size = 0
    if not obstacles:
        stores, problems = _stores(session, checkpoint, batch, assignment, method)
        size = sum(files.size for files in checkpoint.files(old))
        obstacles += problems
        free = checkpoint.folder.free_bytes()
        if free < size:
            needed = f"its new state needs about {show_bytes(size)}, and its file system has {show_bytes(free)} free"
            obstacles.append(needed)
    if obstacles:
        raise StateError.obstacles(checkpoint.location, obstacles)
    return RescalePlan(checkpoint.location, batch, format_version, assignment, provider, stores, size)


def _log_obstacles(checkpoint: Checkpoint, old: int, new: int) -> Iterator[str]:
    if new == old:
        yield f"it already has {old} key groups"
    if not checkpoint.operators:
        yield "it has no state: a stateless query takes any number of partitions"


def _store_obstacles(session: StateSession, provider: str, method: RewriteMethod | None) -> Iterator[str]:
    if provider not in {ROCKSDB, IN_MEMORY}:
        yield (
            f"its state store is {provider.rpartition('.')[2]}; only Spark's own two can be rescaled. The first batch "
            f"of a query fixes the state store: start the query with a new checkpoint and {PROVIDER}={ROCKSDB}"
        )
    elif session.obstacle is not None:
        yield session.obstacle
    if session.rows_only is not None and method not in {None, RewriteMethod.ROWS}:
        limitation = f"its state store is {provider.rpartition('.')[2]}"
        if provider != IN_MEMORY:
            limitation = f"this is Spark {session.bridge.spark.version}"
        yield f"{limitation}, which supports only the method {RewriteMethod.ROWS}"


def _unfinished_batch(checkpoint: Checkpoint, batch: int, old: int) -> Iterator[str]:
    started = checkpoint.latest("offsets")
    if started is None or started <= batch:
        return
    if checkpoint.offsets(started).max_parallelism == old:
        yield f"batch {started} was started and is not finished: start the query once and let it finish that batch"
        return
    journal = Journal.load(checkpoint.folder)
    if journal is None:
        yield f"batch {started} is an unfinished repartitioning by Spark: finish it with the number it was started with"
    else:
        yield (
            f"a rescale to {journal.new} key groups is in the middle. If it was stopped there, finish it with "
            f"--max-parallelism {journal.new}, or undo it with --abort"
        )


def _running_queries(bridge: Bridge, checkpoint: Checkpoint) -> Iterator[str]:
    for name in local_query_names(bridge, checkpoint.folder):
        yield f"query {name} is running on it: stop it first, or rescale it while it runs if start_query started it"
    other = other_process(Access(bridge), checkpoint.folder)
    if other is not None:
        yield (
            f"{other} runs a query on it: stop it first, or rescale it while it runs with --live (if that process is "
            f"another program, delete {MARKER} in the checkpoint)"
        )


def _missing_permissions(checkpoint: Checkpoint) -> Iterator[str]:
    for folder in (checkpoint.folder, *map(checkpoint.folder.child, ("offsets", "commits", "state"))):
        if folder.exists() and not folder.may_write():
            yield f"there is no permission to write to {folder}"


def _stores(
    session: StateSession, checkpoint: Checkpoint, batch: int, assignment: StateAssignment, method: RewriteMethod | None
) -> tuple[tuple[StorePlan, ...], list[str]]:
    plans, problems = [], []
    encoding = checkpoint.offsets(batch).conf.get(ENCODING, "unsaferow")
    files_problem = session.rows_only or move_files_problem(session.bridge)
    slots = cluster_cores(session.bridge)
    for operator in checkpoint.operators:
        for name in operator.stores:
            label = f"operator {operator.number} ({operator.entry.name}), store {name}"
            try:
                key = session.partition_key(checkpoint.location, batch, operator.number, name)
            except Exception as error:  # noqa: BLE001 - Spark raises many exception classes
                problems.append(f"{label}: {root_cause(error)}")
                continue
            if session.rows_only is not None:
                chosen, reason = RewriteMethod.ROWS, session.rows_only
            else:
                chosen, reason = choose_method(
                    assignment, keyed=bool(key), encoding=encoding, files_problem=files_problem, slots=slots
                )
            plan = StorePlan(StoreId(operator.number, name, bool(key)), operator.entry.name, tuple(key), chosen, reason)
            plans.append(replace(plan, method=method, reason="chosen by the user") if method else plan)
    return tuple(plans), problems
