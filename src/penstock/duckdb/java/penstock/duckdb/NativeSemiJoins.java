package penstock.duckdb;

import java.math.BigInteger;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

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

import penstock.plans.Catalyst;

/**
 * Equivalent plans with semi joins at other positions, which DuckDB computes faster.
 *
 * `of` restricts an aggregate to the groups that a join needs: the keys of a small, filtered table in the same inner joins.
 *
 * Before: part(filtered) ⋈ lineitem ⋈ Γ(partkey; lineitem). After: ... ⋈ Γ(partkey; lineitem ⋉ part(filtered)).
 */
final class NativeSemiJoins {
    /** The minimum ratio of the aggregate's input bytes to the table's bytes, as the table is read twice. */
    private static final BigInteger MIN_RATIO = BigInteger.valueOf(4);

    private final List<LogicalPlan> sides = new ArrayList<>();
    /** For each column id, the representative of the columns that are equal in all rows. */
    private final Map<Object, Object> representatives = new HashMap<>();

    private NativeSemiJoins(Join join) {
        add(join);
    }

    /** Returns an equivalent plan. */
    static LogicalPlan of(LogicalPlan plan) {
        LogicalPlan reduced = plan;
        if (plan instanceof Join && NativeLogicalJoin.isInner((Join) plan)) {
            reduced = new NativeSemiJoins((Join) plan).reduce(plan);
        }
        List<LogicalPlan> children = new ArrayList<>();
        for (LogicalPlan child : Catalyst.each(reduced.children())) {
            children.add(of(child));
        }
        return Catalyst.withChildren(reduced, children);
    }

    private void add(LogicalPlan plan) {
        if (plan instanceof Join && NativeLogicalJoin.isInner((Join) plan)) {
            for (Expression condition : Catalyst.conjuncts(((Join) plan).condition())) {
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
        for (Map.Entry<Object, Object> entry : representatives.entrySet()) {
            if (entry.getValue().equals(other)) {
                entry.setValue(representative);
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
        for (LogicalPlan child : Catalyst.each(plan.children())) {
            children.add(reduce(child));
        }
        return Catalyst.withChildren(plan, children);
    }

    private LogicalPlan reduceSide(LogicalPlan plan, LogicalPlan side) {
        if (plan instanceof Aggregate && NativeResults.cannotFail(side)) { // errors of the other groups must not be lost
            for (Object group : Catalyst.each(((Aggregate) plan).groupingExpressions())) {
                LogicalPlan keys = group instanceof AttributeReference ? keyPlan((AttributeReference) group, plan, side) : null;
                if (keys != null) {
                    LogicalPlan rows = Catalyst.onlyChild(plan);
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
        LogicalPlan child = reduceSide(Catalyst.onlyChild(plan), side);
        return (LogicalPlan) (Object) plan.withNewChildren(Catalyst.seq(child));
    }

    /** Returns a plan of the keys of a small, filtered side that are equal to a grouping column; null without such a side. */
    private LogicalPlan keyPlan(AttributeReference group, LogicalPlan aggregate, LogicalPlan side) {
        for (LogicalPlan other : sides) {
            boolean isSmall = other != side && NativeQuery.isScan(other) && isFiltered(other)
                    && bytes(other).multiply(MIN_RATIO).compareTo(bytes(aggregate)) < 0;
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
        return filters || !plan.children().isEmpty() && isFiltered(Catalyst.onlyChild(plan));
    }

    /**
     * Pulls semi and anti joins, which Spark has pushed down, up above an inner join if they read more bytes than the other
     * side has: DuckDB reorders only inner joins.
     */
    static LogicalPlan pullUp(Join join) {
        Join left = semiJoin(join.left(), join.right());
        if (left != null) {
            LogicalPlan inner = pullUp((Join) withSides(join, left.left(), join.right()));
            return projectTo(join, withSides(left, inner, left.right()));
        }
        Join right = semiJoin(join.right(), join.left());
        if (right != null) {
            LogicalPlan inner = pullUp((Join) withSides(join, join.left(), right.left()));
            return projectTo(join, withSides(right, inner, right.right()));
        }
        return join;
    }

    /** Returns the semi or anti join of a side, below column pruning; null if there is none to pull up. */
    private static Join semiJoin(LogicalPlan side, LogicalPlan other) {
        LogicalPlan plan = side;
        while (Catalyst.isPruning(plan)) {
            plan = ((Project) plan).child();
        }
        if (!(plan instanceof Join)) {
            return null;
        }
        String kind = ((Join) plan).joinType().toString();
        boolean drops = kind.equals("LeftSemi") || kind.equals("LeftAnti");
        return drops && bytes(((Join) plan).right()).compareTo(bytes(other)) > 0 ? (Join) plan : null;
    }

    /** Returns Spark's size estimate of the tables that a plan reads, in bytes. */
    static BigInteger bytes(LogicalPlan plan) {
        return bytes(Catalyst.each(plan.collectLeaves()));
    }

    static BigInteger bytes(List<?> leaves) {
        BigInteger bytes = BigInteger.ZERO;
        for (Object leaf : leaves) {
            bytes = bytes.add(((LogicalPlan) leaf).stats().sizeInBytes().bigInteger());
        }
        return bytes;
    }

    private static LogicalPlan projectTo(Join join, LogicalPlan plan) {
        List<NamedExpression> columns = new ArrayList<>(Catalyst.each(join.output()));
        // Always: a skipped projection may have reordered the columns, which is visible to unions and users.
        return new Project(PythonUtils.toSeq(columns), plan);
    }

    private static LogicalPlan withSides(Join join, LogicalPlan left, LogicalPlan right) {
        return Catalyst.withChildren(join, Arrays.asList(new LogicalPlan[] {left, right}));
    }
}
