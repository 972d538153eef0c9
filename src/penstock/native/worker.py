"""Runs the leaf of a vertex in a Python worker of Spark: DuckDB reads the task's part of Parquet files, and computes.

A task reads the row groups whose middle lies in its ranges of the files, as Spark's own reader does. Anything that
DuckDB might read otherwise than Spark raises `NotNativeError`, and so does every error of DuckDB: Spark then computes
the rows.

The module is sent to the workers as it is, so it imports nothing of the package.
"""

from __future__ import annotations

import json
import re
import tempfile
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.accumulators import Accumulator
    from pyspark.core.broadcast import Broadcast

_BATCH_ROWS = 10_000
"""Rows of a batch of columns, as Spark's own ``spark.sql.execution.arrow.maxRecordsPerBatch``."""
_TYPES = {
    "boolean": "bool",
    "tinyint": "int8",
    "smallint": "int16",
    "int": "int32",
    "bigint": "int64",
    "float": "float",
    "double": "double",
    "date": "date32[day]",
    "string": "string",
}
"""Spark's types, and Arrow's names for them."""
_TEXTS = {"large_string", "string_view"}
_LEGACY = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
"""Keys of files whose old dates follow another calendar."""
_SPARK_VERSION = b"org.apache.spark.version"
"""The key of the release of Spark that has written a file; that of Spark 2 follows another calendar, too."""
_WRITERS = re.compile(r"DuckDB|parquet-cpp-arrow version|parquet-(mr version 1\.|rs version )[1-9]\d")
"""Who is known to tell of a column's largest and smallest values in the order of unsigned bytes, as DuckDB takes them.

Old releases of others had another order, which Spark knows of.
"""


_SHORT = 18
"""Decimals of up to so many digits are 64 bits in Spark, and in DuckDB."""
NOT_NATIVE = "penstock: not computed by DuckDB: "
"""The beginning of errors after which Spark is to compute the rows."""


class NotNativeError(Exception):
    """The rows are not computed here."""

    def __init__(self, why: str) -> None:
        super().__init__(NOT_NATIVE + " ".join(why.split()))


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name, and its type as Spark's SQL spells it."""

    name: str
    type: str

    @property
    def arrow(self) -> str:
        """The name of its type in Arrow."""
        if self.type.startswith("decimal("):
            return "decimal128" + self.type.removeprefix("decimal").replace(",", ", ")
        return _TYPES[self.type]

    @property
    def sent(self) -> str:
        """The type in which its values are handed over to Spark: short decimals are whole numbers."""
        return "bigint" if self.is_short_decimal else self.type

    @property
    def is_short_decimal(self) -> bool:
        """Whether it has decimals that are 64 bits in Spark."""
        return self.type.startswith("decimal(") and int(self.type[len("decimal(") :].partition(",")[0]) <= _SHORT


@dataclass(frozen=True, slots=True)
class FileRange:
    """A range of bytes of a file, and the file as it was when the query was planned.

    Parameters
    ----------
    path
        Where it lies, with or without ``file:``.
    start, length
        The range.
    modified
        Milliseconds since 1970.
    size
        Bytes of the whole file.
    """

    path: str
    start: int
    length: int
    modified: int
    size: int

    @property
    def local(self) -> str:
        """The path for the operating system."""
        return self.path.removeprefix("file:")


