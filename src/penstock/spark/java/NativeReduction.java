package penstock;

import java.math.BigInteger;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;

import scala.Option;

/**
 * Sums up only the groups that a join wants: those of the keys of a small, filtered table in the same inner joins.
 *
 * Before: part(filtered) ⋈ lineitem ⋈ Γ(partkey; lineitem). After: ... ⋈ Γ(partkey; lineitem ⋉ part(filtered)).
 */
final class NativeReduction {
    /** The table must have so many times fewer bytes than what is summed up, as it is read once more. */
    private static final BigInteger SMALLER = BigInteger.valueOf(4);

    private final List<LogicalPlan> sides = new ArrayList<>();
    /** For each column, the name of those that are equal to it in all rows. */
    private final Map<Object, Object> classes = new HashMap<>();

    private NativeReduction(Join join) {
        add(join);
    }

    /** Returns a plan of the same rows. */
    static LogicalPlan of(LogicalPlan plan) {
        LogicalPlan made = plan;
        if (plan instanceof Join && NativePairs.isInner((Join) plan)) {
            made = new NativeReduction((Join) plan).reduced(plan);
        }
        List<LogicalPlan> children = new ArrayList<>();
        for (Object child : Catalyst.each(made.children())) {
            children.add(of((LogicalPlan) child));
        }
        return children.isEmpty() ? made : (LogicalPlan) (Object) made.withNewChildren(PythonUtils.toSeq(children));
    }

    private void add(LogicalPlan plan) {
        if (plan instanceof Join && NativePairs.isInner((Join) plan)) {
            for (Object each : NativePairs.conditions((Join) plan)) {
                Expression one = (Expression) each;
                if (one instanceof EqualTo && Catalyst.first(one) instanceof AttributeReference && Catalyst.last(one) instanceof AttributeReference) {
                    join(classOf(Catalyst.first(one)), classOf(Catalyst.last(one)));
                }
            }
            add(((Join) plan).left());
            add(((Join) plan).right());
        } else if (!NativeQuery.isScan(plan) && plan instanceof Project && NativeSemiJoins.isChoice((Project) plan)) {
            add(((Project) plan).child());
        } else {
            sides.add(plan);
        }
    }

    private Object classOf(Object column) {
        Object id = ((Attribute) column).exprId().id();
        return classes.containsKey(id) ? classes.get(id) : id;
    }

    private void join(Object one, Object other) {
        Set<Object> known = new HashSet<>(classes.keySet());
        for (Object id : known) {
            if (classes.get(id).equals(other)) {
                classes.put(id, one);
            }
        }
        classes.put(one, one);
        classes.put(other, one);
    }

    /** Returns the joins, or what is in them, with aggregates that read fewer rows. */
    private LogicalPlan reduced(LogicalPlan plan) {
        boolean isInside = plan instanceof Join && NativePairs.isInner((Join) plan)
                || !NativeQuery.isScan(plan) && plan instanceof Project && NativeSemiJoins.isChoice((Project) plan);
        if (!isInside) {
            return reducedSide(plan, plan);
        }
        List<LogicalPlan> children = new ArrayList<>();
        for (Object child : Catalyst.each(plan.children())) {
            children.add(reduced((LogicalPlan) child));
        }
        return (LogicalPlan) (Object) plan.withNewChildren(PythonUtils.toSeq(children));
    }

    private LogicalPlan reducedSide(LogicalPlan plan, LogicalPlan side) {
        if (plan instanceof Aggregate && NativeResults.cannotFail(side)) { // else errors of other groups would be lost
            for (Object group : Catalyst.each(((Aggregate) plan).groupingExpressions())) {
                LogicalPlan keys = group instanceof AttributeReference ? keys((AttributeReference) group, plan, side) : null;
                if (keys != null) {
                    LogicalPlan rows = (LogicalPlan) (Object) plan.children().head();
                    Expression met = new EqualTo((Expression) group, (Expression) (Object) keys.output().head());
                    Join semi = new Join(rows, keys, org.apache.spark.sql.catalyst.plans.LeftSemi$.MODULE$, Option.apply(met),
                            org.apache.spark.sql.catalyst.plans.logical.JoinHint.NONE());
                    return (LogicalPlan) (Object) plan.withNewChildren(Catalyst.seq((LogicalPlan) semi));
                }
            }
            return plan;
        }
        boolean isAbove = plan instanceof Filter || plan instanceof Project;
        if (!isAbove || NativeQuery.isScan(plan)) {
            return plan;
        }
        LogicalPlan below = reducedSide((LogicalPlan) (Object) plan.children().head(), side);
        return (LogicalPlan) (Object) plan.withNewChildren(Catalyst.seq(below));
    }

    /** Returns the keys of a small, filtered side that are equal to a group, null if there is none. */
    private LogicalPlan keys(AttributeReference group, LogicalPlan aggregate, LogicalPlan side) {
        for (LogicalPlan other : sides) {
            boolean isSmall = other != side && NativeQuery.isScan(other) && isFiltered(other)
                    && NativeSemiJoins.bytes(other).multiply(SMALLER).compareTo(NativeSemiJoins.bytes(aggregate)) < 0;
            for (Object column : isSmall ? Catalyst.each(other.output()) : new ArrayList<Object>()) {
                boolean isSame = classOf(column).equals(classOf(group)) && side.outputSet().contains((NamedExpression) group);
                if (isSame && ((Expression) column).dataType().equals(group.dataType())) {
                    return new Project(Catalyst.seq((NamedExpression) column), other);
                }
            }
        }
        return null;
    }

    private static boolean isFiltered(LogicalPlan plan) {
        boolean filters = plan instanceof Filter && !(((Filter) plan).condition() instanceof IsNotNull);
        return filters || !plan.children().isEmpty() && isFiltered((LogicalPlan) (Object) plan.children().head());
    }
}
