"""State stores that hold key groups in memory, with snapshots and changes in files: Spark's default.

Spark's offline tools reject these stores (``UNSUPPORTED_PROVIDER``). So rows are read with the data source
``statestore``, and grouped by ``StatePartitionKeyExtractor``, as rows of RocksDB are (Spark 4.2 and 4.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.spark.bridge.java_classes import new_instance
from penstock.spark.state.state_store import (
    GroupCount,
    RewrittenStore,
    RowRewriter,
    StateSession,
    compile_problem,
    operator_metadata,
)

if TYPE_CHECKING:
    from penstock.spark.bridge.jvm import Bridge
    from penstock.spark.state.state_store import GroupTasks, StoreId

IN_MEMORY = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
_MOVER = "SnapshotMover"


class SnapshotSession(StateSession):
    """A `StateSession` for in-memory stores; `join_format` is the format version of the state of joins."""

    row_by_row_note = "each task reads its old groups once, and writes new ones as snapshots"

    def __init__(self, bridge: Bridge, format_version: int, join_format: int) -> None:
        super().__init__(bridge, format_version)
        self._join_format = join_format

    @property
    def unsupported_reason(self) -> str | None:
        """Why this Spark release cannot rewrite the state, None if it can."""
        problem = compile_problem(self.bridge, _MOVER)
        return None if problem is None else f"snapshots of its state store cannot be written: {problem}"

    def rewrite(self, format_version: int, source: str, batch: int, target: str) -> SnapshotRewrite:
        """Return a rewriter of the stores of a checkpoint."""
        return SnapshotRewrite(self, format_version, source, batch, target)

    def _mover(self, location: str, batch: int, operator: int, store: str, groups: int) -> Any:
        rows = self._reader(location, batch, operator, store).load()
        key, value = (rows.schema().apply(column).dataType() for column in ("key", "value"))
        metadata = operator_metadata(self.bridge, self._session, location, batch, operator)
        operator_name = str(metadata.operatorInfo().operatorName())
        mover = new_instance(self.bridge, _MOVER)
        mover.setSource(*self._readers(rows), groups, key, value.length(), operator_name, store, self._join_format)
        return mover

    def partition_key(self, location: str, batch: int, operator: int, store: str) -> list[str]:
        """Return the key columns that rows are grouped by; empty if there is a single group."""
        extractor = self._mover(location, batch, operator, store, 1).extractor()
        return [str(name) for name in extractor.partitionKeySchema().fieldNames()]

    def count(self, location: str, batch: int, store: StoreId, groups: int) -> list[GroupCount]:
        """Return the number of rows, and of misplaced rows, of each key group of a store."""
        mover = self._mover(location, batch, store.operator, store.name, groups)
        return self._count_rows(mover, range(groups if store.is_keyed else 1))

    count_with_sql = count  # without SQL, as these rows have no column `partition_key`


class SnapshotRewrite(RowRewriter):
    """Rewrites in-memory stores."""

    def rewrite_rows(self, store: StoreId, old_groups: int, new_groups: int, tasks: GroupTasks) -> RewrittenStore:  # noqa: ARG002
        """Write a store as a snapshot for each new group."""
        mover = self._reader_session._mover(self._source, self._batch, store.operator, store.name, new_groups)
        mover.setTarget(*self._target_arguments(store))
        return self._move(mover, tasks)
