package penstock.exchange;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

import com.fasterxml.jackson.core.JsonProcessingException;

import org.apache.spark.sql.catalyst.trees.TreeNodeTag;
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

import penstock.bridge.Answer;
import penstock.plans.Catalyst;

/** The rows that the leaves of an executed plan have read, and their tasks; see `shuffle_statistics.scanned_rows`. */
public final class ScanMetrics {
    /** Tag of a plan that replaces a scan: the scan's columns, and the rows that were read. */
    private static final TreeNodeTag<Object> SCAN = new TreeNodeTag<Object>("penstock.scan");

    /** Records that a plan replaces a scan, and how many rows the tasks of the plan have read. */
    public static void record(SparkPlan plan, SparkPlan scan, long rows) {
        plan.setTagValue(SCAN, facts(scan, rows, null));
    }

    /**
     * Returns for each scan of an executed plan: its column ids, the number of its output rows, and the number of rows that
     * passed the filters directly above the scan (null for a scan that a native engine has replaced).
     */
    public Object rows(SparkPlan plan) throws JsonProcessingException {
        List<Object> scans = new ArrayList<>();
        collect(plan, null, scans);
        return Answer.of(scans);
    }

    /** Adds the facts of scans; `passed` rows passed the filters directly above the plan, null if none were counted. */
    private static void collect(SparkPlan plan, Object passed, List<Object> scans) {
        Option<?> rows = plan.metrics().get("numOutputRows");
        if (plan.getTagValue(SCAN).isDefined()) {
            scans.add(plan.getTagValue(SCAN).get());
            return;
        }
        if (plan.children().isEmpty()) {
            if (rows.isDefined()) {
                Object read = ((AccumulatorV2<?, ?>) rows.get()).value();
                scans.add(facts(plan, read, passed == null ? read : passed));
            }
            return;
        }
        Object childPassed = null;
        if (plan instanceof FilterExec && rows.isDefined()) {
            childPassed = passed == null ? ((AccumulatorV2<?, ?>) rows.get()).value() : passed;
        } else if (plan instanceof ProjectExec || plan instanceof CodegenSupport && rows.isEmpty()
                || plan instanceof ColumnarToRowExec) {
            childPassed = passed;
        }
        for (SparkPlan child : Catalyst.each(plan.children())) {
            collect(child, childPassed, scans);
        }
    }

    private static Map<String, Object> facts(SparkPlan scan, Object rows, Object passed) {
        return Answer.facts("columns", Catalyst.ids(scan.output()), "rows", rows, "passed", passed);
    }

    /** Returns the number of tasks in all stages that contain a leaf; `tasks` is their number in the last stage. */
    public int tasks(SparkPlan plan, int tasks) {
        int total = tasks(plan, tasks, new HashSet<Object>());
        return total == 0 ? tasks : total;
    }

    private int tasks(SparkPlan plan, int tasks, Set<Object> visitedShuffles) {
        int total = 0;
        boolean hasOwnLeaf = false;
        for (Object leaf : Catalyst.each(plan.collectLeaves())) {
            if (leaf instanceof ShuffleQueryStageExec) {
                ShuffleExchangeLike shuffle = ((ShuffleQueryStageExec) leaf).shuffle();
                if (visitedShuffles.add(shuffle.shuffleId())) {
                    total += tasks((SparkPlan) (Object) ((Exchange) shuffle).child(), shuffle.numMappers(), visitedShuffles);
                }
            } else if (!(leaf instanceof BroadcastQueryStageExec)) {
                hasOwnLeaf = true;
            }
        }
        return hasOwnLeaf ? total + tasks : total;
    }
}
