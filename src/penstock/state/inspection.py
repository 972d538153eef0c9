"""Read-only description of the state in a checkpoint."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.errors import StateError
from penstock.spark.bridge.jvm import root_cause
from penstock.spark.run.jobs import cluster_cores
from penstock.spark.state.state_store import StoreId
from penstock.state.checkpoint import Checkpoint
from penstock.state.log_entries import ENCODING, PROVIDER
from penstock.state.preflight import open_state_session, plan_rescale
from penstock.state.recommendation import Recommendation, recommend

if TYPE_CHECKING:
    from penstock.spark.bridge.jvm import Bridge
    from penstock.spark.state.state_store import StateSession


@dataclass(frozen=True, slots=True)
class StoreState:
    """Rows and bytes of a state store, by key group."""

    operator: int
    operator_name: str
    store: str
    rows: tuple[int | None, ...]
    """The rows of each key group; None if unknown."""
    sizes: tuple[int, ...]
    """The bytes of each key group."""

    @property
    def total_rows(self) -> int | None:
        """The rows of all key groups; None if the rows of a group are unknown."""
        return None if None in self.rows else sum(rows or 0 for rows in self.rows)

    @property
    def skew(self) -> float:
        """The largest key group's bytes as a multiple of the mean; 1 if there are no bytes."""
        total = sum(self.sizes)
        return max(self.sizes) * len(self.sizes) / total if total else 1.0


@dataclass(frozen=True, slots=True)
class Inspection:
    """The state in a checkpoint; `query` is the query's id, and `batch` its last finished batch, None if there is none.

    `provider` is the class of the stores, `format_version` that of the checkpoint, `encoding` the encoding of the rows.
    """

    location: str
    query: str
    batch: int | None = None
    max_parallelism: int | None = None
    provider: str = "?"
    format_version: int | None = None
    encoding: str = "?"
    stores: tuple[StoreState, ...] = ()
    obstacle: str | None = None
    """The reason why the state cannot be rescaled; None if it can."""
    recommendation: Recommendation | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON object."""
        return asdict(self)


def inspect_checkpoint(bridge: Bridge, location: str, *, count: bool = False) -> Inspection:
    """Return a description of a checkpoint's state; see `penstock.state.inspect`."""
    checkpoint = Checkpoint(bridge, location)
    batch = checkpoint.finished_batch
    if batch is None:
        return Inspection(checkpoint.location, checkpoint.query_id, obstacle="no batch of the query has finished yet")
    offsets, commit = checkpoint.offset_entry(batch), checkpoint.commit_entry(batch)
    max_parallelism = offsets.max_parallelism or 0
    stores = _read_stores(checkpoint, max_parallelism)
    if count:
        stores = _count_rows(open_state_session(bridge, checkpoint, batch), checkpoint, batch, max_parallelism, stores)
    largest = max((sum(store.sizes) for store in stores), default=0)
    return Inspection(
        checkpoint.location,
        checkpoint.query_id,
        batch,
        max_parallelism,
        offsets.conf.get(PROVIDER, "unknown").rpartition(".")[2],
        commit.format_version,
        offsets.conf.get(ENCODING, "unsaferow"),
        stores,
        _find_obstacle(bridge, checkpoint, max_parallelism),
        recommend(max_parallelism, largest, cluster_cores(bridge)) if stores else None,
    )


def _read_stores(checkpoint: Checkpoint, max_parallelism: int) -> tuple[StoreState, ...]:
    names = {operator.number: operator.metadata.name for operator in checkpoint.operators}
    groups_by_store: dict[tuple[int, str], list[tuple[int | None, int]]] = {}
    for group in checkpoint.group_sizes(max_parallelism):
        groups_by_store.setdefault((group.operator, group.store), []).append((group.rows, group.size))
    return tuple(
        StoreState(operator, names[operator], store, *map(tuple, zip(*groups, strict=True)))
        for (operator, store), groups in groups_by_store.items()
    )


def _count_rows(
    session: StateSession, checkpoint: Checkpoint, batch: int, max_parallelism: int, stores: tuple[StoreState, ...]
) -> tuple[StoreState, ...]:
    counted = []
    for store in stores:
        try:
            key = session.partition_key(checkpoint.location, batch, store.operator, store.store)
            store_id = StoreId(store.operator, store.store, is_keyed=bool(key))
            counts = session.count_with_sql(checkpoint.location, batch, store_id, max_parallelism)
        except Exception as error:
            name = f"store {store.store} of operator {store.operator}"
            raise StateError.unreadable(name, root_cause(error)) from error
        rows = {count.group: count.rows for count in counts}
        counted.append(replace(store, rows=tuple(rows.get(group, 0) for group in range(len(store.sizes)))))
    return tuple(counted)


def _find_obstacle(bridge: Bridge, checkpoint: Checkpoint, max_parallelism: int) -> str | None:
    try:
        # The new number does not matter: it must only be valid, and differ from the current number.
        plan_rescale(bridge, checkpoint, 2 * max_parallelism if max_parallelism <= 1 << 14 else 1)
    except StateError as error:  # its message lists the reasons after the first line
        return error.message.partition("\n")[2].replace("    - ", "") or error.message
    return None
