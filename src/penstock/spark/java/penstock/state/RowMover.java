package penstock.state;

import java.util.UUID;

import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider$;
import org.apache.spark.sql.execution.streaming.state.StateStoreProviderId;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.SerializableConfiguration;

import scala.Option;

/** Moves the state of a store row by row, without Spark's offline tools, which exist since 4.2. */
public final class RowMover extends GroupMover {
    private static final long serialVersionUID = 1L;

    private StructType keySchema;
    private StructType valueSchema;
    private int keyColumns; // 0 for an operator without a key, which has a single group
    private int oldMaxParallelism;

    private StateStoreConf storeConf;
    private SerializableConfiguration hadoopConf;
    private KeyStateEncoderSpec keyEncoder;
    private String root;
    private long operator;
    private String store;
    private long version;

    /** Sets the source of the old groups: rows of key and value, grouped by the first `keyColumns` key columns. */
    public void setSource(PartitionReaderFactory readers, Object groups, int oldMaxParallelism, int maxParallelism,
            StructType keySchema, StructType valueSchema, int keyColumns) {
        setGroups(readers, groups, maxParallelism);
        this.oldMaxParallelism = oldMaxParallelism;
        this.keySchema = keySchema;
        this.valueSchema = valueSchema;
        this.keyColumns = keyColumns;
    }

    /** Sets the target: the version of a store below a root folder, and the key encoding. */
    public void setTarget(StateStoreConf storeConf, SerializableConfiguration hadoopConf,
            KeyStateEncoderSpec keyEncoder, String root, long operator, String store, long version) {
        this.storeConf = storeConf;
        this.hadoopConf = hadoopConf;
        this.keyEncoder = keyEncoder;
        this.root = root;
        this.operator = operator;
        this.store = store;
        this.version = version;
    }

    @Override
    GroupRows rows(int group) throws Exception {
        return new Rows(group);
    }

    @Override
    RowWriter output(int group) throws Exception {
        StateStoreId id = new StateStoreId(root, operator, group, store);
        // Spark creates the folder with the first file, or for version 1. Create it now, in case the group has no rows.
        Path folder = id.storeCheckpointLocation();
        folder.getFileSystem(hadoopConf.value()).mkdirs(folder);
        StateStoreProvider provider = StateStoreProvider$.MODULE$.createAndInit(
                new StateStoreProviderId(id, UUID.randomUUID()), keySchema, valueSchema, keyEncoder, false, storeConf,
                hadoopConf.value(), false, Option.empty());
        if (provider instanceof RocksDBStateStoreProvider) {
            return new DatabaseWriter((RocksDBStateStoreProvider) provider, version);
        }
        return new MapWriter((HDFSBackedStateStoreProvider) provider, keySchema, version);
    }

    private StructType groupingSchema() {
        StructField[] columns = new StructField[keyColumns];
        System.arraycopy(keySchema.fields(), 0, columns, 0, keyColumns);
        return new StructType(columns);
    }

    private final class Rows extends SourceRows {
        private final int oldGroup;
        private final UnsafeProjection oldGroupOf;
        private final UnsafeProjection newGroupOf;

        Rows(int group) throws Exception {
            super(reader(group), keySchema.length(), valueSchema.length());
            oldGroup = group;
            oldGroupOf = projection(groupingSchema(), oldMaxParallelism);
            newGroupOf = projection(groupingSchema(), maxParallelism);
        }

        @Override
        boolean next() throws Exception {
            boolean hasRow = super.next();
            if (hasRow && keyColumns > 0 && oldGroupOf.apply(key()).getInt(0) != oldGroup) {
                // The key columns are wrong, or the state is damaged: nothing may be moved.
                throw new IllegalStateException("key group " + oldGroup + " has a row of key group "
                        + oldGroupOf.apply(key()).getInt(0));
            }
            return hasRow;
        }

        @Override
        int group() {
            return keyColumns > 0 ? newGroupOf.apply(key()).getInt(0) : 0;
        }
    }
}
