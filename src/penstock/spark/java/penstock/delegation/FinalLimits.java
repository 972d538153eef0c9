package penstock.delegation;

import java.util.Set;

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Sort;
import org.apache.spark.sql.catalyst.trees.TreeNodeTag;

import penstock.plans.Catalyst;

/** The limits at the top of a query. Spark applies them while it collects rows, so they stay above Penstock's plan. */
final class FinalLimits {
    /** Tag of these limits, which the planner plans separately from their child. */
    static final TreeNodeTag<Object> IS_LIMIT = new TreeNodeTag<Object>("penstock.limit-of-answer");
    /** Tag of the plans below such limits, down to the input of a projection or sort that Spark fuses with them. */
    static final TreeNodeTag<Object> BELOW_LIMIT = new TreeNodeTag<Object>("penstock.below-limit");

    private static final Set<String> NAMES = Catalyst.words("GlobalLimit LocalLimit Offset Tail");

    /** Tags the limits at the top of a query, and the plans below, down to the input of a fused projection or sort. */
    static void tag(LogicalPlan root) {
        LogicalPlan below = root;
        while (NAMES.contains(Catalyst.name(below))) {
            below.setTagValue(IS_LIMIT, true);
            below = Catalyst.onlyChild(below);
        }
        if (below == root) {
            return;
        }
        below.setTagValue(BELOW_LIMIT, true);
        if (below instanceof Project) {
            below = Catalyst.onlyChild(below);
            below.setTagValue(BELOW_LIMIT, true);
        }
        if (below instanceof Sort) {
            Catalyst.onlyChild(below).setTagValue(BELOW_LIMIT, true);
        }
    }
}
