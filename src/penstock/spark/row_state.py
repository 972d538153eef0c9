"""State stores before Spark 4.2, which has no offline tools for them: rows are read, told apart and written one by one.

Rows are read as the source ``statestore`` gives them, and written with the stores' own providers. Uses
``StateStoreProvider``, ``StateStoreConf`` and ``KeyStateEncoderSpec`` of
``org.apache.spark.sql.execution.streaming.state`` (Spark 4.0 and 4.1). Operators whose state has column families are
refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.spark.compiled import new_instance
from penstock.spark.state_store import (
    STATE,
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

_MOVER = "RowMover"
_BESIDES_KEY = {
    ("stateStoreSave", "default"): 0,
    ("dedupe", "default"): 0,
    ("dedupeWithinWatermark", "default"): 0,
    ("flatMapGroupsWithState", "default"): 0,
    ("applyInPandasWithState", "default"): 0,
    ("sessionWindowStateStoreSaveExec", "default"): 1,  # the session's start
    **{("symmetricHashJoin", f"{side}-keyToNumValues"): 0 for side in ("left", "right")},
    **{("symmetricHashJoin", f"{side}-keyWithIndexToValue"): 1 for side in ("left", "right")},  # the index
}
"""The stores that are known: so many columns stand after those that the operator's rows are grouped by."""
_OWN = {
    # One whole snapshot for each group, not one that maintenance uploads later.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "false",
    # Counting rows looks every key up before it is put; they are counted here.
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    # The coordinator of stores hears of those of running queries only (both since Spark 4.1).
    "spark.sql.streaming.stateStore.commitValidation.enabled": "false",
    "spark.sql.streaming.stateStore.coordinatorReportSnapshotUploadLag": "false",
}
"""How stores are written."""
_READS_UNIQUE_IDS = (4, 1)
"""The first release whose source of state finds versions by the unique ids of format version 2."""
_OPEN = 64
"""The most new groups that a task writes at once. RocksDB takes eight megabytes for the first row of each."""


class RowSession(StateSession):
    """A session for reading stores of these releases.

    Parameters
    ----------
    bridge, format_version
        As for `StateSession`.
    conf
        The settings that are fixed with the query's first batch.
    encoding
        The encoding of keys.
    """

    def __init__(self, bridge: Bridge, format_version: int, conf: dict[str, str], encoding: str) -> None:
        super().__init__(bridge, format_version)
        self.conf = conf
        self._format_version = format_version
        self._encoding = encoding
        self._release = f"Spark {bridge.spark.version}"

    @property
    def rows_only(self) -> str:
        """Why stores are written row by row, and how."""
        return f"{self._release} writes state row by row; old groups are read once"

    @property
    def obstacle(self) -> str | None:
        """Why nothing can be written on this Spark."""
        if self._format_version > 1 and self.bridge.version < _READS_UNIQUE_IDS:
            version = f"its checkpoint has format version {self._format_version}"
            return f"{version}, which only a running query can read in {self._release}; Spark 4.1 can rescale it"
        return compile_problem(self.bridge, _MOVER)

    def rewrite(self, format_version: int, source: str, batch: int, target: str) -> RowRewrite:
        """Return what writes the stores of a checkpoint anew."""
        return RowRewrite(self, format_version, source, batch, target)

    def _mover(
        self, location: str, batch: int, operator: int, store: str, old: int, new: int
    ) -> tuple[Any, Any, list[str]]:
        """Return what reads a store in tasks, its rows, and the columns that these are grouped by.

        Raises
        ------
        ValueError
            If it is not known what the store's rows are grouped by.
        """
        metadata = operator_metadata(self.bridge, self._session, location, batch, operator)
        besides = _BESIDES_KEY.get((str(metadata.operatorInfo().operatorName()), store))
        if besides is None or self._encoding != "unsaferow":
            what = "of this operator" if besides is None else f"whose keys are encoded as {self._encoding}"
            raise ValueError(f"state {what} cannot be rescaled before Spark 4.2, and this is {self._release}")
        rows = self._reader(location, batch, operator, store).load()
        key, value = (rows.schema().apply(column).dataType() for column in ("key", "value"))
        columns = [str(column) for column in key.fieldNames()]
        grouped_by = columns[: len(columns) - besides]
        factory, groups = self._readers(rows)
        if not grouped_by and len(groups) > 1:
            raise ValueError(f"its state has no key, and {len(groups)} key groups instead of one")
        mover = new_instance(self.bridge, _MOVER)
        mover.reads(factory, groups, old, new, key, value, len(grouped_by))
        return mover, key, grouped_by

    def partition_key(self, location: str, batch: int, operator: int, store: str) -> list[str]:
        """Return the columns of the key that rows are grouped by; none where there is one group only."""
        _, _, grouped_by = self._mover(location, batch, operator, store, 1, 1)
        return grouped_by

    def count(self, location: str, batch: int, store: StoreId, groups: int) -> list[GroupCount]:
        """Read a whole store and return, for each key group, its rows; one that belongs elsewhere is an error."""
        mover, _, _ = self._mover(location, batch, store.operator, store.name, groups, groups)
        return self._counted(mover, range(groups if store.keyed else 1))

    count_with_sql = count


class RowRewrite(StateRewrite, RowDealer):
    """Writes such stores anew.

    Parameters
    ----------
    session
        What reads them.
    format_version, source, batch, target
        As for `StateRewrite`.
    """

    def __init__(self, session: RowSession, format_version: int, source: str, batch: int, target: str) -> None:
        super().__init__(session.bridge, format_version, source, batch, target)
        self._reading = session
        for key, value in (session.conf | _OWN).items():
            self._session.conf().set(key, value)

    def deal_rows(
        self, store: StoreId, old: int, groups: int, tasks: Iterable[tuple[tuple[int, ...], tuple[int, ...]]]
    ) -> Written:
        """Write a store as one snapshot for each new group."""
        few = [
            (reads, writes[first : first + _OPEN]) for reads, writes in tasks for first in range(0, len(writes), _OPEN)
        ]
        mover, key, _ = self._reading._mover(self._source, self._batch, store.operator, store.name, old, groups)
        no_options = self.bridge.companion("scala.collection.immutable.Map").empty()
        conf = self.bridge.find(f"{STATE}StateStoreConf")(self._session.sessionState().conf(), no_options)
        mover.writes(
            conf,
            self.bridge.find("org.apache.spark.util.SerializableConfiguration")(self._hadoop_conf),
            self._key_encoder(store, key),
            f"{self._target}/state",
            store.operator,
            store.name,
            self._batch + 2,  # the next batch's state, as the first batch has number 0 and makes version 1
        )
        return self._moved(mover, few)

    def _key_encoder(self, store: StoreId, key: Any) -> Any:
        """Return how keys are laid out: the query looks some up by their first columns."""
        operator = operator_metadata(self.bridge, self._session, self._source, self._batch, store.operator)
        (metadata,) = (found for found in operator.stateStoreInfo() if found.storeName() == store.name)
        first = int(metadata.numColsPrefixKey())
        if first:
            return self.bridge.find(f"{STATE}PrefixKeyScanStateEncoderSpec")(key, first)
        return self.bridge.find(f"{STATE}NoPrefixKeyStateEncoderSpec")(key)
