"""Push-down of the keys of a finished join side to a database, for types that it compares like Spark.

Other comparison rules would lose rows (bounds of strings in the order of a language, a float as a decimal number), or
fail the query (a string that is not a valid ``uuid``). So only keys of types that the dialect lists are pushed down.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.connectors.core.timeouts import timeout
from penstock.connectors.jdbc.dialect import KeyKind
from penstock.connectors.jdbc.source import dialect_of
from penstock.errors import first_line
from penstock.spark.io.jdbc import JdbcRelation
from penstock.spark.run import filters

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.spark.io.jdbc import ColumnType
    from penstock.spark.plans.expressions import Expression
    from penstock.spark.plans.logical_plan import LogicalPlan
    from penstock.spark.run.filters import KeySet

log = logging.getLogger("penstock.sources")


_WHOLE = frozenset({"tinyint", "smallint", "int", "bigint", "decimal(20,0)"})


def kind_of(column: ColumnType, spark_type: str, listed: Mapping[str, KeyKind]) -> KeyKind | None:
    """Return the comparison rules of a column, None if it must not be compared in the database.

    `listed` has the comparison rules of types, by their names in lower case.
    """
    kind = listed.get(column.name.lower())
    is_same_type = {
        KeyKind.WHOLE: spark_type in _WHOLE,
        KeyKind.DECIMAL: spark_type == f"decimal({column.precision},{column.scale})",
        KeyKind.TEXT: spark_type == "string",
    }
    return kind if kind is not None and is_same_type[kind] else None


def is_plain(text: str) -> bool:
    """Return whether a string literal means the same in every database, whatever its settings and encoding."""
    return text.isascii() and "\\" not in text and "\0" not in text


def key_conditions(leaf: LogicalPlan, keys: KeySet, columns: Sequence[Expression]) -> tuple[list[Expression], str]:
    """Return conditions that keep the rows with the keys, and why some keys are not pushed down (empty if all are).

    `leaf` is the leaf of the database's relation in Spark's plan, and `columns` has the column of each key.
    """
    relation = JdbcRelation(leaf)
    dialect = dialect_of(relation.url)
    if dialect is None or not dialect.comparable:
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
        kind = None if column_type is None else kind_of(column_type, column.type, dialect.comparable)
        if kind is None:
            of_type = "an unknown type" if column_type is None else f"type {column_type.name}"
            problems.append(f"the database may compare column {column.name} of {of_type} differently from Spark")
            continue
        key = keys.of_key(index)
        if kind is KeyKind.TEXT:
            if not key.exact or not is_plain(key.exact[0].text):
                problems.append(f"the database may read or order strings of column {column.name} differently")
                continue
            key = replace(key, bounds=())
        conditions += filters.source_conditions(key, [column])
    return conditions, "; ".join(problems)
