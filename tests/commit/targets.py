"""Targets of every kind with old rows, sinks with new rows, and readers that do not use Penstock."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import TopicPartition
from pyspark.sql.types import StructType

from penstock.commit.journal import warehouse_of
from penstock.connectors import DeltaSink, FileSink, IcebergSink, JdbcSink, KafkaSink
from penstock.connectors.core.base import NothingToWrite
from penstock.connectors.jdbc.commit import ATTEMPT, TASK
from penstock.connectors.kafka import client
from penstock.connectors.tables.table_schema import as_nullable
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.io.filesystem import HadoopPath, is_hidden

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


OLD = [(number, number % 3) for number in range(12)]
NEW = [(number + 100, number % 2) for number in range(10)]


class Template:
    """Folders of rows as Spark writes them, written once and copied for each target."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.folder = folder
        for name, rows in (("old", OLD), ("new", NEW)):
            for layout, column in (("plain", None), ("parts", "p"), ("under", "_p")):
                write = write_like_spark if spark is None else lambda *args: write_with_spark(spark, *args)
                write(rows, folder / name / layout, column)

    def __call__(self, name: str, layout: str) -> Path:
        return self.folder / name / layout


def write_with_spark(spark: SparkSession, rows: Any, path: Path, column: str | None) -> None:
    df = spark.createDataFrame(rows, f"id long, {column or 'p'} long").repartition(2, column or "p")
    (df.write.partitionBy(column) if column else df.write).parquet(str(path))


def write_like_spark(rows: Any, path: Path, column: str | None) -> None:
    """Write the files that Spark would write."""
    write = uuid.uuid4()
    for part in range(2):
        part_rows = [row for row in rows if row[1] % 2 == part]
        for value in sorted({p for _, p in part_rows}) if column else [None]:
            folder = path if column is None else path / f"{column}={value}"
            folder.mkdir(parents=True, exist_ok=True)
            ids = [i for i, p in part_rows if value in (None, p)]
            table = {"id": ids} if column else {"id": ids, "p": [p for _, p in part_rows]}
            pq.write_table(pa.table(table), folder / f"part-{part:05}-{write}.c000.snappy.parquet")
    (path / "_SUCCESS").touch()


class Files:
    """A folder of files."""

    is_whole = True
    """Whether folders are renamed atomically; if not, readers may see any of the files during a commit."""

    def __init__(
        self, template: Template, folder: Path, mode: str, layout: str, *, exists: bool, token: str | None
    ) -> None:
        self.template, self.path, self.mode, self.layout = template, folder / "out", mode, layout
        self.token = token
        self.old = sorted(OLD) if exists else []
        folder.mkdir(parents=True, exist_ok=True)
        if exists:
            shutil.copytree(template("old", layout), self.path)
            if layout == "parts":
                (self.path / "p=0" / "_SUCCESS").touch()
        if mode == "append":
            self.new = sorted(self.old + NEW)
        elif mode == "dynamic":
            self.new = sorted([row for row in self.old if row[1] not in {p for _, p in NEW}] + NEW)
        else:
            self.new = sorted(NEW)

    @property
    def journal_folder(self) -> Path:
        return self.path.parent

    def sink(self) -> FileSink:
        by = {"plain": [], "parts": ["p"], "under": ["_p"]}[self.layout]
        options = {"partitionOverwriteMode": "dynamic"} if self.mode == "dynamic" else {}
        mode = {"create": "error", "dynamic": "overwrite"}.get(self.mode, self.mode)
        return FileSink(str(self.path), mode=mode, partition_by=by, options=options, token=self.token)

    def write(self, job: Any) -> None:
        if not job.nothing_to_write:
            shutil.copytree(
                self.template("new", self.layout), job._staging.local_path, ignore=shutil.ignore_patterns("*.crc")
            )
            for file in Path(job._staging.local_path).rglob("part-*"):  # file names must be unique
                file.rename(file.with_name(f"part-{uuid.uuid4()}.parquet"))

    def rows(self) -> list[tuple[int, int]]:
        if not self.path.exists():
            return []
        rows: list[Any] = []
        for folder, folders, files in os.walk(self.path):
            folders[:] = [name for name in folders if not is_hidden(name)]
            for name in files:
                if not is_hidden(name):
                    read = pq.ParquetFile(f"{folder}/{name}").read()
                    part = folder.rpartition("p=")[2] if "p=" in folder else None
                    parts = read["p"].to_pylist() if part is None else [int(part)] * read.num_rows
                    rows += zip(read["id"].to_pylist(), parts, strict=True)
        return sorted(rows)

    def is_readable(self, rows: Any) -> bool:
        if not self.is_whole:
            return set(rows) <= {*self.old, *self.new} and len(rows) == len(set(rows))
        if self.mode == "append":
            return set(self.old) <= set(rows) <= set(self.new) and len(rows) == len(set(rows))
        if self.mode == "dynamic":
            parts = {p for _, p in self.old + self.new}
            return all(
                [row for row in rows if row[1] == part]
                in ([row for row in self.old if row[1] == part], [row for row in self.new if row[1] == part])
                for part in parts
            )
        return rows in (self.old, self.new)

    @property
    def repeats(self) -> bool:
        """Whether a rerun without a token produces the same rows."""
        return self.mode in {"overwrite", "dynamic"}


