package penstock.plans;

import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.GlobalLimit;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Sort;
import org.apache.spark.sql.catalyst.plans.logical.Window;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.internal.SQLConf;

/** The cost of the exchanges and broadcasts that a plan needs unless its rows are partitioned already; see `duckdb/query.py`. */
public final class ExchangeCount {
    /** The cost of a broadcast relative to an exchange (measured with TPC-DS at scale 0.1). */
    private static final double BROADCAST = 0.25;

    /** Returns the number of exchanges of an optimized plan and its subqueries; a broadcast counts as a fraction. */
    public double of(LogicalPlan plan, SparkSession session) {
        return count(plan, false, session.sessionState().conf());
    }

    private static double count(LogicalPlan plan, boolean isLimited, SQLConf conf) {
        double exchanges = operatorExchanges(plan, isLimited, conf);
        for (LogicalPlan child : Catalyst.each(plan.children())) {
            exchanges += count(child, plan instanceof GlobalLimit || (isLimited && passesLimit(plan)), conf);
        }
        for (LogicalPlan subquery : Catalyst.each(plan.subqueries())) {
            exchanges += count(subquery, false, conf);
        }
        return exchanges;
    }

    private static double operatorExchanges(LogicalPlan plan, boolean isLimited, SQLConf conf) {
        if (plan instanceof Join) {
            return isShuffled((Join) plan, conf) ? 1 : BROADCAST;
        }
        boolean sorts = plan instanceof Sort && !isLimited && ((Sort) plan).global();
        return sorts || plan instanceof Aggregate || plan instanceof Window ? 1 : 0;
    }

    /** Whether a limit above a plan also limits its child: a sort below a limit keeps the first rows of each task. */
    private static boolean passesLimit(LogicalPlan plan) {
        return Catalyst.name(plan).equals("LocalLimit") || Catalyst.name(plan).equals("Project");
    }

    private static boolean isShuffled(Join join, SQLConf conf) {
        double smaller = Math.min(join.left().stats().sizeInBytes().toDouble(), join.right().stats().sizeInBytes().toDouble());
        return smaller > conf.autoBroadcastJoinThreshold();
    }
}
