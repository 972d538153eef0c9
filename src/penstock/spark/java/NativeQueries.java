package penstock;

import java.math.BigInteger;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.core.JsonProcessingException;

import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.GlobalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LocalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Sort;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.SparkPlanner;

import scala.collection.immutable.Seq;

/** Finds the parts of an optimised plan that DuckDB can compute as one query each; see `native_query`. */
public final class NativeQueries {
    /**
     * Returns the plan as it is searched, and the largest parts of it that save Spark an exchange, each as a query.
     *
     * The facts tell of each part, and why what is above it is none. The first object is the plan.
     */
    public Answer find(LogicalPlan plan, SparkSession session) throws JsonProcessingException {
        LogicalPlan searched = NativeShape.of(plan);
        List<Object> handles = new ArrayList<>();
        handles.add(searched);
        Map<String, Object> facts = new HashMap<>();
        List<Object> parts = new ArrayList<>();
        List<Object> why = new ArrayList<>();
        List<Object> rest = new ArrayList<>();
        visit(searched, true, session.sessionState().planner(), parts, handles, why, rest);
        BigInteger bytes = BigInteger.ZERO;
        for (Object leaf : rest) {
            bytes = bytes.add(((LogicalPlan) leaf).stats().sizeInBytes().bigInteger());
        }
        facts.put("rest", bytes);
        facts.put("parts", parts);
        facts.put("why", why);
        return Answer.of(facts, handles);
    }

    private static void visit(LogicalPlan plan, boolean isTop, SparkPlanner planner, List<Object> parts, List<Object> handles,
            List<Object> why, List<Object> rest)
            throws JsonProcessingException {
        try {
            if (plan.children().isEmpty()) {
                rest.add(plan);
                return;
            }
            NativeQuery query = new NativeQuery(plan, planner);
            // Else nothing is saved, or more rows are handed over than need be.
            if (query.exchanges && (isTop || NativeQuery.reduces(plan))) {
                parts.add(facts(query));
                handles.add(plan);
                return;
            }
        } catch (NativeSql.Declined declined) {
            why.add(declined.getMessage());
        }
        for (Object child : Catalyst.each(plan.children())) {
            visit((LogicalPlan) child, isTop && isLast(plan), planner, parts, handles, why, rest);
        }
        for (Object subquery : Catalyst.each(plan.subqueries())) {
            rest.addAll(Catalyst.each(((LogicalPlan) subquery).collectLeaves()));
        }
    }

    /** Whether a plan only brings rows into the form in which the user wants them. */
    private static boolean isLast(LogicalPlan plan) {
        return plan instanceof Sort || plan instanceof Project || plan instanceof GlobalLimit || plan instanceof LocalLimit;
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
            table.put("read", NativeScan.columns(scan));
            table.put("calendar", NativeScan.calendar(scan));
            table.put("files", NativeScan.files(scan));
            tables.add(table);
        }
        found.put("tables", tables);
        return found;
    }

    /** Returns a plan with some of its parts replaced. */
    public LogicalPlan withParts(LogicalPlan plan, List<?> old, List<?> made) {
        for (int i = 0; i < old.size(); i++) {
            if (old.get(i) == plan) {
                return (LogicalPlan) made.get(i);
            }
        }
        List<LogicalPlan> children = new ArrayList<>();
        for (Object child : Catalyst.each(plan.children())) {
            children.add(withParts((LogicalPlan) child, old, made));
        }
        return children.isEmpty() ? plan : (LogicalPlan) (Object) plan.withNewChildren(PythonUtils.toSeq(children));
    }

    /** Returns the first column that Spark can hash as it is, null if there is none. */
    public Attribute hashed(Seq<Attribute> output) {
        for (Object column : Catalyst.each(output)) {
            if (!NativeTypes.isFloating(((Expression) column).dataType())) {
                return (Attribute) column;
            }
        }
        return null;
    }

    /** Returns a plan whose rows have the names and types of some columns: short decimals come as whole numbers. */
    public LogicalPlan withOutput(LogicalPlan plan, Seq<Attribute> output) {
        return new Project(NativeParts.values(plan.output(), output), plan);
    }
}
