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

/** The physical plan by which Spark runs a delegated query itself if Penstock declines it or has stopped. */
final class FallbackPlan {
    private FallbackPlan() {
    }

    /** Plans an optimised query as Spark does, with the settings of a session. */
    static SparkPlan of(LogicalPlan query, SparkSession session) {
        Object copy = query.clone();
        LogicalPlan plan = (LogicalPlan) copy;
        DelegationRule.exclude(plan);
        plan.setAnalyzed();
        Option<?> active = SparkSession.getActiveSession();
        SparkSession.setActiveSession(session);
        try {
            // Only its settings and its tracker are used; cached data is already part of the plan.
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
