"""JDBC: connections of the driver, what a scan asks its database for, and scans cut as was decided."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from penstock.spark.compiled import new_instance
from penstock.spark.jobs import cluster_cores
from penstock.spark.jvm import EXECUTION, PYTHON_UTILS, children, class_name, items, lowered, option, with_fields
from penstock.spark.logical_plan import LogicalPlan
from penstock.spark.planning import spark_plan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame

    from penstock.spark.jvm import Bridge
    from penstock.spark.plans import LogicalNode

_JDBC = EXECUTION + "datasources.jdbc."
_DIALECTS = "org.apache.spark.sql.jdbc.JdbcDialects"


@dataclass(frozen=True, slots=True)
class JdbcRequest:
    """What a scan asks its database for.

    Parameters
    ----------
    columns
        The columns it reads.
    conditions
        The filters that go with it, in the database's SQL.
    """

    columns: tuple[str, ...]
    conditions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ColumnType:
    """The type of a column in its database.

    Parameters
    ----------
    name
        The type's name, as the driver tells it.
    precision, scale
        Of numbers.
    """

    name: str
    precision: int = 0
    scale: int = 0


class JdbcRelation:
    """The relation behind ``spark.read.jdbc``.

    Parameters
    ----------
    leaf
        The leaf of a plan; see `is_jdbc_relation`.
    """

    def __init__(self, leaf: LogicalPlan) -> None:
        self._bridge = leaf._bridge
        self._leaf = leaf._handle
        self._options = self._leaf.relation().jdbcOptions()
        self._dialect = self._bridge.companion(_DIALECTS).get(self._options.url())

    @property
    def url(self) -> str:
        """The database's URL; it may hold a password."""
        return str(self._options.url())

    @property
    def table(self) -> str:
        """A table's name, or a query in parentheses with an alias."""
        return str(self._options.tableOrQuery())

    @property
    def parts(self) -> int:
        """How many tasks read it as the user left it."""
        return len(self._leaf.relation().parts())

    def quoted(self, column: str) -> str:
        """Return a column's name as its database wants it."""
        return str(self._dialect.quoteIdentifier(column))

    @property
    def options(self) -> dict[str, str]:
        """The options the reader was given, by their names in small letters."""
        return lowered(self._options.parameters())

    def connect(self, properties: Mapping[str, str]) -> JdbcConnection:
        """Open a connection of the driver, as Spark's tasks do.

        Parameters
        ----------
        properties
            Of the driver; what the user gave wins.
        """
        options = self._bridge.find(_JDBC + "JDBCOptions")(self._with_properties(properties))
        return JdbcConnection(self._dialect.createConnectionFactory(options).apply(-1))

    def _with_properties(self, properties: Mapping[str, str]) -> Any:
        given, known, url = self._options.parameters().originalMap(), self.options, self.url.lower()
        for key, value in properties.items():
            if key.lower() not in known and f"{key.lower()}=" not in url:
                given = _with(given, key, value)
        return given

    def column_types(self, properties: Mapping[str, str]) -> dict[str, ColumnType]:
        """Return the types of the columns in the database, by their names; no rows are read. See `connect`."""
        with self.connect(properties) as database:
            return database.column_types(str(self._dialect.getSchemaQuery(self.table)))

    @property
    def _condition(self) -> str | None:
        """What the user has said that is true of all rows (``spark.read.jdbc`` with one predicate)."""
        own = self._leaf.relation().parts()
        condition = own[0].whereClause() if len(own) == 1 else None
        return None if condition is None else str(condition)

    def request(self, scan: LogicalPlan) -> JdbcRequest:
        """Return what a plan of the relation with filters above it asks the database for."""
        own = () if self._condition is None else (self._condition,)
        todo = [spark_plan(self._bridge.session, scan)]
        while todo:
            plan = todo.pop()
            if class_name(plan) == "RowDataSourceScanExec":
                columns = tuple(str(name) for name in plan.requiredSchema().fieldNames())
                found = items(plan.handledFilters().toSeq())
                compiled = [option(self._dialect.compileExpression(one.toV2())) for one in found]
                return JdbcRequest(columns, own + tuple(str(one) for one in compiled if one is not None))
            todo += children(plan)
        return JdbcRequest(tuple(str(name) for name in self._leaf.schema().fieldNames()), own)

    def cut(
        self, conditions: Sequence[str | None], begin: str | None, fetch_size: int, properties: Mapping[str, str]
    ) -> LogicalPlan:
        """Return the leaf as one that is read by a task for each condition.

        Parameters
        ----------
        conditions
            What is true of a task's rows, in the database's SQL; None for all rows. A condition of the user's own is
            added to each.
        begin
            A statement to begin every task's transaction with, before the user's own ``sessionInitStatement``.
        fetch_size
            Rows to fetch at a time where the user gave no number.
        properties
            Of the driver; what the user gave wins.
        """
        own, partition = self._condition, self._bridge.find(_JDBC + "JDBCPartition")
        wanted = [f"({own}) AND ({one})" if own and one else own or one for one in conditions]
        parts = self._bridge.new_array("org.apache.spark.Partition", [partition(w, i) for i, w in enumerate(wanted)])
        given, options = self._with_properties(properties), self.options
        if begin is not None:
            statements = "; ".join(filter(None, (begin, options.get("sessioninitstatement"))))
            given = _with(given, "sessionInitStatement", statements)
        if options.get("fetchsize", "0") == "0":
            given = _with(given, "fetchsize", str(fetch_size))
        old, made = self._leaf.relation(), self._bridge.find(_JDBC + "JDBCOptions")(given)
        relation = with_fields(self._bridge, old, old.sparkSession(), parts=parts, jdbcOptions=made)
        return LogicalPlan(self._bridge, with_fields(self._bridge, self._leaf, relation=relation))


