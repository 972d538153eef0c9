package penstock.state;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;

import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;

/**
 * Moves the state of a store from old key groups to new ones. Each subclass reads the old groups and writes the new
 * groups in a way that a kind of store and a release of Spark support.
 *
 * A task such as "0,4|0,4,8" reads the old groups 0 and 4, and writes the new groups 0, 4 and 8. A task without groups
 * to write only checks the groups that it reads. Results are lines of tab-separated fields.
 */
abstract class GroupMover implements FlatMapFunction<Object, Object> {
    private static final long serialVersionUID = 1L;

    /** The number of new key groups. */
    int maxParallelism;

    private PartitionReaderFactory readers;
    /** The input partition of each old key group, by its number. */
    private InputPartition[] groups;

    void setGroups(PartitionReaderFactory readers, Object groups, int maxParallelism) {
        this.readers = readers;
        this.groups = (InputPartition[]) groups;
        this.maxParallelism = maxParallelism;
    }

    @Override
    public Iterator<Object> call(Object task) throws Exception {
        String[] sides = ((String) task).split("\\|", -1);
        int[] oldGroups = parseNumbers(sides[0]);
        return (sides[1].isEmpty() ? check(oldGroups) : move(oldGroups, parseNumbers(sides[1]))).iterator();
    }

    /** Opens the rows of an old group. */
    abstract GroupRows rows(int group) throws Exception;

    /** Opens a new group that is written row by row; not called by a mover that overrides `move`. */
    RowWriter output(int group) throws Exception {
        throw new UnsupportedOperationException("the groups are not written row by row");
    }

    /** Moves every row of the old groups to its new group, if this task writes that group. */
    List<Object> move(int[] oldGroups, int[] newGroups) throws Exception {
        RowWriter[] outputs = new RowWriter[maxParallelism];
        try {
            for (int group : newGroups) {
                outputs[group] = output(group);
            }
            List<Object> lines = new ArrayList<>();
            for (int group : oldGroups) {
                lines.add("read\t" + group + "\t" + distribute((SourceRows) rows(group), outputs));
            }
            for (int group : newGroups) {
                lines.add("written\t" + group + "\t" + outputs[group].commit());
            }
            return lines;
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

    private List<Object> check(int[] oldGroups) throws Exception {
        List<Object> lines = new ArrayList<>();
        for (int group : oldGroups) {
            GroupRows input = rows(group);
            try {
                long rows = 0;
                long misplaced = 0;
                while (input.next()) {
                    rows++;
                    if (input.group() != group) {
                        misplaced++;
                    }
                }
                lines.add("checked\t" + group + "\t" + rows + "\t" + misplaced);
            } finally {
                input.close();
            }
        }
        return lines;
    }

    private static int[] parseNumbers(String text) {
        String[] words = text.split(",");
        int[] numbers = new int[words.length];
        for (int i = 0; i < words.length; i++) {
            numbers[i] = Integer.parseInt(words[i]);
        }
        return numbers;
    }
}
