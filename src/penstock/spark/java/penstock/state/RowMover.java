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

/** Moves the state of a store row by row, without Spark's offline tools: releases before 4.2 have none. */
public final class RowMover extends GroupMover {
    private static final long serialVersionUID = 1L;

    private StructType keySchema;
    private StructType valueSchema;
    private int keyColumns;
    private int oldParallelism;

    private StateStoreConf storeConf;
    private SerializableConfiguration hadoopConf;
    private KeyStateEncoderSpec keyEncoder;
    private String root;
    private long operator;
    private String store;
    private long version;

    /**
     * Sets the source of the old groups: rows of key and value.
     *
     * @param keyColumns the number of leading key columns that rows are grouped by; 0 means a single group
     */
    public void setSource(PartitionReaderFactory readers, Object groups, int oldParallelism, int maxParallelism,
            StructType keySchema, StructType valueSchema, int keyColumns) {
        setGroups(readers, groups, maxParallelism);
        this.oldParallelism = oldParallelism;
        this.keySchema = keySchema;
        this.valueSchema = valueSchema;
        this.keyColumns = keyColumns;
    }

    /** Sets the target: the version and stores below a root folder, and the key encoding. */
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
        // Spark creates the folder with the first file, or with version 1: a group without rows would have none.
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
        private final UnsafeProjection oldProjection;
        private final UnsafeProjection projection;

        Rows(int group) throws Exception {
            super(reader(group), keySchema.length(), valueSchema.length());
            oldGroup = group;
            oldProjection = projection(groupingSchema(), oldParallelism);
            projection = projection(groupingSchema(), maxParallelism);
        }

        @Override
        boolean next() throws Exception {
            boolean more = super.next();
            if (more && keyColumns > 0 && oldProjection.apply(key()).getInt(0) != oldGroup) {
                // The key columns are wrong, or the state is damaged: nothing may be moved.
                throw new IllegalStateException("key group " + oldGroup + " has a row of key group "
                        + oldProjection.apply(key()).getInt(0));
            }
            return more;
        }

        @Override
        int group() {
            return keyColumns > 0 ? projection.apply(key()).getInt(0) : 0;
        }
    }
}
