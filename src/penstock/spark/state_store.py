"""Reading and writing the state stores of a checkpoint through Spark's own offline tools.

Uses ``StateRewriter``, ``StatePartitionAllColumnFamiliesWriter`` and the ``statestore`` source with
``_readAllColumnFamilies`` of ``org.apache.spark.sql.execution`` (Spark 4.2 and 4.3). All of it is internal to Spark:
what is missing in a release shows when it is looked up, before anything is written.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from penstock.spark.compiled import new_instance
from penstock.spark.jvm import items, option, root_cause

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.spark.jvm import Bridge

STATE = "org.apache.spark.sql.execution.streaming.state."
_METADATA = "org.apache.spark.sql.execution.datasources.v2.state.metadata.StateMetadataPartitionReader"
ROCKSDB = f"{STATE}RocksDBStateStoreProvider"
FORMAT_VERSION = "spark.sql.streaming.stateStore.checkpointFormatVersion"
TRACK_ROWS = "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows"
_MOVER = "KeyGroupMover"


def has_offline_tools(bridge: Bridge) -> bool:
    """Whether this Spark has tools of its own for state at rest, and notices state that they left half changed."""
    return bridge.version >= (4, 2)


def moves_files(bridge: Bridge) -> str | None:
    """Return None where sorted files can be moved on this Spark, else why not."""
    return compile_problem(bridge, _MOVER)


def compile_problem(bridge: Bridge, mover: str) -> str | None:
    """Return None where a class that moves state fits this Spark, else why not."""
    try:
        new_instance(bridge, mover)
    except Exception as error:  # noqa: BLE001 - whatever the compiler says, there is a second way
        return f"its code does not fit Spark {bridge.spark.version}: {root_cause(error).splitlines()[0]}"
    return None


def running_queries(bridge: Bridge) -> list[tuple[str, str]]:
    """Return the checkpoint and the name or id of each query that runs in the session's application."""
    found = []
    # `spark.streams` knows those of one session only.
    for query in bridge.session._handle.sharedState().activeStreamingQueries().values():
        name = query.name()
        found.append((str(query.resolvedCheckpointRoot()), str(query.id() if name is None else name)))
    return found


@dataclass(frozen=True, slots=True)
class StoreId:
    """One store of one operator."""

    operator: int
    name: str
    keyed: bool
    """Whether rows are spread by a key; if not there is key group 0 only."""


@dataclass(frozen=True, slots=True)
class GroupCount:
    """What was found in one key group of a store."""

    group: int
    rows: int
    foreign: int
    """Rows whose key belongs to another group."""


@dataclass(frozen=True, slots=True)
class Written:
    """What a store was rewritten to."""

    rows_read: int | None
    """Rows taken over, where the way counts them."""
    checkpoint_ids: tuple[str, ...]
    """The unique id of each group's new version; empty in format version 1."""


def operator_metadata(bridge: Bridge, session: Any, location: str, batch: int, operator: int) -> Any:
    """Return what a checkpoint says of one of its operators (``OperatorStateMetadata``)."""
    conf = bridge.find("org.apache.spark.util.SerializableConfiguration")(session.sessionState().newHadoopConf())
    operators = bridge.find(_METADATA)(location, conf, batch).allOperatorStateMetadata()
    (found,) = (one for one in operators if one.operatorInfo().operatorId() == operator)
    return found


