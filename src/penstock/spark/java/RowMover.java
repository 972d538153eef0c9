package penstock;

import java.util.List;
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

/** Moves the state of one store row by row, with nothing of Spark's offline tools: releases before 4.2 have none. */
public final class RowMover extends GroupMover implements RowOutputs {
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
     * What is read: rows of key and value.
     *
     * @param keyColumns so many columns, the first of the key, are what rows are grouped by; with none there is one
     *     group only
     */
    public void reads(PartitionReaderFactory readers, Object groups, int oldParallelism, int maxParallelism,
            StructType keySchema, StructType valueSchema, int keyColumns) {
        readsGroups(readers, groups, maxParallelism);
        this.oldParallelism = oldParallelism;
        this.keySchema = keySchema;
        this.valueSchema = valueSchema;
        this.keyColumns = keyColumns;
    }

    /** Which version of which stores is written below a root folder, and how keys are encoded. */
    public void writes(StateStoreConf storeConf, SerializableConfiguration hadoopConf,
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
    List<Object> move(int[] reads, int[] writes) throws Exception {
        return RowWriter.deal(this, this, reads, writes);
    }

    @Override
    public RowWriter output(int group) throws Exception {
        StateStoreId id = new StateStoreId(root, operator, group, store);
        // Spark makes the folder with the first file, or with version 1: a group without rows would have none.
        Path folder = id.storeCheckpointLocation();
        folder.getFileSystem(hadoopConf.value()).mkdirs(folder);
        StateStoreProvider made = StateStoreProvider$.MODULE$.createAndInit(
                new StateStoreProviderId(id, UUID.randomUUID()), keySchema, valueSchema, keyEncoder, false, storeConf,
                hadoopConf.value(), false, Option.empty());
        if (made instanceof RocksDBStateStoreProvider) {
            return new DatabaseWriter((RocksDBStateStoreProvider) made, version);
        }
        return new MapWriter((HDFSBackedStateStoreProvider) made, keySchema, version);
    }

    private StructType groupedBy() {
        StructField[] columns = new StructField[keyColumns];
        System.arraycopy(keySchema.fields(), 0, columns, 0, keyColumns);
        return new StructType(columns);
    }

    private final class Rows extends SourceRows {
        private final int oldGroup;
        private final UnsafeProjection oldPlace;
        private final UnsafeProjection place;

        Rows(int group) throws Exception {
            super(reader(group), keySchema.length(), valueSchema.length());
            oldGroup = group;
            oldPlace = KeyGroups.projection(groupedBy(), oldParallelism);
            place = KeyGroups.projection(groupedBy(), maxParallelism);
        }

        @Override
        boolean next() throws Exception {
            boolean more = super.next();
            if (more && keyColumns > 0 && oldPlace.apply(key()).getInt(0) != oldGroup) {
                // Either its key is not what is taken for it here, or the state is damaged: nothing may be moved.
                throw new IllegalStateException("key group " + oldGroup + " has a row of key group "
                        + oldPlace.apply(key()).getInt(0));
            }
            return more;
        }

        @Override
        int group() {
            return keyColumns > 0 ? place.apply(key()).getInt(0) : 0;
        }
    }
}
