package penstock.exchange;

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

import penstock.plans.Catalyst;

/**
 * Coalesced hash partitionings: Spark considers two of them compatible if their boundaries are equal.
 *
 * Spark's planner exchanges all inputs of a join unless one of them reports that the others can be repartitioned like it
 * (EnsureRequirements). The coalesced hash partitioning of AQE never reports that, although two of them can be compatible.
 * The subclass here reports it, and fails the planning if Spark tries to repartition another input like it: the vertex is
 * then planned again without the subclass. AQE itself treats this failure as an invalid plan, and retains its current plan.
 */
public final class CoalescedLayouts {
    /** The message of the failed planning, which `layouts.is_repartition_refused` detects. */
    public static final String REFUSED = "no other input can be repartitioned like coalesced subpartitions";

    /** Returns a partitioning whose coalesced parts are replaced by the subclass. */
    public Partitioning of(Partitioning partitioning) {
        if (partitioning instanceof PartitioningCollection) {
            List<Partitioning> parts = new ArrayList<>();
            for (Partitioning part : Catalyst.each(((PartitioningCollection) partitioning).partitionings())) {
                parts.add(of(part));
            }
            return new PartitioningCollection(PythonUtils.toSeq(parts));
        }
        if (partitioning instanceof CoalescedHashPartitioning) {
            CoalescedHashPartitioning coalesced = (CoalescedHashPartitioning) partitioning;
            return new Coalesced(coalesced.from(), coalesced.partitions());
        }
        return partitioning;
    }

    /** A coalesced hash partitioning that reports itself as a target for other inputs. */
    public static final class Coalesced extends CoalescedHashPartitioning {
        private static final long serialVersionUID = 1L;

        public Coalesced(HashPartitioning from, Seq<CoalescedBoundary> partitions) {
            super(from, partitions);
        }

        @Override
        public ShuffleSpec createShuffleSpec(ClusteredDistribution distribution) {
            return new CoalescedSpec(from().createShuffleSpec(distribution), partitions());
        }

        @Override
        public CoalescedHashPartitioning withNewChildrenInternal(IndexedSeq<Expression> children) {
            return new Coalesced((HashPartitioning) (Object) from().withNewChildren(children), partitions());
        }

        @Override
        public CoalescedHashPartitioning copy(HashPartitioning from, Seq<CoalescedBoundary> partitions) {
            return new Coalesced(from, partitions);
        }
    }

    /** The specification by which Spark compares two inputs of an operator. */
    public static final class CoalescedSpec extends CoalescedHashShuffleSpec {
        private static final long serialVersionUID = 1L;

        public CoalescedSpec(ShuffleSpec from, Seq<CoalescedBoundary> partitions) {
            super(from, partitions);
        }

        @Override
        public boolean canCreatePartitioning() {
            return true;
        }

        @Override
        public Partitioning createPartitioning(Seq<Expression> clustering) {
            Platform.throwException(new InvalidAQEPlanException<LogicalPlan>(REFUSED, null)); // a checked exception that Spark does not declare
            return null;
        }
    }
}
