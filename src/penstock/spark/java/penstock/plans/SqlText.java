package penstock.plans;

import java.util.List;
import java.util.Set;

import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Command;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.Origin;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.sql.execution.columnar.InMemoryRelation;
import org.apache.spark.util.Utils;

/** The SQL text of a query. Spark's parser stores it in the nodes that it creates. */
public final class SqlText {
    /** Operators that an action adds on top of a query, or that do not change the query's rows. */
    private static final Set<String> TRANSPARENT = Catalyst.words("GlobalLimit LocalLimit Offset Tail Project "
            + "SubqueryAlias ReturnAnswer WithCTE UnresolvedHint ResolvedHint Repartition RepartitionByExpression "
            + "RebalancePartitions DeserializeToObject WriteFiles InsertIntoStatement");

    /** Returns the text of a query, redacted as the session's settings require; null if it has none. */
    public static String of(LogicalPlan query, SparkSession session, String execution) {
        LogicalPlan logical = logicalPlan(query, execution);
        String text = logical == null ? null : topmostText(logical);
        if (text == null) {
            text = topmostText(query);
        }
        return text == null ? null : Utils.redact(session.sessionState().conf().stringRedactionPattern(), text);
    }

    /** Whether the query is not part of an execution's plan, which reads its cached rows. */
    public static boolean fillsCache(LogicalPlan query, String execution) {
        QueryExecution queryExecution = queryExecution(execution);
        return queryExecution != null && !isPart(query, queryExecution) && hasCachedRows(queryExecution.optimizedPlan());
    }

    private static boolean hasCachedRows(LogicalPlan plan) {
        for (Object leaf : Catalyst.each(plan.collectLeaves())) {
            if (leaf instanceof InMemoryRelation) {
                return true;
            }
        }
        return false;
    }

    private static QueryExecution queryExecution(String execution) {
        return execution == null ? null : SQLExecution.getQueryExecution(Long.parseLong(execution));
    }

    private static boolean isPart(LogicalPlan query, QueryExecution execution) {
        return Catalyst.nodes(execution.optimizedPlan()).contains(query);
    }

    /**
     * Returns the plan of an execution before optimization, as the optimizer drops texts. Returns null if the query is not
     * part of the execution's plan, such as the query of cached rows, which has another text.
     */
    private static LogicalPlan logicalPlan(LogicalPlan query, String execution) {
        QueryExecution queryExecution = queryExecution(execution);
        return queryExecution != null && isPart(query, queryExecution) ? queryExecution.logical() : null;
    }

    /** Returns the text of the topmost node that has a text; null if the user has transformed the rows further. */
    private static String topmostText(LogicalPlan top) {
        LogicalPlan plan = top;
        while (true) {
            Origin origin = plan.origin();
            if (origin.sqlText().isDefined() && origin.objectType().isEmpty()) {
                return (String) (Object) origin.sqlText().get();
            }
            boolean isTransparent = TRANSPARENT.contains(Catalyst.name(plan)) || plan instanceof Command
                    || plan instanceof Aggregate && ((Aggregate) plan).groupingExpressions().isEmpty();
            List<?> children = Catalyst.each(plan.children());
            if (!isTransparent || children.isEmpty()) {
                return null;
            }
            plan = (LogicalPlan) children.get(children.size() - 1); // the definitions of a WITH precede its query
        }
    }
}
