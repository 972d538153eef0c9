"""Plans a rescale, a change of the number of key groups (state partitions), and checks for obstacles before a write."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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
from penstock.state.log_entries import ENCODING, JOIN_FORMAT, PROVIDER
from penstock.state.marker import MARKER_FILE, local_query_names, other_process
from penstock.state.rewrite_methods import RewriteMethod, choose_method

if TYPE_CHECKING:
    from penstock.spark.bridge.jvm import Bridge
    from penstock.state.checkpoint import Checkpoint

_DEFAULT_JOIN_FORMAT = 2  # format version of the state of joins if the offset log does not contain `JOIN_FORMAT`


def open_state_session(bridge: Bridge, checkpoint: Checkpoint, batch: int) -> StateSession:
    """Return the session that reads and rewrites the state that a checkpoint has after a batch."""
    conf, format_version = checkpoint.offset_entry(batch).conf, checkpoint.commit_entry(batch).format_version
    if not has_offline_tools(bridge):  # before Spark 4.2
        return RowSession(bridge, format_version, conf, conf.get(ENCODING, "unsaferow"))
    if conf.get(PROVIDER) == IN_MEMORY:
        return SnapshotSession(bridge, format_version, int(conf.get(JOIN_FORMAT, _DEFAULT_JOIN_FORMAT)))
    return StateSession(bridge, format_version)


@dataclass(frozen=True, slots=True)
class StorePlan:
    """The planned rewrite of a state store; `reason` is the reason for the method."""

    store: StoreId
    operator_name: str
    key: tuple[str, ...]
    """The columns that distribute rows over key groups; empty if all rows are in group 0."""
    method: RewriteMethod
    reason: str


@dataclass(frozen=True, slots=True)
class RescalePlan:
    """The plan of a rescale; `batch` is the last finished batch, and `state_bytes` the size of the old state."""

    location: str
    batch: int
    format_version: int  # of the checkpoint: 1, or 2 with unique ids for versions of state
    assignment: StateAssignment
    provider: str  # the class of the state store, before and after the rescale
    stores: tuple[StorePlan, ...]
    state_bytes: int

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as a JSON object for the output of the command line."""
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
    bridge: Bridge, checkpoint: Checkpoint, new: int, method: RewriteMethod | None = None, *, is_running: bool = False
) -> RescalePlan:
    """Return the plan of a rescale to `new` key groups.

    `method` is the rewrite method of every store; None to choose it for each store. `is_running` says that the query
    runs, and that the caller will stop it after a batch. Raise `StateError` if there are obstacles.
    """
    batch = checkpoint.finished_batch
    if batch is None:
        raise StateError.cannot_rescale(checkpoint.location, ["no batch of the query has finished yet"])
    old = checkpoint.offset_entry(batch).max_parallelism
    if old is None:
        raise StateError.unreadable(f"{checkpoint.location}/offsets/{batch}", "it has no number of shuffle partitions")
    format_version = checkpoint.commit_entry(batch).format_version
    assignment = StateAssignment(old, new)
    provider = checkpoint.offset_entry(batch).conf.get(PROVIDER, "unknown")
    session = open_state_session(bridge, checkpoint, batch)
    obstacles = [*_number_obstacles(checkpoint, old, new), *_store_obstacles(session, provider, method)]
    if not is_running:  # an unfinished batch is an obstacle only if no query is running that finishes it
        obstacles += list(_query_obstacles(bridge, checkpoint)) or _unfinished_batch_obstacles(checkpoint, batch, old)
    obstacles += _permission_obstacles(checkpoint)
    stores: tuple[StorePlan, ...] = ()
    state_bytes = 0
    if not obstacles:
        stores, store_obstacles = _plan_stores(session, checkpoint, batch, assignment, method)
        state_bytes = sum(group.size for group in checkpoint.group_sizes(old))
        obstacles += store_obstacles
        free = checkpoint.folder.free_bytes()
        if free < state_bytes:
            needed = show_bytes(state_bytes)
            obstacles.append(f"its new state needs about {needed}, and its file system has {show_bytes(free)} free")
    if obstacles:
        raise StateError.cannot_rescale(checkpoint.location, obstacles)
    return RescalePlan(checkpoint.location, batch, format_version, assignment, provider, stores, state_bytes)


