package penstock;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.Iterator;
import java.util.List;
import java.util.PriorityQueue;

import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StatePartitionAllColumnFamiliesWriter;
import org.apache.spark.sql.execution.streaming.state.StatePartitionWriterColumnFamilyInfo;
import org.apache.spark.sql.execution.streaming.state.StateSchemaProvider;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.util.SerializableConfiguration;

import scala.Option;

/**
 * Moves the state of one store from old key groups to new ones as sorted bytes: a key is decoded only to learn its
 * group, and a new group's database is made of files that RocksDB takes over whole.
 *
 * An element "0,4|0,4,8" is a task: read old groups 0 and 4, write new groups 0, 4 and 8. With nothing to write the
 * groups are read and checked only. Answers are lines of tab-separated words.
 */
public final class KeyGroupMover implements FlatMapFunction<Object, Object> {
    private static final long serialVersionUID = 1L;

    private PartitionReaderFactory readers;
    private InputPartition[] groups;
    private int maxParallelism;
    private boolean keyed;

    private StateStoreConf storeConf;
    private Broadcast<SerializableConfiguration> hadoopConf;
    private String target;
    private long operator;
    private String store;
    private long batch;
    @SuppressWarnings("serial") // all of Scala's maps are serializable
    private scala.collection.immutable.Map<String, StatePartitionWriterColumnFamilyInfo> families;
    private Option<StateSchemaProvider> schemas;

    /** What is read, and how many groups keys are told apart into; an operator without a key has one group only. */
    public void reads(PartitionReaderFactory readers, Object groups, int maxParallelism, boolean keyed) {
        this.readers = readers;
        this.groups = (InputPartition[]) groups;
        this.maxParallelism = maxParallelism;
        this.keyed = keyed;
    }

    /** Where new groups are written, and with which encoders. */
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
        int[] reads = numbers(sides[0]);
        return (sides[1].isEmpty() ? check(reads) : move(reads, numbers(sides[1]))).iterator();
    }

    private KeyGroupReader reader(int group, int place) throws Exception {
        return new KeyGroupReader(readers.createReader(groups[group]), place, maxParallelism, keyed);
    }

    private KeyGroupWriter writer(int group, KeyGroupReader like) throws Exception {
        Object conf = hadoopConf.value();
        StatePartitionAllColumnFamiliesWriter spark = new StatePartitionAllColumnFamiliesWriter(
                storeConf, ((SerializableConfiguration) conf).value(), group, target, operator, store, batch, families,
                schemas);
        return new KeyGroupWriter(group, (RocksDBStateStoreProvider) spark.provider(), batch, families, like);
    }

    private List<Object> move(int[] reads, int[] writes) throws Exception {
        List<Object> answers = new ArrayList<>();
        KeyGroupReader[] inputs = new KeyGroupReader[reads.length];
        KeyGroupWriter[] outputs = new KeyGroupWriter[maxParallelism];
        try {
            for (int i = 0; i < reads.length; i++) {
                inputs[i] = reader(reads[i], i);
            }
            for (int group : writes) {
                outputs[group] = writer(group, inputs[0]);
            }
            long[] read = merge(inputs, outputs);
            for (int i = 0; i < reads.length; i++) {
                answers.add("read\t" + reads[i] + "\t" + read[i]);
            }
            for (int group : writes) {
                answers.add(outputs[group].commit());
            }
        } finally {
            for (KeyGroupWriter output : outputs) {
                if (output != null) {
                    output.close();
                }
            }
            for (KeyGroupReader input : inputs) {
                if (input != null) {
                    input.close();
                }
            }
        }
        return answers;
    }

    /** Walks all inputs side by side in the order of their keys, which are never equal across inputs; counts rows. */
    private static long[] merge(KeyGroupReader[] inputs, KeyGroupWriter[] outputs) throws Exception {
        long[] read = new long[inputs.length];
        PriorityQueue<Object> queue = new PriorityQueue<>(Math.max(1, inputs.length), new ByKey());
        for (KeyGroupReader input : inputs) {
            if (input.next()) {
                queue.add(input);
            }
        }
        while (!queue.isEmpty()) {
            KeyGroupReader input = (KeyGroupReader) queue.poll();
            KeyGroupReader after = (KeyGroupReader) queue.peek();
            boolean more = true;
            // A run of keys from one input needs no queue; with one input there is nothing else.
            while (more && (after == null || Arrays.compareUnsigned(input.key(), after.key()) < 0)) {
                read[input.place]++;
                KeyGroupWriter output = outputs[input.group()];
                if (output != null) {
                    output.add(input);
                }
                more = input.next();
            }
            if (more) {
                queue.add(input);
            }
        }
        return read;
    }

    private List<Object> check(int[] reads) throws Exception {
        List<Object> answers = new ArrayList<>();
        for (int group : reads) {
            KeyGroupReader input = reader(group, 0);
            try {
                long rows = 0;
                long foreign = 0;
                while (input.next()) {
                    rows++;
                    if (input.group() != group) {
                        foreign++;
                    }
                }
                answers.add("checked\t" + group + "\t" + rows + "\t" + foreign);
            } finally {
                input.close();
            }
        }
        return answers;
    }

    static int[] numbers(String text) {
        String[] words = text.split(",");
        int[] found = new int[words.length];
        for (int i = 0; i < words.length; i++) {
            found[i] = Integer.parseInt(words[i]);
        }
        return found;
    }

    private static final class ByKey implements Comparator<Object> {
        @Override
        public int compare(Object left, Object right) {
            return Arrays.compareUnsigned(((KeyGroupReader) left).key(), ((KeyGroupReader) right).key());
        }
    }
}