FILES = {
    "create": ("create", "plain", False),
    "create by partition": ("create", "parts", False),
    "append": ("append", "plain", True),
    "append by partition": ("append", "parts", True),
    "append by _p": ("append", "under", True),
    "overwrite": ("overwrite", "plain", True),
    "overwrite by partition": ("overwrite", "parts", True),
    "dynamic": ("dynamic", "parts", True),
    "dynamic by _p": ("dynamic", "under", True),
}


class Table:
    """Base class of tables: old and new rows, and a token."""

    def __init__(self, mode: str, *, exists: bool, token: str | None) -> None:
        self.mode, self.token = mode, token
        self.old = sorted(OLD) if exists else []
        self.new = sorted(self.old + NEW) if mode == "append" else sorted(NEW)

    def is_readable(self, rows: Any) -> bool:
        return rows in (self.old, self.new)

    @property
    def repeats(self) -> bool:
        return self.mode in {"overwrite", "upsert"}

    @property
    def key(self) -> list[str]:
        """The key of an upsert that replaces all rows."""
        return ["id"] if self.mode == "upsert" else []


class Delta(Table):
    def __init__(self, template: Template, folder: Path, mode: str, *, exists: bool, token: str | None) -> None:
        super().__init__(mode, exists=exists, token=token)
        self.template, self.path = template, folder / "delta"
        folder.mkdir(parents=True, exist_ok=True)
        if exists:
            shutil.copytree(self.old_table(template), self.path)

    @staticmethod
    def old_table(template: Template) -> Path:
        """Create a table with the old rows in a separate process, as a process that has used the client cannot fork."""
        path = template.folder / "delta"
        if not path.exists():
            rows = f"pa.table({{'id': {[i for i, _ in OLD]}, 'p': {[p for _, p in OLD]}}})"
            code = f"import deltalake, pyarrow as pa; deltalake.write_deltalake({str(path)!r}, {rows})"
            subprocess.run([sys.executable, "-c", code], check=True)
        return path

    @property
    def journal_folder(self) -> Path:
        return self.path.parent

    def sink(self) -> DeltaSink:
        return DeltaSink(str(self.path), self.mode, token=self.token, key=self.key)

    def write(self, job: Any) -> None:
        if isinstance(job, NothingToWrite):
            return
        staged = Path(HadoopPath(job._staged._bridge, job._staged.folder).local_path)
        shutil.copytree(self.template("new", "plain"), staged, ignore=shutil.ignore_patterns("*.crc"))
        for file in staged.glob("part-*"):  # file names must be unique
            file.rename(file.with_name(f"{uuid.uuid4()}.parquet"))
        job._schema = as_nullable(StructType().add("id", "long").add("p", "long"))
        if self.mode == "upsert":
            import deltalake

            Path(HadoopPath(job._staged._bridge, job._upsert_rows.folder).local_path).mkdir()
            files = deltalake.DeltaTable(str(self.path)).get_add_actions()
            job._replaced_files = tuple(pa.table(files)["path"].to_pylist())

    def rows(self) -> list[tuple[int, int]]:
        import deltalake

        if not deltalake.DeltaTable.is_deltatable(str(self.path)):
            return []
        read = deltalake.DeltaTable(str(self.path)).to_pyarrow_table()
        return sorted(zip(read["id"].to_pylist(), read["p"].to_pylist(), strict=True))


class Iceberg(Table):
    def __init__(self, template: Template, folder: Path, mode: str, *, exists: bool, token: str | None) -> None:
        super().__init__(mode, exists=exists, token=token)
        self.template, self.folder = template, folder
        folder.mkdir(parents=True, exist_ok=True)
        self.properties = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}/warehouse",
        }
        catalog = self.catalog()
        catalog.create_namespace_if_not_exists("n")
        if exists:
            rows = pa.table({"id": [i for i, _ in OLD], "p": [p for _, p in OLD]})
            catalog.create_table("n.t", rows.schema).append(rows)

    def catalog(self) -> Any:
        from pyiceberg.catalog import load_catalog

        return load_catalog("default", **self.properties)

    @property
    def journal_folder(self) -> Path:
        return self.folder / "warehouse" / "n"

    def sink(self) -> IcebergSink:
        return IcebergSink("n.t", self.properties, self.mode, token=self.token, key=self.key)

    def write(self, job: Any) -> None:
        if isinstance(job, NothingToWrite):
            return
        staged = HadoopPath(job._staged._bridge, job._staged.folder).local_path
        assert staged is not None
        shutil.copytree(self.template("new", "plain"), staged)
        job._schema = as_nullable(StructType().add("id", "long").add("p", "long"))
        if self.mode == "upsert":
            table = self.catalog().load_table("n.t")
            Path(HadoopPath(job._staged._bridge, job._upsert_rows.folder).local_path).mkdir()
            job._snapshot = table.current_snapshot().snapshot_id
            job._replaced_files = tuple(task.file.file_path for task in table.scan().plan_files())

    def rows(self) -> list[tuple[int, int]]:
        catalog = self.catalog()
        if not catalog.table_exists("n.t"):
            return []
        read = catalog.load_table("n.t").scan().to_arrow()
        return sorted(zip(read["id"].to_pylist(), read["p"].to_pylist(), strict=True))