class JdbcTarget:
    """A table to write, by Spark's JDBC writer: every attempt of a task in a transaction of its own.

    Parameters
    ----------
    bridge
        The session.
    options
        Options of the writer, ``url`` and ``dbtable`` among them.
    """

    def __init__(self, bridge: Bridge, options: Mapping[str, str]) -> None:
        self._bridge = bridge
        # Without transactions (isolationLevel=NONE) a failed attempt would leave some of its rows for ever.
        self._given = {
            key: value
            for key, value in options.items()
            if (key.lower(), str(value).upper()) != ("isolationlevel", "NONE")
        }
        scala_map = bridge.find(PYTHON_UTILS).toScalaMap(self._given)
        self._options = bridge.find(_JDBC + "JDBCOptions")(scala_map)
        self._dialect = bridge.companion(_DIALECTS).get(options["url"])

    def quoted(self, column: str) -> str:
        """Return a column's name as its database wants it."""
        return str(self._dialect.quoteIdentifier(column))

    def connect(self) -> JdbcConnection:
        """Open a connection of the driver, as Spark's tasks do."""
        return JdbcConnection(self._dialect.createConnectionFactory(self._options).apply(-1))

    def columns(self, rows: DataFrame) -> str:
        """Return the columns of a DataFrame as a CREATE TABLE wants them (``JdbcUtils.schemaString``)."""
        types = option(self._options.createTableColumnTypes())
        wanted = self._bridge.none if types is None else self._bridge.some(types)
        utils = self._bridge.companion(_JDBC + "JdbcUtils")
        return str(utils.schemaString(self._dialect, rows._jdf.schema(), False, wanted))

    def append(self, table: str, rows: DataFrame, marks: tuple[str, str], connections: int | None) -> None:
        """Write rows, each with the number of its task and of the attempt that writes it.

        Parameters
        ----------
        marks
            The names of the columns for the two.
        connections
            The most tasks at a time, None for any number.
        """
        from pyspark.sql import functions as F

        options = self._given | {"dbtable": table}
        if connections is not None and connections < cluster_cores(self._bridge):
            options["numPartitions"] = str(connections)
        task, attempt = marks
        marked = rows.withColumn(task, F.spark_partition_id()).withColumn(attempt, self._attempt())
        marked.write.format("jdbc").options(**options).mode("append").save()

    def _attempt(self) -> Column:
        """Return the attempt of the task that makes a row (``TaskContext.taskAttemptId``)."""
        from pyspark.sql.classic.column import Column

        bridge, by_name = self._bridge, self._bridge.find("java.lang.Class").forName
        # By its name and its types: py4j would choose the method that takes any object, and Spark refuses that.
        types = by_name("org.apache.spark.sql.api.java.UDF0"), by_name("org.apache.spark.sql.types.DataType")
        udf = by_name("org.apache.spark.sql.functions").getMethod("udf", bridge.new_array("java.lang.Class", types))
        given = new_instance(bridge, "TaskAttempt"), bridge.find("org.apache.spark.sql.types.DataTypes").LongType
        function = udf.invoke(None, bridge.new_array("java.lang.Object", given))
        return Column(function.asNondeterministic().apply(bridge.new_array("org.apache.spark.sql.Column", [])))

    def refresh(self, table: str) -> None:
        """Let cached readers of a table see what was written, as Spark does after a write of its own."""
        bridge = self._bridge
        rows = bridge.spark.read.format("jdbc").options(**self._given | {"dbtable": table}).load()
        manager = bridge.session._handle.sharedState().cacheManager()
        manager.recacheByPlan(bridge.session, rows._jdf.queryExecution().analyzed())


