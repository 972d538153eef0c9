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

/** Checks for every row that its partition agrees with the declared hash partitioning. */
public final class LayoutCheck {
    /** Returns the rows of an RDD; a task fails at the first row that belongs to another partition. */
    public RDD<Object> over(RDD<Object> rows, Partitioning layout, Seq<Attribute> columns, String claimant) {
        if (layout instanceof PartitioningCollection) {
            RDD<Object> checked = rows;
            for (Object part : Catalyst.each(((PartitioningCollection) layout).partitionings())) {
                checked = over(checked, (Partitioning) part, columns, claimant);
            }
            return checked;
        }
        return rows.toJavaRDD().mapPartitionsWithIndex(function(new Claim(layout, columns, claimant)), true).rdd();
    }

    @SuppressWarnings("unchecked")
    private static Function2<Integer, Iterator<Object>, Iterator<Object>> function(Object claim) {
        return (Function2<Integer, Iterator<Object>, Iterator<Object>>) claim;
    }

    /** The declared partitioning of all tasks, sent to the executors. */
    private static final class Claim implements Function2<Object, Object, Object> {
        private static final long serialVersionUID = 1L;

        @SuppressWarnings("serial") // all expressions and all of Scala's sequences are serializable
        private final Expression partition;
        @SuppressWarnings("serial")
        private final Seq<Attribute> columns;
        private final int[] starts;
        private final int[] ends;
        private final String claim;

        Claim(Partitioning layout, Seq<Attribute> columns, String claimant) {
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
            this.partition = hashing.partitionIdExpression();
            this.columns = columns;
            this.claim = claimant + " claims rows hashed by " + hashing.expressions().mkString(", ") + " into "
                    + hashing.numPartitions();
        }

        @Override
        public Object call(Object index, Object rows) {
            int task = ((Integer) index).intValue();
            if (task >= starts.length) {
                throw new IllegalStateException(
                        claim + ", read by " + starts.length + " tasks; there is a task " + task);
            }
            Seq<Expression> projection = PythonUtils.toSeq(Collections.singletonList(partition));
            return new Checked((Iterator<?>) rows, MutableProjection.create(projection, columns), starts[task], ends[task],
                    claim + ", of which task " + task + " reads " + starts[task] + " to " + ends[task]);
        }
    }

    /** The rows of one task. */
    private static final class Checked implements Iterator<Object> {
        private final Iterator<?> rows;
        private final MutableProjection partition;
        private final int start;
        private final int end;
        private final String claim;

        Checked(Iterator<?> rows, MutableProjection partition, int start, int end, String claim) {
            this.rows = rows;
            this.partition = partition;
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
            Object hashed = partition.apply((InternalRow) row);
            int actual = ((InternalRow) hashed).getInt(0);
            if (actual < start || actual >= end) {
                throw new IllegalStateException(claim + "; it has a row of " + actual);
            }
            return row;
        }
    }
}
