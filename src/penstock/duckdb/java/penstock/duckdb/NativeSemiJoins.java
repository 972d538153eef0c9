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
 * Equivalent plans with additional semi joins, or semi joins at other positions, which DuckDB computes faster.
 *
 * `of` restricts an aggregate to the groups that a join needs: to the keys of a small, filtered table of the same inner joins.
 *
 * Before: part(filtered) ⋈ lineitem ⋈ Γ(partkey; lineitem). After: ... ⋈ Γ(partkey; lineitem ⋉ part(filtered)).
 */
final class NativeSemiJoins {
    /** The minimum ratio of the aggregate's input bytes to the table's bytes, as the table is read twice. */
    private static final BigInteger MIN_RATIO = BigInteger.valueOf(4);
    private final List<LogicalPlan> sides = new ArrayList<>(); // the inputs of adjacent inner joins
    /** For each column id, the id that represents the columns that are equal in all rows. */
    private final Map<Object, Object> representatives = new HashMap<>();

    private NativeSemiJoins(Join join) {
        collectSides(join);
    }

    /** Returns an equivalent plan. */
    static LogicalPlan of(LogicalPlan plan) {
        LogicalPlan restricted = plan;
        if (plan instanceof Join && NativeLogicalJoin.isInner((Join) plan)) {
            restricted = new NativeSemiJoins((Join) plan).restrict(plan);
        }
        List<LogicalPlan> children = new ArrayList<>();
        for (LogicalPlan child : Catalyst.each(restricted.children())) {
            children.add(of(child));
        }
        return Catalyst.withChildren(restricted, children);
    }

    private void collectSides(LogicalPlan plan) {
        if (plan instanceof Join && NativeLogicalJoin.isInner((Join) plan)) {
            for (Expression condition : Catalyst.conjuncts(((Join) plan).condition())) {
                if (condition instanceof EqualTo && Catalyst.first(condition) instanceof AttributeReference && Catalyst.last(condition) instanceof AttributeReference) {
                    merge(representative(Catalyst.first(condition)), representative(Catalyst.last(condition)));
                }
            }
            collectSides(((Join) plan).left());
            collectSides(((Join) plan).right());
        } else if (!NativeQuery.isScan(plan) && Catalyst.isPruning(plan)) {
            collectSides(((Project) plan).child());
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
    private LogicalPlan restrict(LogicalPlan plan) {
        boolean isBetweenSides = plan instanceof Join && NativeLogicalJoin.isInner((Join) plan)
                || !NativeQuery.isScan(plan) && Catalyst.isPruning(plan);
        if (!isBetweenSides) {
            return restrictSide(plan, plan);
        }
        List<LogicalPlan> children = new ArrayList<>();
        for (LogicalPlan child : Catalyst.each(plan.children())) {
            children.add(restrict(child));
        }
        return Catalyst.withChildren(plan, children);
    }

    private LogicalPlan restrictSide(LogicalPlan plan, LogicalPlan side) {
        if (plan instanceof Aggregate && NativeResults.cannotFail(side)) { // errors of the other groups must occur, too
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
        boolean isFilterOrProject = plan instanceof Filter || plan instanceof Project;
        if (!isFilterOrProject || NativeQuery.isScan(plan)) {
            return plan;
        }
        LogicalPlan child = restrictSide(Catalyst.onlyChild(plan), side);
        return (LogicalPlan) (Object) plan.withNewChildren(Catalyst.seq(child));
    }

    /** Returns a plan of the keys of a small, filtered side that are equal to a grouping column; null without such a side. */
    private LogicalPlan keyPlan(AttributeReference group, LogicalPlan aggregate, LogicalPlan side) {
        for (LogicalPlan other : sides) {
            boolean isSmall = other != side && NativeQuery.isScan(other) && isFiltered(other)
                    && bytes(other).multiply(MIN_RATIO).compareTo(bytes(aggregate)) < 0;
            for (Object column : isSmall ? Catalyst.each(other.output()) : new ArrayList<Object>()) {
                boolean isEqual = representative(column).equals(representative(group)) && side.outputSet().contains((NamedExpression) group);
                if (isEqual && ((Expression) column).dataType().equals(group.dataType())) {
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
     * Pulls semi and anti joins, which Spark has pushed down, up above an inner join if their right side reads more
     * bytes than the other side of the inner join: DuckDB reorders only inner joins.
     */
    static LogicalPlan pullUp(Join join) {
        Join left = semiJoin(join.left(), join.right());
        Join semi = left == null ? semiJoin(join.right(), join.left()) : left;
        if (semi == null) {
            return join;
        }
        LogicalPlan inner = semi == left ? withSides(join, semi.left(), join.right()) : withSides(join, join.left(), semi.left());
        List<NamedExpression> columns = new ArrayList<>(Catalyst.each(join.output()));
        // Restores the order of the columns, which a projection that `semiJoin` skips may have changed.
        return new Project(PythonUtils.toSeq(columns), withSides(semi, pullUp((Join) inner), semi.right()));
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

    private static LogicalPlan withSides(Join join, LogicalPlan left, LogicalPlan right) {
        return Catalyst.withChildren(join, Arrays.asList(new LogicalPlan[] {left, right}));
    }
}
