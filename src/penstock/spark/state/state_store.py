"""Reads and writes the state stores of a checkpoint with Spark's own offline tools.

The tools are internal to Spark 4.2 and 4.3. A release that lacks any of them is detected before anything is written.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

from penstock.spark.bridge.java_classes import new_instance
from penstock.spark.bridge.jvm import Bridge, items, option, root_cause

STATE = "org.apache.spark.sql.execution.streaming.state."
_METADATA = "org.apache.spark.sql.execution.datasources.v2.state.metadata.StateMetadataPartitionReader"
ROCKSDB = f"{STATE}RocksDBStateStoreProvider"
FORMAT_VERSION = "spark.sql.streaming.stateStore.checkpointFormatVersion"
GroupTasks = Iterable[tuple[tuple[int, ...], tuple[int, ...]]]
"""The old groups that each task reads, and the new groups that it writes."""
TRACK_ROWS = "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows"
_MOVER = "KeyGroupMover"


def has_offline_tools(bridge: Bridge) -> bool:
    """Whether Spark has offline tools for state, and also refuses to start a query whose rewrite is incomplete."""
    return bridge.version >= (4, 2)


def move_files_problem(bridge: Bridge) -> str | None:
    """Return why `StateRewrite.move_files` cannot be used with this Spark release, None if it can."""
    return compile_problem(bridge, _MOVER)


def compile_problem(bridge: Bridge, mover: str) -> str | None:
    """Return why a Java class that moves state does not compile with this Spark release, None if it does."""
    try:
        new_instance(bridge, mover)
    except Exception as error:  # noqa: BLE001 - there is a fallback for any error of the compiler
        return f"its code does not fit Spark {bridge.spark.version}: {root_cause(error).splitlines()[0]}"
    return None


def running_queries(bridge: Bridge) -> list[tuple[str, str]]:
    """Return the checkpoint, and the name or else the id, of each running query of the session's application."""
    queries = []
    # `spark.streams` lists only the queries of a single session.
    for query in bridge.session._handle.sharedState().activeStreamingQueries().values():
        name = query.name()
        queries.append((str(query.resolvedCheckpointRoot()), str(query.id() if name is None else name)))
    return queries


@dataclass(frozen=True, slots=True)
class StoreId:
    """A state store of an operator."""

    operator: int
    name: str
    is_keyed: bool
    """Whether rows are partitioned by a key; if not, there is only key group 0."""


@dataclass(frozen=True, slots=True)
class GroupCount:
    """The row counts of a key group of a store."""

    group: int
    rows: int
    misplaced: int
    """The number of rows whose key belongs to a different group."""


@dataclass(frozen=True, slots=True)
class RewrittenStore:
    """The outcome of rewriting a store."""

    rows_read: int | None
    """The number of rows read; None if the rewrite method does not count rows."""
    checkpoint_ids: tuple[str, ...]
    """The unique id of each group's new version; empty in format version 1."""


def operator_metadata(bridge: Bridge, session: Any, location: str, batch: int, operator: int) -> Any:
    """Return a checkpoint's metadata of an operator (``OperatorStateMetadata``)."""
    conf = bridge.find("org.apache.spark.util.SerializableConfiguration")(session.sessionState().newHadoopConf())
    operators = bridge.find(_METADATA)(location, conf, batch).allOperatorStateMetadata()
    (metadata,) = (entry for entry in operators if entry.operatorInfo().operatorId() == operator)
    return metadata


