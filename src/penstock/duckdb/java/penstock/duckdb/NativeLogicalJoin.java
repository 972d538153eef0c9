package penstock.duckdb;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.EqualNullSafe;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.IsNull;
import org.apache.spark.sql.catalyst.expressions.Not;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.plans.ExistenceJoin;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;

import penstock.plans.Catalyst;

/** Joins of an optimised plan in DuckDB's SQL; see `NativeQuery`. */
final class NativeLogicalJoin {
    static boolean isInner(Join join) {
        return join.joinType().toString().equals("Inner") || join.joinType().toString().equals("Cross");
    }

    /**
     * Returns the conjuncts of an inner join's condition.
     *
     * @param isSmall whether a side has at most a single row
     */
    static List<String> ofInner(Join join, boolean isSmall) throws NativeSql.Declined {
        List<String> conjuncts = new ArrayList<>();
        boolean hasKeys = isSmall;
        for (Expression element : Catalyst.conjuncts(join.condition())) {
            boolean compares = compares(join, element);
            hasKeys |= compares && isEqual(element);
            String sql = condition(element, compares);
            // DuckDB would join the two tables by this condition first, which returns most pairs of their rows.
            conjuncts.add(isEqual(element) || !compares || hasEquiJoin(join, element) ? sql : "(CASE WHEN " + sql + " THEN TRUE ELSE FALSE END)");
        }
        if (!hasKeys) {
            throw new NativeSql.Declined("a join without equal keys");
        }
        return conjuncts;
    }

    /** Whether an equality also joins the two tables whose rows a condition compares. */
    private static boolean hasEquiJoin(Join join, Expression condition) {
        for (Expression element : Catalyst.conjuncts(join.condition())) {
            if (isEqual(element) && tables(join, element).equals(tables(join, condition))) {
                return true;
            }
        }
        return false;
    }

    /** Returns the sides of adjacent inner joins to whose columns a condition refers. */
    private static Set<Object> tables(LogicalPlan plan, Expression condition) {
        boolean isPassedThrough = plan instanceof Join && isInner((Join) plan) || !NativeQuery.isScan(plan)
                && (plan instanceof Filter || Catalyst.isPruning(plan));
        Set<Object> sides = new HashSet<>();
        for (Object child : isPassedThrough ? Catalyst.each(plan.children()) : new ArrayList<Object>()) {
            sides.addAll(tables((LogicalPlan) child, condition));
        }
        if (!isPassedThrough && !condition.references().intersect(plan.outputSet()).isEmpty()) {
            sides.add(plan);
        }
        return sides;
    }

    /** Returns an outer, semi, anti or existence join of the rows of two queries. */
    static String of(Join join, String left, String right) throws NativeSql.Declined {
        NativeSql.checkSides(join.left().output(), join.right().output());
        List<?> conditions = Catalyst.conjuncts(join.condition());
        if (join.joinType().toString().equals("LeftAnti") && conditions.size() == 1 && isNotIn((Expression) conditions.get(0))) {
            return notIn(join, Catalyst.first((Expression) conditions.get(0)), left, right);
        }
        boolean hasKeys = false;
        StringBuilder sql = new StringBuilder();
        for (Object element : conditions) {
            if (!compares(join, (Expression) element)) {
                throw new NativeSql.Declined("a condition of an outer join that does not compare its sides");
            }
            hasKeys |= isEqual(element);
            sql.append(sql.length() == 0 ? "" : " AND ").append(condition((Expression) element, true));
        }
        if (!hasKeys) {
            throw new NativeSql.Declined("a join without equal keys");
        }
        if (join.joinType() instanceof ExistenceJoin) {
            String name = NativeSql.column((AttributeReference) ((ExistenceJoin) join.joinType()).exists());
            return "SELECT l.*, EXISTS (SELECT 1 FROM (" + right + ") AS r WHERE " + sql + ") AS " + name + " FROM (" + left + ") AS l";
        }
        return "SELECT * FROM (" + left + ") AS l " + kind(join) + " (" + right + ") AS r ON " + sql;
    }

    private static boolean compares(Join join, Expression condition) {
        return NativeJoin.compares(condition, join.left().outputSet(), join.right().outputSet());
    }

    private static boolean isEqual(Object condition) {
        return condition instanceof EqualTo || condition instanceof EqualNullSafe;
    }

    private static String notIn(Join join, Expression equal, String left, String right) throws NativeSql.Declined {
        Expression first = Catalyst.first(equal);
        NativeSql.checkKeys(first, Catalyst.last(equal));
        boolean isLeft = first.references().subsetOf(join.left().outputSet());
        String value = NativeSql.of(isLeft ? first : Catalyst.last(equal));
        String list = NativeSql.of(isLeft ? Catalyst.last(equal) : first);
        return "SELECT * FROM (" + left + ") WHERE " + value + " NOT IN (SELECT " + list + " FROM (" + right + "))";
    }

    /** Whether an anti join's condition is that of NOT IN: two values are equal, or the comparison is null. */
    private static boolean isNotIn(Expression condition) {
        Expression last = condition instanceof Or ? Catalyst.last(condition) : condition;
        return condition instanceof Or && Catalyst.first(condition) instanceof EqualTo && last instanceof IsNull
                && Catalyst.first(last).semanticEquals(Catalyst.first(condition));
    }

    private static String condition(Expression expression, boolean compares) throws NativeSql.Declined {
        List<?> operands = Catalyst.each(expression.children());
        if (expression instanceof EqualTo && compares) {
            return NativeSql.equal((Expression) operands.get(0), (Expression) operands.get(1));
        }
        if (expression instanceof Not && compares) { // as a comparison, DuckDB evaluates it only for rows with equal keys
            List<?> sides = Catalyst.each(((Not) expression).child().children());
            NativeSql.checkKeys((Expression) sides.get(0), (Expression) sides.get(1));
            return "(" + NativeSql.of((Expression) sides.get(0)) + " <> " + NativeSql.of((Expression) sides.get(1)) + ")";
        }
        return NativeSql.condition(expression);
    }

    private static String kind(Join join) throws NativeSql.Declined {
        String kind = join.joinType().toString();
        if (kind.equals("LeftOuter") || kind.equals("RightOuter") || kind.equals("FullOuter")) {
            return kind.substring(0, kind.indexOf("Outer")).toUpperCase(java.util.Locale.ROOT) + " JOIN";
        }
        if (kind.equals("LeftSemi") || kind.equals("LeftAnti")) {
            return kind.equals("LeftSemi") ? "SEMI JOIN" : "ANTI JOIN";
        }
        throw new NativeSql.Declined("a join of the kind " + kind);
    }
}
