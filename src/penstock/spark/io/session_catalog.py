"""Tables of Spark's own catalog (``spark_catalog``): lookup, creation over existing files, and removal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.errors import SinkError
from penstock.spark.bridge.jvm import Bridge, items, option, with_fields
from penstock.spark.bridge.settings import is_true
from penstock.spark.io.filesystem import HadoopPath
from penstock.spark.run.jobs import active_session

SESSION_CATALOG = "spark_catalog"
FORMATS = ("parquet", "orc", "csv", "json", "text")
"""Table formats whose files Spark writes itself."""
_MARK = "penstock.commit"
"""The table property with which a job marks a table that it creates, until the commit of the job has ended."""


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A table of Spark's own catalog."""

    name: str
    """The full quoted name, which is valid even if another catalog is current."""
    location: str
    format: str
    """The short name of the file format; empty for views, bucketed tables, and files that Spark does not write."""
    partition_by: tuple[str, ...]
    tracks_partitions: bool
    """Whether the catalog stores the table's partitions, so that new partitions must be registered."""
    created: int = 0
    """Creation time in milliseconds since 1970; 0 for a table that does not exist yet."""


def quoted_name(bridge: Bridge, name: str) -> str:
    """Return a full quoted name; raise `ParseException` for an invalid name, or `SinkError` as `identifier_of` does."""
    return quoted_identifier(identifier_of(bridge, name))


def find_table(bridge: Bridge, name: str) -> CatalogTable | None:
    """Return a table of the session catalog, None if it does not exist."""
    catalog, identifier = catalog_of(bridge), identifier_of(bridge, name)
    return describe_table(bridge, catalog.getTableMetadata(identifier)) if catalog.tableExists(identifier) else None


