package penstock.state;

import java.util.ArrayList;
import java.util.List;
import java.util.PriorityQueue;

import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider;

/** Moves a RocksDB store's rows as sorted bytes, in files that RocksDB ingests; decodes keys only to compute groups. */
public final class KeyGroupMover extends StateMover {
    private static final long serialVersionUID = 1L;

    private boolean hasKey;

    /** Sets the source of the old groups, and the number of new groups: one for an operator without key. */
    public void setSource(PartitionReaderFactory readers, Object groups, int maxParallelism, boolean hasKey) {
        setGroups(readers, groups, maxParallelism);
        this.hasKey = hasKey;
    }

    @Override
    GroupRows rows(int group) throws Exception {
        return input(group, 0);
    }

    private KeyGroupReader input(int group, int index) throws Exception {
        return new KeyGroupReader(reader(group), index, maxParallelism, hasKey);
    }

    @Override
    List<Object> move(int[] oldGroups, int[] newGroups) throws Exception {
        List<Object> lines = new ArrayList<>();
        KeyGroupReader[] inputs = new KeyGroupReader[oldGroups.length];
        KeyGroupWriter[] outputs = new KeyGroupWriter[maxParallelism];
        try {
            for (int i = 0; i < oldGroups.length; i++) {
                inputs[i] = input(oldGroups[i], i);
            }
            for (int group : newGroups) {
                RocksDBStateStoreProvider provider = (RocksDBStateStoreProvider) provider(group);
                outputs[group] = new KeyGroupWriter(group, provider, batch, families, inputs[0]);
            }
            long[] rowsRead = merge(oldGroups, inputs, outputs);
            for (int i = 0; i < oldGroups.length; i++) {
                lines.add("read\t" + oldGroups[i] + "\t" + rowsRead[i]);
            }
            for (int group : newGroups) {
                lines.add(outputs[group].commit());
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
        return lines;
    }

    /** Merges all inputs in key order; returns the number of rows of each input. Only damaged state has equal keys. */
    private static long[] merge(int[] groups, KeyGroupReader[] inputs, KeyGroupWriter[] outputs) throws Exception {
        long[] rowsRead = new long[inputs.length];
        PriorityQueue<Object> queue = new PriorityQueue<>();
        for (KeyGroupReader input : inputs) {
            if (input.next()) {
                queue.add(input);
            }
        }
        while (!queue.isEmpty()) {
            KeyGroupReader input = (KeyGroupReader) queue.poll();
            KeyGroupReader nextInput = (KeyGroupReader) queue.peek();
            if (nextInput != null && input.compareTo(nextInput) == 0) {
                throw new IllegalStateException("the state is damaged: key groups " + groups[input.index] + " and "
                        + groups[nextInput.index] + " have the same key");
            }
            boolean hasRow = true;
            // A run of keys from the same input bypasses the queue.
            while (hasRow && (nextInput == null || input.compareTo(nextInput) < 0)) {
                rowsRead[input.index]++;
                KeyGroupWriter output = outputs[input.group()];
                if (output != null) {
                    output.add(input);
                }
                hasRow = input.next();
            }
            if (hasRow) {
                queue.add(input);
            }
        }
        return rowsRead;
    }
}
