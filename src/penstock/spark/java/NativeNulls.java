package penstock;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

import org.apache.spark.api.python.PythonUtils;
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

/**
 * Drops conditions that a column is not null, where another condition or a join drops such rows anyway.
 *
 * Spark's optimiser adds them. DuckDB takes each for one that drops most rows, and joins in a worse order for it.
 */
final class NativeNulls {
    private NativeNulls() {
    }

    /** Returns a plan of the same rows. */
    static LogicalPlan of(LogicalPlan plan) {
        return of(plan, new HashSet<>());
    }

    /** Returns a plan that may give more rows: such with null in one of the columns of these ids. */
    private static LogicalPlan of(LogicalPlan plan, Set<Object> dropped) {
        if (plan instanceof Filter) {
            Filter filter = (Filter) plan;
            Set<Object> all = new HashSet<>(dropped);
            addCompared(filter.condition(), all);
            Expression left = without(filter.condition(), all);
            LogicalPlan child = of(filter.child(), all);
            return left == null ? child : new Filter(left, child);
        }
        List<LogicalPlan> children = new ArrayList<>();
        for (int i = 0; i < plan.children().size(); i++) {
            children.add(of((LogicalPlan) (Object) plan.children().apply(i), below(plan, i, dropped)));
        }
        return children.isEmpty() ? plan : (LogicalPlan) (Object) plan.withNewChildren(PythonUtils.toSeq(children));
    }

    /** Returns the columns of an input of a plan for which rows with null are of no use. */
    private static Set<Object> below(LogicalPlan plan, int input, Set<Object> dropped) {
        Set<Object> found = new HashSet<>();
        if (plan instanceof Project) {
            for (Object each : Catalyst.each(((Project) plan).projectList())) {
                Object from = each instanceof Alias ? ((Alias) each).child() : each;
                if (from instanceof AttributeReference && dropped.contains(id(each))) {
                    found.add(id(from));
                }
            }
        } else if (plan instanceof Aggregate) {
            for (Object group : Catalyst.each(((Aggregate) plan).groupingExpressions())) {
                if (group instanceof AttributeReference && dropped.contains(id(group))) {
                    found.add(id(group));
                }
            }
        } else if (plan instanceof Join) {
            Join join = (Join) plan;
            String kind = join.joinType().toString();
            boolean isInner = kind.equals("Inner");
            boolean isKept = input == 0 ? !kind.equals("RightOuter") : kind.equals("RightOuter");
            if (isInner || isKept && !kind.equals("FullOuter")) { // of its own rows, none is made up of nulls
                found.addAll(dropped);
            }
            boolean mustMatch = isInner || kind.equals("LeftSemi") || !isKept;
            if (mustMatch && !kind.equals("FullOuter") && join.condition().isDefined()) {
                addCompared((Expression) (Object) join.condition().get(), found);
            }
        }
        return found;
    }

    private static Object id(Object column) {
        return ((org.apache.spark.sql.catalyst.expressions.NamedExpression) column).exprId().id();
    }

    /** Adds the columns that a condition compares, which is not met where one is null. */
    private static void addCompared(Expression condition, Set<Object> found) {
        if (condition instanceof And) {
            addCompared(((And) condition).left(), found);
            addCompared(((And) condition).right(), found);
            return;
        }
        Expression one = condition instanceof Not ? ((Not) condition).child() : condition;
        boolean compares = one instanceof BinaryComparison && !(one instanceof EqualNullSafe);
        if (!compares && !(one instanceof In) && !(one instanceof InSet) && !(one instanceof Like)) {
            return;
        }
        for (Object part : compares ? Catalyst.each(one.children()) : Catalyst.each(one.children()).subList(0, 1)) {
            Object column = part instanceof Cast ? ((Cast) part).child() : part;
            if (column instanceof AttributeReference) {
                found.add(id(column));
            }
        }
    }

    private static Expression without(Expression condition, Set<Object> dropped) {
        if (condition instanceof And) {
            Expression left = without(((And) condition).left(), dropped);
            Expression right = without(((And) condition).right(), dropped);
            return left == null ? right : right == null ? left : new And(left, right);
        }
        boolean isKnown = condition instanceof IsNotNull && ((IsNotNull) condition).child() instanceof AttributeReference
                && dropped.contains(id(((IsNotNull) condition).child()));
        return isKnown ? null : condition;
    }
}
