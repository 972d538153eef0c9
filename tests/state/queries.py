"""Stateful streaming queries of every kind, and functions to add input and run them."""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from penstock.spark.plans.dataframes import with_settings

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
IN_MEMORY = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
STORE = "spark.sql.streaming.stateStore"
BASE = {f"{STORE}.providerClass": ROCKSDB}
MINUTE = dt.timedelta(minutes=1)
NOON = dt.datetime(2026, 11, 22, 12)
SCHEMA = "k string, v long, t timestamp"


@dataclass(frozen=True)
class Query:
    """A streaming query: its computation, output mode and settings."""

    name: str
    build: Callable[[DataFrame], DataFrame]
    mode: str = "update"
    settings: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


def add_file(file: Path, target: Path) -> None:
    """Add a file to the input of a running query atomically, so that it is not read while empty."""
    part = target.with_name(f"{target.name}.part")
    shutil.copy2(file, part)
    part.rename(target)


def write_input(spark: SparkSession, folder: Path, number: int) -> None:
    """Add a file with 400 rows of 200 keys; each file is ten minutes later than its predecessor."""
    rows = [
        (f"key {(7 * i + number) % 200}", i % 5, NOON + 10 * number * MINUTE + (i % 10) * MINUTE) for i in range(400)
    ]
    part = folder / f"part-{number}"
    spark.createDataFrame(rows, SCHEMA).coalesce(1).write.mode("overwrite").parquet(str(part))
    for file in part.glob("*.parquet"):
        os.utime(file, (1_700_000_000 + number,) * 2)  # Spark reads files in the order of their times
        add_file(file, folder / f"{number:03}.parquet")
    shutil.rmtree(part)


def run(spark: SparkSession, query: Query, folder: Path, checkpoint: Path, partitions: int = 4) -> list[list[tuple]]:
    """Run a query over its unread files, one per batch, and return the rows of each batch with output."""
    batches: list[list[tuple]] = []

    def collect(df: DataFrame, _: int) -> None:
        rows = sorted((tuple(row) for row in df.collect()), key=str)
        if rows:
            batches.append(rows)

    with with_settings(spark, BASE | {"spark.sql.shuffle.partitions": str(partitions)} | query.settings):
        source = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder / "*.parquet"))
        writer = query.build(source).writeStream.outputMode(query.mode).foreachBatch(collect)
        stream = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        stream.awaitTermination()
    return batches


