"""What a statement that writes to a table of the catalogue comes to: which rows, by which rules, into which folder.

Spark analyses the statement, and so casts, orders and checks the rows as for a write of its own; it does not run it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from penstock.spark.dataframes import dataframe
from penstock.spark.jobs import active_session
from penstock.spark.jvm import class_name, items, option, with_fields
from penstock.spark.logical_plan import LogicalPlan
from penstock.spark.session_catalog import catalog_of, facts_of, manages_partitions, mark_of, put_table, quoted, texts
from penstock.spark.table_partitions import known_partitions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from penstock.spark.jvm import Bridge
    from penstock.spark.session_catalog import CatalogTable

_MAY_WRITE = re.compile(r"\b(insert|create)\b", re.IGNORECASE)
_EXECUTION_MODE = "org.apache.spark.sql.execution.CommandExecutionMode"
_OF_SPARK = ("path", "serialization.format")
"""Properties of a table that are no options of its files."""
_EVOLVES_SCHEMAS = (4, 2)
"""The first release of Spark with INSERT WITH SCHEMA EVOLUTION."""
_KEEPS_IDS_OF_FIELDS = (4, 3)
"""The first release of Spark in which ``removeInternalMetadata`` is asked whether it keeps the ids of columns."""


@dataclass(frozen=True)
class TableWrite:
    """A write into the folder of a table.

    Parameters
    ----------
    table
        The table.
    overwrites
        Whether what is there goes away.
    options
        The options of its files.
    rows
        The rows, in the shape that the table's files want.
    is_new
        Whether the table is made by the statement.
    external
        Whether the statement says where a new table lies.
    is_half_made
        Whether a job that makes such a table has not ended, and may be dead.
    properties
        The TBLPROPERTIES of a table that is there.
    """

    table: CatalogTable
    overwrites: bool
    options: dict[str, str]
    rows: DataFrame = field(repr=False, compare=False)
    is_new: bool = False
    external: bool = False
    is_half_made: bool = False
    properties: dict[str, str] = field(default_factory=dict)


def table_write(bridge: Bridge, statement: str, rows: DataFrame | None = None) -> TableWrite | None:
    """Return what a statement writes to a table of files.

    None of any other statement, which is not analysed: Spark runs scripts and what EXECUTE IMMEDIATE names while it
    analyses them. None also of writes that Spark does in a way of its own: into buckets, by Hive's serialisers, over
    some partitions that are named, to places that are not within the table's folder.

    Parameters
    ----------
    bridge, statement
        The session, and the statement.
    rows
        What is written instead of the statement's own query.
    """
    if _MAY_WRITE.search(statement) is None:
        return None
    with active_session(bridge.session):
        plan = _parsed(bridge, statement)
        if not _only_writes(bridge, plan):
            return None
        if rows is not None:
            plan = with_fields(bridge, plan, query=rows._jdf.queryExecution().analyzed())
        command = _analysed(bridge, plan)
        match class_name(command):
            case "InsertIntoHadoopFsRelationCommand":
                return _insert(bridge, command)
            case "CreateDataSourceTableAsSelectCommand":
                return _create(bridge, command)
    return None


def create_table(bridge: Bridge, statement: str, schema: str, location: str, mark: str, *, external: bool) -> None:
    """Put a table into the catalogue whose files are there already, as ``CREATE TABLE ... AS SELECT`` does at its end.

    Parameters
    ----------
    statement
        How a table of the same columns would be made of rows; none are read.
    schema
        The JSON of its columns.
    location, external
        Its folder, and whether the user has said where that is.
    mark
        By which it is known as made by this job, see `is_marked`.
    """
    with active_session(bridge.session):
        parsed = _parsed(bridge, statement)
        if class_name(parsed) != "CreateTableAsSelect":  # Spark runs some other statements while it analyses them
            raise ValueError(f"not a CREATE TABLE ... AS SELECT: {statement}")
        template = _analysed(bridge, parsed).table()
        columns = _as_spark_keeps(bridge, bridge.find("org.apache.spark.sql.types.DataType").fromJson(schema))
        put_table(bridge, template, columns, location, mark, external=external)


def statement_of(table: CatalogTable, options: dict[str, str], columns: Sequence[str]) -> str:
    """Return the statement that makes a table of files with such columns; `create_table` sets their types."""
    told = ", ".join(f"{_literal(key)} {_literal(value)}" for key, value in sorted(options.items()))
    by = ", ".join(map(quoted, table.partition_by))
    values = ", ".join(f"0 AS {quoted(name)}" for name in columns)
    parts = [f"CREATE TABLE {table.name} USING {table.format}"]
    parts += [f"OPTIONS ({told})"] if told else []
    parts += [f"PARTITIONED BY ({by})"] if by else []
    return " ".join([*parts, f"AS SELECT {values}"])


def _only_writes(bridge: Bridge, plan: Any) -> bool:
    """Whether a parsed plan is an INSERT or a CREATE TABLE AS that does nothing yet when it is analysed."""
    while class_name(plan) == "UnresolvedWith":
        plan = plan.child()
    match class_name(plan):
        case "InsertIntoStatement":  # with schema evolution, analysing adds columns to the table
            return bridge.version < _EVOLVES_SCHEMAS or not plan.withSchemaEvolution()
        case "CreateTableAsSelect":
            return True
    return False


def _insert(bridge: Bridge, command: Any) -> TableWrite | None:
    table = option(command.catalogTable())
    if table is None or command.bucketSpec().isDefined() or not command.staticPartitions().isEmpty():
        return None
    if command.ifPartitionNotExists():
        return None
    found = facts_of(bridge, table)
    if found.format != _format_of(command) or str(command.outputPath().toString()) != found.location:
        return None
    if found.tracked and known_partitions(bridge, found.name, found.location).elsewhere:
        return None
    rows = _rows(bridge, command)
    overwrites, properties = str(command.mode()) == "Overwrite", texts(table.properties())
    return TableWrite(found, overwrites, _options(command.options()), rows, properties=properties)


def _format_of(command: Any) -> str:
    """Return the short name of the files that Spark's command writes."""
    return str(command.fileFormat().toString()).lower()


