package penstock;

import java.util.ArrayList;
import java.util.List;

import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.physical.ClusteredDistribution;
import org.apache.spark.sql.catalyst.plans.physical.CoalescedBoundary;
import org.apache.spark.sql.catalyst.plans.physical.CoalescedHashPartitioning;
import org.apache.spark.sql.catalyst.plans.physical.CoalescedHashShuffleSpec;
import org.apache.spark.sql.catalyst.plans.physical.HashPartitioning;
import org.apache.spark.sql.catalyst.plans.physical.Partitioning;
import org.apache.spark.sql.catalyst.plans.physical.PartitioningCollection;
import org.apache.spark.sql.catalyst.plans.physical.ShuffleSpec;
import org.apache.spark.sql.execution.adaptive.InvalidAQEPlanException;
import org.apache.spark.unsafe.Platform;

import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;

/**
 * Layouts of merged subpartitions that Spark takes for alike if they are cut alike, and that it cannot follow.
 *
 * Spark's planner exchanges all inputs of a join unless one of them says that others could be laid out like it
 * (EnsureRequirements). The merged hash partitioning of AQE never says so, although two of them can be alike. One of
 * these here says so, and fails the planning if another input is really to be laid out like it: then the vertex is
 * planned again without it. AQE itself takes such a failure for a plan that it must not use, and keeps the one it has.
 */
public final class CutLayouts {
    /** The message of a planning that failed; `layouts.is_refused` looks for it. */
    public static final String REFUSED = "no other input can be laid out like merged subpartitions";

    /** Returns a layout with its merged parts in this form. */
    public Partitioning of(Partitioning layout) {
        if (layout instanceof PartitioningCollection) {
            List<Partitioning> parts = new ArrayList<>();
            for (Object part : Catalyst.each(((PartitioningCollection) layout).partitionings())) {
                parts.add(of((Partitioning) part));
            }
            return new PartitioningCollection(PythonUtils.toSeq(parts));
        }
        if (layout instanceof CoalescedHashPartitioning) {
            CoalescedHashPartitioning merged = (CoalescedHashPartitioning) layout;
            return new Cut(merged.from(), merged.partitions());
        }
        return layout;
    }

    /** The layout. */
    public static final class Cut extends CoalescedHashPartitioning {
        private static final long serialVersionUID = 1L;

        public Cut(HashPartitioning from, Seq<CoalescedBoundary> partitions) {
            super(from, partitions);
        }

        @Override
        public ShuffleSpec createShuffleSpec(ClusteredDistribution distribution) {
            return new CutSpec(from().createShuffleSpec(distribution), partitions());
        }

        @Override
        public CoalescedHashPartitioning withNewChildrenInternal(IndexedSeq<Expression> children) {
            Object changed = from().withNewChildren(children);
            return new Cut((HashPartitioning) changed, partitions());
        }

        @Override
        public CoalescedHashPartitioning copy(HashPartitioning from, Seq<CoalescedBoundary> partitions) {
            return new Cut(from, partitions);
        }
    }

    /** What Spark compares two inputs of an operator by. */
    public static final class CutSpec extends CoalescedHashShuffleSpec {
        private static final long serialVersionUID = 1L;

        public CutSpec(ShuffleSpec from, Seq<CoalescedBoundary> partitions) {
            super(from, partitions);
        }

        @Override
        public boolean canCreatePartitioning() {
            return true;
        }

        @Override
        public Partitioning createPartitioning(Seq<Expression> clustering) {
            Platform.throwException(new InvalidAQEPlanException<LogicalPlan>(REFUSED, null)); // Java would have it declared
            return null;
        }
    }
}
