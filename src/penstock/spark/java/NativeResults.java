package penstock;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.CreateNamedStruct;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.ScalarSubquery;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Window;

/** What a query of DuckDB's computes before its rows: subqueries, and aggregates that stand in it again. */
final class NativeResults {
    /** The results of the query that is spelled in a thread, which spells the subqueries of its expressions. */
    private static final ThreadLocal<Object> SPELLED = new ThreadLocal<>();

    /** Each in turn: a name, a query, and whether one row at most is wanted of it. */
    final List<Object> all = new ArrayList<>();
    private final NativeQuery query;
    /**
     * The names of aggregates, by what they compute: null of one that stands at one place, an empty one of one that stands
     * at several and is not spelled yet.
     */
    private final Map<Object, Object> named = new HashMap<>();
    /** The names of the results of subqueries, by what they compute. */
    private final Map<Object, Object> values = new HashMap<>();
    /** Plans of the fields that subqueries have put together, by what these compute. */
    private final Map<Object, Object> fields = new HashMap<>();

    NativeResults(NativeQuery query, LogicalPlan plan) {
        this.query = query;
        count(plan);
    }

    /** Whether this thread spells a query: the values of its subqueries are checked before its rows are computed. */
    static boolean checksValues() {
        return SPELLED.get() != null;
    }

    /** Marks the aggregates that stand in a plan again, with what is made of their results. */
    private void count(LogicalPlan plan) {
        if (NativeQuery.sumsUp(plan)) {
            Object key = plan.canonicalized();
            boolean isKnown = named.containsKey(key);
            named.put(key, isKnown ? "" : null);
            if (isKnown) {
                return; // what is below is computed once with it
            }
        }
        for (Object below : Catalyst.each(plan.children())) {
            count((LogicalPlan) below);
        }
        for (Object subquery : Catalyst.each(plan.subqueries())) {
            count(NativeShape.of((LogicalPlan) subquery));
        }
    }

    /** Spells a plan; the subqueries of its expressions are among these results. */
    String spelled(LogicalPlan plan) throws NativeSql.Declined {
        SPELLED.set(this);
        try {
            return query.of(plan);
        } finally {
            SPELLED.remove();
        }
    }

    /**
     * Returns the name of the result of an aggregate, null if the plan is none or is best computed where it stands.
     *
     * One that stands at several places is computed once. One with values that may fail, or a window function with such, is
     * computed by itself, if what is above may drop rows of it: Spark computes all of them.
     */
    String name(LogicalPlan plan, boolean isDropped) throws NativeSql.Declined {
        boolean isAgain = NativeQuery.sumsUp(plan) && named.get(plan.canonicalized()) != null;
        boolean isWhole = NativeQuery.sumsUp(plan) || plan instanceof Window; // of which rows are dropped by their groups
        return isAgain || isDropped && isWhole && !cannotFail(plan) ? result(plan, false) : null;
    }

    /** Whether no value of a plan can fail. */
    static boolean cannotFail(LogicalPlan plan) {
        for (Object one : Catalyst.each(plan.expressions())) {
            if (!ExpressionSafety.cannotFail(withValues((Expression) one))) {
                return false;
            }
        }
        for (Object child : Catalyst.each(plan.children())) {
            if (!cannotFail((LogicalPlan) child)) {
                return false;
            }
        }
        return true;
    }

    /** Returns the name of a result, which is computed once for all places where it stands. */
    private String result(LogicalPlan plan, boolean isValue) throws NativeSql.Declined {
        Map<Object, Object> names = isValue ? values : named;
        Object key = plan.canonicalized();
        if (names.get(key) == null || names.get(key).equals("")) {
            String sql = query.alone(plan, isValue); // which may have such results itself: they come before it
            String name = "result_" + all.size();
            all.add(Arrays.<Object>asList(name, sql, isValue));
            names.put(key, name);
        }
        return (String) names.get(key);
    }

    /**
     * Returns the value of a subquery in the query that this thread spells.
     *
     * It is computed before, whether rows ask for it or not, as Spark does: its errors must be seen.
     */
    static String value(ScalarSubquery subquery) throws NativeSql.Declined {
        NativeResults results = (NativeResults) SPELLED.get();
        if (results == null || subquery.isCorrelated()) {
            throw new NativeSql.Declined("a subquery");
        }
        return "(SELECT * FROM " + results.result(NativeShape.of(subquery.plan()), true) + ")";
    }

    /** Returns a field of the value of a subquery, which Spark has put together of several subqueries of the same rows. */
    static String field(GetStructField field) throws NativeSql.Declined {
        NativeResults results = (NativeResults) SPELLED.get();
        ScalarSubquery subquery = field.child() instanceof ScalarSubquery ? (ScalarSubquery) field.child() : null;
        Project made = subquery != null && subquery.plan() instanceof Project ? (Project) subquery.plan() : null;
        Object struct = made != null && made.projectList().size() == 1 ? Catalyst.first((Expression) made.projectList().head()) : null;
        if (!(struct instanceof CreateNamedStruct) || results == null || subquery.isCorrelated()) {
            throw new NativeSql.Declined("a field of a struct");
        }
        return results.field(made, (CreateNamedStruct) struct, field.ordinal());
    }

    private String field(Project made, CreateNamedStruct struct, int place) throws NativeSql.Declined {
        Object key = made.canonicalized();
        if (!fields.containsKey(key)) {
            List<NamedExpression> columns = new ArrayList<>();
            for (Object value : Catalyst.each(struct.valExprs())) {
                columns.add(NativeShape.alias((Expression) value, "field"));
            }
            fields.put(key, NativeShape.of(new Project(PythonUtils.toSeq(columns), made.child())));
        }
        LogicalPlan plan = (LogicalPlan) fields.get(key);
        String column = NativeSql.column((AttributeReference) (Object) plan.output().apply(place));
        return "(SELECT " + column + " FROM " + result(plan, true) + ")";
    }

    /** Returns an expression with nulls in place of its subqueries: they raise no errors where the expression is. */
    static Expression withValues(Expression one) {
        if (one instanceof ScalarSubquery && !((ScalarSubquery) one).isCorrelated()) {
            return new Literal(null, one.dataType());
        }
        List<Expression> parts = new ArrayList<>();
        boolean differs = false;
        for (Object part : Catalyst.each(one.children())) {
            parts.add(withValues((Expression) part));
            differs |= parts.get(parts.size() - 1) != part;
        }
        return differs ? (Expression) (Object) one.withNewChildren(PythonUtils.toSeq(parts)) : one;
    }
}