class StateSession:
    """A session that reads the state of a checkpoint; `rewrite` returns a session that rewrites the state.

    In all methods, `location` is a checkpoint's path, and state is read as it was after `batch`.
    """

    row_by_row_note: str | None = None
    """How stores are rewritten if row by row is the only method; None if other methods (sorted files) may work."""

    def __init__(self, bridge: Bridge, format_version: int) -> None:
        self.bridge = bridge
        self._session: Any = bridge.session.clone()._handle
        self._session.conf().set(FORMAT_VERSION, str(format_version))

    @property
    def unsupported_reason(self) -> str | None:
        """Why this Spark release cannot rewrite the state, None if it can."""
        return None

    def rewrite(self, format_version: int, source: str, batch: int, target: str) -> StateRewrite:
        """Return a rewriter of the stores of a checkpoint."""
        return StateRewrite(self.bridge, format_version, source, batch, target)

    def _rows(self, location: str, batch: int, operator: int, store: str) -> Any:
        """Return the Dataset of all rows of a store after a batch; its partitions are the key groups."""
        return self._reader(location, batch, operator, store).option("_readAllColumnFamilies", "true").load()

    def _reader(self, location: str, batch: int, operator: int, store: str) -> Any:
        reader = self._session.read().format("statestore").option("path", location)
        for key, value in (("batchId", batch), ("operatorId", operator), ("storeName", store)):
            reader = reader.option(key, str(value))
        return reader

    def partition_key(self, location: str, batch: int, operator: int, store: str) -> list[str]:
        """Return the key columns that rows are grouped by; empty if there is a single group.

        Raises `Py4JJavaError` if Spark defines no such columns for the operator, or cannot read the schema.
        """
        schema = self._rows(location, batch, operator, store).schema()
        return [str(name) for name in schema.apply("partition_key").dataType().fieldNames()]

    def count(self, location: str, batch: int, store: StoreId, groups: int) -> list[GroupCount]:
        """Return the rows and the misplaced rows of each key group of a store; `groups` is the number of key groups."""
        if move_files_problem(self.bridge) is not None:
            return self.count_with_sql(location, batch, store, groups)
        factory, partitions = self._readers(self._rows(location, batch, store.operator, store.name))
        mover = new_instance(self.bridge, _MOVER)
        mover.setSource(factory, partitions, groups, store.is_keyed)
        return self._count_rows(mover, [int(partition.partition()) for partition in partitions])

    def _count_rows(self, mover: Any, groups: Iterable[int]) -> list[GroupCount]:
        counts = self._run(mover, [f"{group}|" for group in groups])  # without new groups, a task only counts
        return sorted((GroupCount(*map(int, words[1:])) for words in counts), key=lambda count: count.group)

    def count_with_sql(self, location: str, batch: int, store: StoreId, groups: int) -> list[GroupCount]:
        """Return the same counts as `count`, without Penstock's Java classes on executors."""
        rows = self._rows(location, batch, store.operator, store.name)
        expected = f"pmod(hash(partition_key), {groups})" if store.is_keyed else "0"
        counted = rows.selectExpr(self.bridge.seq(["spark_partition_id() AS actual", f"{expected} AS expected"]))
        functions = self.bridge.find("org.apache.spark.sql.functions")
        aggregates = functions.expr("count(*)"), self.bridge.seq([functions.expr("count_if(actual != expected)")])
        counts = counted.groupBy("actual", self.bridge.seq([])).agg(*aggregates).collectAsList()
        return sorted((GroupCount(*(int(row.get(i)) for i in range(3))) for row in counts), key=lambda c: c.group)

    def _readers(self, rows: Any) -> tuple[Any, Any]:
        """Return the reader factory and the partitions (key groups) of a Dataset of a store's rows."""
        scan = rows.queryExecution().optimizedPlan().collectLeaves().head().scan().toBatch()
        return scan.createReaderFactory(), scan.planInputPartitions()

    def _run(self, mover: Any, tasks: list[str]) -> list[list[str]]:
        """Run a mover (``GroupMover.java``) on each task's text; return the words of each line of its reports."""
        context: Any = self.bridge.spark.sparkContext._jsc
        answers = context.parallelize(tasks, len(tasks)).flatMap(mover).collect()
        return [str(answer).split("\t") for answer in answers]


