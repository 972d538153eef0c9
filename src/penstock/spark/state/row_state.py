"""State stores before Spark 4.2, which lacks offline tools for them: rows are read, grouped and written one by one.

Rows are read with the source ``statestore`` and written with the stores' own providers. Operators with column families
in their state are rejected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.spark.bridge.compiled import new_instance
from penstock.spark.state.state_store import (
    STATE,
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

_MOVER = "RowMover"
_TRAILING_KEY_COLUMNS = {
    ("stateStoreSave", "default"): 0,
    ("dedupe", "default"): 0,
    ("dedupeWithinWatermark", "default"): 0,
    ("flatMapGroupsWithState", "default"): 0,
    ("applyInPandasWithState", "default"): 0,
    ("sessionWindowStateStoreSaveExec", "default"): 1,  # the session's start
    **{("symmetricHashJoin", f"{side}-keyToNumValues"): 0 for side in ("left", "right")},
    **{("symmetricHashJoin", f"{side}-keyWithIndexToValue"): 1 for side in ("left", "right")},  # the index
}
"""Supported stores, and the number of key columns after the columns by which the operator groups its rows."""
_WRITE_SETTINGS = {
    # Write a complete snapshot for each group now, which maintenance would upload later.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "false",
    # Rows are counted here; Spark's count would look up every key before each put.
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    # The coordinator of stores only tracks running queries (both settings since Spark 4.1).
    "spark.sql.streaming.stateStore.commitValidation.enabled": "false",
    "spark.sql.streaming.stateStore.coordinatorReportSnapshotUploadLag": "false",
}
"""Settings for writing stores."""
_MOST_OPEN = 64
"""Maximum number of groups that a task writes at once. RocksDB allocates eight megabytes for each."""


class RowSession(StateSession):
    """A session that reads state stores before Spark 4.2, with the settings of the query's first batch."""

    def __init__(self, bridge: Bridge, format_version: int, conf: dict[str, str], encoding: str) -> None:
        super().__init__(bridge, format_version)
        self.conf = conf
        self._format_version = format_version
        self._encoding = encoding
        self._release = f"Spark {bridge.spark.version}"

    @property
    def rows_only(self) -> str:
        """A note on why and how stores are rewritten row by row."""
        return f"{self._release} writes state row by row; old groups are read once"

    @property
    def obstacle(self) -> str | None:
        """Why this Spark release cannot rewrite the state, None if it can."""
        if self._format_version > 1 and self.bridge.version < (4, 1):  # version 2 has unique ids
            version = f"its checkpoint has format version {self._format_version}"
            return f"{version}, which only a running query can read in {self._release}; Spark 4.1 can rescale it"
        return compile_problem(self.bridge, _MOVER)

    def rewrite(self, format_version: int, source: str, batch: int, target: str) -> RowRewrite:
        """Return a rewriter of the stores of a checkpoint."""
        return RowRewrite(self, format_version, source, batch, target)

    def _mover(
        self, location: str, batch: int, operator: int, store: str, old: int, new: int
    ) -> tuple[Any, Any, list[str]]:
        """Return an object that reads a store in tasks, the type of its keys, and its grouping columns."""
        metadata = operator_metadata(self.bridge, self._session, location, batch, operator)
        trailing = _TRAILING_KEY_COLUMNS.get((str(metadata.operatorInfo().operatorName()), store))
        if trailing is None or self._encoding != "unsaferow":
            subject = "of this operator" if trailing is None else f"whose keys are encoded as {self._encoding}"
            raise ValueError(f"state {subject} cannot be rescaled before Spark 4.2, and this is {self._release}")
        rows = self._reader(location, batch, operator, store).load()
        key, value = (rows.schema().apply(column).dataType() for column in ("key", "value"))
        columns = [str(column) for column in key.fieldNames()]
        group_columns = columns[: len(columns) - trailing]
        factory, groups = self._readers(rows)
        if not group_columns and len(groups) > 1:
            raise ValueError(f"its state has no key, but {len(groups)} key groups instead of one")
        mover = new_instance(self.bridge, _MOVER)
        mover.setSource(factory, groups, old, new, key, value, len(group_columns))
        return mover, key, group_columns

    def partition_key(self, location: str, batch: int, operator: int, store: str) -> list[str]:
        """Return the key columns that rows are grouped by; empty if there is a single group."""
        _, _, group_columns = self._mover(location, batch, operator, store, 1, 1)
        return group_columns

    def count(self, location: str, batch: int, store: StoreId, groups: int) -> list[GroupCount]:
        """Return the number of rows of each key group of a store; raise if a row belongs to another group."""
        mover, _, _ = self._mover(location, batch, store.operator, store.name, groups, groups)
        return self._counted(mover, range(groups if store.keyed else 1))

    count_with_sql = count


class RowRewrite(RowRewriter):
    """Rewrites state stores row by row."""

    def __init__(self, session: RowSession, format_version: int, source: str, batch: int, target: str) -> None:
        super().__init__(session, format_version, source, batch, target)
        for key, value in (session.conf | _WRITE_SETTINGS).items():
            self._session.conf().set(key, value)

    def rewrite_rows(self, store: StoreId, old: int, groups: int, tasks: GroupTasks) -> RewrittenStore:
        """Write a store as a snapshot for each new group."""
        batches = [
            (reads, writes[first : first + _MOST_OPEN])
            for reads, writes in tasks
            for first in range(0, len(writes), _MOST_OPEN)
        ]
        mover, key, _ = self._reading._mover(self._source, self._batch, store.operator, store.name, old, groups)
        no_options = self.bridge.companion("scala.collection.immutable.Map").empty()
        conf = self.bridge.find(f"{STATE}StateStoreConf")(self._session.sessionState().conf(), no_options)
        hadoop_conf = self.bridge.find("org.apache.spark.util.SerializableConfiguration")(self._hadoop_conf)
        version = self._batch + 2  # of the state of the next batch: batch 0 creates version 1
        location = f"{self._target}/state", store.operator, store.name, version
        mover.setTarget(conf, hadoop_conf, self._key_encoder(store, key), *location)
        return self._moved(mover, batches)

    def _key_encoder(self, store: StoreId, key: Any) -> Any:
        """Return the key encoding: the query looks up some keys by their prefix."""
        operator = operator_metadata(self.bridge, self._session, self._source, self._batch, store.operator)
        (metadata,) = (info for info in operator.stateStoreInfo() if info.storeName() == store.name)
        first = int(metadata.numColsPrefixKey())
        if first:
            return self.bridge.find(f"{STATE}PrefixKeyScanStateEncoderSpec")(key, first)
        return self.bridge.find(f"{STATE}NoPrefixKeyStateEncoderSpec")(key)
