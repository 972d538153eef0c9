"""Statements that write to a catalog table: their rows and target, and the registration of new tables.

Spark analyzes the statement without running it, and so casts, orders and checks the rows as for its own writes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from penstock.spark.bridge.jvm import Bridge, class_name, items, option, with_fields
from penstock.spark.io.session_catalog import (
    catalog_of,
    describe_table,
    manages_partitions,
    mark_of,
    quoted,
    register_table,
    string_map,
)
from penstock.spark.io.table_partitions import registered_partitions
from penstock.spark.plans.dataframes import dataframe
from penstock.spark.plans.logical_plan import LogicalPlan
from penstock.spark.run.jobs import active_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.spark.io.session_catalog import CatalogTable

_WRITE_KEYWORDS = re.compile(r"\b(insert|create)\b", re.IGNORECASE)
_NOT_FILE_OPTIONS = ("path", "serialization.format")
"""Storage properties of a table that are not options of its files."""


@dataclass(frozen=True)
class TableWrite:
    """A write to the folder of a table."""

    table: CatalogTable
    overwrites: bool
    """Whether existing rows are replaced."""
    options: dict[str, str]
    """The options of the files: those of the statement and the table's OPTIONS."""
    rows: DataFrame = field(repr=False, compare=False)
    """The rows, with the columns of the table's files."""
    is_new: bool = False
    is_external: bool = False
    """Whether the statement creates the table, and whether it sets the location of the new table."""
    is_unfinished: bool = False
    """Whether another job has begun to create the table and has not committed; that job may have failed."""
    properties: dict[str, str] = field(default_factory=dict)
    """The TBLPROPERTIES of an existing table."""


def table_write(bridge: Bridge, statement: str, rows: DataFrame | None = None) -> TableWrite | None:
    """Return the write to a file table that a statement requests; `rows` replace the rows of the statement's query.

    Return None for other statements, which are not even analyzed: Spark runs scripts and EXECUTE IMMEDIATE during
    analysis. Also return None for writes that only Spark supports, such as with buckets, with Hive's SerDes, to static
    partitions, to tables with partitions outside their folder, and to new tables with properties or comments.
    """
    if _WRITE_KEYWORDS.search(statement) is None:
        return None
    with active_session(bridge.session):
        plan = _parsed(bridge, statement)
        if not _only_writes(bridge, plan):
            return None
        if rows is not None:
            plan = with_fields(bridge, plan, query=rows._jdf.queryExecution().analyzed())
        command = _analyzed(bridge, plan)
        match class_name(command):
            case "InsertIntoHadoopFsRelationCommand":
                return _insert(bridge, command)
            case "CreateDataSourceTableAsSelectCommand":
                return _create(bridge, command)
    return None


def create_table(bridge: Bridge, statement: str, schema: str, location: str, mark: str, *, external: bool) -> None:
    """Register a table whose files exist, the last step of ``CREATE TABLE ... AS SELECT``; see `register_table`.

    `statement` is a statement of this kind with the same column names; its query does not run. `schema` is JSON.
    """
    with active_session(bridge.session):
        parsed = _parsed(bridge, statement)
        if class_name(parsed) != "CreateTableAsSelect":  # Spark runs some other statements during analysis
            raise ValueError(f"not a CREATE TABLE ... AS SELECT: {statement}")
        template = _analyzed(bridge, parsed).table()
        columns = bridge.find("org.apache.spark.sql.types.DataType").fromJson(schema)
        # The schema of a query represents CHAR and VARCHAR as strings with metadata; restore these types.
        keep_ids = (False,) if bridge.version >= (4, 3) else ()
        columns = bridge.find("org.apache.spark.sql.catalyst.util.package").removeInternalMetadata(columns, *keep_ids)
        utils = bridge.find("org.apache.spark.sql.catalyst.util.CharVarcharUtils")
        columns = utils.getRawSchema(columns, bridge.session._handle.sessionState().conf())
        register_table(bridge, template, columns, location, mark, is_external=external)