@dataclass(frozen=True, slots=True)
class NativeLeaf:
    """What every task computes of its files; a function for ``DataFrame.mapInArrow``.

    Parameters
    ----------
    sql
        The query; ``{scan}`` stands for the rows of the files.
    read
        The columns that it reads, none if it only counts rows.
    columns
        What it gives.
    memory
        Bytes that DuckDB may use in a task before it spills.
    calendar
        Spark's ``datetimeRebaseModeInRead``, which holds for files that do not tell who has written them.
    tables
        Tables that the query joins, by name: each is a broadcast variable of a stream of Arrow's.
    rows_read
        Counts the rows of the files.
    """

    sql: str
    read: tuple[Column, ...]
    columns: tuple[Column, ...]
    memory: int
    calendar: str = "CORRECTED"
    tables: Mapping[str, Broadcast[bytes]] = field(default_factory=dict)
    rows_read: Accumulator[int] | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Compute the rows of the files that a task is told to read."""
        for batch in batches:
            for text in batch.column(0).to_pylist():
                yield from self.rows([FileRange(**one) for one in json.loads(text)])

    def rows(self, files: list[FileRange]) -> Iterator[pa.RecordBatch]:
        """Compute the rows of ranges of files."""
        import duckdb  # an executor may not have it: that is told of the whole application
        import pyarrow as pa

        schema = pa.schema([(one.name, _arrow_type(one)) for one in self.columns])
        scans = [scan for file in files if (scan := self._scan(file)) is not None]
        if not scans:
            scans = ["(SELECT " + self._names(empty=True) + " LIMIT 0)"]
        sql = self.sql.replace("{scan}", "(" + " UNION ALL ".join(scans) + ")")
        with tempfile.TemporaryDirectory(prefix="penstock-duckdb-") as spill:
            settings: dict[str, str | bool | int | float | list[str]] = {
                "threads": 1,  # a task has one core
                "memory_limit": f"{self.memory}B",
                "temp_directory": spill,
                "autoinstall_known_extensions": False,
            }
            try:
                with duckdb.connect(config=settings) as connection:
                    for name, table in self.tables.items():
                        rows = pa.ipc.open_stream(table.value).read_all()  # noqa: F841 - DuckDB finds it by its name
                        connection.execute(f"CREATE TEMP TABLE {name} AS SELECT * FROM rows")  # noqa: S608 - our names
                    for batch in connection.sql(sql).to_arrow_reader(_BATCH_ROWS):
                        columns = [
                            _digits(values.cast(kind)) if column.is_short_decimal else values.cast(kind)
                            for column, values, kind in zip(self.columns, batch.columns, schema.types, strict=True)
                        ]
                        yield pa.RecordBatch.from_arrays(columns, [one.name for one in self.columns])
            except (duckdb.Error, pa.ArrowInvalid) as error:
                raise NotNativeError(str(error)) from error

    def counting(self) -> NativeLeaf:
        """Return a leaf that counts the rows of this one."""
        counted = f"SELECT count(*) AS n FROM ({self.sql})"  # noqa: S608 - a query of our own
        return replace(self, sql=counted, columns=(Column("n", "bigint"),), rows_read=None)

    def _names(self, *, empty: bool = False) -> str:
        if not self.read:
            return "1 AS nothing"
        if empty:
            return ", ".join(f"CAST(NULL AS {one.type}) AS {_quoted(one.name)}" for one in self.read)
        return ", ".join(_quoted(one.name) for one in self.read)

    def _scan(self, file: FileRange) -> str | None:
        """Return the query for the rows of a range of a file, None if no row group belongs to it."""
        import pyarrow.parquet as pq

        if set("*?[") & set(file.local):
            raise NotNativeError(f"DuckDB would take the path {file.path} for a pattern")
        try:
            found = Path(file.local).stat()
        except OSError as error:
            raise NotNativeError(str(error)) from error
        if found.st_size != file.size or found.st_mtime_ns // 1_000_000 != file.modified:
            raise NotNativeError(f"{file.path} has changed since the query was planned")
        with pq.ParquetFile(file.local) as parquet:
            self._check(parquet, file.path)
            first, last = _rows(parquet.metadata, file)
            total = parquet.metadata.num_rows
        if first == last:
            return None
        if self.rows_read is not None:
            self.rows_read.add(last - first)
        path = "'" + file.local.replace("'", "''") + "'"
        if (first, last) == (0, total):
            return f"SELECT {self._names()} FROM read_parquet({path}, hive_partitioning = false)"  # noqa: S608 - quoted
        numbered = f"read_parquet({path}, hive_partitioning = false, file_row_number = true)"
        where = f"file_row_number >= {first} AND file_row_number < {last}"
        return f"SELECT {self._names()} FROM {numbered} WHERE {where}"  # noqa: S608 - quoted

    def _check(self, parquet: Any, path: str) -> None:
        """Raise if a file has columns that might be read otherwise than Spark reads them."""
        schema = parquet.schema_arrow
        for column in self.read:
            places = [one for one in schema.names if one.lower() == column.name.lower()]
            if places != [column.name]:
                raise NotNativeError(f"{path} has the columns {places} for {column.name}")
            there = str(schema.field(column.name).type)
            if ("string" if there in _TEXTS else there) != column.arrow:
                raise NotNativeError(f"{column.name} is {there} in {path}, and {column.type} in the table")
        types, known = {column.type.partition("(")[0] for column in self.read}, parquet.metadata.metadata or {}
        if "date" in types:
            version = known.get(_SPARK_VERSION)
            is_old = self.calendar != "CORRECTED" if version is None else version < b"3"
            if is_old or any(key in known for key in _LEGACY):
                raise NotNativeError(f"{path} may have dates of another calendar")
        if types & {"string", "decimal"} and not _WRITERS.match(parquet.metadata.created_by or ""):
            raise NotNativeError(f"{path} comes from {parquet.metadata.created_by or 'an unknown writer'}")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _arrow_type(column: Column) -> Any:
    import pyarrow as pa

    if column.type.startswith("decimal("):
        return pa.decimal128(*map(int, column.type[len("decimal(") : -1].split(",")))
    return pa.type_for_alias(column.arrow.removesuffix("[day]"))


def _digits(values: Any) -> Any:
    """Return short decimals as whole numbers of their last digit: Spark makes its own of them much faster."""
    import pyarrow as pa

    valid, digits = values.buffers()
    halves = memoryview(digits).cast("q")  # of 16 bytes each, the first eight tell all of a short one
    whole = pa.py_buffer(halves[: 2 * (values.offset + len(values)) : 2].tobytes())
    return pa.Array.from_buffers(pa.int64(), len(values), [valid, whole], offset=values.offset)


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group of a file: its first row, how many it has, and the byte that says whose task reads it."""

    first: int
    rows: int
    middle: int


def row_groups(metadata: Any, file: FileRange) -> list[RowGroup]:
    """Return the row groups whose middle lies in a range."""
    found, row = [], 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        head = group.column(0)
        start = head.data_page_offset
        if head.has_dictionary_page and head.dictionary_page_offset:
            start = min(start, head.dictionary_page_offset)
        size = sum(group.column(place).total_compressed_size for place in range(group.num_columns))
        middle = start + size // 2
        if file.start <= middle < file.start + file.length:
            found.append(RowGroup(row, group.num_rows, middle))
        row += group.num_rows
    return found


def _rows(metadata: Any, file: FileRange) -> tuple[int, int]:
    """Return the first row of the row groups whose middle lies in a range, and the first one after them."""
    groups = row_groups(metadata, file)
    if not groups:
        return 0, 0
    if any(one.first + one.rows != other.first for one, other in pairwise(groups)):
        raise NotNativeError(f"the row groups of {file.path} do not lie in their order")
    return groups[0].first, groups[-1].first + groups[-1].rows
