package penstock.duckdb;

import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.function.Predicate;

import com.fasterxml.jackson.core.JsonProcessingException;

import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Sort;
import org.apache.spark.sql.classic.SparkSession;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import scala.Option;
import scala.collection.immutable.Seq;

import penstock.bridge.Answer;
import penstock.duckdb.dialect.Declined;
import penstock.plans.Catalyst;
import penstock.plans.ExpressionSafety;
import penstock.plans.NumericTypes;

/** Finds the parts of an optimized plan that DuckDB can compute with a single query each; see `duckdb/query.py`. */
public final class NativeQueries implements Predicate<Object> {
    private static final Logger LOG = LoggerFactory.getLogger(NativeQueries.class);
    /** Operators that fail only if an expression fails; tables, scripts and Python functions can fail by themselves. */
    private static final Set<String> SAFE_OPERATORS = Catalyst.words("Aggregate Expand Filter Generate GlobalLimit Join "
            + "LocalLimit Offset Project Sort Union Window");

    /**
     * Returns the normalized plan, and its maximal parts that save an exchange, each as a DuckDB query.
     *
     * The facts describe the parts, and why others are declined. The handles are the plan and the roots of the parts.
     *
     * @param excluded names of expressions that Spark must compute, in lower case
     * @param allowsLookups see `NativeSearch`
     */
    public Answer find(LogicalPlan plan, SparkSession session, List<?> excluded, boolean allowsLookups) throws JsonProcessingException {
        NativeTemplates.exclude(excluded);
        LogicalPlan normalized = NativeNormalization.of(plan);
        NativeSearch search = new NativeSearch(normalized, session.sessionState().planner(), allowsLookups);
        List<Object> handles = new ArrayList<>();
        handles.add(normalized);
        handles.addAll(search.roots);
        return Answer.of(Answer.facts("rest_size_in_bytes", NativeSemiJoins.bytes(search.restLeaves), "parts", search.parts,
                "final_order", finalOrder(normalized, search.roots), "declined_reasons", search.declinedReasons, "rest_may_fail", restMayFail(normalized, search.roots),
                "has_late_values", NativeNormalization.hasLateValues(normalized, search.roots, false)), handles);
    }

    /** Returns the clause that sorts the rows of the only part as the plan does; null if the plan is no sort of them, possibly of fewer columns. */
    private static String finalOrder(LogicalPlan plan, List<?> parts) {
        LogicalPlan sorted = Catalyst.isPruning(plan) ? Catalyst.onlyChild(plan) : plan;
        Sort sort = sorted instanceof Sort ? (Sort) sorted : null;
        if (sort == null || !sort.global() || parts.size() != 1 || parts.get(0) != sort.child()) {
            return null;
        }
        try {
            return NativeWindows.orderBy(sort.order());
        } catch (Declined declined) {
            return null;
        }
    }

    /** Whether the operators outside of the parts, which Spark runs, may raise an error. */
    private static boolean restMayFail(LogicalPlan plan, List<?> parts) {
        if (NativeNormalization.isPart(plan, parts)) {
            return false;
        }
        boolean mayFail = !SAFE_OPERATORS.contains(Catalyst.name(plan)) || !ExpressionSafety.cannotFail(plan.expressions());
        for (LogicalPlan child : Catalyst.each(plan.children())) {
            mayFail = mayFail || restMayFail(child, parts);
        }
        return mayFail;
    }

    /** Whether DuckDB computes an optimized plan completely, with a single query; Spark's planner calls it. */
    @Override
    public boolean test(Object plan) {
        Option<?> session = SparkSession.getActiveSession();
        NativeTemplates.exclude(new ArrayList<Object>()); // a job computes the excluded expressions in Spark
        try {
            NativeSearch search = new NativeSearch(NativeNormalization.of((LogicalPlan) plan),
                    ((SparkSession) session.get()).sessionState().planner(), false);
            return search.parts.size() == 1 && search.restLeaves.isEmpty();
        } catch (Exception error) {
            LOG.warn("Cannot translate a query for DuckDB; Spark runs it", error);
            return false;
        }
    }

    /** Returns a plan with some subplans replaced. */
    public LogicalPlan withParts(LogicalPlan plan, List<?> replaced, List<?> replacements) {
        for (int i = 0; i < replaced.size(); i++) {
            if (replaced.get(i) == plan) {
                return (LogicalPlan) replacements.get(i);
            }
        }
        List<LogicalPlan> children = new ArrayList<>();
        for (LogicalPlan child : Catalyst.each(plan.children())) {
            children.add(withParts(child, replaced, replacements));
        }
        return Catalyst.withChildren(plan, children);
    }

    /** Returns the first column that Spark can hash without normalization, null if there is none. */
    public Attribute hashableColumn(Seq<Attribute> output) {
        for (Attribute column : Catalyst.each(output)) {
            if (!NumericTypes.isFloating(column.dataType())) {
                return column;
            }
        }
        return null;
    }

    /** Returns a plan whose rows have the names and types of other columns; converts unscaled integers to decimals. */
    public LogicalPlan withOutput(LogicalPlan plan, Seq<Attribute> output) {
        return new Project(NativeParts.conversions(plan.output(), output), plan);
    }
}
