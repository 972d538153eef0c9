"""Tables of Spark's own catalogue (``spark_catalog``): found, made of files that are there, and removed.

Uses (Spark 4.0 to 4.3): ``SessionCatalog``, ``CatalogManager``, ``CatalogTable``, ``CommandUtils.updateTableStats``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import SinkError
from penstock.spark.filesystem import Folder
from penstock.spark.jobs import active_session
from penstock.spark.jvm import items, option, with_fields
from penstock.spark.settings import is_true

if TYPE_CHECKING:
    from penstock.spark.jvm import Bridge

SESSION_CATALOG = "spark_catalog"
FORMATS = ("parquet", "orc", "csv", "json", "text")
"""Formats of tables whose files Spark writes itself."""
_MARK = "penstock.commit"
"""The property by which a table is known as one that a job has made, until its commit has ended."""
_COMMANDS = "org.apache.spark.sql.execution.command."


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A table of Spark's own catalogue.

    Parameters
    ----------
    name
        Its whole name, quoted, as statements name it whatever the current catalogue is.
    location
        Its folder.
    format
        The short name of its files' format, empty if it is no table of files that Spark writes itself.
    partition_by
        Its partition columns.
    tracked
        Whether the catalogue has to be told of new partitions.
    created
        When it was made, in milliseconds; 0 of one that is not there yet.
    """

    name: str
    location: str
    format: str
    partition_by: tuple[str, ...]
    tracked: bool
    created: int = 0


def quoted_name(bridge: Bridge, name: str) -> str:
    """Return the whole name of a table, quoted.

    Raises
    ------
    ParseException
        If it is no name of a table.
    SinkError
        If Spark would look for it in another catalogue than its own.
    """
    return quoted_identifier(identifier_of(bridge, name))


def find_table(bridge: Bridge, name: str) -> CatalogTable | None:
    """Return a table of the session's catalogue, None if there is none of that name."""
    catalog, identifier = catalog_of(bridge), identifier_of(bridge, name)
    return facts_of(bridge, catalog.getTableMetadata(identifier)) if catalog.tableExists(identifier) else None


