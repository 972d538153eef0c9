package penstock;

import java.util.Arrays;
import java.util.Iterator;

import org.apache.spark.api.java.function.Function2;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.MutableProjection;
import org.apache.spark.sql.catalyst.plans.physical.CoalescedBoundary;
import org.apache.spark.sql.catalyst.plans.physical.CoalescedHashPartitioning;
import org.apache.spark.sql.catalyst.plans.physical.HashPartitioning;
import org.apache.spark.sql.catalyst.plans.physical.Partitioning;
import org.apache.spark.sql.catalyst.plans.physical.PartitioningCollection;

import scala.collection.immutable.Seq;

/**
 * Looks at every row of every task: does it lie where a claim about the rows' layout says?
 *
 * Compiled inside Spark by Janino, which knows neither lambdas nor inferred type arguments; hence the plain style.
 */
public final class LayoutCheck implements Function2 {
    private Expression place;
    private Seq columns;
    private int[] starts;
    private int[] ends;
    private String claim;

    /** Returns the rows of an RDD; a task fails at the first one that lies elsewhere than is claimed. */
    public RDD over(RDD rows, Partitioning layout, Seq columns, String who) {
        if (layout instanceof PartitioningCollection) {
            scala.collection.Iterator parts = ((PartitioningCollection) layout).partitionings().iterator();
            while (parts.hasNext()) {
                rows = new LayoutCheck().over(rows, (Partitioning) parts.next(), columns, who);
            }
            return rows;
        }
        HashPartitioning hashing;
        if (layout instanceof CoalescedHashPartitioning) {
            CoalescedHashPartitioning merged = (CoalescedHashPartitioning) layout;
            hashing = merged.from();
            starts = new int[merged.partitions().size()];
            ends = new int[starts.length];
            for (int i = 0; i < starts.length; i++) {
                CoalescedBoundary span = (CoalescedBoundary) merged.partitions().apply(i);
                starts[i] = span.startReducerIndex();
                ends[i] = span.endReducerIndex();
            }
        } else {
            hashing = (HashPartitioning) layout;
            starts = new int[hashing.numPartitions()];
            ends = new int[starts.length];
            for (int i = 0; i < starts.length; i++) {
                starts[i] = i;
                ends[i] = i + 1;
            }
        }
        this.place = hashing.partitionIdExpression();
        this.columns = columns;
        this.claim = who + " claims rows hashed by " + hashing.expressions().mkString(", ") + " into "
                + hashing.numPartitions();
        return rows.toJavaRDD().mapPartitionsWithIndex(this, true).rdd();
    }

    public Object call(Object index, Object rows) {
        int task = ((Integer) index).intValue();
        Seq places = PythonUtils.toSeq(Arrays.asList(new Object[] {place}));
        if (task >= starts.length) {
            throw new IllegalStateException(claim + ", read by " + starts.length + " tasks; there is a task " + task);
        }
        return new Checked((Iterator) rows, MutableProjection.create(places, columns), starts[task], ends[task],
                claim + ", of which task " + task + " reads " + starts[task] + " to " + ends[task]);
    }

    /** The rows of one task. */
    private static final class Checked implements Iterator {
        private final Iterator rows;
        private final MutableProjection place;
        private final int start;
        private final int end;
        private final String claim;

        Checked(Iterator rows, MutableProjection place, int start, int end, String claim) {
            this.rows = rows;
            this.place = place;
            this.start = start;
            this.end = end;
            this.claim = claim;
        }

        public boolean hasNext() {
            return rows.hasNext();
        }

        public Object next() {
            Object row = rows.next();
            int found = ((InternalRow) place.apply(row)).getInt(0);
            if (found < start || found >= end) {
                throw new IllegalStateException(claim + "; it has a row of " + found);
            }
            return row;
        }

        public void remove() {
            throw new UnsupportedOperationException();
        }
    }
}
