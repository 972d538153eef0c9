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

import penstock.duckdb.dialect.Declined;
import penstock.plans.Catalyst;

/** Joins of an optimized plan in DuckDB's SQL; see `NativeQuery`. */
final class NativeLogicalJoin {
    static boolean isInner(Join join) {
        return join.joinType().toString().equals("Inner") || join.joinType().toString().equals("Cross");
    }

    /** Returns the conjuncts of an inner join; `hasSingleRowSide` says whether a side has at most a single row. */
    static List<String> ofInner(Join join, boolean hasSingleRowSide) throws Declined {
        List<String> conjuncts = new ArrayList<>();
        boolean hasEqualityOrSingleRow = hasSingleRowSide;
        for (Expression conjunct : Catalyst.conjuncts(join.condition())) {
            boolean comparesSides = comparesSides(join, conjunct);
            hasEqualityOrSingleRow |= comparesSides && isEqual(conjunct);
            String sql = condition(conjunct, comparesSides);
            // Without CASE, DuckDB might join by this condition first, although most pairs of rows may satisfy it.
            conjuncts.add(isEqual(conjunct) || !comparesSides || hasEquiJoin(join, conjunct) ? sql : "(CASE WHEN " + sql + " THEN TRUE ELSE FALSE END)");
        }
        if (!hasEqualityOrSingleRow) {
            throw new Declined("a join without an equality condition");
        }
        return conjuncts;
    }

    /** Whether an equality also joins the two inputs whose rows a condition compares. */
    private static boolean hasEquiJoin(Join join, Expression condition) {
        for (Expression conjunct : Catalyst.conjuncts(join.condition())) {
            if (isEqual(conjunct) && referencedInputs(join, conjunct).equals(referencedInputs(join, condition))) {
                return true;
            }
        }
        return false;
    }

    /** Returns the inputs of a tree of inner joins whose columns a condition uses. */
    private static Set<Object> referencedInputs(LogicalPlan plan, Expression condition) {
        boolean isPassedThrough = plan instanceof Join && isInner((Join) plan) || !NativeQuery.isScan(plan)
                && (plan instanceof Filter || Catalyst.isPruning(plan));
        Set<Object> inputs = new HashSet<>();
        for (Object child : isPassedThrough ? Catalyst.each(plan.children()) : new ArrayList<Object>()) {
            inputs.addAll(referencedInputs((LogicalPlan) child, condition));
        }
        if (!isPassedThrough && !condition.references().intersect(plan.outputSet()).isEmpty()) {
            inputs.add(plan);
        }
        return inputs;
    }

    /** Returns an outer, semi, anti or existence join of the rows of two queries. */
    static String of(Join join, String left, String right) throws Declined {
        NativeSql.checkSides(join.left().output(), join.right().output());
        List<?> conditions = Catalyst.conjuncts(join.condition());
        if (join.joinType().toString().equals("LeftAnti") && conditions.size() == 1 && isNotIn((Expression) conditions.get(0))) {
            return notIn(join, Catalyst.first((Expression) conditions.get(0)), left, right);
        }
        boolean hasEquality = false;
        StringBuilder sql = new StringBuilder();
        for (Object conjunct : conditions) {
            if (!comparesSides(join, (Expression) conjunct)) {
                throw new Declined("a condition of an outer join that does not compare its sides");
            }
            hasEquality |= isEqual(conjunct);
            sql.append(sql.length() == 0 ? "" : " AND ").append(condition((Expression) conjunct, true));
        }
        if (!hasEquality) {
            throw new Declined("a join without an equality condition");
        }
        if (join.joinType() instanceof ExistenceJoin) {
            String name = NativeSql.column((AttributeReference) ((ExistenceJoin) join.joinType()).exists());
            return "SELECT l.*, EXISTS (SELECT 1 FROM (" + right + ") AS r WHERE " + sql + ") AS " + name + " FROM (" + left + ") AS l";
        }
        return "SELECT * FROM (" + left + ") AS l " + keywords(join.joinType().toString()) + " (" + right + ") AS r ON " + sql;
    }

    /** Whether a condition compares a value of one side with a value of the other side, including `<>`. */
    private static boolean comparesSides(Join join, Expression condition) {
        return NativeJoin.comparesSides(condition, join.left().outputSet(), join.right().outputSet());
    }

    private static boolean isEqual(Object condition) {
        return condition instanceof EqualTo || condition instanceof EqualNullSafe;
    }

    private static String notIn(Join join, Expression equality, String left, String right) throws Declined {
        Expression first = Catalyst.first(equality);
        NativeSql.checkKeys(first, Catalyst.last(equality));
        boolean isFirstOnLeft = first.references().subsetOf(join.left().outputSet());
        String value = NativeSql.of(isFirstOnLeft ? first : Catalyst.last(equality));
        String list = NativeSql.of(isFirstOnLeft ? Catalyst.last(equality) : first);
        return "SELECT * FROM (" + left + ") WHERE " + value + " NOT IN (SELECT " + list + " FROM (" + right + "))";
    }

    /** Whether an anti join's condition is that of NOT IN: two values are equal, or the comparison is null. */
    private static boolean isNotIn(Expression condition) {
        Expression nullTest = condition instanceof Or ? Catalyst.last(condition) : condition;
        return condition instanceof Or && Catalyst.first(condition) instanceof EqualTo && nullTest instanceof IsNull
                && Catalyst.first(nullTest).semanticEquals(Catalyst.first(condition));
    }

    private static String condition(Expression expression, boolean comparesSides) throws Declined {
        List<?> operands = Catalyst.each(expression.children());
        if (expression instanceof EqualTo && comparesSides) {
            return NativeSql.equal((Expression) operands.get(0), (Expression) operands.get(1));
        }
        if (expression instanceof Not && comparesSides) { // unlike NOT (a = b), a <> b is evaluated only for equal keys
            List<?> sides = Catalyst.each(((Not) expression).child().children());
            NativeSql.checkKeys((Expression) sides.get(0), (Expression) sides.get(1));
            return "(" + NativeSql.of((Expression) sides.get(0)) + " <> " + NativeSql.of((Expression) sides.get(1)) + ")";
        }
        return NativeSql.condition(expression);
    }

    /** Returns DuckDB's keywords of an outer, semi or anti join. */
    static String keywords(String joinType) throws Declined {
        if (joinType.equals("LeftOuter") || joinType.equals("RightOuter") || joinType.equals("FullOuter")) {
            return joinType.substring(0, joinType.indexOf("Outer")).toUpperCase(java.util.Locale.ROOT) + " JOIN";
        }
        if (joinType.equals("LeftSemi") || joinType.equals("LeftAnti")) {
            return joinType.equals("LeftSemi") ? "SEMI JOIN" : "ANTI JOIN";
        }
        throw new Declined("a join of the kind " + joinType);
    }
}
