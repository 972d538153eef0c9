package penstock;

import java.util.Iterator;

import org.apache.spark.api.java.function.Function2;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;

/** Checks that a recomputed chunk of a window has the same number of rows as when it was aggregated. */
public final class WindowChunkCheck {
    private static final int ROWS = 2;

    /**
     * Returns the rows of an RDD; a task fails if its number of rows differs.
     *
     * @param ends the aggregate of each chunk: its first group, its last group, and its rows; further tasks have no rows
     */
    public RDD<Object> over(RDD<Object> rows, Object ends) {
        Object[] chunks = (Object[]) ends;
        long[] expectedRows = new long[chunks.length];
        for (int i = 0; i < chunks.length; i++) {
            InternalRow chunk = (InternalRow) chunks[i];
            expectedRows[i] = chunk.isNullAt(ROWS) ? 0 : chunk.getLong(ROWS);
        }
        return rows.toJavaRDD().mapPartitionsWithIndex(function(new Counts(expectedRows)), true).rdd();
    }

    @SuppressWarnings("unchecked")
    private static Function2<Integer, Iterator<Object>, Iterator<Object>> function(Object counts) {
        return (Function2<Integer, Iterator<Object>, Iterator<Object>>) counts;
    }

    /** The row counts of all chunks, sent to the executors. */
    private static final class Counts implements Function2<Object, Object, Object> {
        private static final long serialVersionUID = 1L;

        private final long[] expectedRows;

        Counts(long[] expectedRows) {
            this.expectedRows = expectedRows;
        }

        @Override
        public Object call(Object index, Object rows) {
            int task = ((Integer) index).intValue();
            return new CountedRows((Iterator<?>) rows, task, task < expectedRows.length ? expectedRows[task] : 0);
        }
    }

    /** The rows of a chunk. */
    private static final class CountedRows implements Iterator<Object> {
        private final Iterator<?> rows;
        private final int chunk;
        private final long expected;
        private long rowsRead;

        CountedRows(Iterator<?> rows, int chunk, long expected) {
            this.rows = rows;
            this.chunk = chunk;
            this.expected = expected;
        }

        @Override
        public boolean hasNext() {
            boolean hasMore = rows.hasNext();
            if (!hasMore && rowsRead != expected || rowsRead > expected) {
                throw new IllegalStateException("Chunk " + chunk + " of a window had " + expected + " rows when it was aggregated,"
                        + " and now has " + (hasMore ? "more" : String.valueOf(rowsRead)) + ": lost rows were recomputed with a"
                        + " different result. Run the query again, or set table.optimizer.skewed-join-optimization.strategy to NONE");
            }
            return hasMore;
        }

        @Override
        public Object next() {
            rowsRead++;
            return rows.next();
        }
    }
}
