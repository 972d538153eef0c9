"""What a statement that writes to a table of the catalogue comes to: which rows, by which rules, into which folder.

Spark analyses the statement, and so casts, orders and checks the rows as for a write of its own; it does not run it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from penstock.spark.dataframes import dataframe
from penstock.spark.jvm import class_name, items, option, with_fields
from penstock.spark.logical_plan import LogicalPlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField, StructType

    from penstock.spark.jvm import Bridge

_MAY_WRITE = re.compile(r"\b(insert|create)\b", re.IGNORECASE)
_EXECUTION_MODE = "org.apache.spark.sql.execution.CommandExecutionMode"
_FORMATS = ("parquet", "orc", "csv", "json", "text")
_OF_SPARK = ("path", "serialization.format")
"""Properties of a table that are no options of its files."""


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A table of Spark's own catalogue.

    Parameters
    ----------
    name
        Its whole name, quoted.
    location
        Its folder.
    format
        The short name of its files' format, empty if it is no table of files that Spark writes itself.
    partition_by
        Its partition columns.
    tracked
        Whether the catalogue has to be told of new partitions.
    """

    name: str
    location: str
    format: str
    partition_by: tuple[str, ...]
    tracked: bool


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
    """

    table: CatalogTable
    overwrites: bool
    options: dict[str, str]
    rows: DataFrame = field(repr=False, compare=False)
    is_new: bool = False
    external: bool = False


def quoted_name(bridge: Bridge, name: str) -> str:
    """Return the whole name of a table of the session's catalogue, quoted.

    Raises
    ------
    ParseException
        If it is no name of a table.
    """
    return _quoted_identifier(_qualified(bridge, name))


def find_table(bridge: Bridge, name: str) -> CatalogTable | None:
    """Return a table of the session's catalogue, None if there is none of that name."""
    catalog, identifier = _catalog(bridge), _qualified(bridge, name)
    return _facts(bridge, catalog.getTableMetadata(identifier)) if catalog.tableExists(identifier) else None


def default_location(bridge: Bridge, name: str) -> str:
    """Return where a new table comes to lie."""
    return str(_catalog(bridge).defaultTablePath(_qualified(bridge, name)).toString())


def table_write(bridge: Bridge, statement: str, rows: DataFrame | None = None) -> TableWrite | None:
    """Return what a statement writes to a table of files.

    None of any other statement, and of writes that Spark does in a way of its own: into buckets, by Hive's serialisers,
    over some partitions that are named, to a place that is not the table's folder.

    Parameters
    ----------
    bridge, statement
        The session, and the statement.
    rows
        What is written instead of the statement's own query.
    """
    if _MAY_WRITE.search(statement) is None:
        return None
    plan = _parsed(bridge, statement)
    if rows is not None:
        plan = with_fields(bridge, plan, query=rows._jdf.queryExecution().analyzed())
    command = _analysed(bridge, plan)
    match class_name(command):
        case "InsertIntoHadoopFsRelationCommand":
            return _insert(bridge, command)
        case "CreateDataSourceTableAsSelectCommand":
            return _create(bridge, command)
    return None


def create_table(bridge: Bridge, statement: str, schema: StructType, location: str, *, external: bool) -> None:
    """Put a table into the catalogue whose files are there already, as ``CREATE TABLE ... AS SELECT`` does at its end.

    Parameters
    ----------
    statement
        How a table of the same columns would be made of rows; none are read.
    schema, location, external
        Its columns, its folder, and whether the user has said where that is.
    """
    table = _analysed(bridge, _parsed(bridge, statement)).table()
    uri = bridge.find("org.apache.hadoop.fs.Path")(location).toUri()
    storage = with_fields(bridge, table.storage(), locationUri=bridge.some(uri))
    columns = bridge.find("org.apache.spark.sql.types.DataType").fromJson(schema.json())
    types = bridge.companion("org.apache.spark.sql.catalyst.catalog.CatalogTableType")
    kind = types.EXTERNAL() if external else types.MANAGED()
    tracks = not table.partitionColumnNames().isEmpty()
    made = with_fields(bridge, table, storage=storage, schema=columns, tableType=kind, tracksPartitionsInCatalog=tracks)
    _catalog(bridge).createTable(made, False, False)


def drop_table(bridge: Bridge, name: str) -> None:
    """Remove a table from the catalogue, with its files if it is not external; one that is not there is fine."""
    _catalog(bridge).dropTable(_qualified(bridge, name), True, False)


def update_statistics(bridge: Bridge, name: str) -> None:
    """Let the catalogue forget the sizes that it knew of a table, or measure them anew if that is switched on."""
    catalog, identifier = _catalog(bridge), _qualified(bridge, name)
    utils = bridge.companion("org.apache.spark.sql.execution.command.CommandUtils")
    utils.updateTableStats(bridge.session, catalog.getTableMetadata(identifier))


