"""Read-only description of the state in a checkpoint."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.errors import StateError
from penstock.spark.bridge.jvm import root_cause
from penstock.spark.run.jobs import cluster_cores
from penstock.spark.state.state_store import StoreId
from penstock.state.checkpoint import Checkpoint
from penstock.state.layout import ENCODING, PROVIDER
from penstock.state.preflight import open_stores, plan_rescale
from penstock.state.recommendation import Recommendation, recommend

if TYPE_CHECKING:
    from penstock.spark.bridge.jvm import Bridge
    from penstock.spark.state.state_store import StateSession


@dataclass(frozen=True, slots=True)
class StoreState:
    """The state of a store."""

    operator: int
    operator_name: str
    store: str
    rows: tuple[int | None, ...]
    """The rows of each key group; None if unknown."""
    sizes: tuple[int, ...]
    """The bytes of each key group."""

    @property
    def total_rows(self) -> int | None:
        """The rows of all key groups; None if those of a group are unknown."""
        return None if None in self.rows else sum(rows or 0 for rows in self.rows)

    @property
    def skew(self) -> float:
        """The largest key group's bytes as a multiple of the mean."""
        total = sum(self.sizes)
        return max(self.sizes) * len(self.sizes) / total if total else 1.0


@dataclass(frozen=True, slots=True)
class Inspection:
    """The state in a checkpoint."""

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
    batch = checkpoint.batch
    if batch is None:
        obstacle = "no batch of the query has finished yet"
        return Inspection(checkpoint.location, checkpoint.query_id, obstacle=obstacle)
    offsets, commit = checkpoint.offsets(batch), checkpoint.commit(batch)
    current = offsets.max_parallelism or 0
    stores = _stores(checkpoint, current)
    if count:
        stores = _count_rows(open_stores(bridge, checkpoint, batch), checkpoint, batch, current, stores)
    largest = max((sum(store.sizes) for store in stores), default=0)
    return Inspection(
        checkpoint.location,
        checkpoint.query_id,
        batch,
        current,
        offsets.conf.get(PROVIDER, "unknown").rpartition(".")[2],
        commit.format_version,
        offsets.conf.get(ENCODING, "unsaferow"),
        stores,
        _obstacle(bridge, checkpoint, current),
        recommend(current, largest, cluster_cores(bridge)) if stores else None,
    )


def _stores(checkpoint: Checkpoint, max_parallelism: int) -> tuple[StoreState, ...]:
    names = {operator.number: operator.entry.name for operator in checkpoint.operators}
    groups_by_store: dict[tuple[int, str], list[tuple[int | None, int]]] = {}
    for files in checkpoint.files(max_parallelism):
        groups_by_store.setdefault((files.operator, files.store), []).append((files.rows, files.size))
    return tuple(
        StoreState(operator, names[operator], store, *map(tuple, zip(*groups, strict=True)))
        for (operator, store), groups in groups_by_store.items()
    )


def _count_rows(
    session: StateSession, checkpoint: Checkpoint, batch: int, groups: int, stores: tuple[StoreState, ...]
) -> tuple[StoreState, ...]:
    counted = []
    for store in stores:
        try:
            key = session.partition_key(checkpoint.location, batch, store.operator, store.store)
            identity = StoreId(store.operator, store.store, bool(key))
            counts = session.count_with_sql(checkpoint.location, batch, identity, groups)
        except Exception as error:
            name = f"store {store.store} of operator {store.operator}"
            raise StateError.unreadable(name, root_cause(error)) from error
        rows = {count.group: count.rows for count in counts}
        counted.append(replace(store, rows=tuple(rows.get(group, 0) for group in range(len(store.sizes)))))
    return tuple(counted)


def _obstacle(bridge: Bridge, checkpoint: Checkpoint, current: int) -> str | None:
    try:
        plan_rescale(bridge, checkpoint, 2 * current if current <= 1 << 14 else 1)
    except StateError as error:
        return error.message.partition("\n")[2].replace("    - ", "") or error.message
    return None