def _number_obstacles(checkpoint: Checkpoint, old: int, new: int) -> Iterator[str]:
    if new == old:
        yield f"it already has {old} key groups"
    if not checkpoint.operators:
        yield "it has no state: a stateless query can have any number of partitions"


def _store_obstacles(session: StateSession, provider: str, method: RewriteMethod | None) -> Iterator[str]:
    if provider not in {ROCKSDB, IN_MEMORY}:
        yield (
            f"its state store is {provider.rpartition('.')[2]}; only Spark's two built-in stores can be rescaled. The "
            f"first batch of a query fixes the store: start the query with a new checkpoint and {PROVIDER}={ROCKSDB}"
        )
    elif session.unsupported_reason is not None:
        yield session.unsupported_reason
    if session.row_by_row_note is not None and method not in {None, RewriteMethod.ROWS}:
        limitation = f"its state store is {provider.rpartition('.')[2]}"
        if provider != IN_MEMORY:
            limitation = f"this is Spark {session.bridge.spark.version}"
        yield f"{limitation}, which supports only the method {RewriteMethod.ROWS}"


def _unfinished_batch_obstacles(checkpoint: Checkpoint, batch: int, old: int) -> Iterator[str]:
    newest = checkpoint.latest_batch("offsets")
    if newest is None or newest <= batch:
        return
    if checkpoint.offset_entry(newest).max_parallelism == old:  # otherwise the batch changes the number of key groups
        yield f"batch {newest} was started and is not finished: start the query once and let it finish that batch"
        return
    journal = Journal.load(checkpoint.folder)
    if journal is None:
        yield f"batch {newest} is an unfinished repartitioning by Spark: finish it with the number it was started with"
    else:
        yield (
            f"a rescale to {journal.new} key groups is partly published. If it was interrupted, finish it with "
            f"--max-parallelism {journal.new}, or undo it with --abort"
        )


def _query_obstacles(bridge: Bridge, checkpoint: Checkpoint) -> Iterator[str]:
    for name in local_query_names(bridge, checkpoint.folder):
        yield f"query {name} is running on it: stop it first, or rescale it while it runs if start_query started it"
    process = other_process(Access(bridge), checkpoint.folder)
    if process is not None:
        yield (
            f"{process} runs a query on it: stop it first, or rescale it while it runs with --live (if that process is "
            f"another program, delete {MARKER_FILE} in the checkpoint)"
        )


def _permission_obstacles(checkpoint: Checkpoint) -> Iterator[str]:
    for folder in (checkpoint.folder, *map(checkpoint.folder.child, ("offsets", "commits", "state"))):
        if folder.exists() and not folder.may_write():
            yield f"there is no permission to write to {folder}"


def _plan_stores(
    session: StateSession, checkpoint: Checkpoint, batch: int, assignment: StateAssignment, method: RewriteMethod | None
) -> tuple[tuple[StorePlan, ...], list[str]]:
    """Return the plan of each store, and the obstacles: the error for each store whose partition key cannot be read."""
    plans, store_obstacles = [], []
    encoding = checkpoint.offset_entry(batch).conf.get(ENCODING, "unsaferow")
    files_problem = session.row_by_row_note or move_files_problem(session.bridge)
    slots = cluster_cores(session.bridge)
    for operator in checkpoint.operators:
        for name in operator.metadata.stores:
            label = f"operator {operator.number} ({operator.metadata.name}), store {name}"
            try:
                key = session.partition_key(checkpoint.location, batch, operator.number, name)
            except Exception as error:  # noqa: BLE001 - Spark raises many exception classes
                store_obstacles.append(f"{label}: {root_cause(error)}")
                continue
            if session.row_by_row_note is not None:
                chosen_method, reason = RewriteMethod.ROWS, session.row_by_row_note
            else:
                chosen_method, reason = choose_method(
                    assignment, is_keyed=bool(key), encoding=encoding, files_problem=files_problem, slots=slots
                )
            if method is not None:
                chosen_method, reason = method, "chosen by the user"
            store = StoreId(operator.number, name, is_keyed=bool(key))
            plans.append(StorePlan(store, operator.metadata.name, tuple(key), chosen_method, reason))
    return tuple(plans), store_obstacles
