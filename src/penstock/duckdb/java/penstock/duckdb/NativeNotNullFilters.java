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
 * Spark's optimiser adds them. DuckDB estimates that each drops most rows, which leads to a worse join order.
 */
final class NativeNotNullFilters {
    /** Returns an equivalent plan. */
    static LogicalPlan of(LogicalPlan plan) {
        return of(plan, new HashSet<>());
    }

    /** Returns a plan that may also return rows with null in a column whose id is in `dropped`. */
    private static LogicalPlan of(LogicalPlan plan, Set<Object> dropped) {
        if (plan instanceof Filter) {
            Filter filter = (Filter) plan;
            Set<Object> inputDropped = new HashSet<>(dropped);
            addCompared(filter.condition(), inputDropped);
            Expression remaining = withoutImplied(filter.condition(), inputDropped);
            LogicalPlan child = of(filter.child(), inputDropped);
            return remaining == null ? child : new Filter(remaining, child);
        }
        List<LogicalPlan> children = new ArrayList<>();
        for (int i = 0; i < plan.children().size(); i++) {
            children.add(of((LogicalPlan) (Object) plan.children().apply(i), droppedOfInput(plan, i, dropped)));
        }
        return Catalyst.withChildren(plan, children);
    }

    /** Returns the ids of the input's columns whose null rows do not affect the result of a plan. */
    private static Set<Object> droppedOfInput(LogicalPlan plan, int input, Set<Object> dropped) {
        Set<Object> inputDropped = new HashSet<>();
        if (plan instanceof Project) {
            for (Object element : Catalyst.each(((Project) plan).projectList())) {
                Object from = element instanceof Alias ? ((Alias) element).child() : element;
                if (from instanceof AttributeReference && dropped.contains(id(element))) {
                    inputDropped.add(id(from));
                }
            }
        } else if (plan instanceof Aggregate) {
            for (Object group : Catalyst.each(((Aggregate) plan).groupingExpressions())) {
                if (group instanceof AttributeReference && dropped.contains(id(group))) {
                    inputDropped.add(id(group));
                }
            }
        } else if (plan instanceof Join) {
            Join join = (Join) plan;
            String kind = join.joinType().toString();
            boolean isInner = kind.equals("Inner");
            boolean isPreserved = input == 0 ? !kind.equals("RightOuter") : kind.equals("RightOuter");
            if (isInner || isPreserved && !kind.equals("FullOuter")) { // the join adds no null rows to this side
                inputDropped.addAll(dropped);
            }
            boolean mustMatch = isInner || kind.equals("LeftSemi") || !isPreserved;
            if (mustMatch && !kind.equals("FullOuter") && join.condition().isDefined()) {
                addCompared((Expression) (Object) join.condition().get(), inputDropped);
            }
        }
        return inputDropped;
    }

    private static Object id(Object column) {
        return ((org.apache.spark.sql.catalyst.expressions.NamedExpression) column).exprId().id();
    }

    /** Adds the columns that a condition compares: it is not true if one of them is null. */
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

    private static Expression withoutImplied(Expression condition, Set<Object> dropped) {
        if (condition instanceof And) {
            Expression left = withoutImplied(((And) condition).left(), dropped);
            Expression right = withoutImplied(((And) condition).right(), dropped);
            return left == null ? right : right == null ? left : new And(left, right);
        }
        boolean isImplied = condition instanceof IsNotNull && ((IsNotNull) condition).child() instanceof AttributeReference
                && dropped.contains(id(((IsNotNull) condition).child()));
        return isImplied ? null : condition;
    }
}
