package penstock;

import java.math.BigInteger;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

import com.fasterxml.jackson.core.JsonProcessingException;

import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.internal.SQLConf;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import scala.Option;
import scala.collection.immutable.Seq;

/** Finds the parts of an optimised plan that DuckDB can compute with a single query each; see `native_query`. */
public final class NativeQueries {
    private static final String EXECUTION = "spark.penstock.execution.";
    private static final Logger LOG = LoggerFactory.getLogger(NativeQueries.class);
    /** Operators that fail only if an expression fails; tables, scripts and Python functions can fail by themselves. */
    private static final Set<String> SAFE = ExpressionSafety.words("Aggregate Expand Filter Generate GlobalLimit Join "
            + "LocalLimit Offset Project Sort Union Window");

    /**
     * Returns the normalized plan, and its maximal parts that save an exchange, each as a DuckDB query.
     *
     * The facts describe the parts, and the reasons why other parts are declined. The first object is the plan.
     */
    public Answer find(LogicalPlan plan, SparkSession session) throws JsonProcessingException {
        LogicalPlan normalized = NativeNormalization.of(plan);
        NativeSearch search = new NativeSearch(normalized, session.sessionState().planner());
        BigInteger bytes = BigInteger.ZERO;
        for (Object leaf : search.rest) {
            bytes = bytes.add(((LogicalPlan) leaf).stats().sizeInBytes().bigInteger());
        }
        List<Object> handles = new ArrayList<>();
        handles.add(normalized);
        handles.addAll(search.roots);
        Map<String, Object> facts = new HashMap<>();
        facts.put("rest", bytes);
        facts.put("parts", search.parts);
        facts.put("why", search.declinedReasons);
        facts.put("rest_may_fail", restMayFail(normalized, search.roots));
        facts.put("has_late_values", NativeNormalization.hasLateValues(normalized, search.roots));
        return Answer.of(facts, handles);
    }

    /** Whether the operators outside of the parts, which Spark runs, may raise an error. */
    private static boolean restMayFail(LogicalPlan plan, List<?> parts) {
        if (NativeNormalization.isPart(plan, parts)) {
            return false;
        }
        boolean mayFail = !SAFE.contains(Catalyst.name(plan)) || !ExpressionSafety.cannotFail(plan.expressions());
        for (Object child : Catalyst.each(plan.children())) {
            mayFail = mayFail || restMayFail((LogicalPlan) child, parts);
        }
        return mayFail;
    }

    /**
     * Whether DuckDB computes a small query faster; the job checks the files later.
     *
     * @param fewestExchanges the exchanges from which on DuckDB is faster; 0 disables it
     */
    static boolean isFasterNatively(LogicalPlan plan, double fewestExchanges) {
        Option<?> active = SparkSession.getActiveSession();
        SparkSession session = (SparkSession) active.get();
        boolean isOff = !"true".equalsIgnoreCase(SQLConf.get().getConfString(EXECUTION + "native", "true"));
        if (isOff || fewestExchanges == 0 || new ExchangeCount().of(plan, session) < fewestExchanges) {
            return false;
        }
        try {
            NativeSearch search = new NativeSearch(NativeNormalization.of(plan), session.sessionState().planner());
            return search.parts.size() == 1 && search.rest.isEmpty();
        } catch (Exception error) {
            LOG.warn("Cannot translate a query for DuckDB; Spark runs it", error);
            return false;
        }
    }

    /** Returns a plan with parts replaced. */
    public LogicalPlan withParts(LogicalPlan plan, List<?> old, List<?> replacements) {
        for (int i = 0; i < old.size(); i++) {
            if (old.get(i) == plan) {
                return (LogicalPlan) replacements.get(i);
            }
        }
        List<LogicalPlan> children = new ArrayList<>();
        for (Object child : Catalyst.each(plan.children())) {
            children.add(withParts((LogicalPlan) child, old, replacements));
        }
        return children.isEmpty() ? plan : (LogicalPlan) (Object) plan.withNewChildren(PythonUtils.toSeq(children));
    }

    /** Returns the first column that Spark can hash without normalization, null if there is none. */
    public Attribute hashableColumn(Seq<Attribute> output) {
        for (Object column : Catalyst.each(output)) {
            if (!NativeTypes.isFloating(((Expression) column).dataType())) {
                return (Attribute) column;
            }
        }
        return null;
    }

    /** Returns a plan whose rows have the names and types of other columns; converts unscaled integers to decimals. */
    public LogicalPlan withOutput(LogicalPlan plan, Seq<Attribute> output) {
        return new Project(NativeParts.values(plan.output(), output), plan);
    }
}
