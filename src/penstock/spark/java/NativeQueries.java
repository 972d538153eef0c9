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

/** Finds the parts of an optimised plan that DuckDB can compute as one query each; see `native_query`. */
public final class NativeQueries {
    private static final String EXECUTION = "spark.penstock.execution.";
    private static final Logger LOG = LoggerFactory.getLogger(NativeQueries.class);
    /** Operators that fail only where an expression of theirs does; a table, a script or a function of Python fails otherwise. */
    private static final Set<String> SAFE = ExpressionSafety.words("Aggregate Expand Filter Generate GlobalLimit Join "
            + "LocalLimit Offset Project Sort Union Window");

    /**
     * Returns the plan as it is searched, and the largest parts of it that save Spark an exchange, each as a query.
     *
     * The facts tell of each part, and why the others are none. The first object is the plan.
     */
    public Answer find(LogicalPlan plan, SparkSession session) throws JsonProcessingException {
        LogicalPlan searched = NativeShape.of(plan);
        NativeSearch search = new NativeSearch(searched, session.sessionState().planner());
        BigInteger bytes = BigInteger.ZERO;
        for (Object leaf : search.rest) {
            bytes = bytes.add(((LogicalPlan) leaf).stats().sizeInBytes().bigInteger());
        }
        List<Object> handles = new ArrayList<>();
        handles.add(searched);
        handles.addAll(search.places);
        Map<String, Object> facts = new HashMap<>();
        facts.put("rest", bytes);
        facts.put("parts", search.parts);
        facts.put("why", search.why);
        facts.put("rest_may_fail", restMayFail(searched, search.places));
        facts.put("has_late_values", NativeShape.hasLateValues(searched, search.places));
        return Answer.of(facts, handles);
    }

    /** Whether what Spark computes of a plan, above its parts or beside them, may raise an error. */
    private static boolean restMayFail(LogicalPlan plan, List<?> parts) {
        if (NativeShape.isPart(plan, parts)) {
            return false;
        }
        boolean mayFail = !SAFE.contains(Catalyst.name(plan)) || !ExpressionSafety.cannotFail(plan.expressions());
        for (Object child : Catalyst.each(plan.children())) {
            mayFail = mayFail || restMayFail((LogicalPlan) child, parts);
        }
        return mayFail;
    }

    /**
     * Whether a small query is computed sooner by DuckDB. The job looks at the files before it is.
     *
     * @param fewestExchanges from so many exchanges on it is; 0 if it never is
     */
    static boolean takeSmall(LogicalPlan plan, double fewestExchanges) {
        Option<?> active = SparkSession.getActiveSession();
        SparkSession session = (SparkSession) active.get();
        boolean isOff = !"true".equalsIgnoreCase(SQLConf.get().getConfString(EXECUTION + "native", "true"));
        if (isOff || fewestExchanges == 0 || new ExchangeCount().of(plan, session) < fewestExchanges) {
            return false;
        }
        try {
            NativeSearch search = new NativeSearch(NativeShape.of(plan), session.sessionState().planner());
            return search.parts.size() == 1 && search.rest.isEmpty();
        } catch (Exception error) { // Spark runs it
            LOG.warn("DuckDB cannot be asked for a query", error);
            return false;
        }
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
