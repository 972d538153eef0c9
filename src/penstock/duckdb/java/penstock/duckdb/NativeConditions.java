package penstock.duckdb;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BinaryArithmetic;
import org.apache.spark.sql.catalyst.expressions.BinaryComparison;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.EqualNullSafe;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.Like;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Or;

import penstock.duckdb.dialect.Declined;
import penstock.plans.Catalyst;
import penstock.plans.ExpressionSafety;
import penstock.plans.PatternSafety;

/** Conditions in DuckDB's SQL that may fail, and LIKE; see `NativeSql.condition` for conditions that must not fail. */
final class NativeConditions {
    /** Returns the condition of a CASE, which DuckDB evaluates for the same rows as Spark. */
    static String of(Expression condition) throws Declined {
        check(condition);
        return NativeSql.of(condition);
    }

    /**
     * Checks that DuckDB raises every error of a condition.
     *
     * DuckDB may evaluate the operands of AND and OR in another order, and skip some: it evaluates nothing of x OR TRUE.
     * So if an operand may fail, all must fail for the same rows, as in a - b > 30 AND a - b < 60. A comparison is
     * skipped only if statistics decide it. A value that may overflow has none, so its comparison is always evaluated.
     */
    static void check(Expression condition) throws Declined {
        if (!ExpressionSafety.cannotFail(NativeResults.withoutSubqueries(condition)) && failingSubexpressions(condition) == null) {
            throw new Declined("a condition that may fail");
        }
    }

    /** Returns a condition without IS NOT NULL of values that another conjunct compares, as comparing drops nulls. */
    static Expression withoutRedundantNotNull(Expression condition) {
        List<Expression> conjuncts = new ArrayList<>();
        Catalyst.addConjuncts(condition, conjuncts);
        Expression remaining = null;
        for (Expression conjunct : conjuncts) {
            boolean isNeeded = true;
            for (Expression other : conjuncts) {
                isNeeded = isNeeded && !(conjunct instanceof IsNotNull && other instanceof BinaryComparison && isNullIf(other, Catalyst.first(conjunct)));
            }
            if (isNeeded) {
                remaining = remaining == null ? conjunct : new And(remaining, conjunct);
            }
        }
        return remaining;
    }

    /** Whether a value is null for every row whose column is null. */
    private static boolean isNullIf(Expression value, Expression column) {
        if (value.semanticEquals(column)) {
            return column instanceof AttributeReference;
        }
        boolean compares = value instanceof BinaryComparison && !(value instanceof EqualNullSafe);
        boolean propagatesNulls = compares || value instanceof BinaryArithmetic || value instanceof Cast;
        for (Object child : propagatesNulls ? Catalyst.each(value.children()) : new ArrayList<Object>()) {
            if (isNullIf((Expression) child, column)) {
                return true;
            }
        }
        return false;
    }

    /** Returns the subexpressions that may fail; null if none, if operands differ in them, or if DuckDB skips some. */
    private static Set<Object> failingSubexpressions(Expression condition) {
        if (condition instanceof And || condition instanceof Or) {
            Set<Object> left = failingSubexpressions(Catalyst.first(condition));
            Set<Object> right = failingSubexpressions(Catalyst.last(condition));
            return left != null && left.equals(right) ? left : null;
        }
        if (!(condition instanceof BinaryComparison)) {
            return null;
        }
        Set<Object> subexpressions = new HashSet<>();
        return addFailing(Catalyst.first(condition), subexpressions) && addFailing(Catalyst.last(condition), subexpressions) && !subexpressions.isEmpty() ? subexpressions : null;
    }

    /** Adds the subexpressions of a value that may fail; returns whether each is evaluated for every row. */
    private static boolean addFailing(Expression value, Set<Object> subexpressions) {
        if (ExpressionSafety.cannotFail(NativeResults.withoutSubqueries(value))) {
            return true;
        }
        if (!(value instanceof BinaryArithmetic) && !(value instanceof Cast)) {
            return false;
        }
        subexpressions.add(value.canonicalized());
        boolean isEvaluated = true;
        for (Expression child : Catalyst.each(value.children())) {
            isEvaluated = isEvaluated && addFailing(child, subexpressions);
        }
        return isEvaluated;
    }

    static String like(Like like) throws Declined {
        if (!(like.right() instanceof Literal) || ((Literal) like.right()).value() == null) {
            throw new Declined("a pattern that is not constant");
        }
        if (!PatternSafety.hasValidPattern(like)) { // an error in Spark
            throw new Declined("a pattern with an invalid escape");
        }
        String pattern = ((Literal) like.right()).value().toString();
        String escape = String.valueOf(like.escapeChar());
        return "(" + NativeSql.of(like.left()) + " LIKE " + NativeTypes.literal(pattern, like.right().dataType())
                + (pattern.contains(escape) ? " ESCAPE " + NativeTypes.literal(escape, like.right().dataType()) : "") + ")";
    }
}
