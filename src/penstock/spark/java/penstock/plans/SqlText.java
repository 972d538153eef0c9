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

    /**
     * Returns the text of a query, redacted as the session's settings require; null if it has none. `logical` is the plan
     * of its execution before optimization, as the optimizer drops texts; null if the query is not part of it, such as the
     * query of cached rows, which has another text.
     */
    public static String of(LogicalPlan query, SparkSession session, LogicalPlan logical) {
        String text = logical == null ? null : topmostText(logical);
        if (text == null) {
            text = topmostText(query);
        }
        return text == null ? null : Utils.redact(session.sessionState().conf().stringRedactionPattern(), text);
    }

    /** Returns the execution with an id; null if there is none. */
    public static QueryExecution execution(String id) {
        return id == null ? null : SQLExecution.getQueryExecution(Long.parseLong(id));
    }

    /** Whether a query is part of an execution's plan; a query whose rows are cached for it is not. */
    public static boolean isPart(LogicalPlan query, QueryExecution execution) {
        return Catalyst.nodes(execution.optimizedPlan()).contains(query);
    }

    /** Whether an execution reads cached rows. */
    public static boolean hasCachedRows(QueryExecution execution) {
        for (Object leaf : Catalyst.each(execution.optimizedPlan().collectLeaves())) {
            if (leaf instanceof InMemoryRelation) {
                return true;
            }
        }
        return false;
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
