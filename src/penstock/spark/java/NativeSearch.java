package penstock;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.core.JsonProcessingException;

import org.apache.spark.sql.catalyst.plans.logical.GlobalLimit;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LocalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Sort;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.SparkPlanner;

/** The largest parts of a plan that DuckDB can compute as one query each, from the top down. */
final class NativeSearch {
    /** What is told of each part. */
    final List<Object> parts = new ArrayList<>();

    /** Where the parts stand in the plan. */
    final List<Object> places = new ArrayList<>();

    /** Why what is above a part is none; what only brings rows into their last form comes last, as it keeps nothing back. */
    final List<Object> why = new ArrayList<>();

    /** The leaves that are in no part. */
    final List<Object> rest = new ArrayList<>();

    private final SparkPlanner planner;

    NativeSearch(LogicalPlan plan, SparkPlanner planner) throws JsonProcessingException {
        this.planner = planner;
        List<Object> last = new ArrayList<>();
        visit(plan, true, last);
        why.addAll(last);
    }

    private void visit(LogicalPlan plan, boolean isTop, List<Object> last) throws JsonProcessingException {
        if (plan.children().isEmpty()) {
            rest.add(plan);
            return;
        }
        boolean isLast = isTop && isLast(plan);
        try {
            if (hasJoinHint(plan)) {
                throw new NativeSql.Declined("a join hint");
            }
            NativeQuery query = new NativeQuery(plan, planner);
            // Else nothing is saved, or more rows are handed over than need be.
            if (query.exchanges && (isTop || NativeQuery.reduces(plan))) {
                parts.add(facts(query));
                places.add(plan);
                return;
            }
        } catch (NativeSql.Declined declined) {
            (isLast ? last : why).add(declined.getMessage());
        }
        for (Object child : Catalyst.each(plan.children())) {
            visit((LogicalPlan) child, isLast, last);
        }
        for (Object subquery : Catalyst.each(plan.subqueries())) {
            rest.addAll(Catalyst.each(((LogicalPlan) subquery).collectLeaves()));
        }
    }

    /** Whether a plan only brings rows into the form in which the user wants them. */
    private static boolean isLast(LogicalPlan plan) {
        return plan instanceof Sort || plan instanceof Project || plan instanceof GlobalLimit || plan instanceof LocalLimit;
    }

    /** Whether the user said how Spark should join rows of a plan, or of one of its subqueries. */
    private static boolean hasJoinHint(LogicalPlan plan) {
        boolean found = plan instanceof Join
                && (((Join) plan).hint().leftHint().isDefined() || ((Join) plan).hint().rightHint().isDefined());
        for (Object below : Catalyst.below(plan)) {
            found = found || hasJoinHint((LogicalPlan) below);
        }
        return found;
    }

    private static Map<String, Object> facts(NativeQuery query) throws NativeSql.Declined, JsonProcessingException {
        Map<String, Object> found = new HashMap<>();
        found.put("sql", query.sql);
        found.put("results", query.results.all);
        found.put("columns", NativeParts.columns(query.plan.output()));
        List<Object> tables = new ArrayList<>();
        for (Object each : query.scans) {
            FileSourceScanExec scan = (FileSourceScanExec) each;
            Map<String, Object> table = new HashMap<>();
            table.put("name", NativeScan.table(scan));
            table.put("read", NativeScan.columns(scan, false));
            table.put("folders", NativeScan.columns(scan, true));
            table.put("calendar", NativeScan.calendar(scan));
            table.put("files", NativeFolders.files(scan));
            tables.add(table);
        }
        found.put("tables", tables);
        return found;
    }
}
