"""Folders without a JVM, for thousands of kill points in seconds; they behave as Hadoop's local file system."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from penstock.base.local_files import exchange, is_volume, rename, volumes_below
from penstock.base.ownership import CheckedContent, belongs_to_user, read_checked
from penstock.connectors.kafka import commit as topics
from penstock.spark.io.filesystem import is_hidden

if TYPE_CHECKING:
    from penstock.spark.bridge.jvm import Bridge


PATCHED = [
    *(
        f"penstock.commit.{name}.HadoopPath"
        for name in (
            "added_files",
            "catalog_tables",
            "claims",
            "folders",
            "protocol",
            "journal",
            "moves",
            "leftovers",
            "recovery",
        )
    ),
    *(
        f"penstock.connectors.{name}.HadoopPath"
        for name in (
            "files.files",
            "delta.delta",
            "delta.commit",
            "iceberg.iceberg",
            "iceberg.commit",
            "tables.commit",
            "tables.table_files",
            "kafka.sink",
            "kafka.commit",
        )
    ),
    "tests.commit.harness.HadoopPath",
    "tests.commit.checks.HadoopPath",
    "tests.commit.targets.HadoopPath",
]
BRIDGES = [
    f"penstock.connectors.{name}.Bridge" for name in ("files.files", "tables.table_files", "jdbc.sink", "kafka.sink")
] + [f"tests.commit.{name}.Bridge" for name in ("harness", "checks", "targets")]


class LocalFolder:
    """A replacement of `penstock.spark.io.filesystem.HadoopPath` for paths of this machine."""

    def __init__(self, bridge: Bridge, path: str) -> None:
        self._path = Path(os.path.abspath(path.removeprefix("file://").removeprefix("file:")))

    def __str__(self) -> str:
        return f"file:{self._path}"

    @property
    def name(self) -> str:
        return self._path.name

    @property
    def parent(self) -> Any:
        return LocalFolder(None, str(self._path.parent))

    @property
    def local_path(self) -> str:
        return str(self._path)

    def at(self, path: str) -> Any:
        return LocalFolder(None, path)

    def child(self, name: str) -> Any:
        return LocalFolder(None, f"{self._path}/{name}")

    def exists(self) -> bool:
        return self._path.exists()

    def nearest_existing(self) -> Any:
        return self if self.exists() else self.parent.nearest_existing()

    def is_folder(self) -> bool:
        return self._path.is_dir()

    def is_empty(self) -> bool:
        return self.is_folder() and not self.entries()

    def entries(self) -> Any:
        return [(path.name, path.is_dir(), path.stat().st_size) for path in sorted(self._path.iterdir())]

    def files_below(self, prefix: str = "", *, dotted_partitions: bool = False) -> Iterator[Any]:
        for name, is_folder, size in self.entries():
            if is_hidden(name) and not (dotted_partitions and is_folder and "=" in name):
                continue
            if is_folder:
                yield from self.child(name).files_below(f"{prefix}{name}/", dotted_partitions=dotted_partitions)
            else:
                yield f"{prefix}{name}", size

    def children_matching(self, pattern: str) -> Any:
        return [LocalFolder(None, str(path)) for path in sorted(self._path.glob(pattern))]

    def modification_time(self) -> float:
        return self._path.stat().st_mtime

    renames_atomically = True

    def sync_entries(self) -> None:
        pass

    def sync(self) -> None:
        pass

    def read(self) -> bytes:
        return self._path.read_bytes()

    @property
    def resolved(self) -> Any:
        return LocalFolder(None, os.path.realpath(self._path))

    @property
    def is_volume(self) -> bool:
        return is_volume(str(self._path))

    def volumes_below(self) -> Any:
        return volumes_below(str(self._path))

    def read_if_exists(self) -> bytes | None:
        try:
            return self.read()
        except FileNotFoundError:
            return None

    def touch(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.touch()

    def read_checked(self, limit: int) -> CheckedContent | None:
        return read_checked(str(self._path), limit)

    @property
    def is_removable(self) -> bool:
        return belongs_to_user(str(self._path))

    def write(self, content: bytes, *, overwrite: bool = False, private: bool = False) -> bool:
        temporary = self._path.parent / f".{self._path.name}.{uuid.uuid4().hex}.tmp"
        temporary.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content)
        temporary.chmod(0o600 if private else 0o644)
        if overwrite:
            temporary.rename(self._path)
            return True
        try:
            os.link(temporary, self._path)
        except FileExistsError:
            return False
        finally:
            temporary.unlink()
        return True

    def copy_to(self, target: Any) -> None:
        shutil.copy(self._path, target._path)

    def make(self) -> None:
        self._path.mkdir(parents=True, exist_ok=True)

    def move_to(self, target: Any) -> bool:
        return rename(str(self._path), str(target._path))

    def delete(self) -> None:
        shutil.rmtree(self._path) if self._path.is_dir() else self._path.unlink(missing_ok=True)

    def exchange(self, other: Any) -> bool:
        return exchange(str(self._path), str(other._path))

    def remove_if_empty(self) -> None:
        with suppress(OSError):
            self._path.rmdir()


class NoSpark:
    """The parts of a session that sinks use during a commit."""

    class conf:
        @staticmethod
        def get(key: Any, default: Any = None) -> Any:
            return default

    class catalog:
        @staticmethod
        def refreshByPath(path: Any) -> None:
            pass


class LocalConnection:
    """A replacement of `penstock.spark.io.jdbc.JdbcConnection` for SQLite."""

    def __init__(self, file: str) -> None:
        self._connection = sqlite3.connect(file, isolation_level=None, timeout=3)

    def rows(self, statement: str, *values: str) -> Any:
        return [
            tuple(None if value is None else str(value) for value in row)
            for row in self._connection.execute(statement, values).fetchall()
        ]

    def column_types(self, statement: str) -> Any:
        return {column[0]: None for column in self._connection.execute(statement).description}

    def unique_keys(self, table: str) -> list[set[str]]:
        query = "SELECT i.name, c.name FROM pragma_index_list(?) i, pragma_index_info(i.name) c WHERE i.[unique]"
        keys: dict[str, set[str]] = {}
        for index, column in self._connection.execute(query, (table,)):
            keys.setdefault(index, set()).add(column)
        return list(keys.values())

    def run(self, statement: str, *values: str) -> int:
        return self._connection.execute(statement.replace("bigint", "integer"), values).rowcount

    def begin(self) -> None:
        self._connection.execute("BEGIN")

    def commit(self) -> None:
        self._connection.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LocalTarget:
    """A replacement of `penstock.spark.io.jdbc.JdbcTarget` for SQLite."""

    def __init__(self, bridge: Bridge, options: Any) -> None:
        self._file = options["url"].removeprefix("jdbc:sqlite:")

    def connect(self) -> LocalConnection:
        return LocalConnection(self._file)

    def quoted(self, column: str) -> str:
        return f'"{column}"'

    def refresh(self, table: str) -> None:
        pass


class LocalSqlite:
    """A replacement of `tests.support.services.Sqlite` without a JDBC driver."""

    properties: dict[Any, Any] = {}

    def __init__(self, file: Any) -> None:
        self.file = file
        self.url = f"jdbc:sqlite:{file}"

    def sql(self, statement: str) -> str:
        with sqlite3.connect(self.file) as connection:
            rows = [row for part in statement.split(";") for row in connection.execute(part).fetchall()]
        return "\n".join("|".join(map(str, row)) for row in rows)


def local_records(access: Any, staging: str) -> Iterator[Any]:
    for file in sorted(Path(staging.removeprefix("file:")).glob("*.parquet")):
        yield from pq.read_table(file).to_pylist()


def write_parts_here(bridge: Any, destination: Any, staging: str, files: Any) -> None:
    for number, names in enumerate(files):
        rows = (row for name in names for row in pq.read_table(f"{staging.removeprefix('file:')}/{name}").to_pylist())
        topics.write_part(destination, number, rows)


def as_an_object_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let folders behave as on an object store, where only renames of single files are atomic."""
    rename = LocalFolder.move_to

    def move_to(self: Any, target: Any) -> Any:
        assert not self.is_folder(), f"{self} would be renamed file by file"
        return rename(self, target)

    monkeypatch.setattr(LocalFolder, "renames_atomically", False)
    monkeypatch.setattr(LocalFolder, "move_to", move_to)
    monkeypatch.setattr(LocalFolder, "exchange", lambda self, other: False)


