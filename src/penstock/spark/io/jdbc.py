"""JDBC: connections from the driver, scans and their division by predicates, and writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from pyspark.sql import functions as F

from penstock.spark.bridge.java_classes import new_instance
from penstock.spark.bridge.jvm import EXECUTION, PYTHON_UTILS, class_name, items, lowercase_keys, option, with_fields
from penstock.spark.plans.logical_plan import LogicalPlan
from penstock.spark.plans.planning import scan_of
from penstock.spark.run.jobs import cluster_cores

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from penstock.spark.bridge.jvm import Bridge
    from penstock.spark.plans.nodes import LogicalNode

_JDBC = EXECUTION + "datasources.jdbc."
_DIALECTS = "org.apache.spark.sql.jdbc.JdbcDialects"


@dataclass(frozen=True, slots=True)
class JdbcRequest:
    """The columns that a scan reads, and its pushed-down filters in the database's SQL."""

    columns: tuple[str, ...]
    conditions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ColumnType:
    """The type of a column as the JDBC driver reports it; precision and scale apply to numbers."""

    name: str
    precision: int = 0
    scale: int = 0


class JdbcRelation:
    """The relation of a ``spark.read.jdbc`` leaf, see `is_jdbc_relation`."""

    def __init__(self, leaf: LogicalPlan) -> None:
        self._bridge = leaf._bridge
        self._leaf = leaf._handle
        self._options = self._leaf.relation().jdbcOptions()
        self._dialect = self._bridge.companion(_DIALECTS).get(self._options.url())

    @property
    def url(self) -> str:
        """The database's URL, which may contain a password."""
        return str(self._options.url())

    @property
    def table(self) -> str:
        """The name of a table, or a query in parentheses with an alias."""
        return str(self._options.tableOrQuery())

    @property
    def user_tasks(self) -> int:
        """The number of tasks that read the relation with the user's options."""
        return len(self._leaf.relation().parts())

    def quoted(self, column: str) -> str:
        """Return a column's name, quoted for its database."""
        return str(self._dialect.quoteIdentifier(column))

    @property
    def options(self) -> dict[str, str]:
        """The reader's options, with lower-case keys."""
        return lowercase_keys(self._options.parameters())

    def connect(self, properties: Mapping[str, str]) -> JdbcConnection:
        """Open a connection in Spark's driver; the user's options override `properties`, those of the JDBC driver."""
        options = self._bridge.find(_JDBC + "JDBCOptions")(self._with_properties(properties))
        return JdbcConnection(self._dialect.createConnectionFactory(options).apply(-1))  # -1: no partition

    def _with_properties(self, properties: Mapping[str, str]) -> Any:
        """Return the user's options, and those JDBC driver `properties` that neither an option nor the URL sets."""
        options, user_keys, url = self._options.parameters().originalMap(), self.options, self.url.lower()
        for key, value in properties.items():
            if key.lower() not in user_keys and f"{key.lower()}=" not in url:
                options = _with_option(options, key, value)
        return options

    def column_types(self, properties: Mapping[str, str]) -> dict[str, ColumnType]:
        """Return the database types of the columns, by column name; `properties` as for `connect`."""
        with self.connect(properties) as database:
            return database.column_types(str(self._dialect.getSchemaQuery(self.table)))

    @property
    def _condition(self) -> str | None:
        """The user's predicate for all rows (``spark.read.jdbc`` with a single predicate), None if there is none."""
        parts = self._leaf.relation().parts()
        condition = parts[0].whereClause() if len(parts) == 1 else None
        return None if condition is None else str(condition)

    def request(self, scan: LogicalPlan) -> JdbcRequest:
        """Return the columns and pushed-down filters of a scan, which is the relation with filters above it."""
        plan = scan_of(self._bridge.session, scan, "RowDataSourceScanExec")
        columns = (self._leaf.schema() if plan is None else plan.requiredSchema()).fieldNames()
        filters = [] if plan is None else items(plan.handledFilters().toSeq())
        compiled = [option(self._dialect.compileExpression(condition.toV2())) for condition in filters]
        conditions = (str(condition) for condition in (self._condition, *compiled) if condition is not None)
        return JdbcRequest(tuple(map(str, columns)), tuple(conditions))

    def split(
        self, conditions: Sequence[str | None], begin: str | None, fetch_size: int, properties: Mapping[str, str]
    ) -> LogicalPlan:
        """Return the relation, read by a task for each condition.

        `conditions` has the predicate of each task, in the database's SQL; None for all rows. The user's predicate is
        added to each. `begin` is a statement that begins every task's transaction, before the user's
        ``sessionInitStatement``. `fetch_size` is the number of rows to fetch at a time if the user has set none.
        """
        user, partition_class = self._condition, self._bridge.find(_JDBC + "JDBCPartition")
        predicates = [f"({user}) AND ({where})" if user and where else user or where for where in conditions]
        parts = self._bridge.new_array(
            "org.apache.spark.Partition", [partition_class(predicate, i) for i, predicate in enumerate(predicates)]
        )
        new_options, options = self._with_properties(properties), self.options
        if begin is not None:
            statements = "; ".join(filter(None, (begin, options.get("sessioninitstatement"))))
            new_options = _with_option(new_options, "sessionInitStatement", statements)
        if options.get("fetchsize", "0") == "0":
            new_options = _with_option(new_options, "fetchsize", str(fetch_size))
        relation, jdbc_options = self._leaf.relation(), self._bridge.find(_JDBC + "JDBCOptions")(new_options)
        relation = with_fields(self._bridge, relation, relation.sparkSession(), parts=parts, jdbcOptions=jdbc_options)
        return LogicalPlan(self._bridge, with_fields(self._bridge, self._leaf, relation=relation))


