package penstock.duckdb;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BinaryComparison;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.EqualNullSafe;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.InSet;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.Like;
import org.apache.spark.sql.catalyst.expressions.Not;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;

import penstock.plans.Catalyst;

/**
 * Removes IS NOT NULL conditions that another condition or a join implies.
 *
 * Spark's optimizer adds such conditions. DuckDB estimates that each drops most rows, which leads to a worse join order.
 */
final class NativeNotNullFilters {
    /** Returns an equivalent plan. */
    static LogicalPlan of(LogicalPlan plan) {
        return of(plan, new HashSet<>());
    }

    /** Returns a plan that may also return rows with null in columns `droppedNulls` (ids): they are dropped above. */
    private static LogicalPlan of(LogicalPlan plan, Set<Object> droppedNulls) {
        if (plan instanceof Filter) {
            Filter filter = (Filter) plan;
            Set<Object> inputDroppedNulls = new HashSet<>(droppedNulls);
            addCompared(filter.condition(), inputDroppedNulls);
            Expression remaining = withoutImplied(filter.condition(), inputDroppedNulls);
            LogicalPlan child = of(filter.child(), inputDroppedNulls);
            return remaining == null ? child : new Filter(remaining, child);
        }
        List<LogicalPlan> children = new ArrayList<>();
        for (int i = 0; i < plan.children().size(); i++) {
            children.add(of((LogicalPlan) (Object) plan.children().apply(i), droppedNullsOfInput(plan, i, droppedNulls)));
        }
        return Catalyst.withChildren(plan, children);
    }

    /** Returns the ids of the input's columns in which a null drops the row, in the plan or above it. */
    private static Set<Object> droppedNullsOfInput(LogicalPlan plan, int input, Set<Object> droppedNulls) {
        Set<Object> inputDroppedNulls = new HashSet<>();
        if (plan instanceof Project) {
            for (Object element : Catalyst.each(((Project) plan).projectList())) {
                Object inputColumn = element instanceof Alias ? ((Alias) element).child() : element;
                if (inputColumn instanceof AttributeReference && droppedNulls.contains(id(element))) {
                    inputDroppedNulls.add(id(inputColumn));
                }
            }
        } else if (plan instanceof Aggregate) {
            for (Object group : Catalyst.each(((Aggregate) plan).groupingExpressions())) {
                if (group instanceof AttributeReference && droppedNulls.contains(id(group))) {
                    inputDroppedNulls.add(id(group));
                }
            }
        } else if (plan instanceof Join) {
            Join join = (Join) plan;
            String joinType = join.joinType().toString();
            boolean isInner = joinType.equals("Inner");
            boolean isPreserved = input == 0 ? !joinType.equals("RightOuter") : joinType.equals("RightOuter");
            if (isInner || isPreserved && !joinType.equals("FullOuter")) { // the join adds no null rows to this side
                inputDroppedNulls.addAll(droppedNulls);
            }
            // Rows of this side without a match are not in the result.
            boolean mustMatch = isInner || joinType.equals("LeftSemi") || !isPreserved;
            if (mustMatch && !joinType.equals("FullOuter") && join.condition().isDefined()) {
                addCompared((Expression) (Object) join.condition().get(), inputDroppedNulls);
            }
        }
        return inputDroppedNulls;
    }

    private static Object id(Object column) {
        return ((org.apache.spark.sql.catalyst.expressions.NamedExpression) column).exprId().id();
    }

    /** Adds the columns that a condition compares: the condition is not true if such a column is null. */
    private static void addCompared(Expression condition, Set<Object> compared) {
        if (condition instanceof And) {
            addCompared(((And) condition).left(), compared);
            addCompared(((And) condition).right(), compared);
            return;
        }
        Expression comparison = condition instanceof Not ? ((Not) condition).child() : condition;
        boolean compares = comparison instanceof BinaryComparison && !(comparison instanceof EqualNullSafe);
        if (!compares && !(comparison instanceof In) && !(comparison instanceof InSet) && !(comparison instanceof Like)) {
            return;
        }
        for (Object part : compares ? Catalyst.each(comparison.children()) : Catalyst.each(comparison.children()).subList(0, 1)) {
            Object column = part instanceof Cast ? ((Cast) part).child() : part;
            if (column instanceof AttributeReference) {
                compared.add(id(column));
            }
        }
    }

    private static Expression withoutImplied(Expression condition, Set<Object> droppedNulls) {
        if (condition instanceof And) {
            Expression left = withoutImplied(((And) condition).left(), droppedNulls);
            Expression right = withoutImplied(((And) condition).right(), droppedNulls);
            return left == null ? right : right == null ? left : new And(left, right);
        }
        boolean isImplied = condition instanceof IsNotNull && ((IsNotNull) condition).child() instanceof AttributeReference
                && droppedNulls.contains(id(((IsNotNull) condition).child()));
        return isImplied ? null : condition;
    }
}
