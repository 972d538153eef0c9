package penstock;

import java.util.Collections;
import java.util.Iterator;

import org.apache.spark.api.java.function.Function2;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.MutableProjection;
import org.apache.spark.sql.catalyst.plans.physical.CoalescedBoundary;
import org.apache.spark.sql.catalyst.plans.physical.CoalescedHashPartitioning;
import org.apache.spark.sql.catalyst.plans.physical.HashPartitioning;
import org.apache.spark.sql.catalyst.plans.physical.Partitioning;
import org.apache.spark.sql.catalyst.plans.physical.PartitioningCollection;

import scala.collection.immutable.Seq;

/** Looks at every row of every task: does it lie where a claim about the rows' layout says? */
public final class LayoutCheck {
    /** Returns the rows of an RDD; a task fails at the first one that lies elsewhere than is claimed. */
    public RDD<Object> over(RDD<Object> rows, Partitioning layout, Seq<Attribute> columns, String who) {
        if (layout instanceof PartitioningCollection) {
            RDD<Object> checked = rows;
            for (Object part : Catalyst.each(((PartitioningCollection) layout).partitionings())) {
                checked = over(checked, (Partitioning) part, columns, who);
            }
            return checked;
        }
        return rows.toJavaRDD().mapPartitionsWithIndex(function(new Claim(layout, columns, who)), true).rdd();
    }

    @SuppressWarnings("unchecked")
    private static Function2<Integer, Iterator<Object>, Iterator<Object>> function(Object claim) {
        return (Function2<Integer, Iterator<Object>, Iterator<Object>>) claim;
    }

    /** What is claimed about all tasks. It goes to the executors. */
    private static final class Claim implements Function2<Object, Object, Object> {
        private static final long serialVersionUID = 1L;

        @SuppressWarnings("serial") // all expressions and all of Scala's sequences are serializable
        private final Expression place;
        @SuppressWarnings("serial")
        private final Seq<Attribute> columns;
        private final int[] starts;
        private final int[] ends;
        private final String claim;

        Claim(Partitioning layout, Seq<Attribute> columns, String who) {
            HashPartitioning hashing;
            if (layout instanceof CoalescedHashPartitioning) {
                CoalescedHashPartitioning merged = (CoalescedHashPartitioning) layout;
                hashing = merged.from();
                Seq<?> spans = merged.partitions();
                starts = new int[spans.size()];
                ends = new int[starts.length];
                for (int i = 0; i < starts.length; i++) {
                    CoalescedBoundary span = (CoalescedBoundary) spans.apply(i);
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
        }

        @Override
        public Object call(Object index, Object rows) {
            int task = ((Integer) index).intValue();
            if (task >= starts.length) {
                throw new IllegalStateException(
                        claim + ", read by " + starts.length + " tasks; there is a task " + task);
            }
            Seq<Expression> places = PythonUtils.toSeq(Collections.singletonList(place));
            return new Checked((Iterator<?>) rows, MutableProjection.create(places, columns), starts[task], ends[task],
                    claim + ", of which task " + task + " reads " + starts[task] + " to " + ends[task]);
        }
    }

    /** The rows of one task. */
    private static final class Checked implements Iterator<Object> {
        private final Iterator<?> rows;
        private final MutableProjection place;
        private final int start;
        private final int end;
        private final String claim;

        Checked(Iterator<?> rows, MutableProjection place, int start, int end, String claim) {
            this.rows = rows;
            this.place = place;
            this.start = start;
            this.end = end;
            this.claim = claim;
        }

        @Override
        public boolean hasNext() {
            return rows.hasNext();
        }

        @Override
        public Object next() {
            Object row = rows.next();
            Object hashed = place.apply((InternalRow) row);
            int found = ((InternalRow) hashed).getInt(0);
            if (found < start || found >= end) {
                throw new IllegalStateException(claim + "; it has a row of " + found);
            }
            return row;
        }
    }
}