class JdbcTarget:
    """A database to write to with Spark's JDBC writer, which runs a transaction for each task attempt."""

    def __init__(self, bridge: Bridge, options: Mapping[str, str]) -> None:
        self._bridge = bridge
        # Without transactions (isolationLevel=NONE), a failed attempt would leave rows in the table.
        self._writer_options = {
            key: value
            for key, value in options.items()
            if (key.lower(), str(value).upper()) != ("isolationlevel", "NONE")
        }
        scala_map = bridge.find(PYTHON_UTILS).toScalaMap(self._writer_options)
        self._options = bridge.find(_JDBC + "JDBCOptions")(scala_map)
        self._dialect = bridge.companion(_DIALECTS).get(options["url"])

    def quoted(self, column: str) -> str:
        """Return a column's name, quoted for its database."""
        return str(self._dialect.quoteIdentifier(column))

    def connect(self) -> JdbcConnection:
        """Open a connection in Spark's driver, with the same options as the tasks."""
        return JdbcConnection(self._dialect.createConnectionFactory(self._options).apply(-1))  # -1: no partition

    def columns(self, rows: DataFrame) -> str:
        """Return the column definitions of a DataFrame for a CREATE TABLE statement (``JdbcUtils.schemaString``)."""
        types = option(self._options.createTableColumnTypes())
        user_types = self._bridge.none if types is None else self._bridge.some(types)
        utils = self._bridge.companion(_JDBC + "JdbcUtils")
        return str(utils.schemaString(self._dialect, rows._jdf.schema(), False, user_types))

    def append(self, table: str, rows: DataFrame, task_columns: tuple[str, str], connections: int | None) -> None:
        """Write rows, each with its task number and the id of its task attempt.

        `task_columns` are the names of the columns for task number and attempt. `connections` is the maximum number of
        concurrent tasks, None for no limit.
        """
        options = self._writer_options | {"dbtable": table}
        if connections is not None and connections < cluster_cores(self._bridge):
            options["numPartitions"] = str(connections)
        task, attempt = task_columns
        numbered = rows.withColumn(task, F.spark_partition_id()).withColumn(attempt, self._attempt_column())
        numbered.write.format("jdbc").options(**options).mode("append").save()

    def _attempt_column(self) -> Column:
        """Return a column with the id of the task attempt that computes a row (``TaskContext.taskAttemptId``)."""
        from pyspark.sql.classic.column import Column

        bridge, by_name = self._bridge, self._bridge.find("java.lang.Class").forName
        # Select the overload by its parameter types: py4j would choose the overload for `Object`, which rejects a UDF0.
        types = by_name("org.apache.spark.sql.api.java.UDF0"), by_name("org.apache.spark.sql.types.DataType")
        udf = by_name("org.apache.spark.sql.functions").getMethod("udf", bridge.new_array("java.lang.Class", types))
        arguments = new_instance(bridge, "TaskAttempt"), bridge.find("org.apache.spark.sql.types.DataTypes").LongType
        function = udf.invoke(None, bridge.new_array("java.lang.Object", arguments))
        return Column(function.asNondeterministic().apply(bridge.new_array("org.apache.spark.sql.Column", [])))

    def refresh(self, table: str) -> None:
        """Recompute cached DataFrames that read a table, as Spark does after its own writes."""
        bridge = self._bridge
        rows = bridge.spark.read.format("jdbc").options(**self._writer_options | {"dbtable": table}).load()
        manager = bridge.session._handle.sharedState().cacheManager()
        manager.recacheByPlan(bridge.session, rows._jdf.queryExecution().analyzed())


