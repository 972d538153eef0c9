package penstock;

import java.util.Iterator;

import org.apache.spark.api.java.function.Function2;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;

/** Counts the rows of each piece of a window: a piece that was made again must have as many as when it was summed up. */
public final class PieceCount {
    private static final int ROWS = 2;

    /**
     * Returns the rows of an RDD; a task fails at its end if it had another number of them.
     *
     * @param ends what each piece was summed up to: its first group, its last one, and its rows; tasks beyond have none
     */
    public RDD<Object> over(RDD<Object> rows, Object ends) {
        Object[] pieces = (Object[]) ends;
        long[] counted = new long[pieces.length];
        for (int i = 0; i < pieces.length; i++) {
            InternalRow piece = (InternalRow) pieces[i];
            counted[i] = piece.isNullAt(ROWS) ? 0 : piece.getLong(ROWS);
        }
        return rows.toJavaRDD().mapPartitionsWithIndex(function(new Counts(counted)), true).rdd();
    }

    @SuppressWarnings("unchecked")
    private static Function2<Integer, Iterator<Object>, Iterator<Object>> function(Object counts) {
        return (Function2<Integer, Iterator<Object>, Iterator<Object>>) counts;
    }

    /** The rows of all pieces. It goes to the executors. */
    private static final class Counts implements Function2<Object, Object, Object> {
        private static final long serialVersionUID = 1L;

        private final long[] counted;

        Counts(long[] counted) {
            this.counted = counted;
        }

        @Override
        public Object call(Object index, Object rows) {
            int task = ((Integer) index).intValue();
            return new Counted((Iterator<?>) rows, task, task < counted.length ? counted[task] : 0);
        }
    }

    /** The rows of one piece. */
    private static final class Counted implements Iterator<Object> {
        private final Iterator<?> rows;
        private final int piece;
        private final long wanted;
        private long found;

        Counted(Iterator<?> rows, int piece, long wanted) {
            this.rows = rows;
            this.piece = piece;
            this.wanted = wanted;
        }

        @Override
        public boolean hasNext() {
            boolean goesOn = rows.hasNext();
            if (!goesOn && found != wanted || found > wanted) {
                throw new IllegalStateException("piece " + piece + " of a window had " + wanted + " rows when it was summed up,"
                        + " and has " + (goesOn ? "more" : String.valueOf(found)) + " now: rows that were lost came out otherwise"
                        + " when they were made again. Run the query again, or set table.optimizer.skewed-join-optimization.strategy to NONE");
            }
            return goesOn;
        }

        @Override
        public Object next() {
            found++;
            return rows.next();
        }
    }
}
