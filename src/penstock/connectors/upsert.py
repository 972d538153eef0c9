"""Upserts into tables of files: checks of the key, search for affected files, and merge of old and new rows.

Table formats replace whole files (copy on write). So every file that contains any of the keys is rewritten.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from penstock.connectors.predicates import Predicate
from penstock.connectors.table_schema import TableColumns, quoted
from penstock.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

_UNSUPPORTED = ("map", "array", "struct", "variant", "void", "interval", "geometry", "geography")
"""Types that cannot be keys: they have no equality, or not the same in all programs that use the table."""
_BOUNDED = ("byte", "short", "integer", "long", "string", "date", "decimal")
"""Types whose bounds are used to skip files."""
_FILE = "penstock_file"
_SCHEME = re.compile("^[A-Za-z][A-Za-z0-9+.-]*:/*|^/+")


@dataclass(frozen=True, slots=True)
class Key:
    """The key columns of a table.

    Parameters
    ----------
    columns
        Their names, in the spelling of the table.
    where
        The table, for messages.
    """

    columns: tuple[str, ...]
    where: str

    @classmethod
    def of(cls, columns: Sequence[str], table: StructType, where: str, *, case_sensitive: bool) -> Key:
        """Validate a user's key columns, and return the key.

        Raises
        ------
        SinkError
            If the table lacks a column, or its type cannot be a key.
        """
        from pyspark.sql.types import NullType, StructField, StructType

        key = StructType([StructField(name, NullType()) for name in columns])
        names = TableColumns(table.fieldNames(), where, case_sensitive).of(key)
        for name in names:
            kind = table[name].dataType
            if kind.typeName().startswith(_UNSUPPORTED) or " collate" in kind.simpleString():
                raise SinkError(
                    f"column {name} of {where} cannot be part of a key",
                    cause=f"it is of type {kind.simpleString()}",
                    hint="give columns of numbers, texts or times",
                )
        return cls(tuple(names), where)

    def check(self, rows: DataFrame) -> tuple[Predicate, ...] | None:
        """Check new rows, and return predicates on their keys for skipping files; None if there are no rows.

        Raises
        ------
        SinkError
            If a key is null, or two rows have the same key, so that it is undefined which of them replaces the old row.
        """
        from pyspark.sql import functions as F

        columns = [rows[quoted(name)] for name in self.columns]
        aggregates = [F.count(F.lit(1)), F.max(reduce(or_, [column.isNull() for column in columns]))]
        bounded = [name for name in self.columns if rows.schema[name].dataType.typeName() in _BOUNDED]
        for name in bounded:
            aggregates += [F.min(quoted(name)), F.max(quoted(name))]
        named = [aggregate.alias(f"v{n}") for n, aggregate in enumerate(aggregates)]
        count, has_null, *bounds = tuple(rows.agg(*named).collect()[0])
        if has_null:
            raise SinkError(
                f"a row for {self.where} has no key",
                cause=f"a column of the key ({', '.join(self.columns)}) is null, and null is equal to nothing",
                hint="leave such rows out, or fill the column",
            )
        keys = [column.alias(f"k{index}") for index, column in enumerate(columns)]
        duplicates = rows.groupBy(*keys).agg(F.count(F.lit(1)).alias("rows")).where("rows > 1").limit(1).collect()
        if duplicates:
            *values, number = tuple(duplicates[0])
            key = ", ".join(f"{name}={value!r}" for name, value in zip(self.columns, values, strict=True))
            raise SinkError(
                f"{number} rows for {self.where} have the key {key}",
                cause="only one row of a key can be in the table, and which of them is undefined",
                hint="keep a single row of each key, as df.dropDuplicates does, or an aggregate or window by the key",
            )
        if not count:
            return None
        ranges = zip(bounded, bounds[::2], bounds[1::2], strict=True)
        return tuple(
            Predicate(operator, name, (bound,))
            for name, low, high in ranges
            for operator, bound in ((">=", low), ("<=", high))
        )

    def files_with(self, table: DataFrame, rows: DataFrame) -> set[str]:
        """Return the files of a table that contain any of the keys, normalized by `plain_path`."""
        from pyspark.sql import functions as F

        columns = [table[quoted(name)].alias(name) for name in self.columns]
        keys = table.select(*columns, F.col("_metadata.file_path").alias(_FILE))
        files = self._joined(keys, rows, "left_semi").select(_FILE).distinct().collect()
        return {plain_path(unquote(row[0])) for row in files}

    def merged(self, table: DataFrame, rows: DataFrame) -> DataFrame:
        """Return the table's rows that are not replaced, and the new rows."""
        return self._joined(table, rows, "left_anti").union(rows.select([rows[quoted(name)] for name in table.columns]))

    def _joined(self, table: DataFrame, rows: DataFrame, how: str) -> DataFrame:
        keys = rows.select([rows[quoted(name)].alias(f"k{index}") for index, name in enumerate(self.columns)])
        pairs: list[Column] = [table[quoted(name)] == keys[f"k{index}"] for index, name in enumerate(self.columns)]
        return table.join(keys, reduce(and_, pairs), how)


def plain_path(path: str) -> str:
    """Return a path without its scheme, so that ``file:/t`` equals ``file:///t``."""
    return _SCHEME.sub("", path)


def check_key_matches_mode(mode: str, key: str | Sequence[str]) -> None:
    """Reject an upsert without a key, and a key in another mode.

    Raises
    ------
    SinkError
        If the mode and the key do not match.
    """
    if (mode == "upsert") != bool(key):
        raise SinkError(f"mode {mode!r} with key {tuple(key)}", hint="mode upsert needs a key; other modes take none")


def balanced(df: DataFrame, partition_by: Sequence[str]) -> DataFrame:
    """Return rows repartitioned so that Spark writes few files of a good size for each partition of the table."""
    from pyspark.sql import functions as F

    columns: list[Any] = [F.col(quoted(name)) for name in partition_by]
    return df.hint("rebalance", *columns)
