package penstock;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

import com.fasterxml.jackson.core.JsonProcessingException;

import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.BroadcastQueryStageExec;
import org.apache.spark.sql.execution.adaptive.ShuffleQueryStageExec;
import org.apache.spark.sql.execution.exchange.Exchange;
import org.apache.spark.sql.execution.exchange.ShuffleExchangeLike;
import org.apache.spark.util.AccumulatorV2;

import scala.Option;

/** Tells what the leaves of a plan have read, and with how many tasks; see `exchange.scanned_rows`. */
public final class ScanMetrics {
    /** Returns the columns of each scan of a plan that has run, by their ids, and the rows that it gave. */
    public Object rows(SparkPlan plan) throws JsonProcessingException {
        List<Object> found = new ArrayList<>();
        for (Object leaf : Catalyst.each(plan.collectLeaves())) {
            SparkPlan scan = (SparkPlan) leaf;
            Option<?> rows = scan.metrics().get("numOutputRows");
            if (rows.isDefined()) {
                List<Object> columns = new ArrayList<>();
                for (Object column : Catalyst.each(scan.output())) {
                    columns.add(Catalyst.id((Attribute) column));
                }
                Map<String, Object> facts = new HashMap<>();
                facts.put("columns", columns);
                facts.put("rows", ((AccumulatorV2<?, ?>) rows.get()).value());
                found.add(facts);
            }
        }
        return Answer.of(found);
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
