package penstock.duckdb;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.core.JsonProcessingException;

import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.GlobalLimit;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.JoinHint;
import org.apache.spark.sql.catalyst.plans.logical.LocalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Sort;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.SparkPlanner;

import penstock.bridge.Answer;
import penstock.duckdb.dialect.Declined;
import penstock.plans.Catalyst;

/** Searches a plan top-down for maximal parts that DuckDB can compute with a single query each. */
final class NativeSearch {
    /** The facts of each part. */
    final List<Object> parts = new ArrayList<>();
    /** The root of each part's plan. */
    final List<Object> roots = new ArrayList<>();
    /** The reasons why operators above the parts are declined; those of final sorts, projections and limits come last. */
    final List<Object> declinedReasons = new ArrayList<>();
    /** The leaves of the plan and its subqueries that no part reads. */
    final List<Object> restLeaves = new ArrayList<>();
    private final SparkPlanner planner;
    private final boolean allowsLookups;

    /** @param allowsLookups whether to return a lookup (`isLookup`) as a part, although Spark exchanges no rows for it */
    NativeSearch(LogicalPlan plan, SparkPlanner planner, boolean allowsLookups) throws JsonProcessingException {
        this.planner = planner;
        this.allowsLookups = allowsLookups;
        List<Object> finalReasons = new ArrayList<>();
        visit(plan, true, finalReasons);
        declinedReasons.addAll(finalReasons);
    }

    /** Adds the maximal parts of a plan; `isTop` if all operators above it are final sorts, projections and limits. */
    private void visit(LogicalPlan plan, boolean isTop, List<Object> finalReasons) throws JsonProcessingException {
        if (plan.children().isEmpty()) {
            restLeaves.add(plan);
            return;
        }
        boolean isLimit = plan instanceof GlobalLimit || plan instanceof LocalLimit;
        boolean isFinal = isTop && (isLimit || plan instanceof Sort || plan instanceof Project);
        try {
            for (LogicalPlan node : Catalyst.withSubqueries(plan)) {
                if (node instanceof Join && !((Join) node).hint().equals(JoinHint.NONE())) {
                    throw new Declined("a join hint");
                }
            }
            NativeQuery query = new NativeQuery(plan, planner);
            // Without an exchange, DuckDB saves too little. Below other operators, only a small result pays off.
            boolean isLookup = allowsLookups && isTop && isLookup(plan);
            if (isLookup || query.needsExchange && (isTop || NativeQuery.reduces(plan))) {
                Map<String, Object> facts = facts(query);
                facts.put("is_lookup", Boolean.valueOf(isLookup));
                parts.add(facts);
                roots.add(plan);
                return;
            }
        } catch (Declined declined) {
            (isFinal ? finalReasons : declinedReasons).add(declined.getMessage());
        }
        for (LogicalPlan child : Catalyst.each(plan.children())) {
            visit(child, isFinal, finalReasons);
        }
        for (LogicalPlan subquery : Catalyst.each(plan.subqueries())) {
            restLeaves.addAll(Catalyst.each(subquery.collectLeaves()));
        }
    }

    /** Whether a plan reads the rows of a table in which a column equals a constant: probably few. */
    private static boolean isLookup(LogicalPlan plan) {
        if (!NativeQuery.isScan(plan)) {
            return false;
        }
        boolean isLookup = false;
        for (LogicalPlan node = plan; node instanceof Filter || node instanceof Project; node = Catalyst.onlyChild(node)) {
            List<Expression> conditions = new ArrayList<>();
            if (node instanceof Filter) {
                Catalyst.addConjuncts(((Filter) node).condition(), conditions);
            }
            for (Expression condition : conditions) {
                isLookup |= condition instanceof EqualTo && Catalyst.first(condition) instanceof Attribute && Catalyst.last(condition) instanceof Literal;
            }
        }
        return isLookup;
    }

    private static Map<String, Object> facts(NativeQuery query) throws Declined, JsonProcessingException {
        Map<String, Object> facts = Answer.facts("sql", query.sql, "results", query.results.namedResults,
                "columns", NativeParts.columns(query.plan.output()));
        List<Object> tables = new ArrayList<>();
        for (Object element : query.scans) {
            FileSourceScanExec scan = (FileSourceScanExec) element;
            tables.add(Answer.facts("name", NativeScan.table(scan), "read_columns", NativeScan.columns(scan, false),
                    "partition_columns", NativeScan.columns(scan, true), "rebase_mode", NativeScan.rebaseMode(scan),
                    "compared_columns", NativeScan.comparedColumns(scan), "files", NativeFolders.files(scan)));
        }
        facts.put("tables", tables);
        return facts;
    }
}
