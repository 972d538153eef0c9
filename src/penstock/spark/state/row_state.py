"""State stores before Spark 4.2, which introduced offline tools: Penstock itself reads, groups and writes each row.

Rows are read with the data source ``statestore``, and written with the stores' own providers. Operators whose state has
column families are rejected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.spark.bridge.java_classes import new_instance
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
"""Number of key columns after those by which an operator groups rows, by operator and name of a supported store."""
_WRITE_SETTINGS = {
    # Write a complete snapshot of each group at once; otherwise Spark's maintenance task would upload it later.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "false",
    # Penstock counts the rows; for its own count, Spark would look up every key before each put.
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    # Spark's coordinator of state stores only tracks running queries (both settings since Spark 4.1).
    "spark.sql.streaming.stateStore.commitValidation.enabled": "false",
    "spark.sql.streaming.stateStore.coordinatorReportSnapshotUploadLag": "false",
}
"""Spark settings for writing stores."""
_MAX_OPEN_GROUPS = 64
"""Maximum number of groups that a task writes at the same time. RocksDB allocates 8 MiB for each."""


class RowSession(StateSession):
    """A `StateSession` before Spark 4.2; `conf` and `encoding` are the query's settings and its encoding of keys."""

    def __init__(self, bridge: Bridge, format_version: int, conf: dict[str, str], encoding: str) -> None:
        super().__init__(bridge, format_version)
        self.conf = conf
        self._format_version = format_version
        self._encoding = encoding
        self._release = f"Spark {bridge.spark.version}"
        note = f"each task reads its old groups once for every {_MAX_OPEN_GROUPS} new ones"
        self.row_by_row_note = f"{self._release} writes state row by row; {note}"

    @property
    def unsupported_reason(self) -> str | None:
        """Why this Spark release cannot rewrite the state, None if it can."""
        if self._format_version > 1 and self.bridge.version < (4, 1):  # 4.0 cannot read unique ids of version 2
            version = f"its checkpoint has format version {self._format_version}"
            return f"{version}, which only a running query can read in {self._release}; Spark 4.1 can rescale it"
        return compile_problem(self.bridge, _MOVER)

    def rewrite(self, format_version: int, source: str, batch: int, target: str) -> RowRewrite:
        """Return a rewriter of the stores of a checkpoint."""
        return RowRewrite(self, format_version, source, batch, target)

    def _mover(
        self, location: str, batch: int, operator: int, store: str, old_groups: int, new_groups: int
    ) -> tuple[Any, Any, list[str]]:
        """Return a `RowMover` that reads a store, the type of the store's keys, and the names of grouping columns."""
        metadata = operator_metadata(self.bridge, self._session, location, batch, operator)
        trailing_columns = _TRAILING_KEY_COLUMNS.get((str(metadata.operatorInfo().operatorName()), store))
        if trailing_columns is None or self._encoding != "unsaferow":
            subject = "of this operator" if trailing_columns is None else f"whose keys are encoded as {self._encoding}"
            raise ValueError(f"state {subject} cannot be rescaled before Spark 4.2, and this is {self._release}")
        rows = self._reader(location, batch, operator, store).load()
        key, value = (rows.schema().apply(column).dataType() for column in ("key", "value"))
        columns = [str(column) for column in key.fieldNames()]
        group_columns = columns[: len(columns) - trailing_columns]
        factory, groups = self._readers(rows)
        if not group_columns and len(groups) > 1:
            raise ValueError(f"its state has no key, but {len(groups)} key groups instead of one")
        mover = new_instance(self.bridge, _MOVER)
        mover.setSource(factory, groups, old_groups, new_groups, key, value, len(group_columns))
        return mover, key, group_columns

    def partition_key(self, location: str, batch: int, operator: int, store: str) -> list[str]:
        """Return the key columns that rows are grouped by; empty if there is a single group."""
        _, _, group_columns = self._mover(location, batch, operator, store, 1, 1)
        return group_columns

    def count(self, location: str, batch: int, store: StoreId, groups: int) -> list[GroupCount]:
        """Return the number of rows of each key group of a store; raise an error if a row is in a wrong group."""
        mover, _, _ = self._mover(location, batch, store.operator, store.name, groups, groups)
        return self._count_rows(mover, range(groups if store.is_keyed else 1))

    count_with_sql = count  # without SQL, as these rows have no column `partition_key`


class RowRewrite(RowRewriter):
    """Rewrites state stores row by row."""

    def __init__(self, session: RowSession, format_version: int, source: str, batch: int, target: str) -> None:
        super().__init__(session, format_version, source, batch, target)
        for key, value in (session.conf | _WRITE_SETTINGS).items():
            self._session.conf().set(key, value)

    def rewrite_rows(self, store: StoreId, old_groups: int, new_groups: int, tasks: GroupTasks) -> RewrittenStore:
        """Write a store as a snapshot for each new group."""
        task_groups = [
            (reads, writes[start : start + _MAX_OPEN_GROUPS])
            for reads, writes in tasks
            for start in range(0, len(writes), _MAX_OPEN_GROUPS)
        ]
        store_location = self._source, self._batch, store.operator, store.name
        mover, key, _ = self._reader_session._mover(*store_location, old_groups, new_groups)
        no_options = self.bridge.companion("scala.collection.immutable.Map").empty()
        conf = self.bridge.find(f"{STATE}StateStoreConf")(self._session.sessionState().conf(), no_options)
        hadoop_conf = self.bridge.find("org.apache.spark.util.SerializableConfiguration")(self._hadoop_conf)
        version = self._batch + 2  # the version of the next batch: batch 0 creates version 1
        location = f"{self._target}/state", store.operator, store.name, version
        mover.setTarget(conf, hadoop_conf, self._key_encoder(store, key), *location)
        return self._move(mover, task_groups)

    def _key_encoder(self, store: StoreId, key: Any) -> Any:
        """Return the key encoding, which depends on whether the query looks up keys by a prefix."""
        operator = operator_metadata(self.bridge, self._session, self._source, self._batch, store.operator)
        (metadata,) = (info for info in operator.stateStoreInfo() if info.storeName() == store.name)
        prefix_columns = int(metadata.numColsPrefixKey())
        if prefix_columns:
            return self.bridge.find(f"{STATE}PrefixKeyScanStateEncoderSpec")(key, prefix_columns)
        return self.bridge.find(f"{STATE}NoPrefixKeyStateEncoderSpec")(key)
