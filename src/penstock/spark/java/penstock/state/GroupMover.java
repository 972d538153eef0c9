package penstock.state;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;

import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;

/**
 * Moves the state of a store from old key groups to new ones; the method depends on the store's provider and on Spark.
 *
 * A task such as "0,4|0,4,8" reads the old groups 0 and 4, and writes the new groups 0, 4 and 8. A task without groups
 * to write only checks the groups that it reads. Answers are lines of tab-separated fields.
 */
abstract class GroupMover implements FlatMapFunction<Object, Object> {
    private static final long serialVersionUID = 1L;

    int maxParallelism;

    private PartitionReaderFactory readers;
    private InputPartition[] groups;

    void setGroups(PartitionReaderFactory readers, Object groups, int maxParallelism) {
        this.readers = readers;
        this.groups = (InputPartition[]) groups;
        this.maxParallelism = maxParallelism;
    }

    @Override
    public Iterator<Object> call(Object task) throws Exception {
        String[] sides = ((String) task).split("\\|", -1);
        int[] reads = numbers(sides[0]);
        return (sides[1].isEmpty() ? check(reads) : move(reads, numbers(sides[1]))).iterator();
    }

    abstract GroupRows rows(int group) throws Exception;

    /** Opens a new group that is written row by row; not called by a mover with a `move` of its own. */
    RowWriter output(int group) throws Exception {
        throw new UnsupportedOperationException("the groups are not written row by row");
    }

    /** Moves every row of the old groups to its new group, if this task writes that group. */
    List<Object> move(int[] reads, int[] writes) throws Exception {
        RowWriter[] outputs = new RowWriter[maxParallelism];
        try {
            for (int group : writes) {
                outputs[group] = output(group);
            }
            List<Object> answers = new ArrayList<>();
            for (int group : reads) {
                answers.add("read\t" + group + "\t" + distribute((SourceRows) rows(group), outputs));
            }
            for (int group : writes) {
                answers.add("written\t" + group + "\t" + outputs[group].commit());
            }
            return answers;
        } finally {
            for (RowWriter output : outputs) {
                if (output != null) {
                    output.close();
                }
            }
        }
    }

    private static long distribute(SourceRows rows, RowWriter[] outputs) throws Exception {
        long read = 0;
        try {
            while (rows.next()) {
                read++;
                RowWriter output = outputs[rows.group()];
                if (output != null) {
                    output.add(rows.key(), rows.value());
                }
            }
        } finally {
            rows.close();
        }
        return read;
    }

    PartitionReader<?> reader(int group) {
        return readers.createReader(groups[group]);
    }

    private List<Object> check(int[] reads) throws Exception {
        List<Object> answers = new ArrayList<>();
        for (int group : reads) {
            GroupRows input = rows(group);
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

    private static int[] numbers(String text) {
        String[] words = text.split(",");
        int[] numbers = new int[words.length];
        for (int i = 0; i < words.length; i++) {
            numbers[i] = Integer.parseInt(words[i]);
        }
        return numbers;
    }
}
