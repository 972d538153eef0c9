package penstock;

import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Sort;
import org.apache.spark.sql.catalyst.trees.TreeNodeTag;

/** The limits at the end of a query. Spark carries them out while it collects rows: they stay on top of Penstock's plan. */
final class LastLimits {
    private static final TreeNodeTag<Object> IS_ONE = new TreeNodeTag<Object>("penstock.limit-of-answer");
    private static final TreeNodeTag<Object> BELOW_ONE = new TreeNodeTag<Object>("penstock.below-limit");

    private static final Set<String> NAMES = new HashSet<>(Arrays.asList(
            new String[] {"GlobalLimit", "LocalLimit", "Offset", "Tail"}));

    private LastLimits() {
    }

    /** Marks the limits that a query begins with, and what Spark makes one operator of with them, up to a sort. */
    static void mark(LogicalPlan root) {
        LogicalPlan below = root;
        while (NAMES.contains(Catalyst.name(below))) {
            below.setTagValue(IS_ONE, true);
            below = Catalyst.onlyChild(below);
        }
        if (below == root) {
            return;
        }
        below.setTagValue(BELOW_ONE, true);
        if (below instanceof Project) {
            below = Catalyst.onlyChild(below);
            below.setTagValue(BELOW_ONE, true);
        }
        if (below instanceof Sort) {
            Catalyst.onlyChild(below).setTagValue(BELOW_ONE, true);
        }
    }

    /** Whether a plan is such a limit, which the planner has taken apart from what is below it. */
    static boolean isOne(LogicalPlan plan) {
        return plan.getTagValue(IS_ONE).isDefined();
    }

    /** Whether such limits are right above a plan. */
    static boolean areAbove(LogicalPlan plan) {
        return plan.getTagValue(BELOW_ONE).isDefined();
    }
}
