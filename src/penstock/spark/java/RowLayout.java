package penstock;

import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;

import org.apache.spark.sql.catalyst.catalog.HiveTableRelation;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Nondeterministic;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Repartition;
import org.apache.spark.sql.catalyst.plans.logical.Sample;
import org.apache.spark.sql.catalyst.plans.logical.Sort;
import org.apache.spark.sql.execution.columnar.InMemoryRelation;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;

import scala.collection.immutable.Seq;

/** What a program sees of the partitions in which the rows of a query are read. */
final class RowLayout {
    /** Numbers rows by the partitions they are in: DataFrame.zipWithIndex, and the default index of pandas on Spark. */
    static final String NUMBERED = "AttachDistributedSequence";

    /** Operators that need no shuffle. */
    private static final Set<String> NARROW = new HashSet<>(Arrays.asList(new String[] {
            "Project", "Filter", "Generate", "Expand", "Sample", "LocalLimit", "BatchEvalPython", "ArrowEvalPython",
            "MapInPandas", "MapInArrow", "PythonMapInArrow", "DeserializeToObject", "SerializeFromObject", "MapElements",
            "MapPartitions", "TypedFilter", "SubqueryAlias", "Union", NUMBERED}));

    /** Leaves besides files that Spark divides the same way for each query. */
    private static final Set<String> DIVIDED_BY_SPARK = new HashSet<>(Arrays.asList(new String[] {
            "LocalRelation", "LogicalRDD", "ExternalRDD", "Range", "OneRowRelation"}));

    private RowLayout() {
    }

    /** Whether a plan needs no shuffle. */
    static boolean isNarrow(LogicalPlan plan) {
        if (!plan.subqueries().isEmpty() || !(plan.children().isEmpty() || isNarrowItself(plan))) {
            return false;
        }
        for (Object below : Catalyst.each(plan.children())) {
            if (!isNarrow((LogicalPlan) below)) {
                return false;
            }
        }
        return true;
    }

    static boolean isNarrowItself(LogicalPlan plan) {
        return NARROW.contains(Catalyst.name(plan))
                || plan instanceof Repartition && !((Repartition) plan).shuffle()
                || plan instanceof Sort && !((Sort) plan).global();
    }

    /**
     * Whether a part of a plan gives rows or values by the partition where a row is read, and by its place there.
     *
     * A program may ask for them in several queries, and expects the same: only then do the parts of a random split make
     * up the whole.
     */
    static boolean decidesValues(LogicalPlan plan) {
        boolean uses = Catalyst.name(plan).equals(NUMBERED) || usesPartitions(plan.expressions());
        if (plan instanceof Sample || uses && isNarrow(plan)) {
            return true;
        }
        for (Object each : Catalyst.below(plan)) {
            if (decidesValues((LogicalPlan) each)) {
                return true;
            }
        }
        return false;
    }

    /** Whether there is such an expression as rand or monotonically_increasing_id. */
    private static boolean usesPartitions(Seq<?> expressions) {
        for (Object each : Catalyst.each(expressions)) {
            if (each instanceof Nondeterministic && !Catalyst.name(each).startsWith("InputFile")
                    || usesPartitions(((Expression) each).children())) {
                return true;
            }
        }
        return false;
    }

    /** Whether a plan reads cached rows only. */
    static boolean isCached(LogicalPlan plan) {
        return reads(plan, false);
    }

    /** Whether Spark divides all that a plan reads the same way for each query: a table of a database has no such way. */
    static boolean isOfSpark(LogicalPlan plan) {
        return reads(plan, true);
    }

    private static boolean reads(LogicalPlan plan, boolean also) {
        if (plan.children().isEmpty()) {
            return plan instanceof InMemoryRelation || also && isDividedBySpark(plan);
        }
        for (Object below : Catalyst.each(plan.children())) {
            if (!reads((LogicalPlan) below, also)) {
                return false;
            }
        }
        return true;
    }

    private static boolean isDividedBySpark(LogicalPlan leaf) {
        return DIVIDED_BY_SPARK.contains(Catalyst.name(leaf)) || leaf instanceof HiveTableRelation
                || leaf instanceof LogicalRelation && ((LogicalRelation) leaf).relation() instanceof HadoopFsRelation;
    }
}
