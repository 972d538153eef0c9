package penstock.plans;

import java.util.Iterator;

import org.apache.spark.api.java.function.Function2;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;

/** Checks that each chunk of a window has as many rows as when it was aggregated, even if Spark recomputes it. */
public final class WindowChunkCheck {
    /** The position of the number of rows in a row of `ends`; see `WindowChunks.continued`. */
    private static final int ROWS = 2;

    /** Returns an RDD's rows; a task fails if their number differs from that in its chunk's row of `ends`. */
    @SuppressWarnings("unchecked") // functions of objects: Janino generates no bridge methods
    public RDD<Object> over(RDD<Object> rows, Object ends) {
        Object[] chunks = (Object[]) ends;
        long[] expectedRows = new long[chunks.length];
        for (int i = 0; i < chunks.length; i++) {
            InternalRow chunk = (InternalRow) chunks[i];
            expectedRows[i] = chunk.isNullAt(ROWS) ? 0 : chunk.getLong(ROWS);
        }
        Object counts = new Counts(expectedRows);
        return rows.toJavaRDD().mapPartitionsWithIndex((Function2<Integer, Iterator<Object>, Iterator<Object>>) counts, true).rdd();
    }

    private static final class Counts implements Function2<Object, Object, Object> {
        private static final long serialVersionUID = 1L;

        private final long[] expectedRows;

        Counts(long[] expectedRows) {
            this.expectedRows = expectedRows;
        }

        @Override
        public Object call(Object index, Object rows) {
            final int chunk = ((Integer) index).intValue();
            final long expected = chunk < expectedRows.length ? expectedRows[chunk] : 0;
            final Iterator<?> uncounted = (Iterator<?>) rows;
            return new Iterator<Object>() {
                private long rowsRead;

                @Override
                public boolean hasNext() {
                    boolean hasMore = uncounted.hasNext();
                    if (!hasMore && rowsRead != expected || rowsRead > expected) {
                        throw new IllegalStateException("Chunk " + chunk + " of a window had " + expected + " rows when it was"
                                + " aggregated, and now has " + (hasMore ? "more" : String.valueOf(rowsRead)) + ": lost rows were"
                                + " recomputed with a different result. Run the query again, or set"
                                + " table.optimizer.skewed-join-optimization.strategy to NONE");
                    }
                    return hasMore;
                }

                @Override
                public Object next() {
                    rowsRead++;
                    return uncounted.next();
                }
            };
        }
    }
}
