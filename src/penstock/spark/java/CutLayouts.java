package penstock;

import java.util.ArrayList;
import java.util.List;

import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.physical.ClusteredDistribution;
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
 *
 * Compiled inside Spark by Janino, which knows neither lambdas nor inferred type arguments; hence the plain style.
 */
public final class CutLayouts {
    /** The message of a planning that failed; `exchange.is_refused` looks for it. */
    public static final String REFUSED = "no other input can be laid out like merged subpartitions";

    /** Returns a layout with its merged parts in this form. */
    public Partitioning of(Partitioning layout) {
        if (layout instanceof PartitioningCollection) {
            List parts = new ArrayList();
            scala.collection.Iterator each = ((PartitioningCollection) layout).partitionings().iterator();
            while (each.hasNext()) {
                parts.add(of((Partitioning) each.next()));
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
        public Cut(HashPartitioning from, Seq partitions) {
            super(from, partitions);
        }

        public ShuffleSpec createShuffleSpec(ClusteredDistribution distribution) {
            return new CutSpec(from().createShuffleSpec(distribution), partitions());
        }

        public CoalescedHashPartitioning withNewChildrenInternal(IndexedSeq children) {
            return new Cut((HashPartitioning) ((Expression) from()).withNewChildren(children), partitions());
        }

        public CoalescedHashPartitioning copy(HashPartitioning from, Seq partitions) {
            return new Cut(from, partitions);
        }
    }

    /** What Spark compares two inputs of an operator by. */
    public static final class CutSpec extends CoalescedHashShuffleSpec {
        public CutSpec(ShuffleSpec from, Seq partitions) {
            super(from, partitions);
        }

        public boolean canCreatePartitioning() {
            return true;
        }

        public Partitioning createPartitioning(Seq clustering) {
            Platform.throwException(new InvalidAQEPlanException(REFUSED, null)); // Java would have it declared
            return null;
        }
    }
}
