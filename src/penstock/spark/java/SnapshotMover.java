package penstock;

import java.util.ArrayList;
import java.util.List;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.execution.streaming.operators.stateful.StatePartitionKeyExtractorFactory;
import org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StatePartitionKeyExtractor;
import org.apache.spark.sql.types.StructType;

import scala.Option;

/**
 * Moves the state of one store from old key groups to new ones where the store is HDFSBackedStateStoreProvider's: a new
 * group is a snapshot, of which Spark's own code writes the format.
 */
public final class SnapshotMover extends StateMover {
    private static final long serialVersionUID = 1L;
    private static final int KEY = 0;
    private static final int VALUE = 1;

    private String operatorName;
    private String storeName;
    private StructType keySchema;
    private int valueFields;
    private int formatVersion;

    /** What is read: rows of key and value, of an operator whose state has a format version. */
    public void reads(PartitionReaderFactory readers, Object groups, int maxParallelism, StructType keySchema,
            int valueFields, String operatorName, String store, int formatVersion) {
        readsGroups(readers, groups, maxParallelism);
        this.keySchema = keySchema;
        this.valueFields = valueFields;
        this.operatorName = operatorName;
        storeName = store;
        this.formatVersion = formatVersion;
    }

    /** Returns what tells the key that rows are grouped by; of an operator without one it has no columns. */
    public StatePartitionKeyExtractor extractor() {
        return StatePartitionKeyExtractorFactory.create(operatorName, keySchema, storeName, SnapshotWriter.FAMILY,
                Option.apply((Object) Integer.valueOf(formatVersion)), Option.empty());
    }

    @Override
    GroupRows rows(int group) throws Exception {
        return new Rows(group);
    }

    @Override
    List<Object> move(int[] reads, int[] writes) throws Exception {
        List<Object> answers = new ArrayList<>();
        SnapshotWriter[] outputs = new SnapshotWriter[maxParallelism];
        try {
            for (int group : writes) {
                outputs[group] = new SnapshotWriter((HDFSBackedStateStoreProvider) provider(group), batch());
            }
            for (int group : reads) {
                answers.add("read\t" + group + "\t" + deal(group, outputs));
            }
            for (int group : writes) {
                answers.add("written\t" + group + "\t" + outputs[group].commit() + "\t");
            }
        } finally {
            for (SnapshotWriter output : outputs) {
                if (output != null) {
                    output.close();
                }
            }
        }
        return answers;
    }

    /** Gives every row of an old group to the new group it belongs to, if this task writes it; counts rows. */
    private long deal(int group, SnapshotWriter[] outputs) throws Exception {
        Rows rows = new Rows(group);
        long read = 0;
        try {
            while (rows.next()) {
                read++;
                SnapshotWriter output = outputs[rows.group()];
                if (output != null) {
                    output.add(rows.key(), rows.value());
                }
            }
        } finally {
            rows.close();
        }
        return read;
    }

    /** Rows as Spark's own source of them gives them. */
    private final class Rows extends GroupRows {
        private final PartitionReader<?> reader;
        private final StatePartitionKeyExtractor extractor;
        private final UnsafeProjection place;
        private final boolean keyed;
        private InternalRow row;

        Rows(int group) throws Exception {
            extractor = extractor();
            keyed = extractor.partitionKeySchema().length() > 0;
            place = KeyGroupReader.projection(extractor.partitionKeySchema(), maxParallelism);
            reader = reader(group);
        }

        @Override
        boolean next() throws Exception {
            boolean more = reader.next();
            if (more) {
                Object found = reader.get();
                row = (InternalRow) found;
            }
            return more;
        }

        UnsafeRow key() {
            Object key = row.getStruct(KEY, keySchema.length());
            return (UnsafeRow) key;
        }

        UnsafeRow value() {
            Object value = row.getStruct(VALUE, valueFields);
            return (UnsafeRow) value;
        }

        @Override
        int group() {
            if (!keyed) {
                return 0;
            }
            Object partitionKey = extractor.partitionKey(key());
            return place.apply((InternalRow) partitionKey).getInt(0);
        }

        @Override
        void close() throws Exception {
            reader.close();
        }
    }
}
