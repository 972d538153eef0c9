package penstock.tests;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Collections;
import java.util.EnumSet;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.catalog.CatalogV2Util;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsRowLevelOperations;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.distributions.Distribution;
import org.apache.spark.sql.connector.distributions.Distributions;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.SortDirection;
import org.apache.spark.sql.connector.expressions.SortOrder;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.HasPartitionKey;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsReportPartitioning;
import org.apache.spark.sql.connector.read.SupportsRuntimeV2Filtering;
import org.apache.spark.sql.connector.read.partitioning.KeyGroupedPartitioning;
import org.apache.spark.sql.connector.read.partitioning.Partitioning;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.DeltaBatchWrite;
import org.apache.spark.sql.connector.write.DeltaWrite;
import org.apache.spark.sql.connector.write.DeltaWriteBuilder;
import org.apache.spark.sql.connector.write.DeltaWriter;
import org.apache.spark.sql.connector.write.DeltaWriterFactory;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.RequiresDistributionAndOrdering;
import org.apache.spark.sql.connector.write.RowLevelOperation;
import org.apache.spark.sql.connector.write.RowLevelOperationBuilder;
import org.apache.spark.sql.connector.write.RowLevelOperationInfo;
import org.apache.spark.sql.connector.write.SupportsDelta;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.WriteSummary;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Tables of three numbers (id, k, v) in the driver's memory that support DELETE, UPDATE and MERGE, like Iceberg tables.
 *
 * The property "mode" sets the method: "groups" rewrites all rows of a changed k, "delta" writes changed rows by id.
 * A table that is partitioned by k is read in a partition per k, and reports that partitioning.
 */
public final class RowLevelCatalog implements TableCatalog {
    private static final Map<Identifier, Numbers> TABLES = new ConcurrentHashMap<>();
    private String name;

    /** Returns the write summaries of the commits to a table, oldest first. */
    public static List<String> summaries(String table) {
        return TABLES.get(Identifier.of(new String[0], table)).summaries;
    }

    /** Returns the number of tasks of the latest commit to a table. */
    public static int tasks(String table) {
        return TABLES.get(Identifier.of(new String[0], table)).tasks;
    }

    @Override
    public void initialize(String catalogName, CaseInsensitiveStringMap options) {
        name = catalogName;
    }

    @Override
    public String name() {
        return name;
    }

    @Override
    public Identifier[] listTables(String[] namespace) {
        return TABLES.keySet().toArray(new Identifier[0]);
    }

    @Override
    public Table loadTable(Identifier identifier) throws NoSuchTableException {
        if (!TABLES.containsKey(identifier)) {
            throw new NoSuchTableException(identifier);
        }
        return TABLES.get(identifier);
    }

    @Override
    @Deprecated // its replacement is not in every release of Spark 4
    public Table createTable(Identifier identifier, Column[] columns, Transform[] by, Map<String, String> properties) {
        TABLES.put(identifier, new Numbers(identifier.name(), columns, "delta".equals(properties.get("mode")), by));
        return TABLES.get(identifier);
    }

    @Override
    public Table alterTable(Identifier identifier, TableChange... changes) {
        throw new UnsupportedOperationException();
    }

    @Override
    public boolean dropTable(Identifier identifier) {
        return TABLES.remove(identifier) != null;
    }

    @Override
    public void renameTable(Identifier from, Identifier to) {
        throw new UnsupportedOperationException();
    }

    private static Long[] numbers(InternalRow row, int count) {
        Long[] numbers = new Long[count];
        for (int i = 0; i < count; i++) {
            numbers[i] = row.isNullAt(i) ? null : (Long) row.getLong(i);
        }
        return numbers;
    }

    private static final class Numbers implements SupportsRead, SupportsWrite, SupportsRowLevelOperations {
        private final String name;
        private final Column[] columns;
        private final boolean isDelta;
        private final Transform[] by;
        private final List<Long[]> rows = new ArrayList<>();
        private final List<String> summaries = Collections.synchronizedList(new ArrayList<>());
        private volatile int tasks;

        Numbers(String name, Column[] columns, boolean isDelta, Transform[] by) {
            this.name = name;
            this.columns = columns;
            this.isDelta = isDelta;
            this.by = by;
        }