class StateSession:
    """A session whose settings suit one checkpoint, for reading it and for writing another from it.

    Parameters
    ----------
    bridge
        The bridge of the user's session, which is left alone.
    format_version
        The format version of the checkpoint's commits.
    """

    def __init__(self, bridge: Bridge, format_version: int) -> None:
        self.bridge = bridge
        self._session: Any = bridge.session.clone()._handle
        self._session.conf().set(FORMAT_VERSION, str(format_version))

    @property
    def rows_only(self) -> str | None:
        """If stores can be written row by row only: why, and how."""
        return None

    @property
    def obstacle(self) -> str | None:
        """Why nothing can be written on this Spark."""
        return None

    def rewrite(self, format_version: int, source: str, batch: int, target: str) -> StateRewrite:
        """Return what writes the stores of a checkpoint anew; see `StateRewrite`."""
        return StateRewrite(self.bridge, format_version, source, batch, target)

    def _rows(self, location: str, batch: int, operator: int, store: str) -> Any:
        """Return the Dataset of all rows of a store after a batch.

        Its columns are ``partition_key``, ``key_bytes``, ``value_bytes`` and ``column_family_name``, its partitions are
        the key groups.
        """
        return self._reader(location, batch, operator, store).option("_readAllColumnFamilies", "true").load()

    def _reader(self, location: str, batch: int, operator: int, store: str) -> Any:
        reader = self._session.read().format("statestore").option("path", location)
        for key, value in (("batchId", batch), ("operatorId", operator), ("storeName", store)):
            reader = reader.option(key, str(value))
        return reader

    def partition_key(self, location: str, batch: int, operator: int, store: str) -> list[str]:
        """Return the columns of the key that rows are grouped by; none where there is one group only.

        Raises
        ------
        py4j.protocol.Py4JJavaError
            If the operator's state cannot be told apart by keys, or its schema cannot be read.
        """
        schema = self._rows(location, batch, operator, store).schema()
        return [str(name) for name in schema.apply("partition_key").dataType().fieldNames()]

    def count(self, location: str, batch: int, store: StoreId, groups: int) -> list[GroupCount]:
        """Read a whole store and return, for each key group, its rows and those that belong elsewhere."""
        if moves_files(self.bridge) is not None:
            return self.count_with_sql(location, batch, store, groups)
        factory, partitions = self._readers(self._rows(location, batch, store.operator, store.name))
        mover = new_instance(self.bridge, _MOVER)
        mover.reads(factory, partitions, groups, store.keyed)
        return self._counted(mover, [int(partition.partition()) for partition in partitions])

    def _counted(self, mover: Any, groups: Iterable[int]) -> list[GroupCount]:
        found = self._run(mover, [f"{group}|" for group in groups])
        return sorted((GroupCount(*map(int, words[1:])) for words in found), key=lambda count: count.group)

    def count_with_sql(self, location: str, batch: int, store: StoreId, groups: int) -> list[GroupCount]:
        """Do what `count` does, without code of our own on the executors."""
        rows = self._rows(location, batch, store.operator, store.name)
        expected = f"pmod(hash(partition_key), {groups})" if store.keyed else "0"
        counted = rows.selectExpr(self.bridge.seq(["spark_partition_id() AS place", f"{expected} AS expected"]))
        sql = ["count(*)", "count_if(place != expected)"]
        functions = self.bridge.find("org.apache.spark.sql.functions")
        columns = [functions.expr(text) for text in sql]
        result = (
            counted.groupBy("place", self.bridge.seq([])).agg(columns[0], self.bridge.seq(columns[1:])).collectAsList()
        )
        return sorted((GroupCount(*(int(row.get(i)) for i in range(3))) for row in result), key=lambda c: c.group)

    def _readers(self, rows: Any) -> tuple[Any, Any]:
        scan = rows.queryExecution().optimizedPlan().collectLeaves().head().scan().toBatch()
        return scan.createReaderFactory(), scan.planInputPartitions()

    def _run(self, mover: Any, tasks: list[str]) -> list[list[str]]:
        context: Any = self.bridge.spark.sparkContext._jsc
        answers = context.parallelize(tasks, len(tasks)).flatMap(mover).collect()
        return [str(answer).split("\t") for answer in answers]


class RowDealer(ABC):
    """What writes stores row by row, and in no other way: the rewrites of sessions that are `rows_only`."""

    @abstractmethod
    def deal_rows(
        self, store: StoreId, old: int, groups: int, tasks: Iterable[tuple[tuple[int, ...], tuple[int, ...]]]
    ) -> Written:
        """Write a store, each task its own groups; the parameters are those of `StateRewrite.move_files`."""