def as_a_volume(monkeypatch: pytest.MonkeyPatch, name: str = "out") -> None:
    """Let each folder of a name behave as a mounted volume: no renames into it, out of it, or of it."""
    change, swap = LocalFolder.move_to, LocalFolder.exchange

    def side(folder: Any) -> Any:
        parts = folder._path.parts
        return parts[: parts.index(name) + 1] if name in parts[:-1] else "itself" if name in parts else None

    def move_to(self: Any, target: Any) -> Any:
        if side(self) != side(target) or "itself" in (side(self), side(target)):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        return change(self, target)

    monkeypatch.setattr(LocalFolder, "is_volume", property(lambda self: self.name == name and self.exists()))
    monkeypatch.setattr(LocalFolder, "move_to", move_to)
    monkeypatch.setattr(
        LocalFolder, "exchange", lambda self, other: side(self) == side(other) != "itself" and swap(self, other)
    )


def without_a_jvm(monkeypatch: pytest.MonkeyPatch, folder: Path) -> NoSpark:
    for name in PATCHED:
        monkeypatch.setattr(name, LocalFolder)
    for name in BRIDGES:
        monkeypatch.setattr(name, lambda spark: None)
    for name in ("commit", "sink"):
        monkeypatch.setattr(f"penstock.connectors.jdbc.{name}.JdbcTarget", LocalTarget)
    for name in (
        "penstock.commit.journal",
        "penstock.connectors.jdbc.commit",
        "penstock.connectors.kafka.sink",
        "tests.commit.targets",
    ):
        monkeypatch.setattr(f"{name}.warehouse_of", lambda bridge: str(folder / "warehouse"))
    monkeypatch.setattr("penstock.connectors.kafka.commit.staged_records", local_records)
    monkeypatch.setattr("penstock.connectors.kafka.commit.write_parts", write_parts_here)
    monkeypatch.setattr("tests.commit.harness.JdbcConnection", LocalConnection)
    monkeypatch.setattr(
        "penstock.connectors.tables.table_files.row_count",
        lambda bridge, path: pq.read_metadata(path.removeprefix("file:")).num_rows,
    )
    return NoSpark()