def statement_of(table: CatalogTable, options: dict[str, str], schema: StructType) -> str:
    """Return the statement that makes a table of files of such columns; `create_table` sets their very types."""
    told = ", ".join(f"{_literal(key)} {_literal(value)}" for key, value in sorted(options.items()))
    by = ", ".join(_quoted(name) for name in table.partition_by)
    columns = ", ".join(f"{_null_of(field)} AS {_quoted(field.name)}" for field in schema)
    parts = [f"CREATE TABLE {table.name} USING {table.format}"]
    parts += [f"OPTIONS ({told})"] if told else []
    parts += [f"PARTITIONED BY ({by})"] if by else []
    return " ".join([*parts, f"AS SELECT {columns}"])


def _null_of(field: StructField) -> str:
    """Return a null of a column's type; of types with names in them, which SQL may not parse, a number in its place."""
    kind = field.dataType.simpleString()
    return "0" if "<" in kind else f"CAST(NULL AS {kind})"


def _insert(bridge: Bridge, command: Any) -> TableWrite | None:
    table = option(command.catalogTable())
    if table is None or command.bucketSpec().isDefined() or not command.staticPartitions().isEmpty():
        return None
    if command.ifPartitionNotExists():
        return None
    found = _facts(bridge, table)
    if not found.format or str(command.outputPath().toString()) != found.location:
        return None
    if found.tracked and not _lie_within(bridge, table, found.location):
        return None
    rows = _rows(bridge, command)
    return TableWrite(found, str(command.mode()) == "Overwrite", _options(command.options()), rows)


def _create(bridge: Bridge, command: Any) -> TableWrite | None:
    table = command.table()
    if table.bucketSpec().isDefined() or _catalog(bridge).tableExists(table.identifier()):
        return None
    if str(option(table.comment()) or "") or not table.properties().isEmpty():
        return None
    external = table.storage().locationUri().isDefined()
    found = _facts(bridge, table)
    found = replace(found, tracked=bool(found.partition_by))
    if not found.format:
        return None
    options, rows = _options(table.storage().properties()), _rows(bridge, command)
    return TableWrite(found, overwrites=False, options=options, rows=rows, is_new=True, external=external)


def _rows(bridge: Bridge, command: Any) -> DataFrame:
    names = [str(name) for name in items(command.outputColumnNames())]
    return dataframe(bridge.session, LogicalPlan(bridge, command.query())).toDF(*names)


def _facts(bridge: Bridge, table: Any) -> CatalogTable:
    catalog = _catalog(bridge)
    identifier = catalog.qualifyIdentifier(table.identifier())
    location = option(table.storage().locationUri())
    if location is None:
        location = catalog.defaultTablePath(identifier)
    path = bridge.find("org.apache.hadoop.fs.Path")(location)
    path = path.getFileSystem(bridge.session._handle.sessionState().newHadoopConf()).makeQualified(path)
    provider = str(option(table.provider()) or "").lower()
    of_files = provider in _FORMATS and not table.bucketSpec().isDefined() and str(table.tableType().name()) != "VIEW"
    return CatalogTable(
        _quoted_identifier(identifier),
        str(path.toString()),
        provider if of_files else "",
        tuple(str(name) for name in items(table.partitionColumnNames())),
        bool(table.tracksPartitionsInCatalog()),
    )


def _lie_within(bridge: Bridge, table: Any, location: str) -> bool:
    """Whether all partitions of a table lie where their values say."""
    for one in items(_catalog(bridge).listPartitions(table.identifier(), bridge.none)):
        where = option(one.storage().locationUri())
        place = "" if where is None else str(bridge.find("org.apache.hadoop.fs.Path")(where).toString())
        if not place.startswith(location if place else ""):
            return False
    return True


def _options(properties: Any) -> dict[str, str]:
    told = {str(pair._1()): str(pair._2()) for pair in items(properties.toSeq())}
    return {key: value for key, value in told.items() if key.lower() not in _OF_SPARK}


def _parsed(bridge: Bridge, statement: str) -> Any:
    return bridge.session._handle.sessionState().sqlParser().parsePlan(statement)


def _analysed(bridge: Bridge, plan: Any) -> Any:
    """Return the analysed plan of a command, which is not run."""
    skip = bridge.companion(_EXECUTION_MODE).SKIP()
    return bridge.session._handle.sessionState().executePlan(plan, skip).analyzed()


def _catalog(bridge: Bridge) -> Any:
    return bridge.session._handle.sessionState().catalog()


def _qualified(bridge: Bridge, name: str) -> Any:
    state = bridge.session._handle.sessionState()
    return state.catalog().qualifyIdentifier(state.sqlParser().parseTableIdentifier(name))


def _quoted_identifier(identifier: Any) -> str:
    """Return database and table, as the session's own catalogue parses them: it takes no name of a catalogue."""
    return f"{_quoted(str(option(identifier.database())))}.{_quoted(str(identifier.table()))}"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _literal(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
