package penstock;

import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Command;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.Origin;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.util.Utils;

/** The SQL text that a query was given as. Spark's parser leaves it in the nodes that it makes. */
public final class GivenText {
    /** What an action puts on top of a query, or what does not change which rows it has. */
    private static final Set<String> OF_ACTIONS = new HashSet<>(Arrays.asList(new String[] {
            "GlobalLimit", "LocalLimit", "Offset", "Tail", "Project", "SubqueryAlias", "ReturnAnswer", "WithCTE",
            "UnresolvedHint", "ResolvedHint", "Repartition", "RepartitionByExpression", "RebalancePartitions",
            "DeserializeToObject", "WriteFiles", "InsertIntoStatement"}));

    /** Returns the text of a query, without what the session's settings tell Spark to hide; null if there is none. */
    public static String of(LogicalPlan query, SparkSession session, String execution) {
        LogicalPlan asked = asked(query, execution);
        String text = asked == null ? null : atTop(asked);
        if (text == null) {
            text = atTop(query);
        }
        return text == null ? null : Utils.redact(session.sessionState().conf().stringRedactionPattern(), text);
    }

    /**
     * Returns the plan of an execution as the user gave it, as the optimiser loses texts. A query that is run for the
     * execution, but is no part of its plan, such as that of cached rows, has another text.
     */
    private static LogicalPlan asked(LogicalPlan query, String execution) {
        QueryExecution found = execution == null ? null : SQLExecution.getQueryExecution(Long.parseLong(execution));
        return found == null || !isPart(query, found.optimizedPlan()) ? null : found.logical();
    }

    private static boolean isPart(LogicalPlan query, LogicalPlan plan) {
        if (plan.equals(query)) {
            return true;
        }
        for (Object child : Catalyst.each(plan.children())) {
            if (isPart(query, (LogicalPlan) child)) {
                return true;
            }
        }
        return false;
    }

    /** Returns the text of the first node that has one; null if the user did more to the rows than the text says. */
    private static String atTop(LogicalPlan top) {
        LogicalPlan plan = top;
        while (true) {
            Origin origin = plan.origin();
            if (origin.sqlText().isDefined() && origin.objectType().isEmpty()) {
                Object text = origin.sqlText().get();
                return (String) text;
            }
            boolean isOfAction = OF_ACTIONS.contains(Catalyst.name(plan)) || plan instanceof Command || isOfAllRows(plan);
            List<?> children = Catalyst.each(plan.children());
            if (!isOfAction || children.isEmpty()) {
                return null;
            }
            plan = (LogicalPlan) children.get(children.size() - 1); // definitions of a WITH come before its query
        }
    }

    private static boolean isOfAllRows(LogicalPlan plan) {
        return plan instanceof Aggregate && ((Aggregate) plan).groupingExpressions().isEmpty();
    }
}
