"""Rows that replace those of a table with the same key: checked, found in its files, and merged with what stays.

A table format changes whole files. So the files that hold a row with one of the keys are written anew: their other
rows, and all new rows.
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

_NEVER = ("map", "array", "struct", "variant", "void", "interval", "geometry", "geography")
"""Types that no key is of: they are not compared, or not as the table's other programs compare them."""
_BOUNDED = ("byte", "short", "integer", "long", "string", "date", "decimal")
"""Types whose bounds leave files out."""
_FILE = "penstock_file"
_SCHEME = re.compile("^[A-Za-z][A-Za-z0-9+.-]*:/*|^/+")


@dataclass(frozen=True, slots=True)
class Key:
    """The columns that tell rows apart.

    Parameters
    ----------
    columns
        Their names, as the table has them.
    where
        The table, for messages.
    """

    columns: tuple[str, ...]
    where: str

    @classmethod
    def of(cls, given: Sequence[str], table: StructType, where: str, *, case_sensitive: bool) -> Key:
        """Return the key that a user has given.

        Raises
        ------
        SinkError
            If the table has no such column, or rows cannot be told apart by it.
        """
        from pyspark.sql.types import NullType, StructField, StructType

        wanted = StructType([StructField(name, NullType()) for name in given])
        names = TableColumns(table.fieldNames(), where, case_sensitive).of(wanted)
        for name in names:
            kind = table[name].dataType
            if kind.typeName().startswith(_NEVER) or " collate" in kind.simpleString():
                raise SinkError(
                    f"column {name} of {where} cannot be part of a key",
                    cause=f"it is of type {kind.simpleString()}",
                    hint="give columns of numbers, texts or times",
                )
        return cls(tuple(names), where)

    def check(self, rows: DataFrame) -> tuple[Predicate, ...] | None:
        """Look at new rows; return what is true of their keys, by which files are left out, None if there are no rows.

        Raises
        ------
        SinkError
            If a key is null, or two rows have the same: which of them is to stay nobody could tell.
        """
        from pyspark.sql import functions as F

        columns = [rows[quoted(name)] for name in self.columns]
        asked = [F.count(F.lit(1)), F.max(reduce(or_, [one.isNull() for one in columns]))]
        bounded = [name for name in self.columns if rows.schema[name].dataType.typeName() in _BOUNDED]
        for name in bounded:
            asked += [F.min(quoted(name)), F.max(quoted(name))]
        count, has_null, *bounds = tuple(rows.agg(*[one.alias(f"v{n}") for n, one in enumerate(asked)]).collect()[0])
        if has_null:
            raise SinkError(
                f"a row for {self.where} has no key",
                cause=f"a column of the key ({', '.join(self.columns)}) is null, and null is equal to nothing",
                hint="leave such rows out, or fill the column",
            )
        keys = [one.alias(f"k{place}") for place, one in enumerate(columns)]
        again = rows.groupBy(*keys).agg(F.count(F.lit(1)).alias("rows")).where("rows > 1").limit(1).collect()
        if again:
            *values, number = tuple(again[0])
            told = ", ".join(f"{name}={value!r}" for name, value in zip(self.columns, values, strict=True))
            raise SinkError(
                f"{number} rows for {self.where} have the key {told}",
                cause="only one row of a key can be in the table, and which of them is not known",
                hint="keep one row of each key, as df.dropDuplicates does, or an aggregate or window by the key",
            )
        if not count:
            return None
        pairs = zip(bounded, bounds[::2], bounds[1::2], strict=True)
        return tuple(
            Predicate(*one) for name, low, high in pairs for one in ((">=", name, (low,)), ("<=", name, (high,)))
        )

    def files_with(self, table: DataFrame, rows: DataFrame) -> set[str]:
        """Return the files of a table that have a row with one of the keys, as `plain_path` spells them."""
        from pyspark.sql import functions as F

        columns = [table[quoted(name)].alias(name) for name in self.columns]
        found = table.select(*columns, F.col("_metadata.file_path").alias(_FILE))
        files = self._joined(found, rows, "left_semi").select(_FILE).distinct().collect()
        return {plain_path(unquote(row[0])) for row in files}

    def merged(self, table: DataFrame, rows: DataFrame) -> DataFrame:
        """Return the rows of a table that no key replaces, and the new ones."""
        return self._joined(table, rows, "left_anti").union(rows.select([rows[quoted(one)] for one in table.columns]))

    def _joined(self, table: DataFrame, rows: DataFrame, how: str) -> DataFrame:
        keys = rows.select([rows[quoted(name)].alias(f"k{place}") for place, name in enumerate(self.columns)])
        pairs: list[Column] = [table[quoted(name)] == keys[f"k{place}"] for place, name in enumerate(self.columns)]
        return table.join(keys, reduce(and_, pairs), how)


def plain_path(path: str) -> str:
    """Return a path without its scheme: ``file:/t`` and ``file:///t`` are one place."""
    return _SCHEME.sub("", path)


def check_key_is_given(mode: str, key: str | Sequence[str]) -> None:
    """Refuse an upsert without a key, and a key without an upsert.

    Raises
    ------
    SinkError
        If one is given without the other.
    """
    if (mode == "upsert") != bool(key):
        raise SinkError(f"mode {mode!r} with key {tuple(key)}", hint="mode upsert needs a key; other modes take none")


def balanced(df: DataFrame, partition_by: Sequence[str]) -> DataFrame:
    """Return rows in partitions from which Spark makes files of a good size, and few for each of the table's."""
    from pyspark.sql import functions as F

    columns: list[Any] = [F.col(quoted(name)) for name in partition_by]
    return df.hint("rebalance", *columns)
