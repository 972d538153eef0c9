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
 * Restricts an aggregate to the groups that a join needs: the keys of a small, filtered table in the same inner joins.
 *
 * Before: part(filtered) ⋈ lineitem ⋈ Γ(partkey; lineitem). After: ... ⋈ Γ(partkey; lineitem ⋉ part(filtered)).
 */
final class NativeSemiJoinPushdown {
    /** The minimum ratio of the aggregate's input bytes to the table's bytes, as the table is read twice. */
    private static final BigInteger MIN_RATIO = BigInteger.valueOf(4);

    private final List<LogicalPlan> sides = new ArrayList<>();
    /** For each column id, the representative of the columns that are equal in all rows. */
    private final Map<Object, Object> representatives = new HashMap<>();

    private NativeSemiJoinPushdown(Join join) {
        add(join);
    }

    /** Returns an equivalent plan. */
    static LogicalPlan of(LogicalPlan plan) {
        LogicalPlan reduced = plan;
        if (plan instanceof Join && NativeLogicalJoin.isInner((Join) plan)) {
            reduced = new NativeSemiJoinPushdown((Join) plan).reduce(plan);
        }
        List<LogicalPlan> children = new ArrayList<>();
        for (Object child : Catalyst.each(reduced.children())) {
            children.add(of((LogicalPlan) child));
        }
        return children.isEmpty() ? reduced : (LogicalPlan) (Object) reduced.withNewChildren(PythonUtils.toSeq(children));
    }

    private void add(LogicalPlan plan) {
        if (plan instanceof Join && NativeLogicalJoin.isInner((Join) plan)) {
            for (Object element : NativeLogicalJoin.conditions((Join) plan)) {
                Expression condition = (Expression) element;
                if (condition instanceof EqualTo && Catalyst.first(condition) instanceof AttributeReference && Catalyst.last(condition) instanceof AttributeReference) {
                    merge(representative(Catalyst.first(condition)), representative(Catalyst.last(condition)));
                }
            }
            add(((Join) plan).left());
            add(((Join) plan).right());
        } else if (!NativeQuery.isScan(plan) && Catalyst.isPruning(plan)) {
            add(((Project) plan).child());
        } else {
            sides.add(plan);
        }
    }

    private Object representative(Object column) {
        Object id = ((Attribute) column).exprId().id();
        return representatives.containsKey(id) ? representatives.get(id) : id;
    }

    private void merge(Object representative, Object other) {
        Set<Object> ids = new HashSet<>(representatives.keySet());
        for (Object id : ids) {
            if (representatives.get(id).equals(other)) {
                representatives.put(id, representative);
            }
        }
        representatives.put(representative, representative);
        representatives.put(other, representative);
    }

    /** Returns the joins, or a side of them, with restricted aggregates. */
    private LogicalPlan reduce(LogicalPlan plan) {
        boolean isInside = plan instanceof Join && NativeLogicalJoin.isInner((Join) plan)
                || !NativeQuery.isScan(plan) && Catalyst.isPruning(plan);
        if (!isInside) {
            return reduceSide(plan, plan);
        }
        List<LogicalPlan> children = new ArrayList<>();
        for (Object child : Catalyst.each(plan.children())) {
            children.add(reduce((LogicalPlan) child));
        }
        return (LogicalPlan) (Object) plan.withNewChildren(PythonUtils.toSeq(children));
    }

    private LogicalPlan reduceSide(LogicalPlan plan, LogicalPlan side) {
        if (plan instanceof Aggregate && NativeResults.cannotFail(side)) { // errors of the other groups must not be lost
            for (Object group : Catalyst.each(((Aggregate) plan).groupingExpressions())) {
                LogicalPlan keys = group instanceof AttributeReference ? keyPlan((AttributeReference) group, plan, side) : null;
                if (keys != null) {
                    LogicalPlan rows = (LogicalPlan) (Object) plan.children().head();
                    Expression isEqual = new EqualTo((Expression) group, (Expression) (Object) keys.output().head());
                    Join semi = new Join(rows, keys, org.apache.spark.sql.catalyst.plans.LeftSemi$.MODULE$, Option.apply(isEqual),
                            org.apache.spark.sql.catalyst.plans.logical.JoinHint.NONE());
                    return (LogicalPlan) (Object) plan.withNewChildren(Catalyst.seq((LogicalPlan) semi));
                }
            }
            return plan;
        }
        boolean isNarrow = plan instanceof Filter || plan instanceof Project;
        if (!isNarrow || NativeQuery.isScan(plan)) {
            return plan;
        }
        LogicalPlan child = reduceSide((LogicalPlan) (Object) plan.children().head(), side);
        return (LogicalPlan) (Object) plan.withNewChildren(Catalyst.seq(child));
    }

    /** Returns a plan of the keys of a small, filtered side that are equal to a grouping column; null without such a side. */
    private LogicalPlan keyPlan(AttributeReference group, LogicalPlan aggregate, LogicalPlan side) {
        for (LogicalPlan other : sides) {
            boolean isSmall = other != side && NativeQuery.isScan(other) && isFiltered(other)
                    && NativeSemiJoinPullup.bytes(other).multiply(MIN_RATIO).compareTo(NativeSemiJoinPullup.bytes(aggregate)) < 0;
            for (Object column : isSmall ? Catalyst.each(other.output()) : new ArrayList<Object>()) {
                boolean isSame = representative(column).equals(representative(group)) && side.outputSet().contains((NamedExpression) group);
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
