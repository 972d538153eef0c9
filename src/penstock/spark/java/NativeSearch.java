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

/** Searches a plan top-down for maximal parts that DuckDB can compute with a single query each. */
final class NativeSearch {
    /** The facts of each part. */
    final List<Object> parts = new ArrayList<>();

    /** The root node of each part. */
    final List<Object> roots = new ArrayList<>();

    /** The reasons why operators above the parts are declined; those of final sorts, projections and limits come last. */
    final List<Object> declinedReasons = new ArrayList<>();

    /** The leaves outside of all parts. */
    final List<Object> rest = new ArrayList<>();

    private final SparkPlanner planner;

    NativeSearch(LogicalPlan plan, SparkPlanner planner) throws JsonProcessingException {
        this.planner = planner;
        List<Object> finalReasons = new ArrayList<>();
        visit(plan, true, finalReasons);
        declinedReasons.addAll(finalReasons);
    }

    private void visit(LogicalPlan plan, boolean isTop, List<Object> finalReasons) throws JsonProcessingException {
        if (plan.children().isEmpty()) {
            rest.add(plan);
            return;
        }
        boolean isFinal = isTop && isFinal(plan);
        try {
            if (hasJoinHint(plan)) {
                throw new NativeSql.Declined("a join hint");
            }
            NativeQuery query = new NativeQuery(plan, planner);
            // Otherwise nothing is saved, or more rows than necessary are transferred.
            if (query.exchanges && (isTop || NativeQuery.reduces(plan))) {
                parts.add(facts(query));
                roots.add(plan);
                return;
            }
        } catch (NativeSql.Declined declined) {
            (isFinal ? finalReasons : declinedReasons).add(declined.getMessage());
        }
        for (Object child : Catalyst.each(plan.children())) {
            visit((LogicalPlan) child, isFinal, finalReasons);
        }
        for (Object subquery : Catalyst.each(plan.subqueries())) {
            rest.addAll(Catalyst.each(((LogicalPlan) subquery).collectLeaves()));
        }
    }

    /** Whether a plan only sorts, projects or limits the final rows. */
    private static boolean isFinal(LogicalPlan plan) {
        return plan instanceof Sort || plan instanceof Project || plan instanceof GlobalLimit || plan instanceof LocalLimit;
    }

    /** Whether a plan, or one of its subqueries, contains a join hint. */
    private static boolean hasJoinHint(LogicalPlan plan) {
        boolean hasHint = plan instanceof Join
                && (((Join) plan).hint().leftHint().isDefined() || ((Join) plan).hint().rightHint().isDefined());
        for (Object below : Catalyst.below(plan)) {
            hasHint = hasHint || hasJoinHint((LogicalPlan) below);
        }
        return hasHint;
    }

    private static Map<String, Object> facts(NativeQuery query) throws NativeSql.Declined, JsonProcessingException {
        Map<String, Object> facts = new HashMap<>();
        facts.put("sql", query.sql);
        facts.put("results", query.results.all);
        facts.put("columns", NativeParts.columns(query.plan.output()));
        List<Object> tables = new ArrayList<>();
        for (Object element : query.scans) {
            FileSourceScanExec scan = (FileSourceScanExec) element;
            Map<String, Object> table = new HashMap<>();
            table.put("name", NativeScan.table(scan));
            table.put("read", NativeScan.columns(scan, false));
            table.put("folders", NativeScan.columns(scan, true));
            table.put("calendar", NativeScan.calendar(scan));
            table.put("files", NativeFolders.files(scan));
            tables.add(table);
        }
        facts.put("tables", tables);
        return facts;
    }
}