class StateRewrite(StateSession):
    """Writes the stores of one checkpoint anew into another.

    Parameters
    ----------
    bridge, format_version
        As for `StateSession`.
    source
        The checkpoint that is read.
    batch
        The batch whose state is read; the next one is written.
    target
        A checkpoint with the next batch's offsets and the operators' metadata, but no state.
    """

    def __init__(self, bridge: Bridge, format_version: int, source: str, batch: int, target: str) -> None:
        super().__init__(bridge, format_version)
        self._source = source
        self._target = target
        self._batch = batch
        self._hadoop_conf = self._session.sessionState().newHadoopConf()

    def _rewriter(self, transformed: Any | None = None) -> Any:
        constant = self.bridge.none
        if transformed is not None:
            # A function that gives the same whatever it is given; a map with a default is one, made without a callback.
            empty = self.bridge.companion("scala.collection.immutable.Map").empty()
            constant = self.bridge.some(empty.withDefaultValue(transformed))
        return self.bridge.find(f"{STATE}StateRewriter")(
            self._session,
            self._batch,
            self._batch + 1,
            self._target,
            self._hadoop_conf,
            self.bridge.some(self._source),
            constant,
            self.bridge.none,
        )

    @cached_property
    def _broadcast_conf(self) -> Any:
        companion = self.bridge.find("org.apache.spark.util.SerializableConfiguration")
        context: Any = self.bridge.spark.sparkContext._jsc
        return companion.broadcast(context.sc(), self._hadoop_conf)

    def _parts(self, store: StoreId, rewriter: Any) -> tuple[Any, Any, Any, Any]:
        """Return what Spark knows of a store: operator, store, its schema files, its state variables."""
        operator = operator_metadata(self.bridge, self._session, self._target, self._batch, store.operator)
        (metadata,) = (found for found in items(operator.stateStoresMetadata()) if found.storeName() == store.name)
        files = self.bridge.invoke(rewriter, "getStoreToSchemaFilesMap", operator).apply(store.name)
        return operator, metadata, files, self.bridge.invoke(rewriter, "getStateVariablesIfTWS", operator)

    def move_files(
        self, store: StoreId, groups: int, tasks: Iterable[tuple[tuple[int, ...], tuple[int, ...]]]
    ) -> Written:
        """Write a store as sorted files, key by key in the order they lie in, with no row inserted.

        Parameters
        ----------
        store
            The store.
        groups
            The new number of key groups.
        tasks
            What each task reads and writes.

        Raises
        ------
        py4j.protocol.Py4JJavaError
            If the store cannot be written like this, or reading or writing fails.
        """
        mover = new_instance(self.bridge, _MOVER)
        factory, partitions = self._readers(self._rows(self._source, self._batch, store.operator, store.name))
        mover.reads(factory, partitions, groups, store.keyed)
        mover.writes(*self._writing(store))
        return self._moved(mover, tasks)

    def _writing(self, store: StoreId) -> tuple[Any, ...]:
        """Return what a task needs to open the new stores."""
        rewriter = self._rewriter()
        operator, metadata, files, variables = self._parts(store, rewriter)
        confs = self.bridge.invoke(rewriter, "createConfsFromOffsetLog")
        number = self.bridge.find("java.lang.Long").valueOf(store.operator)
        families = self.bridge.invoke(rewriter, "getWriterColFamilyInfoMap", number, metadata, files, variables)
        name = str(operator.operatorInfo().operatorName())
        schemas = self.bridge.invoke(rewriter, "createStoreSchemaProviderIfTWS", name, files)
        following = self._batch + 1
        return (
            confs._1(),
            self._broadcast_conf,
            self._target,
            store.operator,
            store.name,
            following,
            families,
            schemas,
        )

    def _moved(self, mover: Any, tasks: Iterable[tuple[tuple[int, ...], tuple[int, ...]]]) -> Written:
        lines = [f"{','.join(map(str, reads))}|{','.join(map(str, writes))}" for reads, writes in tasks]
        answers = self._run(mover, lines)
        # With a class dealt out over several tasks each of them reads it; every group counts once.
        read = {int(words[1]): int(words[2]) for words in answers if words[0] == "read"}
        written = sorted((int(words[1]), words[3]) for words in answers if words[0] == "written")
        return Written(sum(read.values()), tuple(identifier for _, identifier in written if identifier))

    def put_rows(self, store: StoreId, old: int, groups: int, *, shuffle: bool) -> Written:
        """Write a store row by row; without a shuffle one number must divide the other."""
        rows = self._rows(self._source, self._batch, store.operator, store.name)
        kept = None
        if store.keyed and shuffle:
            functions = self.bridge.find("org.apache.spark.sql.functions")
            rows = rows.repartition(groups, self.bridge.seq([functions.col("partition_key")]))
        elif store.keyed and groups > old:
            kept = rows.persist()  # each old group is read by several tasks: from the store only once
            rows = self._split(kept, old, groups)
        elif store.keyed:
            rows = self._merged(rows, old, groups)
        tracked = str(self._session.conf().get(TRACK_ROWS, "true"))
        # Counting rows looks every key up before it is put; Spark counts them anew when the state is first loaded.
        self._session.conf().set(TRACK_ROWS, "false")
        try:
            rewriter = self._rewriter(rows)
            operator, metadata, files, variables = self._parts(store, rewriter)
            confs = self.bridge.invoke(rewriter, "createConfsFromOffsetLog")
            infos = self.bridge.invoke(
                rewriter, "rewriteStore", operator, metadata, confs._1(), self._broadcast_conf, files, variables
            )
        finally:
            self._session.conf().set(TRACK_ROWS, tracked)
            if kept is not None:
                kept.unpersist()
        ids = (option(info.stateStoreCkptId()) for info in infos)
        return Written(None, tuple(str(found) for found in ids if found is not None))

    def _split(self, rows: Any, old: int, groups: int) -> Any:
        """One filter for each part of the old groups; their union keeps the order of partitions."""
        part = f"floor(pmod(hash(partition_key), {groups}) / {old})"
        split = None
        for i in range(groups // old):
            kept = rows.filter(f"{part} = {i}")
            split = kept if split is None else split.union(kept)
        return split

    def _merged(self, rows: Any, old: int, groups: int) -> Any:
        """Partitions put side by side that belong together, then merged pairwise without a shuffle."""
        rdd = rows.queryExecution().toRdd()
        pruning = self.bridge.companion("org.apache.spark.rdd.PartitionPruningRDD")
        ordered = [
            pruning.create(rdd, self.bridge.seq([group + k * groups]).toSet())
            for group in range(groups)
            for k in range(old // groups)
        ]
        tag = rdd.elementClassTag()
        united = rdd.sparkContext().union(self.bridge.seq(ordered), tag)
        merged = united.toJavaRDD().coalesce(groups).rdd()
        return self._session.internalCreateDataFrame(merged, rows.schema(), False)