        @Override
        public String name() {
            return name;
        }

        @Override
        public Column[] columns() {
            return columns;
        }

        @Override
        public Transform[] partitioning() {
            return by;
        }

        @Override
        public Set<TableCapability> capabilities() {
            return EnumSet.of(TableCapability.BATCH_READ, TableCapability.BATCH_WRITE);
        }

        @Override
        public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
            return () -> by.length == 0 ? new NumbersScan(this) : new KeyedScan(this);
        }

        @Override
        public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
            return new RowWrite(this, null, true);
        }

        @Override
        public RowLevelOperationBuilder newRowLevelOperationBuilder(RowLevelOperationInfo info) {
            return () -> isDelta ? new DeltaOperation(this, info.command()) : new Operation(this, info.command());
        }

        synchronized List<Long[]> rows() {
            return new ArrayList<>(rows);
        }

        /** Removes the rows that a commit replaces, and adds the rows that its tasks have written. */
        synchronized void commit(WriterCommitMessage[] messages, NumbersScan replaced) {
            tasks = messages.length;
            if (replaced != null) {
                rows.removeIf(row -> replaced.reads(row));
            }
            for (WriterCommitMessage message : messages) {
                rows.removeIf(row -> ((TaskRows) message).deleted.contains(row[0]));
            }
            for (WriterCommitMessage message : messages) {
                rows.addAll(((TaskRows) message).added);
            }
        }
    }

    /** Reads rows in three partitions, and only those of some k if Spark filters at run time. */
    private static class NumbersScan implements Scan, Batch, SupportsRuntimeV2Filtering {
        final Numbers table;
        private Set<Object> requestedKeys;

        NumbersScan(Numbers table) {
            this.table = table;
        }

        boolean reads(Long[] row) {
            return requestedKeys == null || requestedKeys.contains(row[1]);
        }

        @Override
        public StructType readSchema() {
            return CatalogV2Util.v2ColumnsToStructType(table.columns);
        }

        @Override
        public Batch toBatch() {
            return this;
        }

        @Override
        public NamedReference[] filterAttributes() {
            return new NamedReference[] {Expressions.column("k")};
        }

        @Override
        public void filter(Predicate[] predicates) {
            for (Predicate predicate : predicates) {
                if (predicate.name().equals("IN")) {
                    Set<Object> values = new HashSet<>();
                    for (Expression value : predicate.children()) {
                        if (value instanceof Literal) {
                            values.add(((Literal<?>) value).value());
                        }
                    }
                    requestedKeys = values;
                }
            }
        }

        @Override
        public InputPartition[] planInputPartitions() {
            RowPartition[] partitions = {new RowPartition(), new RowPartition(), new RowPartition()};
            for (Long[] row : table.rows()) {
                if (reads(row)) {
                    partitions[(int) (row[0] % 3)].rows.add(row);
                }
            }
            return partitions;
        }

        @Override
        public PartitionReaderFactory createReaderFactory() {
            return new RowReaderFactory();
        }
    }

    /** Reads the rows of each k in a separate partition, which Spark may join and group by k without a shuffle. */
    private static final class KeyedScan extends NumbersScan implements SupportsReportPartitioning {
        KeyedScan(Numbers table) {
            super(table);
        }

        @Override
        public InputPartition[] planInputPartitions() {
            Map<Long, KeyedPartition> partitions = new TreeMap<>();
            for (Long[] row : table.rows()) {
                if (reads(row)) {
                    partitions.computeIfAbsent(row[1], KeyedPartition::new).rows.add(row);
                }
            }
            return partitions.values().toArray(new InputPartition[0]);
        }

        @Override
        public Partitioning outputPartitioning() {
            return new KeyGroupedPartitioning(table.by, planInputPartitions().length);
        }
    }

    private static class RowPartition implements InputPartition {
        private static final long serialVersionUID = 1L;
        final ArrayList<Long[]> rows = new ArrayList<>();
    }

    private static final class KeyedPartition extends RowPartition implements HasPartitionKey {
        private static final long serialVersionUID = 1L;
        private final Long key;

        KeyedPartition(Long key) {
            this.key = key;
        }

        @Override
        public InternalRow partitionKey() {
            return new GenericInternalRow(new Object[] {key});
        }
    }

    private static final class RowReaderFactory implements PartitionReaderFactory {
        private static final long serialVersionUID = 1L;

        @Override
        public PartitionReader<InternalRow> createReader(InputPartition partition) {
            List<Long[]> rows = ((RowPartition) partition).rows;
            return new PartitionReader<>() {
                private int next;

                @Override
                public boolean next() {
                    return next++ < rows.size();
                }

                @Override
                public InternalRow get() {
                    return new GenericInternalRow((Object[]) rows.get(next - 1));
                }

                @Override
                public void close() {
                }
            };
        }
    }

    private static class Operation implements RowLevelOperation {
        final Numbers table;
        private final Command command;
        private NumbersScan scan;

        Operation(Numbers table, Command command) {
            this.table = table;
            this.command = command;
        }

        @Override
        public Command command() {
            return command;
        }

        @Override
        public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
            return () -> {
                scan = new NumbersScan(table);
                return scan;
            };
        }

        @Override
        public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
            return new RowWrite(table, scan, true);
        }
    }

    private static final class DeltaOperation extends Operation implements SupportsDelta {
        DeltaOperation(Numbers table, Command command) {
            super(table, command);
        }

        @Override
        public NamedReference[] rowId() {
            return new NamedReference[] {Expressions.column("id")};
        }

        @Override
        public DeltaWriteBuilder newWriteBuilder(LogicalWriteInfo info) {
            return new RowWrite(table, null, command() != Command.DELETE);
        }
    }

    /** Requires the rows of a k in a single task, sorted by k; a deleted row has only an id. */
    private static final class RowWrite
            implements DeltaWriteBuilder, DeltaWrite, DeltaBatchWrite, RequiresDistributionAndOrdering {
        private final Numbers table;
        private final NumbersScan replaced;
        private final boolean hasK;

        RowWrite(Numbers table, NumbersScan replaced, boolean hasK) {
            this.table = table;
            this.replaced = replaced;
            this.hasK = hasK;
        }

        @Override
        public DeltaWrite build() {
            return this;
        }

        @Override
        public DeltaBatchWrite toBatch() {
            return this;
        }

        @Override
        public Distribution requiredDistribution() {
            return !hasK ? Distributions.unspecified() : Distributions.clustered(new Expression[] {Expressions.column("k")});
        }

        @Override
        public SortOrder[] requiredOrdering() {
            return !hasK ? new SortOrder[0] : new SortOrder[] {Expressions.sort(Expressions.column("k"), SortDirection.ASCENDING)};
        }

        @Override
        public DeltaWriterFactory createBatchWriterFactory(PhysicalWriteInfo info) {
            return new Writers();
        }

        @Override
        public void commit(WriterCommitMessage[] messages) {
            table.summaries.add("none");
            table.commit(messages, replaced);
        }

        @Override
        public void commit(WriterCommitMessage[] messages, WriteSummary summary) {
            table.summaries.add(summary.toString());
            table.commit(messages, replaced);
        }

        @Override
        public void abort(WriterCommitMessage[] messages) {
        }
    }

    private static final class Writers implements DeltaWriterFactory {
        private static final long serialVersionUID = 1L;

        @Override
        public DeltaWriter<InternalRow> createWriter(int partition, long task) {
            return new TaskRows();
        }
    }

    /** Collects the rows of a task; it is also the commit message to the driver. */
    private static final class TaskRows implements DeltaWriter<InternalRow>, WriterCommitMessage, Serializable {
        private static final long serialVersionUID = 1L;
        private final ArrayList<Long[]> added = new ArrayList<>();
        private final HashSet<Long> deleted = new HashSet<>();

        @Override
        public void write(InternalRow row) {
            added.add(numbers(row, 3));
        }

        @Override
        public void insert(InternalRow row) {
            added.add(numbers(row, 3));
        }

        @Override
        public void update(InternalRow metadata, InternalRow id, InternalRow row) {
            deleted.add(id.getLong(0));
            added.add(numbers(row, 3));
        }

        @Override
        public void delete(InternalRow metadata, InternalRow id) {
            deleted.add(id.getLong(0));
        }

        @Override
        public WriterCommitMessage commit() {
            return this;
        }

        @Override
        public void abort() {
        }

        @Override
        public void close() {
        }
    }
}