class JdbcConnection:
    """A connection of the driver. Values come as text, which every database can give."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def rows(self, statement: str, *values: str) -> list[tuple[str | None, ...]]:
        """Run a query and return its rows."""
        prepared = self._handle.prepareStatement(statement)
        try:
            for place, value in enumerate(values, 1):
                prepared.setString(place, value)
            found = prepared.executeQuery()
            width = found.getMetaData().getColumnCount()
            rows = []
            while found.next():
                rows.append(tuple(found.getString(place) for place in range(1, width + 1)))
            return rows
        finally:
            prepared.close()

    def column_types(self, statement: str) -> dict[str, ColumnType]:
        """Return the types of a query's columns, by their names."""
        prepared = self._handle.prepareStatement(statement)
        try:
            told = prepared.executeQuery().getMetaData()
            return {
                str(told.getColumnLabel(place)): ColumnType(
                    str(told.getColumnTypeName(place)), int(told.getPrecision(place)), int(told.getScale(place))
                )
                for place in range(1, told.getColumnCount() + 1)
            }
        finally:
            prepared.close()

    def unique_keys(self, table: str) -> list[set[str]]:
        """Return the columns, in small letters, of each unique index of a table in any schema of the database.

        Indexes of some of the rows are left out.
        """
        found = self._handle.getMetaData().getIndexInfo(self._handle.getCatalog(), None, table, True, True)
        keys: dict[tuple[str, str], set[str]] = {}
        try:
            while found.next():
                is_whole = not found.getBoolean("NON_UNIQUE") and found.getString("FILTER_CONDITION") is None
                if is_whole and found.getString("COLUMN_NAME") is not None:
                    index = str(found.getString("TABLE_SCHEM")), str(found.getString("INDEX_NAME"))
                    keys.setdefault(index, set()).add(str(found.getString("COLUMN_NAME")).lower())
            return list(keys.values())
        finally:
            found.close()

    def run(self, statement: str, *values: str) -> int:
        """Run a statement that gives no rows; return how many rows it touched."""
        if not values:
            plain = self._handle.createStatement()
            try:
                return int(plain.executeUpdate(statement))
            finally:
                plain.close()
        prepared = self._handle.prepareStatement(statement)
        try:
            for place, value in enumerate(values, 1):
                prepared.setString(place, value)
            return int(prepared.executeUpdate())
        finally:
            prepared.close()

    def begin(self) -> None:
        """Begin a transaction that lasts until the connection is committed or closed."""
        self._handle.setAutoCommit(False)

    def commit(self) -> None:
        """Make what the transaction did visible."""
        self._handle.commit()

    def close(self) -> None:
        """Close the connection; a transaction that is not committed is undone, by the database if it is gone."""
        with suppress(Exception):
            if not self._handle.getAutoCommit():
                self._handle.rollback()
            self._handle.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def is_jdbc_relation(leaf: LogicalNode) -> bool:
    """Whether a leaf reads a database through Spark's JDBC source."""
    return leaf.name == "LogicalRelation" and class_name(leaf._handle.relation()) == "JDBCRelation"


def _with(options: Any, key: str, value: str) -> Any:
    """Return a Scala map of options with one of them set; their case does not matter."""
    for known in items(options.keys().toSeq()):
        if str(known).lower() == key.lower():
            options = options.removed(known)
    return options.updated(key, value)
