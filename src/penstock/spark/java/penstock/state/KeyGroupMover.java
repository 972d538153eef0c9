package penstock.state;

import java.util.ArrayList;
import java.util.List;
import java.util.PriorityQueue;

import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider;

/**
 * Moves the state of a store from old key groups to new ones as sorted bytes: a key is decoded only to compute its group,
 * and a new group's database is built from files that RocksDB ingests.
 */
public final class KeyGroupMover extends StateMover {
    private static final long serialVersionUID = 1L;

    private boolean keyed;

    /** Sets the source of the old groups, and the number of groups; an operator without a key has a single group. */
    public void setSource(PartitionReaderFactory readers, Object groups, int maxParallelism, boolean keyed) {
        setGroups(readers, groups, maxParallelism);
        this.keyed = keyed;
    }

    @Override
    GroupRows rows(int group) throws Exception {
        return input(group, 0);
    }

    private KeyGroupReader input(int group, int index) throws Exception {
        return new KeyGroupReader(reader(group), index, maxParallelism, keyed);
    }

    @Override
    List<Object> move(int[] reads, int[] writes) throws Exception {
        List<Object> answers = new ArrayList<>();
        KeyGroupReader[] inputs = new KeyGroupReader[reads.length];
        KeyGroupWriter[] outputs = new KeyGroupWriter[maxParallelism];
        try {
            for (int i = 0; i < reads.length; i++) {
                inputs[i] = input(reads[i], i);
            }
            for (int group : writes) {
                RocksDBStateStoreProvider provider = (RocksDBStateStoreProvider) provider(group);
                outputs[group] = new KeyGroupWriter(group, provider, batch, families, inputs[0]);
            }
            long[] read = merge(reads, inputs, outputs);
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

    /** Merges all inputs in key order and returns the rows of each; keys are distinct unless the state is damaged. */
    private static long[] merge(int[] groups, KeyGroupReader[] inputs, KeyGroupWriter[] outputs) throws Exception {
        long[] read = new long[inputs.length];
        PriorityQueue<Object> queue = new PriorityQueue<>();
        for (KeyGroupReader input : inputs) {
            if (input.next()) {
                queue.add(input);
            }
        }
        while (!queue.isEmpty()) {
            KeyGroupReader input = (KeyGroupReader) queue.poll();
            KeyGroupReader after = (KeyGroupReader) queue.peek();
            if (after != null && input.compareTo(after) == 0) {
                throw new IllegalStateException("the state is damaged: key groups " + groups[input.index] + " and "
                        + groups[after.index] + " have the same key");
            }
            boolean more = true;
            // A run of keys from the same input bypasses the queue.
            while (more && (after == null || input.compareTo(after) < 0)) {
                read[input.index]++;
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
}
