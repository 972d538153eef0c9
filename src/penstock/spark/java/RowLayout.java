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

/** Whether and how a query depends on the partitions in which its rows are read. */
final class RowLayout {
    /** Numbers rows by partition: DataFrame.zipWithIndex, and the default index of pandas on Spark. */
    static final String NUMBERED = "AttachDistributedSequence";

    /** Operators that need no shuffle. */
    private static final Set<String> NARROW = new HashSet<>(Arrays.asList(new String[] {
            "Project", "Filter", "Generate", "Expand", "Sample", "LocalLimit", "BatchEvalPython", "ArrowEvalPython",
            "MapInPandas", "MapInArrow", "PythonMapInArrow", "DeserializeToObject", "SerializeFromObject", "MapElements",
            "MapPartitions", "TypedFilter", "SubqueryAlias", "Union", NUMBERED}));

    /** Leaves other than files that Spark partitions the same way in every query. */
    private static final Set<String> STABLE_LEAVES = new HashSet<>(Arrays.asList(new String[] {
            "LocalRelation", "LogicalRDD", "ExternalRDD", "Range", "OneRowRelation"}));

    private RowLayout() {
    }

    /** Whether a plan needs no shuffle. */
    static boolean isNarrow(LogicalPlan plan) {
        if (!plan.subqueries().isEmpty() || !(plan.children().isEmpty() || isNarrowOperator(plan))) {
            return false;
        }
        for (Object below : Catalyst.each(plan.children())) {
            if (!isNarrow((LogicalPlan) below)) {
                return false;
            }
        }
        return true;
    }

    static boolean isNarrowOperator(LogicalPlan plan) {
        return NARROW.contains(Catalyst.name(plan))
                || plan instanceof Repartition && !((Repartition) plan).shuffle()
                || plan instanceof Sort && !((Sort) plan).global();
    }

    /**
     * Whether rows or values of a plan depend on the partition of a row, and on its position there.
     *
     * A program may compute them in several queries and expects equal results: only then do the parts of a random split
     * add up to all rows.
     */
    static boolean dependsOnPartitions(LogicalPlan plan) {
        boolean usesThem = Catalyst.name(plan).equals(NUMBERED) || usesPartitions(plan.expressions());
        if (plan instanceof Sample || usesThem && isNarrow(plan)) {
            return true;
        }
        for (Object element : Catalyst.below(plan)) {
            if (dependsOnPartitions((LogicalPlan) element)) {
                return true;
            }
        }
        return false;
    }

    /** Whether an expression such as rand or monotonically_increasing_id occurs. */
    private static boolean usesPartitions(Seq<?> expressions) {
        for (Object element : Catalyst.each(expressions)) {
            if (element instanceof Nondeterministic && !Catalyst.name(element).startsWith("InputFile")
                    || usesPartitions(((Expression) element).children())) {
                return true;
            }
        }
        return false;
    }

    /** Whether a plan only reads cached rows. */
    static boolean readsOnlyCache(LogicalPlan plan) {
        return reads(plan, false);
    }

    /** Whether Spark partitions all sources of a plan the same way in every query, unlike database tables. */
    static boolean hasStablePartitions(LogicalPlan plan) {
        return reads(plan, true);
    }

    private static boolean reads(LogicalPlan plan, boolean allowsStable) {
        if (plan.children().isEmpty()) {
            return plan instanceof InMemoryRelation || allowsStable && isStable(plan);
        }
        for (Object below : Catalyst.each(plan.children())) {
            if (!reads((LogicalPlan) below, allowsStable)) {
                return false;
            }
        }
        return true;
    }

    private static boolean isStable(LogicalPlan leaf) {
        return STABLE_LEAVES.contains(Catalyst.name(leaf)) || leaf instanceof HiveTableRelation
                || leaf instanceof LogicalRelation && ((LogicalRelation) leaf).relation() instanceof HadoopFsRelation;
    }
}
