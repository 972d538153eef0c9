package penstock.duckdb;

import java.util.ArrayList;
import java.util.HashMap;
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
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Sort;

import penstock.plans.Catalyst;
import penstock.plans.ExpressionSafety;
import penstock.plans.PlanReader;

/**
 * Normalizes an optimized plan so that most of it can be a single DuckDB query; see `NativeQueries`.
 *
 * Aggregates return only columns and functions; a projection above computes expressions of these, unless Spark's
 * aggregate may fail on rows that a later operator drops, as the projection might skip them. Filters by keys of other
 * tables are removed, as the joins imply them. The sort of a top-N is repeated above the top-N, so that a part can end
 * with the top-N. Semi and anti joins are pulled up above joins with smaller tables. Limits of ranks (a filter above
 * repeats them) and implied IS NOT NULL conditions are removed.
 */
final class NativeNormalization {
    /** Returns an equivalent plan. */
    static LogicalPlan of(LogicalPlan plan) {
        return NativeSemiJoins.of(NativeNotNullFilters.of(normalize(plan, false)));
    }

    /**
     * Whether Spark computes, directly above an aggregate, values that may fail on rows that a later operator may drop.
     *
     * @param parts the parts that DuckDB computes
     * @param mayDrop whether an operator above the plan may drop its rows
     */
    static boolean hasLateValues(LogicalPlan plan, List<?> parts, boolean mayDrop) {
        if (isPart(plan, parts)) {
            return false;
        }
        if (mayDrop && plan instanceof Project && withoutFilters(((Project) plan).child()) instanceof Aggregate
                && !ExpressionSafety.cannotFail(((Project) plan).projectList())) {
            return true;
        }
        boolean mayDropBelow = mayDropBelow(plan, mayDrop);
        for (LogicalPlan child : Catalyst.each(plan.children())) {
            if (hasLateValues(child, parts, mayDropBelow)) {
                return true;
            }
        }
        return false;
    }

    static boolean isPart(LogicalPlan plan, List<?> parts) {
        for (Object part : parts) {
            if (part == plan) {
                return true;
            }
        }
        return false;
    }

    /** Whether a plan may drop rows of its children before their values are used; as in `planner/late_values.py`. */
    private static boolean mayDropBelow(LogicalPlan plan, boolean mayDrop) {
        return plan instanceof Filter || plan instanceof Join || mayDrop && plan instanceof Project;
    }

    private static LogicalPlan normalize(LogicalPlan plan, boolean mayDrop) {
        List<LogicalPlan> children = new ArrayList<>();
        for (LogicalPlan child : Catalyst.each(plan.children())) {
            children.add(normalize(child, mayDropBelow(plan, mayDrop)));
        }
        LogicalPlan normalized = Catalyst.withChildren(plan, children);
        if (normalized instanceof Filter) {
            Expression remaining = withoutKeyFilters(((Filter) normalized).condition());
            return remaining == null ? ((Filter) normalized).child() : belowLateValues(new Filter(remaining, ((Filter) normalized).child()));
        }
        if (Catalyst.name(normalized).equals("WindowGroupLimit")) { // the filter above drops the same rows
            return Catalyst.onlyChild(normalized);
        }
        Project selection = NativeWindows.selectionOfFirstRows(normalized);
        if (selection != null) { // as in Spark, which computes its values for the first rows only
            LogicalPlan firstRows = NativeWindows.withoutSelection(normalized);
            Object sorted = NativeWindows.sortOfFirstRows(firstRows).withNewChildren(Catalyst.seq(firstRows));
            return new Project(selection.projectList(), (LogicalPlan) sorted);
        }
        Sort sort = NativeWindows.sortOfFirstRows(normalized);
        if (sort != null) {
            return (LogicalPlan) (Object) sort.withNewChildren(Catalyst.seq(normalized));
        }
        if (normalized instanceof Join && ((Join) normalized).joinType().toString().equals("Inner")) {
            return NativeSemiJoins.pullUp((Join) normalized);
        }
        return normalized instanceof Aggregate ? splitAggregate((Aggregate) normalized, mayDrop) : normalized;
    }

