"""Push-down of the keys of a finished join side to a database, for types that the database compares like Spark.

Different comparison rules would lose rows (bounds of strings in the order of a language, a float as a decimal number)
or fail the query (a string that is not a valid ``uuid``). So only keys of types that the dialect lists are pushed down.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.connectors.core.timeouts import timeout
from penstock.connectors.jdbc.dialect import KeyType
from penstock.connectors.jdbc.source import dialect_of
from penstock.errors import first_line
from penstock.spark.io.jdbc import JdbcRelation
from penstock.spark.run import filters

if TYPE_CHECKING:
    from penstock.spark.io.jdbc import ColumnType
    from penstock.spark.plans.expressions import Expression
    from penstock.spark.plans.logical_plan import LogicalPlan
    from penstock.spark.run.filters import KeySet

log = logging.getLogger("penstock.sources")

_WHOLE_TYPES = frozenset({"tinyint", "smallint", "int", "bigint", "decimal(20,0)"})
"""Spark's types of whole numbers in databases; the last is that of unsigned 64-bit numbers."""


def key_type_of(column: ColumnType, spark_type: str, types_by_name: Mapping[str, KeyType]) -> KeyType | None:
    """Return the key type of a column; None if the database must not compare the column with keys.

    `types_by_name` are the key types of the database's types, by their names in lower case.
    """
    key_type = types_by_name.get(column.name.lower())
    matches = {
        KeyType.WHOLE: spark_type in _WHOLE_TYPES,
        KeyType.DECIMAL: spark_type == f"decimal({column.precision},{column.scale})",
        KeyType.TEXT: spark_type == "string",
    }
    return key_type if key_type is not None and matches[key_type] else None


def is_portable(text: str) -> bool:
    """Whether SQL literals with the characters of `text` mean the same in all databases, settings and encodings."""
    return text.isascii() and "\\" not in text and "\0" not in text


def key_conditions(leaf: LogicalPlan, keys: KeySet, columns: Sequence[Expression]) -> tuple[list[Expression], str]:
    """Return conditions that all rows with the keys meet, and why some keys are not pushed down (empty if all are).

    `leaf` is the leaf of the database's relation in Spark's plan, and `columns` are the columns of the keys.
    """
    relation = JdbcRelation(leaf)
    dialect = dialect_of(relation.url)
    if dialect is None or not dialect.comparable_types:
        return [], "it is unknown how the database compares values"
    try:
        types = relation.column_types(dialect.query_timeouts(timeout()))
    except Exception as error:
        log.warning("the types of %s could not be read", relation.table, exc_info=True)
        return [], f"the types of {relation.table} could not be read: {first_line(error)}"
    conditions: list[Expression] = []
    problems: list[str] = []
    for index, column in enumerate(columns):
        column_type = types.get(column.name)
        key_type = None if column_type is None else key_type_of(column_type, column.type, dialect.comparable_types)
        if key_type is None:
            type_text = "an unknown type" if column_type is None else f"type {column_type.name}"
            problems.append(f"the database may compare column {column.name} of {type_text} differently from Spark")
            continue
        key = keys.of_key(index)
        if key_type is KeyType.TEXT:
            if not key.values or not is_portable(key.values[0].text):
                problems.append(f"the database may read or order strings of column {column.name} differently")
                continue
            key = replace(key, bounds=())  # the database may order strings differently
        conditions += filters.source_conditions(key, [column])
    return conditions, "; ".join(problems)