def _pandas_counts(df: DataFrame) -> DataFrame:
    def count(key: tuple, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        seen, total = state.get if state.exists else (0, 0)
        for frame in frames:
            seen, total = seen + len(frame), total + int(frame["v"].sum())
        state.update((seen, total))
        yield pd.DataFrame({"k": [key[0]], "n": [seen], "total": [total]})

    return df.groupBy("k").applyInPandasWithState(
        count, "k string, n long, total long", "n long, total long", "update", "NoTimeout"
    )


class Everything(StatefulProcessor):
    """Value, list and map state, and an event-time timer for each key."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._count = handle.getValueState("count", "n long")
        self._values = handle.getListState("values", "v long")
        self._counts_by_value = handle.getMapState("counts_by_value", "v long", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        count = self._count.get()[0] if self._count.exists() else 0
        latest = None
        for frame in rows:
            for value, time in zip(frame["v"], frame["t"], strict=True):
                count += 1
                map_key = (int(value),)
                seen = self._counts_by_value.getValue(map_key)[0] if self._counts_by_value.containsKey(map_key) else 0
                self._counts_by_value.updateValue(map_key, (seen + 1,))
                if count % 3 == 0:
                    self._values.appendValue((int(value),))
                latest = time if latest is None else max(latest, time)
        self._count.update((count,))
        self._handle.registerTimer(int(latest.timestamp() * 1000) + 600_000)
        listed = sorted(value[0] for value in self._values.get())
        by_value = sorted((key[0], value[0]) for key, value in self._counts_by_value.iterator())
        yield pd.DataFrame({"k": [key[0]], "what": ["rows"], "n": [count], "state": [str((listed, by_value))]})

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        yield pd.DataFrame(
            {"k": [key[0]], "what": ["timer"], "n": [expiredTimerInfo.getExpiryTimeInMs()], "state": [""]}
        )

    def close(self) -> None:
        pass


class LongLived(StatefulProcessor):
    """State with a time to live, longer than any test."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "n long", ttlDurationMs=86_400_000)
        self._counts_by_value = handle.getMapState("counts_by_value", "v long", "n long", ttlDurationMs=86_400_000)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        count = self._count.get()[0] if self._count.exists() else 0
        for frame in rows:
            for value in frame["v"]:
                count += 1
                self._counts_by_value.updateValue((int(value),), (count,))
        self._count.update((count,))
        by_value = sorted((key[0], value[0]) for key, value in self._counts_by_value.iterator())
        yield pd.DataFrame({"k": [key[0]], "n": [count], "state": [str(by_value)]})

    def close(self) -> None:
        pass


def _timers(df: DataFrame) -> DataFrame:
    return (
        df.withWatermark("t", "5 minutes")
        .groupBy("k")
        .transformWithStateInPandas(Everything(), "k string, what string, n long, state string", "Update", "EventTime")
    )


def _ttl(df: DataFrame) -> DataFrame:
    return df.groupBy("k").transformWithStateInPandas(
        LongLived(), "k string, n long, state string", "Update", "ProcessingTime"
    )


def _counts(df: DataFrame) -> DataFrame:
    return df.groupBy("k").agg(F.count("*").alias("n"), F.sum("v").alias("total"))


def _windows(df: DataFrame) -> DataFrame:
    return df.withWatermark("t", "5 minutes").groupBy(F.window("t", "10 minutes"), "k").agg(F.count("*"), F.max("v"))


def _sides(df: DataFrame) -> tuple[DataFrame, DataFrame]:
    left = (
        df.where("v < 2").select("k", F.col("v").alias("lv"), F.col("t").alias("lt")).withWatermark("lt", "5 minutes")
    )
    right = df.where("v = 3").select(F.col("k").alias("rk"), F.col("t").alias("rt")).withWatermark("rt", "5 minutes")
    return left, right


def _join(how: str) -> Callable[[DataFrame], DataFrame]:
    def build(df: DataFrame) -> DataFrame:
        left, right = _sides(df)
        near = F.expr("k = rk AND rt BETWEEN lt - INTERVAL 12 MINUTES AND lt + INTERVAL 12 MINUTES")
        return left.join(right, near, how)

    return build


def _chain(df: DataFrame) -> DataFrame:
    distinct = df.withWatermark("t", "5 minutes").dropDuplicates(["k", "v", "t"])
    fine = distinct.groupBy(F.window("t", "5 minutes").alias("w"), "k").agg(F.count("*").alias("n"))
    return fine.groupBy(F.window(F.window_time("w"), "10 minutes")).agg(F.sum("n"), F.count("*"))


def _sessions(df: DataFrame) -> DataFrame:
    return df.withWatermark("t", "5 minutes").groupBy(F.session_window("t", "3 minutes"), "k").agg(F.count("*"))


OPERATORS = [
    Query("counts updated", _counts),
    Query("counts complete", _counts, "complete"),
    Query("windows appended", _windows, "append"),
    Query("distinct", lambda df: df.dropDuplicates(["k", "v"]), "append"),
    Query(
        "distinct within watermark",
        lambda df: df.withWatermark("t", "5 minutes").dropDuplicatesWithinWatermark(["k"]),
        "append",
    ),
    Query("sessions", _sessions, "append"),
    Query("inner join", _join("inner"), "append"),
    Query("left join", _join("left"), "append"),
    Query("right join", _join("right"), "append"),
    Query("full join", _join("full"), "append"),
    Query("three operators", _chain, "append"),
    Query("applyInPandasWithState", _pandas_counts),
    Query("state of every kind with timers", _timers),
    # Spark endlessly runs batches without data if state depends on processing time.
    Query("state with time to live", _ttl, settings={"spark.sql.streaming.noDataMicroBatches.enabled": "false"}),
    Query("no key", lambda df: df.groupBy().agg(F.count("*"), F.sum("v"))),
    Query(
        "distinct, then no key",
        lambda df: (
            df.withWatermark("t", "5 minutes")
            .dropDuplicates(["k", "v", "t"])
            .groupBy(F.window("t", "10 minutes"))
            .agg(F.count("*"))
        ),
        "append",
    ),
]
"""Every operator, with the default settings of RocksDB."""
KINDS_OF_FILES = [
    Query("changelog", _counts, settings={f"{STORE}.rocksdb.changelogCheckpointing.enabled": "true"}),
    Query("changelog of a join", _join("left"), "append", {f"{STORE}.rocksdb.changelogCheckpointing.enabled": "true"}),
    Query("format 2", _counts, settings={f"{STORE}.checkpointFormatVersion": "2"}),
    Query(
        "format 2 with changelog",
        _windows,
        "append",
        {f"{STORE}.checkpointFormatVersion": "2", f"{STORE}.rocksdb.changelogCheckpointing.enabled": "true"},
    ),
    Query("format 2 of a join", _join("left"), "append", {f"{STORE}.checkpointFormatVersion": "2"}),
    Query("row checksums", _counts, settings={f"{STORE}.rowChecksum.enabled": "true"}),
    Query("row checksums of timers", _timers, settings={f"{STORE}.rowChecksum.enabled": "true"}),
    Query("join in column families", _join("left"), "append", {"spark.sql.streaming.join.stateFormatVersion": "3"}),
    Query(
        "full join in column families", _join("full"), "append", {"spark.sql.streaming.join.stateFormatVersion": "3"}
    ),
]
"""Other file formats and layouts of RocksDB."""
QUERIES = [*OPERATORS, *KINDS_OF_FILES]
_MEMORY = {f"{STORE}.providerClass": IN_MEMORY}
QUERIES_IN_MEMORY = [
    Query(f"{name} in memory", query.build, query.mode, query.settings | _MEMORY | more)
    for name, query, more in [
        ("counts", QUERIES[0], {}),
        *(
            (query.name, query, {})
            for query in QUERIES
            if query.name
            in {
                "counts complete",
                "windows appended",
                "distinct",
                "distinct within watermark",
                "sessions",
                "inner join",
                "left join",
                "right join",
                "full join",
                "three operators",
                "applyInPandasWithState",
                "no key",
                "distinct, then no key",
                "row checksums",
            }
        ),
        ("files without checksums", QUERIES[0], {"spark.sql.streaming.checkpoint.fileChecksum.enabled": "false"}),
        ("a snapshot after each change", QUERIES[0], {f"{STORE}.minDeltasForSnapshot": "1"}),
    ]
]
"""Queries with Spark's default state store, which holds key groups in memory and lacks transformWithState."""
BY_NAME = {query.name: query for query in [*QUERIES, *QUERIES_IN_MEMORY]}


@dataclass(frozen=True)
class Stopped:
    """A stopped query, and its later output without a rescale."""

    query: Query
    input: Path
    """The folder of its past and later input."""
    checkpoint: Path
    later: list[list[tuple]]


def digest(folder: Path) -> str:
    """Return a hash of all names and bytes below a folder."""
    result = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        result.update(str(path.relative_to(folder)).encode())
        result.update(path.read_bytes() if path.is_file() else b"")
    return result.hexdigest()
