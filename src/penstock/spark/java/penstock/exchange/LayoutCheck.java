package penstock.exchange;

import java.util.Iterator;

import org.apache.spark.api.java.function.Function2;
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

import penstock.plans.Catalyst;

/** Checks for every row that its partition agrees with the declared hash partitioning. */
public final class LayoutCheck {
    /** Returns the rows of an RDD; a task fails at the first row that belongs to another partition. */
    @SuppressWarnings("unchecked") // functions of objects: Janino generates no bridge methods
    public RDD<Object> over(RDD<Object> rows, Partitioning layout, Seq<Attribute> columns, String subject) {
        if (layout instanceof PartitioningCollection) {
            RDD<Object> checked = rows;
            for (Partitioning part : Catalyst.each(((PartitioningCollection) layout).partitionings())) {
                checked = over(checked, part, columns, subject);
            }
            return checked;
        }
        Object check = new DeclaredLayout(layout, columns, subject);
        return rows.toJavaRDD().mapPartitionsWithIndex((Function2<Integer, Iterator<Object>, Iterator<Object>>) check, true).rdd();
    }

    /** Checks each row of a task against the declared layout, and returns the row. */
    private static final class DeclaredLayout implements Function2<Object, Object, Object> {
        private static final long serialVersionUID = 1L;

        @SuppressWarnings("serial") // all expressions and all of Scala's sequences are serializable
        private final Expression subpartition;
        @SuppressWarnings("serial")
        private final Seq<Attribute> columns;
        /** The subpartitions of each task. */
        private final CoalescedBoundary[] spans;
        private final String declaration;

        DeclaredLayout(Partitioning layout, Seq<Attribute> columns, String subject) {
            CoalescedHashPartitioning merged = layout instanceof CoalescedHashPartitioning ? (CoalescedHashPartitioning) layout : null;
            HashPartitioning hashing = merged == null ? (HashPartitioning) layout : merged.from();
            spans = new CoalescedBoundary[merged == null ? hashing.numPartitions() : merged.partitions().size()];
            for (int i = 0; i < spans.length; i++) {
                spans[i] = merged == null ? new CoalescedBoundary(i, i + 1) : (CoalescedBoundary) (Object) merged.partitions().apply(i);
            }
            this.subpartition = hashing.partitionIdExpression();
            this.columns = columns;
            this.declaration = subject + " claims rows hashed by " + hashing.expressions().mkString(", ") + " into "
                    + hashing.numPartitions();
        }

        @Override
        public Object call(Object index, Object rows) {
            final int task = ((Integer) index).intValue();
            if (task >= spans.length) {
                throw new IllegalStateException(declaration + ", read by " + spans.length + " tasks; there is a task " + task);
            }
            final Iterator<?> unchecked = (Iterator<?>) rows;
            final MutableProjection projection = MutableProjection.create(Catalyst.seq(subpartition), columns);
            return new Iterator<Object>() {
                @Override
                public boolean hasNext() {
                    return unchecked.hasNext();
                }

                @Override
                public Object next() {
                    Object row = unchecked.next();
                    Object hashed = projection.apply((InternalRow) row);
                    check(task, ((InternalRow) hashed).getInt(0));
                    return row;
                }
            };
        }

        void check(int task, int subpartition) {
            CoalescedBoundary span = spans[task];
            if (subpartition < span.startReducerIndex() || subpartition >= span.endReducerIndex()) {
                throw new IllegalStateException(declaration + ", of which task " + task + " reads " + span.startReducerIndex() + " to "
                        + span.endReducerIndex() + "; it has a row of " + subpartition);
            }
        }
    }
}
