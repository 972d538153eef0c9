"""State stores that keep key groups in memory, with snapshots and changes in files: Spark's default.

Spark's own offline tools refuse them (``UNSUPPORTED_PROVIDER``), so rows are read as the source ``statestore`` gives
them, and told apart by the same ``StatePartitionKeyExtractor`` as those of RocksDB (Spark 4.2 and 4.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.spark.compiled import new_instance
from penstock.spark.state_store import (
    GroupCount,
    RowDealer,
    StateRewrite,
    StateSession,
    Written,
    compile_problem,
    operator_metadata,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.spark.jvm import Bridge
    from penstock.spark.state_store import StoreId

IN_MEMORY = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
_MOVER = "SnapshotMover"


class SnapshotSession(StateSession):
    """A session for reading such stores.

    Parameters
    ----------
    bridge, format_version
        As for `StateSession`.
    join_format
        The format version of the state of joins.
    """

    def __init__(self, bridge: Bridge, format_version: int, join_format: int) -> None:
        super().__init__(bridge, format_version)
        self._join_format = join_format

    @property
    def rows_only(self) -> str:
        """Why stores are written row by row, and how."""
        return "old groups are read once, new ones are written as snapshots"

    @property
    def obstacle(self) -> str | None:
        """Why nothing can be written on this Spark."""
        problem = compile_problem(self.bridge, _MOVER)
        return None if problem is None else f"snapshots of its state store cannot be written: {problem}"

    def rewrite(self, format_version: int, source: str, batch: int, target: str) -> SnapshotRewrite:
        """Return what writes the stores of a checkpoint anew."""
        return SnapshotRewrite(self, format_version, source, batch, target)

    def _mover(self, location: str, batch: int, operator: int, store: str, groups: int) -> Any:
        """Return what reads a store in tasks."""
        rows = self._reader(location, batch, operator, store).load()
        schema = rows.schema()
        key, value = (schema.apply(name).dataType() for name in ("key", "value"))
        name = operator_metadata(self.bridge, self._session, location, batch, operator).operatorInfo().operatorName()
        mover = new_instance(self.bridge, _MOVER)
        mover.reads(*self._readers(rows), groups, key, value.length(), str(name), store, self._join_format)
        return mover

    def partition_key(self, location: str, batch: int, operator: int, store: str) -> list[str]:
        """Return the columns of the key that rows are grouped by; none where there is one group only."""
        extractor = self._mover(location, batch, operator, store, 1).extractor()
        return [str(name) for name in extractor.partitionKeySchema().fieldNames()]

    def count(self, location: str, batch: int, store: StoreId, groups: int) -> list[GroupCount]:
        """Read a whole store and return, for each key group, its rows and those that belong elsewhere."""
        mover = self._mover(location, batch, store.operator, store.name, groups)
        return self._counted(mover, range(groups if store.keyed else 1))

    count_with_sql = count


class SnapshotRewrite(StateRewrite, RowDealer):
    """Writes such stores anew.

    Parameters
    ----------
    session
        What reads them.
    format_version, source, batch, target
        As for `StateRewrite`.
    """

    def __init__(self, session: SnapshotSession, format_version: int, source: str, batch: int, target: str) -> None:
        super().__init__(session.bridge, format_version, source, batch, target)
        self._reading = session

    def deal_rows(
        self,
        store: StoreId,
        old: int,  # noqa: ARG002
        groups: int,
        tasks: Iterable[tuple[tuple[int, ...], tuple[int, ...]]],
    ) -> Written:
        """Write a store as one snapshot for each new group."""
        mover = self._reading._mover(self._source, self._batch, store.operator, store.name, groups)
        mover.writes(*self._writing(store))
        return self._moved(mover, tasks)