def options_of(bridge: Bridge, name: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the OPTIONS and the TBLPROPERTIES of a table of the session's catalogue; none if it is not there."""
    catalog, identifier = catalog_of(bridge), identifier_of(bridge, name)
    if not catalog.tableExists(identifier):
        return {}, {}
    table = catalog.getTableMetadata(identifier)
    return texts(table.storage().properties()), texts(table.properties())


def texts(properties: Any) -> dict[str, str]:
    """Return a map of Scala as a dictionary."""
    return {str(pair._1()): str(pair._2()) for pair in items(properties.toSeq())}


def default_location(bridge: Bridge, name: str) -> str:
    """Return where a new table comes to lie."""
    return str(catalog_of(bridge).defaultTablePath(identifier_of(bridge, name)).toString())


def manages_partitions(bridge: Bridge) -> bool:
    """Whether the catalogue knows the partitions of tables (``spark.sql.hive.manageFilesourcePartitions``)."""
    return bool(bridge.session._handle.sessionState().conf().manageFilesourcePartitions())


def put_table(bridge: Bridge, template: Any, columns: Any, location: str, mark: str, *, external: bool) -> None:
    """Put a table into the catalogue whose files are there already.

    Parameters
    ----------
    template
        A ``CatalogTable`` of Spark with all else that the table has.
    columns
        Its columns (``StructType``).
    location, external
        Its folder, and whether the user has said where that is.
    mark
        By which `is_marked` knows it.
    """
    uri = bridge.find("org.apache.hadoop.fs.Path")(location).toUri()
    types = bridge.companion("org.apache.spark.sql.catalyst.catalog.CatalogTableType")
    tracks = manages_partitions(bridge) and not template.partitionColumnNames().isEmpty()
    made = with_fields(
        bridge,
        template,
        storage=with_fields(bridge, template.storage(), locationUri=bridge.some(uri)),
        schema=columns,
        tableType=types.EXTERNAL() if external else types.MANAGED(),
        tracksPartitionsInCatalog=tracks,
        properties=template.properties().updated(_MARK, mark),
    )
    catalog_of(bridge).createTable(made, False, False)


def lasting_catalog(bridge: Bridge) -> str:
    """Return by which a catalogue that outlives its driver is known; an empty text for one that does not."""
    # Not by its address: the same metastore has several, and may move.
    if bridge.spark.conf.get("spark.sql.catalogImplementation", "in-memory") != "hive":
        return ""
    return "hive"


def mark_of(table: Any) -> str:
    """Return the mark of a ``CatalogTable`` of Spark; an empty text of one whose commit has ended."""
    return str(option(table.properties().get(_MARK)) or "")


def is_marked(bridge: Bridge, name: str, mark: str) -> bool:
    """Whether there is a table of that name which was made with this mark, and still has it."""
    catalog, identifier = catalog_of(bridge), identifier_of(bridge, name)
    if not catalog.tableExists(identifier):
        return False
    return mark_of(catalog.getTableMetadata(identifier)) == mark


def unmark_table(bridge: Bridge, name: str, mark: str) -> None:
    """Remove the mark of a table; one that is not there, or is another's, stays as it is."""
    if is_marked(bridge, name, mark):
        catalog = catalog_of(bridge)
        table = catalog.getTableRawMetadata(identifier_of(bridge, name))  # with CHAR and VARCHAR, as it was put there
        catalog.alterTable(with_fields(bridge, table, properties=table.properties().removed(_MARK)))


def drop_table(bridge: Bridge, name: str) -> None:
    """Remove a table from the catalogue, with its files if it is not external; one that is not there is fine."""
    catalog_of(bridge).dropTable(identifier_of(bridge, name), True, False)


def update_statistics(bridge: Bridge, name: str) -> None:
    """Let the catalogue forget the sizes that it knew of a table, or measure them anew if that is switched on."""
    catalog, identifier = catalog_of(bridge), identifier_of(bridge, name)
    utils = bridge.companion(_COMMANDS + "CommandUtils")
    with active_session(bridge.session):
        utils.updateTableStats(bridge.session, catalog.getTableMetadata(identifier))


def facts_of(bridge: Bridge, table: Any) -> CatalogTable:
    """Return what is known of a ``CatalogTable`` of Spark."""
    catalog = catalog_of(bridge)
    identifier = catalog.qualifyIdentifier(table.identifier())
    location = option(table.storage().locationUri())
    if location is None:
        location = catalog.defaultTablePath(identifier)
    provider = str(option(table.provider()) or "").lower()
    if provider == "hive":
        provider = _format_of_hive(bridge, table)
    by = tuple(str(name) for name in items(table.partitionColumnNames()))
    of_files = provider in FORMATS and not table.bucketSpec().isDefined() and str(table.tableType().name()) != "VIEW"
    return CatalogTable(
        quoted_identifier(identifier),
        str(Folder(bridge, str(bridge.find("org.apache.hadoop.fs.Path")(location).toString()))),
        provider if of_files else "",
        by,
        bool(by) and bool(table.tracksPartitionsInCatalog()) and manages_partitions(bridge),  # Hive's track none, too
        int(table.createTime()),
    )


def _format_of_hive(bridge: Bridge, table: Any) -> str:
    """Return the format in which Spark writes a table of Hive's itself, empty if Hive's serialisers write it."""
    serializer, conf = str(option(table.storage().serde()) or "").lower(), bridge.spark.conf
    which = "Unpartitioned" if table.partitionColumnNames().isEmpty() else "Partitioned"
    for name in ("parquet", "orc"):
        if name in serializer:
            keys = (f"convertMetastore{name.capitalize()}", f"convertInserting{which}Table")
            return name if all(is_true(conf.get(f"spark.sql.hive.{key}", "true")) for key in keys) else ""
    return ""


def catalog_of(bridge: Bridge) -> Any:
    """Return Spark's ``SessionCatalog``: it takes names of database and table, whatever the current catalogue is."""
    return bridge.session._handle.sessionState().catalog()


def identifier_of(bridge: Bridge, name: str) -> Any:
    """Return the ``TableIdentifier`` that Spark would take a name for.

    Raises
    ------
    SinkError
        If the name leads into another catalogue.
    """
    state = bridge.session._handle.sessionState()
    parts = [str(part) for part in items(state.sqlParser().parseMultipartIdentifier(name))]
    catalogs = state.catalogManager()
    catalog = str(catalogs.currentCatalog().name())
    if len(parts) > 1 and catalogs.isCatalogRegistered(parts[0]):
        catalog, *parts = parts
    if catalog.lower() != SESSION_CATALOG or len(parts) > 2:
        raise SinkError(
            f"table {name} cannot be written by TableSink",
            cause=f"the name leads to {'.'.join([catalog, *parts])}, which is no table of a database of Spark's own "
            f"catalogue {SESSION_CATALOG}",
            hint=f"name it as {SESSION_CATALOG}.DATABASE.TABLE, or write it with a sink of its own or with Spark",
        )
    database = bridge.some(parts[0]) if len(parts) > 1 else bridge.none
    made = bridge.find("org.apache.spark.sql.catalyst.TableIdentifier")(parts[-1], database)
    return state.catalog().qualifyIdentifier(made)


def quoted_identifier(identifier: Any) -> str:
    """Return the whole name that a ``TableIdentifier`` has, quoted."""
    parts = (SESSION_CATALOG, str(option(identifier.database())), str(identifier.table()))
    return ".".join(map(quoted, parts))


def quoted(name: str) -> str:
    """Return one part of a name, quoted."""
    return "`" + name.replace("`", "``") + "`"
