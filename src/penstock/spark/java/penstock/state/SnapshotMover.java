package penstock.state;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.execution.streaming.operators.stateful.StatePartitionKeyExtractorFactory;
import org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StatePartitionKeyExtractor;
import org.apache.spark.sql.types.StructType;

import scala.Option;

/**
 * Moves the state of a HDFSBackedStateStoreProvider store from old key groups to new ones: a new group is a snapshot that
 * Spark's own code writes.
 */
public final class SnapshotMover extends StateMover {
    private static final long serialVersionUID = 1L;

    private String operatorName;
    private String storeName;
    private StructType keySchema;
    private int valueFields;
    private int formatVersion;

    /** Sets the source of the old groups: rows of key and value, in the format version of the operator's state. */
    public void setSource(PartitionReaderFactory readers, Object groups, int maxParallelism, StructType keySchema,
            int valueFields, String operatorName, String store, int formatVersion) {
        setGroups(readers, groups, maxParallelism);
        this.keySchema = keySchema;
        this.valueFields = valueFields;
        this.operatorName = operatorName;
        storeName = store;
        this.formatVersion = formatVersion;
    }

    /** Returns the extractor of the grouping key; it has no columns for an operator without a key. */
    public StatePartitionKeyExtractor extractor() {
        return StatePartitionKeyExtractorFactory.create(operatorName, keySchema, storeName, StoreWriter.FAMILY,
                Option.apply((Object) Integer.valueOf(formatVersion)), Option.empty());
    }

    @Override
    GroupRows rows(int group) throws Exception {
        return new Rows(group);
    }

    @Override
    RowWriter output(int group) throws Exception {
        return new SnapshotWriter((HDFSBackedStateStoreProvider) provider(group), batch);
    }

    private final class Rows extends SourceRows {
        private final StatePartitionKeyExtractor extractor;
        private final UnsafeProjection newGroupOf;
        private final boolean hasKey;

        Rows(int group) throws Exception {
            super(reader(group), keySchema.length(), valueFields);
            extractor = extractor();
            hasKey = extractor.partitionKeySchema().length() > 0;
            newGroupOf = projection(extractor.partitionKeySchema(), maxParallelism);
        }

        @Override
        int group() {
            if (!hasKey) {
                return 0;
            }
            Object partitionKey = extractor.partitionKey(key());
            return newGroupOf.apply((InternalRow) partitionKey).getInt(0);
        }
    }
}