def options_of(bridge: Bridge, name: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the OPTIONS and the TBLPROPERTIES of a table of the session catalog; empty if it does not exist."""
    catalog, identifier = catalog_of(bridge), identifier_of(bridge, name)
    if not catalog.tableExists(identifier):
        return {}, {}
    table = catalog.getTableMetadata(identifier)
    return string_map(table.storage().properties()), string_map(table.properties())


def string_map(properties: Any) -> dict[str, str]:
    """Convert a Scala map of strings to a dictionary."""
    return {str(pair._1()): str(pair._2()) for pair in items(properties.toSeq())}


def default_location(bridge: Bridge, name: str) -> str:
    """Return the default folder of a new table."""
    return str(catalog_of(bridge).defaultTablePath(identifier_of(bridge, name)).toString())


def manages_partitions(bridge: Bridge) -> bool:
    """Whether the catalog stores the partitions of tables (``spark.sql.hive.manageFilesourcePartitions``)."""
    return bool(bridge.session._handle.sessionState().conf().manageFilesourcePartitions())


def register_table(bridge: Bridge, template: Any, columns: Any, location: str, mark: str, *, is_external: bool) -> None:
    """Register a table whose files exist in a folder, with the other properties of `template` (``CatalogTable``).

    `mark` is the value of the table property `_MARK`. `is_external` says whether the user has set the folder.
    """
    uri = bridge.find("org.apache.hadoop.fs.Path")(location).toUri()
    types = bridge.companion("org.apache.spark.sql.catalyst.catalog.CatalogTableType")
    tracks_partitions = manages_partitions(bridge) and not template.partitionColumnNames().isEmpty()
    table = with_fields(
        bridge,
        template,
        storage=with_fields(bridge, template.storage(), locationUri=bridge.some(uri)),
        schema=columns,
        tableType=types.EXTERNAL() if is_external else types.MANAGED(),
        tracksPartitionsInCatalog=tracks_partitions,
        properties=template.properties().updated(_MARK, mark),
    )
    catalog_of(bridge).createTable(table, False, False)  # fails if it exists; accepts a folder with files


def persistent_catalog_id(bridge: Bridge) -> str:
    """Return an id of the session's catalog if its tables outlive the driver; empty for an in-memory catalog."""
    # The id is not the address of the metastore: a metastore may have several addresses, and they may change.
    return "hive" if bridge.spark.conf.get("spark.sql.catalogImplementation", "in-memory") == "hive" else ""


def mark_of(table: Any) -> str:
    """Return the mark of a Spark ``CatalogTable``, see `_MARK`; empty if the table has no mark."""
    return str(option(table.properties().get(_MARK)) or "")


def is_marked(bridge: Bridge, name: str, mark: str) -> bool:
    """Whether a table of that name exists and has this mark: its commit has not ended."""
    catalog, identifier = catalog_of(bridge), identifier_of(bridge, name)
    return bool(catalog.tableExists(identifier)) and mark_of(catalog.getTableMetadata(identifier)) == mark


def unmark_table(bridge: Bridge, name: str, mark: str) -> None:
    """Remove the mark of a table; a missing table, or a table with a different mark, is unchanged."""
    if is_marked(bridge, name, mark):
        catalog = catalog_of(bridge)
        table = catalog.getTableRawMetadata(identifier_of(bridge, name))  # retains CHAR and VARCHAR
        catalog.alterTable(with_fields(bridge, table, properties=table.properties().removed(_MARK)))


def drop_table(bridge: Bridge, name: str) -> None:
    """Drop a table, with its files unless it is external; a missing table is ignored."""
    catalog_of(bridge).dropTable(identifier_of(bridge, name), True, False)  # ignoreIfNotExists, purge


def update_statistics(bridge: Bridge, name: str) -> None:
    """Remove the catalog's statistics of a table, or update them if automatic updates are on."""
    catalog, identifier = catalog_of(bridge), identifier_of(bridge, name)
    utils = bridge.companion("org.apache.spark.sql.execution.command.CommandUtils")
    with active_session(bridge.session):
        utils.updateTableStats(bridge.session, catalog.getTableMetadata(identifier))


def describe_table(bridge: Bridge, table: Any) -> CatalogTable:
    """Return the properties of a Spark ``CatalogTable``."""
    catalog = catalog_of(bridge)
    identifier = catalog.qualifyIdentifier(table.identifier())
    location = option(table.storage().locationUri())
    if location is None:
        location = catalog.defaultTablePath(identifier)
    provider = str(option(table.provider()) or "").lower()
    if provider == "hive":
        provider = _format_of_hive_table(bridge, table)
    partition_by = tuple(str(name) for name in items(table.partitionColumnNames()))
    is_file_table = provider in FORMATS and str(table.tableType().name()) != "VIEW"
    file_format = provider if is_file_table and not table.bucketSpec().isDefined() else ""
    # `manages_partitions` also applies to Hive's tables: if it is False, the catalog does not store their partitions.
    tracks_partitions = bool(partition_by) and bool(table.tracksPartitionsInCatalog()) and manages_partitions(bridge)
    folder = str(HadoopPath(bridge, str(bridge.find("org.apache.hadoop.fs.Path")(location).toString())))
    name, created = quoted_identifier(identifier), int(table.createTime())
    return CatalogTable(name, folder, file_format, partition_by, tracks_partitions, created)


def _format_of_hive_table(bridge: Bridge, table: Any) -> str:
    """Return the format in which Spark itself writes a Hive table, empty if a SerDe of Hive writes it."""
    serializer, conf = str(option(table.storage().serde()) or "").lower(), bridge.spark.conf
    partitioning = "Unpartitioned" if table.partitionColumnNames().isEmpty() else "Partitioned"
    for name in ("parquet", "orc"):
        if name in serializer:
            keys = (f"convertMetastore{name.capitalize()}", f"convertInserting{partitioning}Table")
            return name if all(is_true(conf.get(f"spark.sql.hive.{key}", "true")) for key in keys) else ""
    return ""


def catalog_of(bridge: Bridge) -> Any:
    """Return Spark's ``SessionCatalog``, even if another catalog is current."""
    return bridge.session._handle.sessionState().catalog()


def identifier_of(bridge: Bridge, name: str) -> Any:
    """Return the ``TableIdentifier`` of a name; raise `SinkError` if it cannot be a table of Spark's own catalog."""
    session_state = bridge.session._handle.sessionState()
    parts = [str(part) for part in items(session_state.sqlParser().parseMultipartIdentifier(name))]
    catalogs = session_state.catalogManager()
    catalog = str(catalogs.currentCatalog().name())
    if len(parts) > 1 and catalogs.isCatalogRegistered(parts[0]):
        catalog, *parts = parts
    if catalog.lower() != SESSION_CATALOG or len(parts) > 2:
        raise SinkError(
            f"table {name} cannot be written by TableSink",
            cause=f"the name refers to {'.'.join([catalog, *parts])}, which is not a table in a database of "
            f"Spark's own catalog {SESSION_CATALOG}",
            hint=f"name it {SESSION_CATALOG}.DATABASE.TABLE, or write it with a sink for its catalog or with Spark",
        )
    database = bridge.some(parts[0]) if len(parts) > 1 else bridge.none
    identifier = bridge.find("org.apache.spark.sql.catalyst.TableIdentifier")(parts[-1], database)
    return session_state.catalog().qualifyIdentifier(identifier)


def quoted_identifier(identifier: Any) -> str:
    """Return the full quoted name of a ``TableIdentifier``."""
    parts = (SESSION_CATALOG, str(option(identifier.database())), str(identifier.table()))
    return ".".join(map(quoted, parts))


def quoted(name: str) -> str:
    """Return a part of a name in backticks."""
    return "`" + name.replace("`", "``") + "`"
