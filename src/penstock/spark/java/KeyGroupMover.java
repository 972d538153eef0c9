package penstock;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.PriorityQueue;

import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider;

/**
 * Moves the state of one store from old key groups to new ones as sorted bytes: a key is decoded only to learn its
 * group, and a new group's database is made of files that RocksDB takes over whole.
 */
public final class KeyGroupMover extends StateMover {
    private static final long serialVersionUID = 1L;

    private boolean keyed;

    /** What is read, and how many groups keys are told apart into; an operator without a key has one group only. */
    public void reads(PartitionReaderFactory readers, Object groups, int maxParallelism, boolean keyed) {
        readsGroups(readers, groups, maxParallelism);
        this.keyed = keyed;
    }

    @Override
    GroupRows rows(int group) throws Exception {
        return input(group, 0);
    }

    private KeyGroupReader input(int group, int place) throws Exception {
        return new KeyGroupReader(reader(group), place, maxParallelism, keyed);
    }

    private KeyGroupWriter output(int group, KeyGroupReader like) throws Exception {
        return new KeyGroupWriter(group, (RocksDBStateStoreProvider) provider(group), batch(), families(), like);
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
                outputs[group] = output(group, inputs[0]);
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

    /** Walks all inputs side by side in the order of their keys, which differ unless the state is damaged; counts rows. */
    private static long[] merge(int[] groups, KeyGroupReader[] inputs, KeyGroupWriter[] outputs) throws Exception {
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
            if (after != null && Arrays.equals(input.key(), after.key())) {
                throw new IllegalStateException("the state is damaged: key groups " + groups[input.place] + " and "
                        + groups[after.place] + " have the same key");
            }
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

    private static final class ByKey implements Comparator<Object> {
        @Override
        public int compare(Object left, Object right) {
            return Arrays.compareUnsigned(((KeyGroupReader) left).key(), ((KeyGroupReader) right).key());
        }
    }
}
