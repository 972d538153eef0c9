package penstock.plans;

import java.util.Set;

import org.apache.spark.sql.catalyst.catalog.HiveTableRelation;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Nondeterministic;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Repartition;
import org.apache.spark.sql.catalyst.plans.logical.Sample;
import org.apache.spark.sql.catalyst.plans.logical.Sort;
import org.apache.spark.sql.execution.columnar.InMemoryRelation;

/** Whether and how a query depends on the partitions in which its rows are read. */
public final class RowLayout {
    /** Operator that numbers rows by partition: DataFrame.zipWithIndex, and the default index of pandas on Spark. */
    static final String NUMBERED = "AttachDistributedSequence";

    private static final Set<String> NARROW = Catalyst.words("Project Filter Generate Expand Sample LocalLimit "
            + "BatchEvalPython ArrowEvalPython MapInPandas MapInArrow PythonMapInArrow DeserializeToObject SerializeFromObject "
            + "MapElements MapPartitions TypedFilter SubqueryAlias Union " + NUMBERED);

    /** Leaves other than files that Spark partitions the same way in every query. */
    private static final Set<String> STABLE_LEAVES = Catalyst.words(
            "LocalRelation LogicalRDD ExternalRDD Range OneRowRelation");

    public static boolean isNarrow(LogicalPlan plan) {
        for (LogicalPlan node : Catalyst.nodes(plan)) {
            if (!node.subqueries().isEmpty() || !(node.children().isEmpty() || isNarrowOperator(node))) {
                return false;
            }
        }
        return true;
    }

    public static boolean isNarrowOperator(LogicalPlan plan) {
        return NARROW.contains(Catalyst.name(plan))
                || plan instanceof Repartition && !((Repartition) plan).shuffle()
                || plan instanceof Sort && !((Sort) plan).global();
    }

    /**
     * Whether rows or values of a plan depend on the partition in which Spark reads a row, and on its position there.
     *
     * A program may compute such rows in several queries, and expects equal results: only then do the parts of a random
     * split add up to all rows.
     */
    public static boolean dependsOnPartitions(LogicalPlan plan) {
        for (LogicalPlan node : Catalyst.withSubqueries(plan)) {
            if (node instanceof Sample || usesPartitions(node) && isNarrow(node)) { // no shuffle below the node
                return true;
            }
        }
        return false;
    }

    /** Whether an operator numbers rows, or has an expression such as rand or monotonically_increasing_id. */
    private static boolean usesPartitions(LogicalPlan plan) {
        for (Expression part : Catalyst.parts(plan.expressions())) {
            if (part instanceof Nondeterministic && !Catalyst.name(part).startsWith("InputFile")) {
                return true;
            }
        }
        return Catalyst.name(plan).equals(NUMBERED);
    }

    /** Whether a plan only reads cached rows. */
    public static boolean readsOnlyCache(LogicalPlan plan) {
        return readsOnly(plan, false);
    }

    /** Whether Spark partitions all sources of a plan the same way in every query, unlike database tables. */
    public static boolean hasStablePartitions(LogicalPlan plan) {
        return readsOnly(plan, true);
    }

    private static boolean readsOnly(LogicalPlan plan, boolean allowsStableLeaves) {
        for (LogicalPlan leaf : Catalyst.each(plan.collectLeaves())) {
            boolean isStable = STABLE_LEAVES.contains(Catalyst.name(leaf)) || leaf instanceof HiveTableRelation
                    || Catalyst.fileRelation(leaf) != null;
            if (!(leaf instanceof InMemoryRelation || allowsStableLeaves && isStable)) {
                return false;
            }
        }
        return true;
    }
}
