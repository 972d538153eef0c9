package penstock;

import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.GlobalLimit;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Sort;
import org.apache.spark.sql.catalyst.plans.logical.Window;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.internal.SQLConf;

/** What operators cost Spark that exchange or broadcast rows, unless they lie together already; see `native_query`. */
public final class ExchangeCount {
    /** A broadcast costs about so much of what an exchange costs (TPC-DS at scale 0.1). */
    private static final double BROADCAST = 0.25;

    /** Returns the exchanges of an optimised plan and of its subqueries: a broadcast is a part of one. */
    public double of(LogicalPlan plan, SparkSession session) {
        return count(plan, false, session.sessionState().conf());
    }

    private static double count(LogicalPlan plan, boolean isLimited, SQLConf conf) {
        double found = own(plan, isLimited, conf);
        for (Object child : Catalyst.each(plan.children())) {
            found += count((LogicalPlan) child, plan instanceof GlobalLimit || (isLimited && isNarrow(plan)), conf);
        }
        for (Object subquery : Catalyst.each(plan.subqueries())) {
            found += count((LogicalPlan) subquery, false, conf);
        }
        return found;
    }

    private static double own(LogicalPlan plan, boolean isLimited, SQLConf conf) {
        if (plan instanceof Join) {
            return isShuffled((Join) plan, conf) ? 1 : BROADCAST;
        }
        boolean sorts = plan instanceof Sort && !isLimited && ((Sort) plan).global();
        return sorts || plan instanceof Aggregate || plan instanceof Window ? 1 : 0;
    }

    /** Whether a limit above a plan is one above its child, too: a sort below it keeps the first rows of each task. */
    private static boolean isNarrow(LogicalPlan plan) {
        return Catalyst.name(plan).equals("LocalLimit") || Catalyst.name(plan).equals("Project");
    }

    private static boolean isShuffled(Join join, SQLConf conf) {
        double smaller = Math.min(join.left().stats().sizeInBytes().toDouble(), join.right().stats().sizeInBytes().toDouble());
        return smaller > conf.autoBroadcastJoinThreshold();
    }
}
