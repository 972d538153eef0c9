package penstock;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

import com.fasterxml.jackson.core.JsonProcessingException;

import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.execution.CodegenSupport;
import org.apache.spark.sql.execution.ColumnarToRowExec;
import org.apache.spark.sql.execution.FilterExec;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.BroadcastQueryStageExec;
import org.apache.spark.sql.execution.adaptive.ShuffleQueryStageExec;
import org.apache.spark.sql.execution.exchange.Exchange;
import org.apache.spark.sql.execution.exchange.ShuffleExchangeLike;
import org.apache.spark.util.AccumulatorV2;

import scala.Option;

/** Tells what the leaves of a plan have read, and with how many tasks; see `stage_figures.scanned_rows`. */
public final class ScanMetrics {
    /**
     * Returns the columns of each scan of a plan that has run, by their ids, the rows that it gave, and those of them
     * that the filters right above it kept; null if that was not counted.
     */
    public Object rows(SparkPlan plan) throws JsonProcessingException {
        List<Object> found = new ArrayList<>();
        collect(plan, null, found);
        return Answer.of(found);
    }

    private static void collect(SparkPlan plan, Object kept, List<Object> found) {
        Option<?> rows = plan.metrics().get("numOutputRows");
        if (NativeScan.facts(plan) != null) {
            found.add(NativeScan.facts(plan));
            return;
        }
        if (plan.children().isEmpty()) {
            if (rows.isDefined()) {
                Object read = ((AccumulatorV2<?, ?>) rows.get()).value();
                Map<String, Object> facts = new HashMap<>();
                facts.put("columns", columns(plan));
                facts.put("rows", read);
                facts.put("kept", kept == null ? read : kept);
                found.add(facts);
            }
            return;
        }
        Object above = null;
        if (plan instanceof FilterExec && rows.isDefined()) {
            above = kept == null ? ((AccumulatorV2<?, ?>) rows.get()).value() : kept;
        } else if (plan instanceof ProjectExec || plan instanceof CodegenSupport && rows.isEmpty()
                || plan instanceof ColumnarToRowExec) {
            above = kept;
        }
        for (Object child : Catalyst.each(plan.children())) {
            collect((SparkPlan) child, above, found);
        }
    }

    /** Returns the columns of a plan, by their ids. */
    static List<Object> columns(SparkPlan plan) {
        List<Object> found = new ArrayList<>();
        for (Object column : Catalyst.each(plan.output())) {
            found.add(Catalyst.id((Attribute) column));
        }
        return found;
    }

    /**
     * Returns how many tasks have read the leaves of a plan that has run: those of each stage with a leaf of its own.
     *
     * @param tasks how many tasks the last stage of the plan has
     */
    public int tasks(SparkPlan plan, int tasks) {
        int found = tasks(plan, tasks, new HashSet<Object>());
        return found == 0 ? tasks : found;
    }

    private int tasks(SparkPlan plan, int tasks, Set<Object> seen) {
        int found = 0;
        boolean hasOwn = false;
        for (Object leaf : Catalyst.each(plan.collectLeaves())) {
            if (leaf instanceof ShuffleQueryStageExec) {
                ShuffleExchangeLike shuffle = ((ShuffleQueryStageExec) leaf).shuffle();
                if (seen.add(shuffle.shuffleId())) {
                    Object below = ((Exchange) shuffle).child();
                    found += tasks((SparkPlan) below, shuffle.numMappers(), seen);
                }
            } else if (!(leaf instanceof BroadcastQueryStageExec)) {
                hasOwn = true;
            }
        }
        return hasOwn ? found + tasks : found;
    }
}
