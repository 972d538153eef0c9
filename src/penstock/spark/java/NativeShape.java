package penstock;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.expressions.ScalarSubquery;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.GlobalLimit;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LocalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Sort;

import scala.Option;

/**
 * Brings an optimised plan into the shape in which most of it can be one query of DuckDB's; see `NativeQueries`.
 *
 * Aggregates give columns and functions alone, and what is made of these is a projection above, unless it would fail
 * on other rows there than on Spark. Filters ask no keys of other tables, which their joins do anyway. The first rows of
 * an order are taken below, and ordered once more above. What semi and anti joins read is joined after smaller tables
 * are. Ranks are not limited before they are filtered.
 */
final class NativeShape {
    private NativeShape() {
    }

    /** Returns a plan of the same rows. */
    static LogicalPlan of(LogicalPlan plan) {
        return NativeReduction.of(NativeNulls.of(shaped(plan, false)));
    }

    /**
     * Whether Spark makes values that may fail right above an aggregate, some of whose rows may be left out above them.
     *
     * @param parts what DuckDB computes of the plan
     */
    static boolean hasLateValues(LogicalPlan plan, List<?> parts) {
        return hasLateValues(plan, parts, false);
    }

    private static boolean hasLateValues(LogicalPlan plan, List<?> parts, boolean mayLeaveOut) {
        if (isPart(plan, parts)) {
            return false;
        }
        if (mayLeaveOut && plan instanceof Project && ((Project) plan).child() instanceof Aggregate
                && !ExpressionSafety.cannotFail(((Project) plan).projectList())) {
            return true;
        }
        boolean mayLeaveOutBelow = mayLeaveOutBelow(plan, mayLeaveOut);
        for (Object child : Catalyst.each(plan.children())) {
            if (hasLateValues((LogicalPlan) child, parts, mayLeaveOutBelow)) {
                return true;
            }
        }
        return false;
    }

    /** Whether a plan is one of the parts that DuckDB computes. */
    static boolean isPart(LogicalPlan plan, List<?> parts) {
        for (Object part : parts) {
            if (part == plan) {
                return true;
            }
        }
        return false;
    }

    /** Whether rows of what is below a plan may be left out before they are needed; as in `planner/late_values.py`. */
    private static boolean mayLeaveOutBelow(LogicalPlan plan, boolean mayLeaveOut) {
        return plan instanceof Filter || plan instanceof Join || mayLeaveOut && plan instanceof Project;
    }

    private static LogicalPlan shaped(LogicalPlan plan, boolean mayLeaveOut) {
        LogicalPlan made = withChildren(plan, mayLeaveOutBelow(plan, mayLeaveOut));
        if (made instanceof Filter) {
            Expression left = withoutKeys(((Filter) made).condition());
            return left == null ? ((Filter) made).child() : new Filter(left, ((Filter) made).child());
        }
        if (Catalyst.name(made).equals("WindowGroupLimit")) { // the filter above drops what it would
            return (LogicalPlan) (Object) made.children().head();
        }
        if (made instanceof GlobalLimit && ((GlobalLimit) made).child() instanceof LocalLimit) {
            LogicalPlan below = ((LocalLimit) ((GlobalLimit) made).child()).child();
            boolean isFirstOfOrder = below instanceof Sort && ((Sort) below).global();
            return isFirstOfOrder ? (LogicalPlan) (Object) below.withNewChildren(Catalyst.seq(made)) : made;
        }
        if (made instanceof Join && ((Join) made).joinType().toString().equals("Inner")) {
            return NativeSemiJoins.above((Join) made);
        }
        return made instanceof Aggregate ? split((Aggregate) made, mayLeaveOut) : made;
    }

    private static LogicalPlan withChildren(LogicalPlan plan, boolean mayLeaveOut) {
        List<LogicalPlan> children = new ArrayList<>();
        for (Object child : Catalyst.each(plan.children())) {
            children.add(shaped((LogicalPlan) child, mayLeaveOut));
        }
        return children.isEmpty() ? plan : (LogicalPlan) (Object) plan.withNewChildren(PythonUtils.toSeq(children));
    }

    private static Expression withoutKeys(Expression condition) {
        if (condition instanceof And) {
            Expression left = withoutKeys(((And) condition).left());
            Expression right = withoutKeys(((And) condition).right());
            return left == null ? right : right == null ? left : new And(left, right);
        }
        String name = Catalyst.name(condition);
        boolean asks = name.equals("DynamicPruningSubquery")
                || name.equals("BloomFilterMightContain") && Catalyst.first(condition) instanceof ScalarSubquery;
        return asks ? null : condition;
    }

    private static LogicalPlan split(Aggregate plan, boolean mayLeaveOut) {
        Map<Object, Object> functions = new LinkedHashMap<>();
        List<NamedExpression> above = new ArrayList<>();
        boolean isKept = true;
        for (Object each : Catalyst.each(plan.aggregateExpressions())) {
            boolean isFunction = each instanceof Alias && ((Alias) each).child() instanceof AggregateExpression;
            isKept = isKept && (isFunction || each instanceof AttributeReference);
            above.add((NamedExpression) withColumns((Expression) each, functions));
        }
        List<NamedExpression> below = new ArrayList<>();
        for (Object group : Catalyst.each(plan.groupingExpressions())) {
            isKept = isKept || !(group instanceof AttributeReference); // it will be declined
            if (group instanceof NamedExpression) { // a constant has no name, and nothing above refers to it
                below.add((NamedExpression) group);
            }
        }
        boolean failsWhole = mayLeaveOut && !PlanReader.isGeneratedHashAggregate(plan)
                && !ExpressionSafety.cannotFail(PythonUtils.toSeq(above)); // for all rows, before any is left out
        if (isKept || failsWhole) {
            return plan;
        }
        for (Object function : functions.values()) {
            below.add((NamedExpression) function);
        }
        Object[] fields = new Object[plan.productArity()];
        for (int i = 0; i < fields.length; i++) {
            Object field = plan.productElement(i);
            fields[i] = i == 1 ? PythonUtils.toSeq(below) : field;
        }
        return new Project(PythonUtils.toSeq(above), (LogicalPlan) (Object) plan.makeCopy(fields));
    }

    /** Returns a new column of a value. */
    static Alias alias(Expression value, String name) {
        return new Alias(value, name, NamedExpression$.MODULE$.newExprId(), Catalyst.<String>none(), Option.empty(),
                Catalyst.<String>none());
    }

    /** Returns an expression with columns in place of its aggregate functions, which are collected. */
    private static Expression withColumns(Expression one, Map<Object, Object> functions) {
        if (one instanceof AggregateExpression) {
            Object key = one.deterministic() ? one.canonicalized() : new Object(); // two calls may give different values
            if (!functions.containsKey(key)) {
                String name = Catalyst.name(((AggregateExpression) one).aggregateFunction());
                functions.put(key, alias(one, name));
            }
            return (Expression) ((NamedExpression) functions.get(key)).toAttribute();
        }
        List<Expression> parts = new ArrayList<>();
        for (Object part : Catalyst.each(one.children())) {
            parts.add(withColumns((Expression) part, functions));
        }
        return parts.isEmpty() ? one : (Expression) (Object) one.withNewChildren(PythonUtils.toSeq(parts));
    }
}