def warehouse(spark: SparkSession) -> Path:
    """Return the folder of the journals of targets without a folder."""
    folder = Path(warehouse_of(Bridge(spark)).removeprefix("file:"))
    folder.mkdir(exist_ok=True)
    return folder


class Jdbc(Table):
    """A table of a server, with a unique name, as all cases share the server."""

    numbers = itertools.count()

    def __init__(self, spark: SparkSession, server: Any, mode: str, *, exists: bool, token: str | None) -> None:
        super().__init__(mode, exists=exists, token=token)
        self.spark, self.server, self.table = spark, server, f"t{os.getpid()}_{next(self.numbers)}"
        if exists:
            values = ", ".join(f"({i}, {p})" for i, p in OLD)
            server.sql(
                f"create table {self.table} (id bigint primary key, p bigint); insert into {self.table} values {values}"
            )
        self.journal_folder = warehouse(spark)

    def sink(self) -> JdbcSink:
        return JdbcSink(self.server.url, self.table, self.server.properties, self.mode, token=self.token)

    def write(self, job: Any) -> None:
        if self.spark is not None:
            job.write(self.spark.createDataFrame(NEW, "id long, p long").coalesce(1))
        elif not job.is_committed:
            job._names, job._columns = ["id", "p"], ['"id"', '"p"']
            values = ", ".join(f"({i}, {p}, 0, 0)" for i, p in NEW)
            self.server.sql(
                f"create table {job._staging} (id bigint, p bigint, {TASK} int, {ATTEMPT} bigint); insert into {job._staging} values {values}"
            )

    def rows(self) -> list[tuple[int, int]]:
        try:
            output = self.server.sql(f"select id, p from {self.table}")
        except Exception as error:
            assert "exist" in str(error) or "no such table" in str(error)
            return []
        rows = (line.split("|") for line in output.splitlines() if line)
        return sorted((int(id_), int(p)) for id_, p in rows)


class Kafka(Table):
    """A topic of a broker, with a unique name, as all cases share the broker."""

    numbers = itertools.count()

    def __init__(self, spark: SparkSession, broker: Any, *, token: str) -> None:
        super().__init__("append", exists=True, token=token)
        self.spark, self.broker = spark, broker
        self.topic = broker.topic(f"t{os.getpid()}_{next(self.numbers)}", 1)
        self.old, self.new = [], sorted(NEW)
        self.journal_folder = warehouse(spark)

    def sink(self) -> KafkaSink:
        return KafkaSink(self.broker.servers, self.topic, token=f"{self.token}-{self.topic}")

    def write(self, job: Any) -> None:
        rows = [(f"{i}", f"{p}".encode()) for i, p in NEW]
        if self.spark is not None:
            job.write(self.spark.createDataFrame(rows, "key string, value binary").coalesce(1))
        elif not isinstance(job, NothingToWrite):
            folder = Path(job._staging.local_path)
            folder.mkdir(parents=True)
            pq.write_table(
                pa.table({"key": [key for key, _ in rows], "value": [value for _, value in rows]}),
                folder / "part-0.parquet",
            )

    def rows(self) -> list[tuple[int, int]]:
        with client.consumer(self.broker.servers, {"isolation.level": "read_committed"}) as consumer:
            consumer.assign([TopicPartition(self.topic, 0, 0)])
            rows, deadline = [], time.monotonic() + 0.4
            while time.monotonic() < deadline:
                for message in consumer.consume(100, 0.1):
                    if message.error() is None:
                        rows.append((int(message.key()), int(message.value())))
                        deadline = time.monotonic() + 0.4
        return sorted(rows)


class KafkaParts(Kafka):
    """A topic whose records are committed in three transactions, so that readers may see only some of them."""

    def sink(self) -> KafkaSink:
        return KafkaSink(self.broker.servers, self.topic, token=f"{self.token}-{self.topic}", transactions=3)

    def write(self, job: Any) -> None:
        rows = [(f"{i}", f"{p}".encode()) for i, p in NEW]
        if isinstance(job, NothingToWrite):
            return
        if self.spark is not None:
            job.write(self.spark.createDataFrame(rows, "key string, value binary").repartition(3))
            return
        folder = Path(job._staging.local_path)
        folder.mkdir(parents=True)
        for number in range(3):
            keys, values = zip(*rows[number::3], strict=True)
            pq.write_table(pa.table({"key": keys, "value": values}), folder / f"part-{number}.parquet")

    def is_readable(self, rows: Any) -> bool:
        return set(rows) <= set(self.new) and len(rows) == len(set(rows))
