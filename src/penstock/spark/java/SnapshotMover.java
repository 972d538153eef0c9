package penstock;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;

import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.execution.streaming.operators.stateful.StatePartitionKeyExtractorFactory;
import org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StatePartitionAllColumnFamiliesWriter;
import org.apache.spark.sql.execution.streaming.state.StatePartitionKeyExtractor;
import org.apache.spark.sql.execution.streaming.state.StatePartitionWriterColumnFamilyInfo;
import org.apache.spark.sql.execution.streaming.state.StateSchemaProvider;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.SerializableConfiguration;

import scala.Option;

/**
 * Moves the state of one store from old key groups to new ones where the store is HDFSBackedStateStoreProvider's: a new
 * group is a snapshot, of which Spark's own code writes the format. Tasks and answers are those of KeyGroupMover.
 */
public final class SnapshotMover implements FlatMapFunction<Object, Object> {
    private static final long serialVersionUID = 1L;
    private static final int KEY = 0;
    private static final int VALUE = 1;

    private PartitionReaderFactory readers;
    private InputPartition[] groups;
    private int maxParallelism;
    private String operatorName;
    private StructType keySchema;
    private int valueFields;
    private int formatVersion;

    private StateStoreConf storeConf;
    private Broadcast<SerializableConfiguration> hadoopConf;
    private String target;
    private long operator;
    private String store;
    private long batch;
    @SuppressWarnings("serial") // all of Scala's maps are serializable
    private scala.collection.immutable.Map<String, StatePartitionWriterColumnFamilyInfo> families;
    private Option<StateSchemaProvider> schemas;

    /** What is read: rows of key and value, of an operator whose state has a format version. */
    public void reads(PartitionReaderFactory readers, Object groups, int maxParallelism, StructType keySchema,
            int valueFields, String operatorName, String store, int formatVersion) {
        this.readers = readers;
        this.groups = (InputPartition[]) groups;
        this.maxParallelism = maxParallelism;
        this.keySchema = keySchema;
        this.valueFields = valueFields;
        this.operatorName = operatorName;
        this.store = store;
        this.formatVersion = formatVersion;
    }

    /** Returns what tells the key that rows are grouped by; of an operator without one it has no columns. */
    public StatePartitionKeyExtractor extractor() {
        return StatePartitionKeyExtractorFactory.create(operatorName, keySchema, store, SnapshotWriter.FAMILY,
                Option.apply((Object) Integer.valueOf(formatVersion)), Option.empty());
    }

    /** Where new groups are written. */
    public void writes(StateStoreConf storeConf, Broadcast<SerializableConfiguration> hadoopConf, String target,
            long operator, String store, long batch,
            scala.collection.immutable.Map<String, StatePartitionWriterColumnFamilyInfo> families,
            Option<StateSchemaProvider> schemas) {
        this.storeConf = storeConf;
        this.hadoopConf = hadoopConf;
        this.target = target;
        this.operator = operator;
        this.store = store;
        this.batch = batch;
        this.families = families;
        this.schemas = schemas;
    }

    @Override
    public Iterator<Object> call(Object task) throws Exception {
        String[] sides = ((String) task).split("\\|", -1);
        int[] reads = KeyGroupMover.numbers(sides[0]);
        List<Object> answers = new ArrayList<>();
        if (sides[1].isEmpty()) {
            for (int group : reads) {
                answers.add(check(group));
            }
            return answers.iterator();
        }
        int[] writes = KeyGroupMover.numbers(sides[1]);
        SnapshotWriter[] outputs = new SnapshotWriter[maxParallelism];
        try {
            for (int group : writes) {
                outputs[group] = writer(group);
            }
            for (int group : reads) {
                answers.add("read\t" + group + "\t" + move(group, outputs));
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
        return answers.iterator();
    }

    private SnapshotWriter writer(int group) throws Exception {
        Object conf = hadoopConf.value();
        StatePartitionAllColumnFamiliesWriter spark = new StatePartitionAllColumnFamiliesWriter(
                storeConf, ((SerializableConfiguration) conf).value(), group, target, operator, store, batch, families,
                schemas);
        return new SnapshotWriter((HDFSBackedStateStoreProvider) spark.provider(), batch);
    }

    /** Gives every row of an old group to the new group it belongs to, if this task writes it; counts rows. */
    private long move(int group, SnapshotWriter[] outputs) throws Exception {
        Rows rows = new Rows(group);
        long read = 0;
        try {
            while (rows.next()) {
                read++;
                SnapshotWriter output = outputs[rows.belongs()];
                if (output != null) {
                    output.add(rows.key(), rows.value());
                }
            }
        } finally {
            rows.close();
        }
        return read;
    }

    private String check(int group) throws Exception {
        Rows rows = new Rows(group);
        long read = 0;
        long foreign = 0;
        try {
            while (rows.next()) {
                read++;
                if (rows.belongs() != group) {
                    foreign++;
                }
            }
        } finally {
            rows.close();
        }
        return "checked\t" + group + "\t" + read + "\t" + foreign;
    }

    /** The rows of a group, each with the group that it belongs to now. */
    private final class Rows {
        private final PartitionReader<?> reader;
        private final StatePartitionKeyExtractor extractor;
        private final UnsafeProjection place;
        private final boolean keyed;
        private InternalRow row;

        Rows(int group) throws Exception {
            extractor = extractor();
            keyed = extractor.partitionKeySchema().length() > 0;
            place = KeyGroupReader.projection(extractor.partitionKeySchema(), maxParallelism);
            reader = readers.createReader(groups[group]);
        }

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

        int belongs() {
            if (!keyed) {
                return 0;
            }
            Object partitionKey = extractor.partitionKey(key());
            return place.apply((InternalRow) partitionKey).getInt(0);
        }

        void close() throws Exception {
            reader.close();
        }
    }
}