    /**
     * Moves a filter below the values that a projection computes from an aggregate, if they may fail: as in Spark's
     * generated code, they are computed for the remaining rows only.
     */
    private static LogicalPlan belowLateValues(Filter filter) {
        Project project = filter.child() instanceof Project ? (Project) filter.child() : null;
        if (project == null || !(project.child() instanceof Aggregate) || !filter.condition().deterministic()
                || ExpressionSafety.cannotFail(project.projectList())) {
            return filter;
        }
        Map<Object, Object> values = new HashMap<>();
        for (Object element : Catalyst.each(project.projectList())) {
            if (!((Expression) element).deterministic()) {
                return filter; // the condition would use another value than the result
            }
            if (element instanceof Alias) {
                values.put(((Alias) element).exprId(), ((Alias) element).child());
            }
        }
        return new Project(project.projectList(), new Filter(withValues(filter.condition(), values), project.child()));
    }

    private static LogicalPlan withoutFilters(LogicalPlan plan) {
        return plan instanceof Filter ? withoutFilters(((Filter) plan).child()) : plan;
    }

    /** Replaces columns by their values. */
    private static Expression withValues(Expression expression, Map<Object, Object> values) {
        Object value = expression instanceof AttributeReference ? values.get(((AttributeReference) expression).exprId()) : null;
        if (value != null) {
            return (Expression) value;
        }
        List<Expression> children = new ArrayList<>();
        for (Expression child : Catalyst.each(expression.children())) {
            children.add(withValues(child, values));
        }
        return Catalyst.withChildren(expression, children);
    }

    private static Expression withoutKeyFilters(Expression condition) {
        if (condition instanceof And) {
            Expression left = withoutKeyFilters(((And) condition).left());
            Expression right = withoutKeyFilters(((And) condition).right());
            return left == null ? right : right == null ? left : new And(left, right);
        }
        String name = Catalyst.name(condition);
        boolean isKeyFilter = name.equals("DynamicPruningSubquery")
                || name.equals("BloomFilterMightContain") && Catalyst.first(condition) instanceof ScalarSubquery;
        return isKeyFilter ? null : condition;
    }

    private static LogicalPlan splitAggregate(Aggregate plan, boolean mayDrop) {
        Map<Object, Object> functions = new LinkedHashMap<>();
        List<NamedExpression> results = new ArrayList<>();
        boolean keepsPlan = true;
        for (Object element : Catalyst.each(plan.aggregateExpressions())) {
            boolean isFunction = element instanceof Alias && ((Alias) element).child() instanceof AggregateExpression;
            keepsPlan = keepsPlan && (isFunction || element instanceof AttributeReference);
            results.add((NamedExpression) withColumns((Expression) element, functions));
        }
        List<NamedExpression> columns = new ArrayList<>();
        for (Object group : Catalyst.each(plan.groupingExpressions())) {
            keepsPlan = keepsPlan || !(group instanceof AttributeReference); // DuckDB declines such a group
            if (group instanceof NamedExpression) { // a constant has no name and is never referenced
                columns.add((NamedExpression) group);
            }
        }
        boolean mayFailOnDroppedRows = mayDrop && !PlanReader.isGeneratedHashAggregate(plan)
                && !ExpressionSafety.cannotFail(PythonUtils.toSeq(results)); // a generated aggregate computes results lazily, too
        if (keepsPlan || mayFailOnDroppedRows) {
            return plan;
        }
        for (Object function : functions.values()) {
            columns.add((NamedExpression) function);
        }
        Object[] fields = new Object[plan.productArity()];
        for (int i = 0; i < fields.length; i++) {
            Object field = plan.productElement(i);
            fields[i] = i == 1 ? PythonUtils.toSeq(columns) : field; // field 1 is aggregateExpressions
        }
        return new Project(PythonUtils.toSeq(results), (LogicalPlan) (Object) plan.makeCopy(fields));
    }

    static Alias alias(Expression value, String name) {
        return Catalyst.alias(value, name, NamedExpression$.MODULE$.newExprId());
    }

    /** Replaces the aggregate functions of an expression by columns, and collects the functions. */
    private static Expression withColumns(Expression expression, Map<Object, Object> functions) {
        if (expression instanceof AggregateExpression) {
            Object key = expression.deterministic() ? expression.canonicalized() : new Object(); // two calls may return different values
            if (!functions.containsKey(key)) {
                String name = Catalyst.name(((AggregateExpression) expression).aggregateFunction());
                functions.put(key, alias(expression, name));
            }
            return (Expression) ((NamedExpression) functions.get(key)).toAttribute();
        }
        List<Expression> children = new ArrayList<>();
        for (Expression child : Catalyst.each(expression.children())) {
            children.add(withColumns(child, functions));
        }
        return Catalyst.withChildren(expression, children);
    }
}