class StateRewrite(StateSession):
    """Rewrites the stores of a checkpoint, `source`, into another checkpoint, `target`.

    `batch` is the batch whose state is read; the state of the next batch is written. `target` has the next batch's
    offsets and the operators' metadata, but no state.
    """

    def __init__(self, bridge: Bridge, format_version: int, source: str, batch: int, target: str) -> None:
        super().__init__(bridge, format_version)
        self._source = source
        self._target = target
        self._batch = batch
        self._hadoop_conf = self._session.sessionState().newHadoopConf()

    def _rewriter(self, transformed: Any | None = None) -> Any:
        """Return Spark's ``StateRewriter``, which writes the rows `transformed`, or else the rows of each store."""
        transformation = self.bridge.none
        if transformed is not None:
            # A Scala map with a default value is a constant function that needs no callback to Python.
            empty = self.bridge.companion("scala.collection.immutable.Map").empty()
            transformation = self.bridge.some(empty.withDefaultValue(transformed))
        arguments = self._batch, self._batch + 1, self._target, self._hadoop_conf, self.bridge.some(self._source)
        return self.bridge.find(f"{STATE}StateRewriter")(self._session, *arguments, transformation, self.bridge.none)

    @cached_property
    def _broadcast_conf(self) -> Any:
        companion = self.bridge.find("org.apache.spark.util.SerializableConfiguration")
        context: Any = self.bridge.spark.sparkContext._jsc
        return companion.broadcast(context.sc(), self._hadoop_conf)

    def _metadata_of(self, store: StoreId, rewriter: Any) -> tuple[Any, Any, Any, Any]:
        """Return Spark's metadata of a store: operator, store, schema files, state variables."""
        operator = operator_metadata(self.bridge, self._session, self._target, self._batch, store.operator)
        (metadata,) = (part for part in items(operator.stateStoresMetadata()) if part.storeName() == store.name)
        files = self.bridge.invoke(rewriter, "getStoreToSchemaFilesMap", operator).apply(store.name)
        return operator, metadata, files, self.bridge.invoke(rewriter, "getStateVariablesIfTWS", operator)

    def move_files(self, store: StoreId, new_groups: int, tasks: GroupTasks) -> RewrittenStore:
        """Write a store as files sorted by key, which RocksDB ingests. Raises `Py4JJavaError` if that is impossible."""
        mover = new_instance(self.bridge, _MOVER)
        factory, partitions = self._readers(self._rows(self._source, self._batch, store.operator, store.name))
        mover.setSource(factory, partitions, new_groups, store.is_keyed)
        mover.setTarget(*self._target_arguments(store))
        return self._move(mover, tasks)

    def _target_arguments(self, store: StoreId) -> tuple[Any, ...]:
        """Return the arguments of ``StateMover.setTarget``, with which a task opens the new stores."""
        rewriter = self._rewriter()
        operator, metadata, files, variables = self._metadata_of(store, rewriter)
        confs = self.bridge.invoke(rewriter, "createConfsFromOffsetLog")
        operator_id = self.bridge.find("java.lang.Long").valueOf(store.operator)
        families = self.bridge.invoke(rewriter, "getWriterColFamilyInfoMap", operator_id, metadata, files, variables)
        name = str(operator.operatorInfo().operatorName())
        schemas = self.bridge.invoke(rewriter, "createStoreSchemaProviderIfTWS", name, files)
        location = self._target, store.operator, store.name, self._batch + 1
        return confs._1(), self._broadcast_conf, *location, families, schemas

    def _move(self, mover: Any, tasks: GroupTasks) -> RewrittenStore:
        lines = [f"{','.join(map(str, reads))}|{','.join(map(str, writes))}" for reads, writes in tasks]
        answers = self._run(mover, lines)
        # Several tasks may read the same old group, which counts once.
        rows_by_group = {int(words[1]): int(words[2]) for words in answers if words[0] == "read"}
        ids_by_group = sorted((int(words[1]), words[3]) for words in answers if words[0] == "written")
        return RewrittenStore(sum(rows_by_group.values()), tuple(new_id for _, new_id in ids_by_group if new_id))

    def write_rows(self, store: StoreId, old_groups: int, new_groups: int, *, shuffle: bool) -> RewrittenStore:
        """Write a store row by row. Without `shuffle`, one number of groups must be a multiple of the other."""
        rows = self._rows(self._source, self._batch, store.operator, store.name)
        cached = None
        if store.is_keyed and shuffle:
            functions = self.bridge.find("org.apache.spark.sql.functions")
            rows = rows.repartition(new_groups, self.bridge.seq([functions.col("partition_key")]))
        elif store.is_keyed and new_groups > old_groups:
            cached = rows.persist()  # several tasks read each old group, but the store should be read once
            rows = self._split_groups(cached, old_groups, new_groups)
        elif store.is_keyed:
            rows = self._merge_groups(rows, old_groups, new_groups)
        track_rows = str(self._session.conf().get(TRACK_ROWS, "true"))
        # To count rows, Spark would look up each key before a write. It counts them when a query loads the state.
        self._session.conf().set(TRACK_ROWS, "false")
        try:
            rewriter = self._rewriter(rows)
            operator, metadata, files, variables = self._metadata_of(store, rewriter)
            confs = self.bridge.invoke(rewriter, "createConfsFromOffsetLog")
            infos = self.bridge.invoke(
                rewriter, "rewriteStore", operator, metadata, confs._1(), self._broadcast_conf, files, variables
            )
        finally:
            self._session.conf().set(TRACK_ROWS, track_rows)
            if cached is not None:
                cached.unpersist()
        ids = (option(info.stateStoreCkptId()) for info in infos)
        return RewrittenStore(None, tuple(str(checkpoint_id) for checkpoint_id in ids if checkpoint_id is not None))

    def _split_groups(self, rows: Any, old_groups: int, new_groups: int) -> Any:
        """Split each old group by filters; return the union of the parts, with a partition per new group, in order."""
        # The new group `i * old_groups + k` is a part of the old group `k`.
        part = f"floor(pmod(hash(partition_key), {new_groups}) / {old_groups})"
        parts = (rows.filter(f"{part} = {i}") for i in range(new_groups // old_groups))
        return reduce(lambda union, rows_of_part: union.union(rows_of_part), parts)

    def _merge_groups(self, rows: Any, old_groups: int, new_groups: int) -> Any:
        """Merge old groups without a shuffle: reorder them so that each new group is a run of adjacent old groups."""
        rdd = rows.queryExecution().toRdd()
        pruning = self.bridge.companion("org.apache.spark.rdd.PartitionPruningRDD")
        ordered = [
            pruning.create(rdd, self.bridge.seq([group + k * new_groups]).toSet())
            for group in range(new_groups)
            for k in range(old_groups // new_groups)
        ]
        united = rdd.sparkContext().union(self.bridge.seq(ordered), rdd.elementClassTag())
        merged = united.toJavaRDD().coalesce(new_groups).rdd()
        return self._session.internalCreateDataFrame(merged, rows.schema(), False)


class RowRewriter(StateRewrite, ABC):
    """A `StateRewrite` that only writes row by row; `reader_session` reads the old state."""

    def __init__(self, reader_session: StateSession, format_version: int, source: str, batch: int, target: str) -> None:
        super().__init__(reader_session.bridge, format_version, source, batch, target)
        self._reader_session: Any = reader_session

    @abstractmethod
    def rewrite_rows(self, store: StoreId, old_groups: int, new_groups: int, tasks: GroupTasks) -> RewrittenStore:
        """Write a store row by row; each task writes its new groups. Used instead of `write_rows` and `move_files`."""
