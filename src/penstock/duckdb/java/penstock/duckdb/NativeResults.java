package penstock.duckdb;

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

import penstock.duckdb.dialect.Declined;
import penstock.plans.Catalyst;
import penstock.plans.ExpressionSafety;

/** Intermediate results of a DuckDB query: subqueries, and aggregates that occur repeatedly. */
final class NativeResults {
    /** The results of the query that this thread translates; DuckDB computes and checks its subqueries before rows. */
    static final ThreadLocal<Object> TRANSLATING = new ThreadLocal<>();
    /** The results in order: name, query, and whether the result is a scalar. */
    final List<Object> namedResults = new ArrayList<>();
    private final NativeQuery query;
    /**
     * The names of results of aggregates and windows by canonical plan: null for an aggregate that occurs once, empty
     * for a repeated aggregate that is not translated yet.
     */
    private final Map<Object, Object> aggregateNames = new HashMap<>();
    /** The names of subquery results by canonical plan. */
    private final Map<Object, Object> subqueryNames = new HashMap<>();
    /** For each merged subquery (by canonical plan): the plan that returns the fields of its struct as columns. */
    private final Map<Object, Object> fieldPlans = new HashMap<>();

    NativeResults(NativeQuery query, LogicalPlan plan) {
        this.query = query;
        findRepeatedAggregates(plan);
    }

    /** Records which aggregates, with the filters and projections above them, occur repeatedly in a plan. */
    private void findRepeatedAggregates(LogicalPlan plan) {
        if (NativeQuery.isAggregate(plan)) {
            Object key = plan.canonicalized();
            boolean isRepeated = aggregateNames.containsKey(key);
            aggregateNames.put(key, isRepeated ? "" : null);
            if (isRepeated) {
                return; // the children of a repeated aggregate are computed once, too
            }
        }
        for (LogicalPlan child : Catalyst.each(plan.children())) {
            findRepeatedAggregates(child);
        }
        for (LogicalPlan subquery : Catalyst.each(plan.subqueries())) {
            findRepeatedAggregates(NativeNormalization.of(subquery));
        }
    }

    /** Translates a plan, and adds the subqueries of its expressions to these results. */
    String translate(LogicalPlan plan) throws Declined {
        TRANSLATING.set(this);
        try {
            return query.of(plan);
        } finally {
            TRANSLATING.remove();
        }
    }

    /**
     * Returns the name of a plan's intermediate result, null if the plan is computed inline.
     *
     * A repeated aggregate is computed once. An aggregate or window with values that may fail is computed separately if an
     * operator above may drop its rows: Spark computes the values of all rows.
     */
    String name(LogicalPlan plan, boolean isDroppable) throws Declined {
        boolean isRepeated = NativeQuery.isAggregate(plan) && aggregateNames.get(plan.canonicalized()) != null;
        boolean isAggregateOrWindow = NativeQuery.isAggregate(plan) || plan instanceof Window;
        return isRepeated || isDroppable && isAggregateOrWindow && !cannotFail(plan) ? result(plan, false) : null;
    }

    static boolean cannotFail(LogicalPlan plan) {
        for (LogicalPlan node : Catalyst.nodes(plan)) {
            for (Expression expression : Catalyst.each(node.expressions())) {
                if (!ExpressionSafety.cannotFail(withoutSubqueries(expression))) {
                    return false;
                }
            }
        }
        return true;
    }

    /** Returns the name of a plan's result; adds the result if it does not exist. */
    private String result(LogicalPlan plan, boolean isScalar) throws Declined {
        Map<Object, Object> names = isScalar ? subqueryNames : aggregateNames;
        Object key = plan.canonicalized();
        if (names.get(key) == null || names.get(key).equals("")) {
            String sql = query.separately(plan, isScalar); // first adds the results that this plan reads
            String name = "result_" + namedResults.size();
            namedResults.add(Arrays.<Object>asList(name, sql, isScalar));
            names.put(key, name);
        }
        return (String) names.get(key);
    }

    /**
     * Returns the value of a subquery in the query that this thread is translating.
     *
     * As in Spark, the subquery is computed even if no row uses the value, so that its errors are raised.
     */
    static String value(ScalarSubquery subquery) throws Declined {
        NativeResults results = (NativeResults) TRANSLATING.get();
        if (results == null || subquery.isCorrelated()) {
            throw new Declined("a subquery");
        }
        return "(SELECT * FROM " + results.result(NativeNormalization.of(subquery.plan()), true) + ")";
    }

    /** Returns a field of a subquery that Spark has merged from several subqueries over the same rows. */
    static String field(GetStructField field) throws Declined {
        NativeResults results = (NativeResults) TRANSLATING.get();
        ScalarSubquery subquery = field.child() instanceof ScalarSubquery ? (ScalarSubquery) field.child() : null;
        Project projection = subquery != null && subquery.plan() instanceof Project ? (Project) subquery.plan() : null;
        Object struct = projection != null && projection.projectList().size() == 1 ? Catalyst.first((Expression) projection.projectList().head()) : null;
        if (!(struct instanceof CreateNamedStruct) || results == null || subquery.isCorrelated()) {
            throw new Declined("a field of a struct");
        }
        return results.field(projection, (CreateNamedStruct) struct, field.ordinal());
    }

    private String field(Project projection, CreateNamedStruct struct, int index) throws Declined {
        Object key = projection.canonicalized();
        if (!fieldPlans.containsKey(key)) {
            List<NamedExpression> columns = new ArrayList<>();
            for (Expression value : Catalyst.each(struct.valExprs())) {
                columns.add(NativeNormalization.alias(value, "field"));
            }
            fieldPlans.put(key, NativeNormalization.of(new Project(PythonUtils.toSeq(columns), projection.child())));
        }
        LogicalPlan plan = (LogicalPlan) fieldPlans.get(key);
        String column = NativeSql.column((AttributeReference) (Object) plan.output().apply(index));
        return "(SELECT " + column + " FROM " + result(plan, true) + ")";
    }

    /** Replaces the subqueries of an expression by null, as they are computed separately and raise errors there. */
    static Expression withoutSubqueries(Expression expression) {
        if (expression instanceof ScalarSubquery && !((ScalarSubquery) expression).isCorrelated()) {
            return new Literal(null, expression.dataType());
        }
        List<Expression> children = new ArrayList<>();
        for (Expression child : Catalyst.each(expression.children())) {
            children.add(withoutSubqueries(child));
        }
        return Catalyst.withChildren(expression, children);
    }
}