class JdbcConnection:
    """A connection in Spark's driver. Values are read as strings, which every database supports."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def rows(self, statement: str, *values: str) -> list[tuple[str | None, ...]]:
        """Run a query, with the values of its parameters; return its rows."""
        with closing(self._handle.prepareStatement(statement)) as prepared:
            for index, value in enumerate(values, 1):
                prepared.setString(index, value)
            result_set = prepared.executeQuery()
            width = result_set.getMetaData().getColumnCount()
            rows = []
            while result_set.next():
                rows.append(tuple(result_set.getString(index) for index in range(1, width + 1)))
            return rows

    def column_types(self, statement: str) -> dict[str, ColumnType]:
        """Return the types of a query's columns, by column name."""
        with closing(self._handle.prepareStatement(statement)) as prepared:
            metadata = prepared.executeQuery().getMetaData()
            return {
                str(metadata.getColumnLabel(index)): ColumnType(
                    str(metadata.getColumnTypeName(index)),
                    int(metadata.getPrecision(index)),
                    int(metadata.getScale(index)),
                )
                for index in range(1, metadata.getColumnCount() + 1)
            }

    def unique_keys(self, table: str) -> list[set[str]]:
        """Return the lower-case columns of each unique index of a table in any schema; partial indexes are left out."""
        keys: dict[tuple[str, str], set[str]] = {}
        catalog = self._handle.getCatalog()
        with closing(self._handle.getMetaData().getIndexInfo(catalog, None, table, True, True)) as indexes:
            while indexes.next():
                is_whole = not indexes.getBoolean("NON_UNIQUE") and indexes.getString("FILTER_CONDITION") is None
                if is_whole and indexes.getString("COLUMN_NAME") is not None:
                    index = str(indexes.getString("TABLE_SCHEM")), str(indexes.getString("INDEX_NAME"))
                    keys.setdefault(index, set()).add(str(indexes.getString("COLUMN_NAME")).lower())
        return list(keys.values())

    def run(self, statement: str, *values: str) -> int:
        """Run a statement that returns no rows; return the number of affected rows."""
        if not values:
            with closing(self._handle.createStatement()) as plain:
                return int(plain.executeUpdate(statement))
        with closing(self._handle.prepareStatement(statement)) as prepared:
            for index, value in enumerate(values, 1):
                prepared.setString(index, value)
            return int(prepared.executeUpdate())

    def begin(self) -> None:
        """Begin a transaction that lasts until the connection is committed or closed."""
        self._handle.setAutoCommit(False)

    def commit(self) -> None:
        """Commit the transaction."""
        self._handle.commit()

    def close(self) -> None:
        """Close the connection and roll back an uncommitted transaction; if that fails, the database rolls it back."""
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


def _with_option(options: Any, key: str, value: str) -> Any:
    """Return a Scala map of options with an option set; keys are case-insensitive."""
    for existing in items(options.keys().toSeq()):
        if str(existing).lower() == key.lower():
            options = options.removed(existing)
    return options.updated(key, value)
