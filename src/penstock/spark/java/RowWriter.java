package penstock;

import java.util.ArrayList;
import java.util.List;

import org.apache.spark.sql.catalyst.expressions.UnsafeRow;

/** A new key group that is written row by row. */
abstract class RowWriter {
    abstract void add(UnsafeRow key, UnsafeRow value) throws Exception;

    /** Writes the group; returns its rows and the unique id of its version or an empty text. */
    abstract String commit() throws Exception;

    abstract void close() throws Exception;

    /** Moves every row of the old groups to its new group, if this task writes that group. */
    static List<Object> distribute(GroupMover mover, RowOutputs opener, int[] reads, int[] writes) throws Exception {
        RowWriter[] outputs = new RowWriter[mover.maxParallelism];
        try {
            for (int group : writes) {
                outputs[group] = opener.output(group);
            }
            List<Object> answers = new ArrayList<>();
            for (int group : reads) {
                answers.add("read\t" + group + "\t" + distribute((SourceRows) mover.rows(group), outputs));
            }
            for (int group : writes) {
                answers.add("written\t" + group + "\t" + outputs[group].commit());
            }
            return answers;
        } finally {
            closeAll(outputs);
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

    private static void closeAll(RowWriter[] outputs) throws Exception {
        for (RowWriter output : outputs) {
            if (output != null) {
                output.close();
            }
        }
    }
}