def _create(bridge: Bridge, command: Any) -> TableWrite | None:
    table, catalog = command.table(), catalog_of(bridge)
    if catalog.tableExists(table.identifier()):
        there = catalog.getTableMetadata(table.identifier())
        found = facts_of(bridge, there)
        return TableWrite(found, False, {}, _rows(bridge, command), is_half_made=True) if mark_of(there) else None
    if table.bucketSpec().isDefined():
        return None
    if str(option(table.comment()) or "") or not table.properties().isEmpty():
        return None
    if table.collation().isDefined():
        return None
    external = table.storage().locationUri().isDefined()
    found = facts_of(bridge, table)
    found = replace(found, tracked=bool(found.partition_by) and manages_partitions(bridge))
    if not found.format:
        return None
    options, rows = _options(table.storage().properties()), _rows(bridge, command)
    return TableWrite(found, overwrites=False, options=options, rows=rows, is_new=True, external=external)


def _rows(bridge: Bridge, command: Any) -> DataFrame:
    names = [str(name) for name in items(command.outputColumnNames())]
    return dataframe(bridge.session, LogicalPlan(bridge, command.query())).toDF(*names)


def _as_spark_keeps(bridge: Bridge, columns: Any) -> Any:
    """Return the columns of rows as a table has them: CHAR and VARCHAR are texts with a note to Spark in a query."""
    utils = bridge.find("org.apache.spark.sql.catalyst.util.CharVarcharUtils")
    more = (False,) if bridge.version >= _KEEPS_IDS_OF_FIELDS else ()
    columns = bridge.find("org.apache.spark.sql.catalyst.util.package").removeInternalMetadata(columns, *more)
    return utils.getRawSchema(columns, bridge.session._handle.sessionState().conf())


def _options(properties: Any) -> dict[str, str]:
    return {key: value for key, value in texts(properties).items() if key.lower() not in _OF_SPARK}


def _parsed(bridge: Bridge, statement: str) -> Any:
    return bridge.session._handle.sessionState().sqlParser().parsePlan(statement)


def _analysed(bridge: Bridge, plan: Any) -> Any:
    """Return the analysed plan of a command, which is not run."""
    skip = bridge.companion(_EXECUTION_MODE).SKIP()
    return bridge.session._handle.sessionState().executePlan(plan, skip).analyzed()


def _literal(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