def statement_of(table: CatalogTable, options: dict[str, str], columns: Sequence[str]) -> str:
    """Return a statement that creates a file table with columns of these names; `create_table` sets their types."""
    option_list = ", ".join(f"{_literal(key)} {_literal(value)}" for key, value in sorted(options.items()))
    by = ", ".join(map(quoted, table.partition_by))
    values = ", ".join(f"0 AS {quoted(name)}" for name in columns)
    parts = [f"CREATE TABLE {table.name} USING {table.format}"]
    parts += [f"OPTIONS ({option_list})"] if option_list else []
    parts += [f"PARTITIONED BY ({by})"] if by else []
    return " ".join([*parts, f"AS SELECT {values}"])


def _only_writes(bridge: Bridge, plan: Any) -> bool:
    """Whether a parsed plan is an INSERT or CREATE TABLE AS whose analysis has no side effects."""
    while class_name(plan) == "UnresolvedWith":
        plan = plan.child()
    match class_name(plan):
        case "InsertIntoStatement":  # with schema evolution (since Spark 4.2), the analysis adds columns to the table
            return bridge.version < (4, 2) or not plan.withSchemaEvolution()
        case "CreateTableAsSelect":
            return True
    return False


def _insert(bridge: Bridge, command: Any) -> TableWrite | None:
    table = option(command.catalogTable())
    if table is None or command.bucketSpec().isDefined() or not command.staticPartitions().isEmpty():
        return None
    if command.ifPartitionNotExists():
        return None
    target = describe_table(bridge, table)
    file_format = str(command.fileFormat().toString()).lower()
    if target.format != file_format or str(command.outputPath().toString()) != target.location:
        return None
    if target.tracks_partitions and registered_partitions(bridge, target.name, target.location).elsewhere:
        return None
    rows = _rows(bridge, command)
    overwrites, properties = str(command.mode()) == "Overwrite", string_map(table.properties())
    return TableWrite(target, overwrites, _options(command.options()), rows, properties=properties)


def _create(bridge: Bridge, command: Any) -> TableWrite | None:
    table, catalog = command.table(), catalog_of(bridge)
    if catalog.tableExists(table.identifier()):
        existing = catalog.getTableMetadata(table.identifier())
        target = describe_table(bridge, existing)
        return TableWrite(target, False, {}, _rows(bridge, command), is_unfinished=True) if mark_of(existing) else None
    has_properties = not table.properties().isEmpty() or table.collation().isDefined()
    if has_properties or str(option(table.comment()) or "") or table.bucketSpec().isDefined():
        return None  # `statement_of` cannot recreate such a table
    is_external = table.storage().locationUri().isDefined()
    target = describe_table(bridge, table)
    target = replace(target, tracks_partitions=bool(target.partition_by) and manages_partitions(bridge))
    if not target.format:
        return None
    options, rows = _options(table.storage().properties()), _rows(bridge, command)
    return TableWrite(target, overwrites=False, options=options, rows=rows, is_new=True, is_external=is_external)


def _rows(bridge: Bridge, command: Any) -> DataFrame:
    names = [str(name) for name in items(command.outputColumnNames())]
    return dataframe(bridge.session, LogicalPlan(bridge, command.query())).toDF(*names)


def _options(properties: Any) -> dict[str, str]:
    return {key: value for key, value in string_map(properties).items() if key.lower() not in _NOT_FILE_OPTIONS}


def _parsed(bridge: Bridge, statement: str) -> Any:
    return bridge.session._handle.sessionState().sqlParser().parsePlan(statement)


def _analyzed(bridge: Bridge, plan: Any) -> Any:
    skip = bridge.companion("org.apache.spark.sql.execution.CommandExecutionMode").SKIP()
    return bridge.session._handle.sessionState().executePlan(plan, skip).analyzed()


def _literal(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
