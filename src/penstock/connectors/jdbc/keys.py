"""Which keys of a finished join side a database may be asked for: those that it compares as Spark does.

A key that is compared in another way loses rows (bounds of texts in the order of a language, a float as a decimal
number), or fails the query (a text that is no ``uuid``). So no key of a type is handed over that its dialect does not
list.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.connectors.jdbc.dialect import KeyKind
from penstock.connectors.jdbc.source import dialect_of
from penstock.connectors.timeouts import timeout
from penstock.errors import first_line
from penstock.spark import filters
from penstock.spark.jdbc import JdbcRelation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.spark.expressions import Expression
    from penstock.spark.filters import KeySet
    from penstock.spark.jdbc import ColumnType
    from penstock.spark.logical_plan import LogicalPlan

log = logging.getLogger("penstock.sources")


_WHOLE = frozenset({"tinyint", "smallint", "int", "bigint", "decimal(20,0)"})


def kind_of(column: ColumnType, spark_type: str, listed: Mapping[str, KeyKind]) -> KeyKind | None:
    """Return how the values of a column may be compared, None if they may not.

    Parameters
    ----------
    column
        The column's type in the database.
    spark_type
        The type that Spark reads it as.
    listed
        The kinds of the types that are known, by their names in small letters.
    """
    kind = listed.get(column.name.lower())
    match kind:
        case KeyKind.WHOLE if spark_type in _WHOLE:
            return kind
        case KeyKind.DECIMAL if spark_type == f"decimal({column.precision},{column.scale})":
            return kind
        case KeyKind.TEXT if spark_type == "string":
            return kind
    return None


def is_plain(texts: str) -> bool:
    """Whether texts mean the same in every database's SQL, whatever its settings and encoding."""
    return texts.isascii() and "\\" not in texts and "\0" not in texts


def key_conditions(leaf: LogicalPlan, keys: KeySet, columns: Sequence[Expression]) -> tuple[list[Expression], str]:
    """Return conditions on the columns of a database's relation, true of the keys found, and why there are not more.

    Parameters
    ----------
    leaf
        The relation's leaf in Spark's plan.
    keys
        The keys.
    columns
        For each key its column.
    """
    relation = JdbcRelation(leaf)
    dialect = dialect_of(relation.url)
    if dialect is None or not dialect.comparable:
        return [], "how the database compares values is not known"
    try:
        types = relation.column_types(dialect.asking_waits(timeout()))
    except Exception as error:
        log.warning("the types of %s could not be read", relation.table, exc_info=True)
        return [], f"the types of {relation.table} could not be had: {first_line(error)}"
    found: list[Expression] = []
    problems: list[str] = []
    for place, column in enumerate(columns):
        known = types.get(column.name)
        kind = None if known is None else kind_of(known, column.type, dialect.comparable)
        if kind is None:
            of_type = "an unknown type" if known is None else f"type {known.name}"
            problems.append(f"the database may compare column {column.name} of {of_type} otherwise than Spark")
            continue
        one = keys.of_key(place)
        if kind is KeyKind.TEXT:
            if not one.exact or not is_plain(one.exact[0].text):
                problems.append(f"the database may read or order texts of column {column.name} otherwise")
                continue
            one = replace(one, bounds=())
        found += filters.for_sources(one, [column])
    return found, "; ".join(problems)
