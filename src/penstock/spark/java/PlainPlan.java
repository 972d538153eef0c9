package penstock;

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.ReturnAnswer;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.QueryExecution$;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.AdaptiveExecutionContext;
import org.apache.spark.sql.execution.adaptive.InsertAdaptiveSparkPlan;

import scala.Option;

/** How Spark runs a query itself, where Penstock was to run it, and nobody is there who could. */
final class PlainPlan {
    private PlainPlan() {
    }

    /** Returns the physical plan of an optimised query, made as Spark makes it, with the settings of a session. */
    static SparkPlan of(LogicalPlan query, SparkSession session) {
        Object copy = query.clone();
        LogicalPlan plan = (LogicalPlan) copy;
        HandoverRule.leave(plan);
        plan.setAnalyzed();
        Option<?> active = SparkSession.getActiveSession();
        SparkSession.setActiveSession(session);
        try {
            // Only its settings and its tracker are used; cached data was put in before, and is not looked for again.
            QueryExecution execution = Dataset.ofRows(session, plan).queryExecution();
            InsertAdaptiveSparkPlan adaptive = new InsertAdaptiveSparkPlan(new AdaptiveExecutionContext(session, execution));
            Object planned = session.sessionState().planner().plan(new ReturnAnswer(plan)).next();
            return QueryExecution$.MODULE$.prepareForExecution(
                    QueryExecution$.MODULE$.preparations(session, Option.apply(adaptive), false), (SparkPlan) planned);
        } finally {
            if (active.isDefined()) {
                SparkSession.setActiveSession((SparkSession) active.get());
            } else {
                SparkSession.clearActiveSession();
            }
        }
    }
}
